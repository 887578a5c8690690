//! An open device, shared by everything that was made of it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use et::executor::{DeviceExecutor, ExecutorConfig, Place};
use et::{AnyHal, Device};
use pyo3::prelude::*;

use crate::apart;
use crate::error::{self, Raise};
use crate::life::{self, Born};
use crate::signature::Signature;
use crate::stream::Stream;

/// Closed when the last handle is gone, or before.
pub(crate) struct Card {
    pub(crate) born: Born,
    pub(crate) locator: String,
    /// `None` while it is reset, and when it is closed.
    device: RwLock<Option<Device<AnyHal>>>,
    /// Of who takes the device out.
    turn: Mutex<()>,
    kept: Mutex<Kept>,
}

/// What is closed with the device, or is of no use after a reset.
#[derive(Default)]
struct Kept {
    executors: Vec<Weak<Crew>>,
    /// That of graphs that are launched without one.
    default: Option<Arc<Crew>>,
    /// Kernels that functions of Python have loaded, by the numbers of these.
    kernels: HashMap<u64, Loaded>,
}

/// A kernel and what it takes.
pub(crate) type Loaded = (et::Kernel, Option<Signature>);

/// An executor.
pub(crate) struct Crew {
    /// `None` when it is closed, or about to be.
    executor: RwLock<Option<DeviceExecutor<AnyHal>>>,
    /// Of who closes it.
    turn: Mutex<()>,
}

static CARDS: Mutex<Vec<Weak<Card>>> = Mutex::new(Vec::new());

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("locator", &self.locator).finish_non_exhaustive()
    }
}

impl Card {
    /// Keeps a device; none if the interpreter ends.
    pub(crate) fn new(locator: String, device: Device<AnyHal>) -> Option<Arc<Self>> {
        let card = Arc::new(Self {
            born: Born::now(),
            locator,
            device: RwLock::new(Some(device)),
            turn: Mutex::default(),
            kept: Mutex::default(),
        });
        let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
        cards.retain(|card| card.strong_count() != 0);
        cards.push(Arc::downgrade(&card));
        drop(cards);
        (!life::is_ending()).then_some(card)
    }

