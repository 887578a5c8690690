use core::cell::Cell;
use core::convert::Infallible;

use super::*;

/// One thread's memory.
#[derive(Default)]
struct Plain([Cell<u64>; CELL_WORDS]);

impl Words for Plain {
    type Error = Infallible;
    fn load(&self, word: usize) -> Result<u64, Infallible> {
        Ok(self.0[word].get())
    }
    fn load_acquire(&self, word: usize) -> Result<u64, Infallible> {
        self.load(word)
    }
    fn store(&self, word: usize, value: u64) -> Result<(), Infallible> {
        self.0[word].set(value);
        Ok(())
    }
    fn store_release(&self, word: usize, value: u64) -> Result<(), Infallible> {
        self.store(word, value)
    }
    fn fence(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn started(after: u32) -> (Plain, Scheduler, Worker) {
    let (cell, mut scheduler, worker) =
        (Plain::default(), Scheduler::after(after), Worker::after(after));
    cell.0[DISPATCH].set(after.into());
    cell.0[STATUS].set(after.into());
    assert_eq!(scheduler.open(&cell), Ok(None), "no one is there yet");
    worker.announce(&cell, 42).unwrap();
    assert_eq!(worker.next(&cell), Ok(Next::Nothing), "the cell is closed");
    assert_eq!(scheduler.open(&cell), Ok(Some(42)));
    (cell, scheduler, worker)
}

fn assignment(number: u64) -> Assignment {
    Assignment { task: number, arg: !number }
}

#[test]
fn two_tasks_deep_across_the_wrap() {
    for after in [0, 1, u32::MAX - 3, u32::MAX] {
        let (cell, mut scheduler, mut worker) = started(after);
        for round in 0..8 {
            let (first, second) = (assignment(2 * round), assignment(2 * round + 1));
            scheduler.dispatch(&cell, first).unwrap();
            let staged = scheduler.dispatch(&cell, second).unwrap();
            let full = HandshakeError::Full { first: staged.wrapping_sub(1), second: staged };
            assert_eq!(scheduler.dispatch(&cell, first), Err(full));
            for (expected, outcome) in [(first, 7), (second, 0)] {
                assert_eq!(worker.next(&cell), Ok(Next::Task(expected)));
                worker.set_times(&cell, round, round + 1).unwrap();
                worker.complete(&cell, outcome).unwrap();
            }
            assert_eq!(worker.next(&cell), Ok(Next::Nothing));
            let sequence = staged.wrapping_sub(1);
            assert_eq!(scheduler.poll(&cell), Ok(Some(Finished { sequence, outcome: 7 })));
            assert_eq!(scheduler.times(&cell, sequence), Ok((round, round + 1)));
            assert_eq!(scheduler.poll(&cell), Ok(Some(Finished { sequence: staged, outcome: 0 })));
            assert_eq!(scheduler.poll(&cell), Ok(None));
        }
    }
}

#[test]
fn quit_completes_what_is_staged_and_abort_does_not() {
    for outstanding in 0..=2 {
        for abort in [false, true] {
            let (cell, mut scheduler, mut worker) = started(u32::MAX);
            for number in 0..outstanding {
                scheduler.dispatch(&cell, assignment(number)).unwrap();
            }
            if abort { scheduler.abort(&cell) } else { scheduler.quit(&cell) }.unwrap();
            assert_eq!(scheduler.dispatch(&cell, assignment(9)), Err(HandshakeError::Leaving));
            let mut completed = 0;
            while let Next::Task(task) = worker.next(&cell).unwrap() {
                assert_eq!(task, assignment(completed));
                worker.complete(&cell, 0).unwrap();
                completed += 1;
            }
            assert_eq!(worker.next(&cell), Ok(Next::Leave));
            worker.exit(&cell).unwrap();
            assert_eq!(completed, if abort { 0 } else { outstanding });
            while scheduler.poll(&cell).unwrap().is_some() {}
            assert_eq!(u64::from(scheduler.outstanding()), outstanding - completed);
            assert_eq!(scheduler.status(&cell).unwrap().state, WorkerState::Exited);
        }
    }
}

#[test]
fn a_parked_worker_is_to_be_woken_and_does_not_park_on_work() {
    let (cell, mut scheduler, worker) = started(0);
    assert_eq!(worker.park(&cell), Ok(true));
    scheduler.dispatch(&cell, assignment(1)).unwrap();
    assert_eq!(scheduler.must_wake(&cell), Ok(true));
    worker.unpark(&cell).unwrap();
    assert_eq!(scheduler.must_wake(&cell), Ok(false));
    assert_eq!(worker.park(&cell), Ok(false));
}

#[test]
fn a_cell_that_lies_is_corrupt() {
    let (cell, mut scheduler, _) = started(5);
    scheduler.dispatch(&cell, assignment(0)).unwrap();
    for status in [word(1, 7), word(1, 4), word(4, 5), u64::MAX] {
        cell.0[STATUS].set(status);
        let corrupt = HandshakeError::Corrupt { status, done: 5, sent: 6 };
        assert_eq!(scheduler.poll(&cell), Err(corrupt));
    }
}
