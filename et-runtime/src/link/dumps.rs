//! Failed launches that wait for their core files, which `core_dump/writer.rs` writes.

use std::collections::VecDeque;
use std::path::Path;

use et_hal::Hal;

use super::core::HeldOp;
use super::{DeviceError, Link, OpName, StreamError};
use crate::core_dump::CoreWriteError;
use crate::kernel::LaunchFailure;
use crate::sync::{Arc, Condvar, Mutex, Ordering, lock, thread, wait};
use crate::{Error, Result};

/// A failed launch that has not ended.
pub(crate) struct Order {
    pub(crate) failure: LaunchFailure,
    pub(crate) path: Arc<Path>,
    op: HeldOp,
}

#[derive(Default)]
struct Orders {
    waiting: VecDeque<Order>,
    /// Present from the first launch that may need it.
    writer: Option<thread::JoinHandle<()>>,
    /// The writer takes no orders any more.
    is_over: bool,
}

/// What the writer has to do.
#[derive(Default)]
pub(super) struct Dumps {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl<H: Hal> Link<H> {
    /// Has `start` start the thread that writes core files, unless it is there.
    pub(crate) fn start_writer(
        &self,
        start: impl FnOnce() -> Result<thread::JoinHandle<()>>,
    ) -> Result<()> {
        let mut orders = lock(&self.dumps.orders);
        if orders.writer.is_none() && !orders.is_over {
            orders.writer = Some(start()?);
        }
        Ok(())
    }

    /// Ends a launch with its report, after its core file if it wants one.
    pub(super) fn conclude(&self, failure: LaunchFailure, op: HeldOp) {
        let Some(path) = failure.scene.core_path.clone() else {
            return self.fail_launch(failure, op);
        };
        let order = Order { failure, path, op };
        let mut orders = lock(&self.dumps.orders);
        if orders.is_over {
            drop(orders);
            let why = CoreWriteError::Closed;
            self.report_core(&order, why);
            return self.end_order(order);
        }
        orders.waiting.push_back(order);
        self.dumps.changed.notify_all();
    }

    /// Ends a launch whose file is written, or will not be.
    pub(crate) fn end_order(&self, order: Order) {
        self.fail_launch(order.failure, order.op);
    }

    /// Ends a launch, and logs why: the operation may have no one who asks.
    fn fail_launch(&self, failure: LaunchFailure, op: HeldOp) {
        let (kernel, harts) = (failure.kernel(), failure.contexts.len());
        let (device, status) = (&*self.name, failure.status);
        tracing::debug!(device, kernel, harts, %status, why = %failure, "launch failed");
        let error = Error::Launch(Arc::new(failure));
        self.enter_quietly(|core, now| core.release(op, Err(error), now));
    }

    /// Waits for an order; `None` when there will be no more.
    pub(crate) fn next_order(&self) -> Option<Order> {
        let mut orders = lock(&self.dumps.orders);
        loop {
            if let Some(order) = orders.waiting.pop_front() {
                return Some(order);
            }
            if self.is_closed.load(Ordering::Acquire) {
                orders.is_over = true;
                return None;
            }
            orders = wait(&self.dumps.changed, orders);
        }
    }

    /// Lists what is not in the file of an order.
    pub(crate) fn report_core(&self, order: &Order, error: CoreWriteError) {
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
        let writer = lock(&self.dumps.orders).writer.take();
        // Behind the lock: the writer waits, or has yet to look whether the link is closed.
        self.dumps.changed.notify_all();
        // A callback that it runs may close the device.
        let writer = writer.filter(|writer| writer.thread().id() != thread::current().id());
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the thread for core files panicked");
        }
    }
}