    /// Calls `with` with the device, without the interpreter. `with` must not need it.
    pub(crate) fn with<R: Send, E: Raise + Send>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&Device<AnyHal>) -> Result<R, E> + Send,
    ) -> PyResult<R> {
        self.born.check()?;
        let result = py.detach(|| {
            let device = self.device.read().unwrap_or_else(PoisonError::into_inner);
            device.as_ref().map(with)
        });
        match result {
            Some(result) => result.map_err(Raise::raise),
            None => Err(self.closed()),
        }
    }

    /// As [`with`](Self::with), for what takes longer than a user may want to wait: it goes on if a
    /// Ctrl-C ends the wait.
    pub(crate) fn with_apart<R: Send + 'static, E: Raise + Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        with: impl FnOnce(&Device<AnyHal>) -> Result<R, E> + Send + 'static,
    ) -> PyResult<R> {
        self.born.check()?;
        let card = Arc::clone(self);
        let result = apart::work(py, move || {
            let device = card.device.read().unwrap_or_else(PoisonError::into_inner);
            device.as_ref().map(with)
        })?;
        result.ok_or_else(|| self.closed())?.map_err(Raise::raise)
    }

    fn closed(&self) -> PyErr {
        et::Error::closed("using the device").on(&*self.locator).raise()
    }

    /// As [`with`](Self::with), for what takes no time.
    pub(crate) fn look<R>(&self, with: impl FnOnce(&Device<AnyHal>) -> R) -> PyResult<R> {
        self.born.check()?;
        // Held for writing only while a device is taken out or put back.
        let device = self.device.read().unwrap_or_else(PoisonError::into_inner);
        device.as_ref().map(with).ok_or_else(|| self.closed())
    }

    /// Returns a stream: the one that is named, or the device's own.
    pub(crate) fn stream(&self, named: Option<&Stream>) -> PyResult<et::Stream<AnyHal>> {
        match named {
            Some(stream) => Ok(stream.get()?.clone()),
            None => self.look(|device| device.default_stream().clone()),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.device.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn take(&self) -> Option<Device<AnyHal>> {
        self.device.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Closes it, once a reset or another close has ended. The caller must not hold the
    /// interpreter, which host functions may need to end.
    pub(crate) fn close(&self) {
        if self.born.is_foreign() {
            return;
        }
        let Some(_turn) = apart::turn(&self.turn) else { return };
        self.drop_kept();
        if let Some(device) = self.take() {
            device.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes executors, and forgets kernels.
    pub(crate) fn drop_kept(&self) {
        let kept = std::mem::take(&mut *self.lock());
        kept.executors.iter().filter_map(Weak::upgrade).for_each(|crew| crew.close());
    }

    /// Returns a kernel that was kept.
    pub(crate) fn kernel(&self, number: u64) -> PyResult<Option<Loaded>> {
        self.born.check()?;
        Ok(self.lock().kernels.get(&number).cloned())
    }

    /// Keeps a kernel for the next time.
    pub(crate) fn keep(&self, number: u64, loaded: Loaded) {
        self.lock().kernels.insert(number, loaded);
    }

    /// Calls `before`, and then `with` with the device, which others find closed meanwhile. Both
    /// are without the interpreter, and go on if a Ctrl-C ends the wait for them.
    pub(crate) fn own<R: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        op: &'static str,
        before: fn(&Self),
        with: impl FnOnce(&Self, &mut Device<AnyHal>) -> R + Send + 'static,
    ) -> PyResult<R> {
        self.born.check()?;
        let card = Arc::clone(self);
        let result = apart::work(py, move || {
            let _turn = apart::turn(&card.turn)?;
            before(&card);
            let mut device = card.take()?;
            let result = with(&card, &mut device);
            *card.device.write().unwrap_or_else(PoisonError::into_inner) = Some(device);
            Some(result)
        })?;
        result.ok_or_else(|| et::Error::closed(op).on(&*self.locator).raise())
    }

    /// Makes an executor.
    pub(crate) fn executor(&self, py: Python<'_>, config: &ExecutorConfig) -> PyResult<Arc<Crew>> {
        let made = self.with(py, |device| device.executor(config))?;
        let crew = Crew { executor: RwLock::new(Some(made)), turn: Mutex::default() };
        let crew = Arc::new(crew);
        let mut kept = self.lock();
        kept.executors.retain(|crew| crew.strong_count() != 0);
        kept.executors.push(Arc::downgrade(&crew));
        drop(kept);
        Ok(crew)
    }

    /// Returns the executor of graphs that are launched without one.
    pub(crate) fn default_executor(&self, py: Python<'_>) -> PyResult<Arc<Crew>> {
        if let Some(crew) = &self.lock().default {
            return Ok(Arc::clone(crew));
        }
        let made = self.executor(py, &ExecutorConfig::new())?;
        Ok(Arc::clone(self.lock().default.get_or_insert(made)))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        if self.born.is_foreign() {
            // Its threads and locks are the parent's.
            std::mem::forget(self.take());
            std::mem::forget(std::mem::take(&mut self.kept));
            return;
        }
        without_interpreter(|| self.close());
    }
}

impl Crew {
    /// Calls `with` with the executor, without the interpreter.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&DeviceExecutor<AnyHal>) -> Result<R, et::executor::RunError> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| {
            let executor = self.executor.read().unwrap_or_else(PoisonError::into_inner);
            executor.as_ref().map(with)
        });
        let closed = || error::raise("ClosedError", "the executor is closed");
        result.ok_or_else(closed)?.map_err(Raise::raise)
    }

    /// Where it runs kernels; `None` when it is closed.
    pub(crate) fn place(&self) -> Option<Place> {
        // Held for writing only while the executor is taken out.
        let executor = self.executor.read().unwrap_or_else(PoisonError::into_inner);
        executor.as_ref().map(DeviceExecutor::place)
    }

    /// Closes it, once another close has ended. The caller must not hold the interpreter.
    pub(crate) fn close(&self) {
        let Some(_turn) = apart::turn(&self.turn) else { return };
        let taken = self.executor.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(taken);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        without_interpreter(|| self.close());
    }
}

/// Does what may wait for threads that need the interpreter. Whoever drops the last handle holds
/// it, or there is none any more.
fn without_interpreter(what: impl Fn() + Sync) {
    let what = &what;
    if Python::try_attach(|py| py.detach(what)).is_none() {
        what();
    }
}

/// Closes all devices. The caller must not hold the interpreter.
pub(crate) fn close_all() {
    let cards = {
        let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *cards)
    };
    for card in cards.iter().filter_map(Weak::upgrade) {
        card.close();
    }
}
