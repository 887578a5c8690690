//! Which worker gets which ready task.

use std::sync::Arc;

use super::super::TaskState;
use super::super::driver::Pool;
use super::super::port::{Offer, Unit};
use super::super::workers::WorkerSlot;
use super::{Engine, Starting};

impl Engine {
    /// Hands ready tasks to host workers.
    pub(super) fn hand_out(&mut self, pool: &Pool) -> bool {
        let mut progress = false;
        while let Some(&(slot, task)) = self.ready.host.front() {
            let Some(number) = self.number_of_ready(slot, task) else {
                self.ready.host.pop_front();
                continue;
            };
            let Some(worker) = self.place(pool) else { break };
            self.ready.host.pop_front();
            self.dispatch(worker, slot, task, number);
            progress = true;
        }
        if !self.ready.pinned.is_empty() {
            progress |= self.hand_out_pinned(pool);
        }
        for worker in self.woken.drain(..) {
            self.workers[worker as usize].wake();
        }
        progress
    }

    /// The number of the run of a ready task; `None` if it is not ready any more.
    fn number_of_ready(&self, slot: u32, task: u32) -> Option<u64> {
        let exec = self.execs[slot as usize].as_ref()?;
        let in_graph = (task as usize) < exec.run.states.len();
        (in_graph && exec.run.state(task) == TaskState::Ready).then_some(exec.run.number)
    }

    /// Finds a worker for a task: the idle one used last if one more may be in use, else one that has a single task.
    ///
    /// A task is staged behind another one only if tasks are short, or if there is no other worker at all: it cannot be taken
    /// back, and who knows how long the one before it takes.
    fn place(&mut self, pool: &Pool) -> Option<u32> {
        if self.busy.len() < self.width {
            if let Some(worker) = self.idle.pop() {
                self.busy.push(worker);
                return Some(worker);
            }
            if self.busy.len() + self.starting.len() < self.width {
                self.start_worker(pool);
            }
        }
        if !self.pace.is_short() && self.busy.len() < self.limit as usize {
            return None;
        }
        self.busy.iter().copied().find(|&worker| self.workers[worker as usize].outstanding() == 1)
    }

    /// Starts a thread, unless there are enough.
    fn start_worker(&mut self, pool: &Pool) {
        let in_use = self.workers.len() - self.lost.len();
        let index = match self.free_lost() {
            Some(worker) => worker,
            None if in_use < self.limit as usize => self.workers.len() as u32,
            None => return,
        };
        match WorkerSlot::start(&self.pool, &self.name, index, self.spins) {
            Ok(slot) => {
                if let Some(place) = self.workers.get_mut(index as usize) {
                    *place = slot;
                } else {
                    self.workers.push(slot);
                    self.spans.push([u32::MAX; 2]);
                }
                self.starting.push(Starting { worker: index, since: pool.clock.now() });
            }
            Err(error) => tracing::warn!(%error, "no thread for a worker"),
        }
    }

    /// The index of a worker that was given up and has left at last.
    fn free_lost(&mut self) -> Option<u32> {
        let at = self.lost.iter().position(|&w| self.workers[w as usize].has_left())?;
        let worker = self.lost.swap_remove(at);
        self.workers[worker as usize].join();
        Some(worker)
    }

    fn dispatch(&mut self, worker: u32, slot: u32, task: u32, number: u64) {
        let host = &mut self.workers[worker as usize];
        let is_staged = host.outstanding() != 0;
        let Some(parity) = host.dispatch(slot, task, number) else {
            debug_assert!(false, "a worker without room was chosen");
            return;
        };
        if !self.woken.contains(&worker) {
            self.woken.push(worker);
        }
        if let Some(exec) = &mut self.execs[slot as usize] {
            exec.progress.hand_over(&*exec.run, task, is_staged);
            if let Some(recorder) = &mut exec.recorder {
                self.spans[worker as usize][parity] = recorder.start(task, worker);
            }
        }
    }

    /// Tasks that may run on some workers only wait for these, whatever the width.
    fn hand_out_pinned(&mut self, pool: &Pool) -> bool {
        let mut progress = false;
        let mut at = 0;
        while let Some(&(slot, task)) = self.ready.pinned.get(at) {
            let number = self.number_of_ready(slot, task);
            let run = self.execs[slot as usize].as_ref().map(|exec| Arc::clone(&exec.run));
            let cores = run.as_ref().and_then(|run| run.graph.view().core_set(task));
            let (Some(number), Some(cores)) = (number, cores) else {
                self.ready.pinned.swap_remove(at);
                continue;
            };
            // Workers are started in order, so all up to the first allowed one must exist.
            let wanted = cores.iter().next().unwrap_or(0) as usize;
            while self.workers.len() <= wanted && self.workers.len() < self.limit as usize {
                let before = self.workers.len();
                self.start_worker(pool);
                if self.workers.len() == before {
                    break;
                }
            }
            let idle = self.idle.iter().rposition(|&worker| cores.contains(worker));
            let worker = match idle {
                Some(place) => {
                    let worker = self.idle.remove(place);
                    self.busy.push(worker);
                    Some(worker)
                }
                None => self.busy.iter().copied().find(|&worker| {
                    cores.contains(worker) && self.workers[worker as usize].outstanding() == 1
                }),
            };
            match worker {
                Some(worker) => {
                    self.ready.pinned.swap_remove(at);
                    self.dispatch(worker, slot, task, number);
                    progress = true;
                }
                None => at += 1,
            }
        }
        progress
    }

    /// Offers ready tasks to the device.
    pub(super) fn offer(&mut self, pool: &Pool) -> bool {
        let mut progress = false;
        while let Some(&(slot, task)) = self.ready.device.front() {
            if self.number_of_ready(slot, task).is_none() {
                self.ready.device.pop_front();
                continue;
            }
            let (Some(exec), Some(port)) = (&mut self.execs[slot as usize], &mut self.port) else {
                self.ready.device.pop_front();
                continue;
            };
            match port.offer(&Unit { run: &exec.run, task }) {
                Ok(Offer::Full) => break,
                Ok(Offer::Taken { worker, is_staged }) => {
                    exec.progress.hand_over(&*exec.run, task, is_staged);
                    if let Some(recorder) = &mut exec.recorder {
                        exec.on_device.insert(task, recorder.start(task, worker));
                    }
                }
                Err(failure) => {
                    exec.fail(task, failure);
                    self.conclude_if_done(slot, pool);
                }
            }
            self.ready.device.pop_front();
            progress = true;
        }
        progress
    }
}
