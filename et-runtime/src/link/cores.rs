//! Core files that launches have asked for, written by a thread that does nothing else.
//!
//! A launch that fails ends when its file is written, so whoever hears of the failure finds the
//! file. The thread holds no lock meanwhile, and reads device memory as everyone does.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::thread::JoinHandle;

use et_hal::Hal;

use super::answer::failed;
use super::core::HeldOp;
use super::{DeviceError, Link, OpName, StreamError};
use crate::core_dump::{CoreDump, CoreSummary, CoreWriteError};
use crate::kernel::LaunchFailure;
use crate::stream::Stream;
use crate::sync::{Arc, Condvar, Mutex, Ordering, lock, wait};
use crate::{Error, Result};

/// A failed launch that has not ended.
struct Order {
    failure: LaunchFailure,
    path: Arc<Path>,
    op: HeldOp,
}

#[derive(Default)]
struct Orders {
    waiting: VecDeque<Order>,
    /// Present from the first launch that may need it.
    writer: Option<JoinHandle<()>>,
    /// The writer takes no orders any more.
    is_over: bool,
}

/// What the writer has to do.
#[derive(Default)]
pub(super) struct Cores {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl<H: Hal> Link<H> {
    /// Starts the thread that writes core files, unless it is there.
    pub(crate) fn start_writer(self: &Arc<Self>) -> Result<()> {
        let mut orders = lock(&self.cores.orders);
        if orders.writer.is_none() && !orders.is_over {
            let link = Arc::clone(self);
            let builder = std::thread::Builder::new().name("et-core".into());
            let spawned = builder.spawn(move || link.write_cores());
            orders.writer = Some(spawned.map_err(|error| Error::Hal {
                op: "starting the thread for core files",
                kind: et_hal::ErrorKind::Exhausted(et_hal::Resource::Handles),
                source: Arc::new(error),
            })?);
        }
        Ok(())
    }

    /// Ends a launch with its report, after its core file if it wants one.
    pub(super) fn conclude(&self, failure: LaunchFailure, op: HeldOp) {
        let Some(path) = failure.scene.core_path.clone() else {
            return self.fail_launch(failure, op);
        };
        let order = Order { failure, path, op };
        let mut orders = lock(&self.cores.orders);
        if orders.is_over {
            drop(orders);
            let why = CoreWriteError::Closed;
            self.report_core(&order, why);
            return self.fail_launch(order.failure, order.op);
        }
        orders.waiting.push_back(order);
        self.cores.changed.notify_all();
    }

    fn fail_launch(&self, failure: LaunchFailure, op: HeldOp) {
        let error = failed(failure);
        self.enter(|core, now| core.release(op, Err(error), now));
    }

    /// Writes core files until the link is [closed](Self::close).
    fn write_cores(self: &Arc<Self>) {
        while let Some(mut order) = self.next_order() {
            let written = self.write_core(&order);
            if let Err(error) = &written {
                self.report_core(&order, CoreWriteError::File(Arc::clone(error)));
            }
            for region in written.iter().flat_map(|summary| &summary.regions) {
                if let Some(error) = region.error.clone() {
                    let region = region.name.clone();
                    self.report_core(&order, CoreWriteError::Region { region, error });
                }
            }
            order.failure.core_written(written.ok());
            self.fail_launch(order.failure, order.op);
        }
    }

    /// `None` when there will be no more.
    fn next_order(&self) -> Option<Order> {
        let mut orders = lock(&self.cores.orders);
        loop {
            if let Some(order) = orders.waiting.pop_front() {
                return Some(order);
            }
            if self.is_closed.load(Ordering::Acquire) {
                orders.is_over = true;
                return None;
            }
            orders = wait(&self.cores.changed, orders);
        }
    }

    fn write_core(self: &Arc<Self>, order: &Order) -> Result<CoreSummary, Arc<io::Error>> {
        let dump = CoreDump::new(&order.failure, Stream::new(self), self.config.command_timeout);
        Ok(dump.write(File::create(&order.path)?)?)
    }

    fn report_core(&self, order: &Order, error: CoreWriteError) {
        let path = Arc::clone(&order.path);
        let name = lock(&self.core).name_of(&order.op);
        let Some(OpName { id: operation, name, stream }) = name else {
            unreachable!("an operation that is held does not end")
        };
        let error = StreamError::NotDumped { operation, name, path, error };
        self.report(DeviceError::Stream { stream, error });
    }

    /// Waits until the writer has ended, which it does once the link is closed and what was ordered
    /// is written. A lost device is not read, so that takes as long as the files do.
    pub(crate) fn join_writer(&self) {
        let writer = lock(&self.cores.orders).writer.take();
        // Behind the lock: the writer waits, or has yet to look whether the link is closed.
        self.cores.changed.notify_all();
        // A callback that it runs may close the device.
        let writer = writer.filter(|writer| writer.thread().id() != std::thread::current().id());
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the thread for core files panicked");
        }
    }
}
