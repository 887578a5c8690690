//! Kernel files on the device.

use std::collections::HashMap;
use std::sync::Weak;
use std::time::Duration;

use crate::Result;
use crate::event::Event;
use crate::memory::DeviceSlice;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, lock};

/// The bytes of a kernel file in device memory, or on their way there.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) code: DeviceSlice,
    pub(crate) elf: Arc<[u8]>,
    copy: Arc<Copy>,
    /// How long the copy may take if someone has to wait for it.
    patience: Duration,
}

/// How the copy of an image goes; apart from it, so that what waits for the end of the copy does
/// not keep its memory.
#[derive(Debug)]
struct Copy {
    is_done: AtomicBool,
    state: Mutex<Loading>,
}

#[derive(Debug)]
enum Loading {
    Runs(Event),
    Ended(Result<()>),
}

impl Image {
    /// `event` is that of the copy to `code`.
    pub(crate) fn new(
        code: DeviceSlice,
        elf: Arc<[u8]>,
        event: &Event,
        patience: Duration,
    ) -> Arc<Self> {
        let state = Mutex::new(Loading::Runs(event.clone()));
        let copy = Arc::new(Copy { is_done: AtomicBool::new(false), state });
        let its = Arc::clone(&copy);
        event.on_done_first(move |outcome| {
            its.settle(outcome.as_ref().map(drop).map_err(Clone::clone));
        });
        Arc::new(Self { code, elf, copy, patience })
    }

    /// Returns the event of the copy that launches have to wait for, if it has not ended.
    ///
    /// # Errors
    /// The failure of the copy.
    #[inline]
    pub(crate) fn pending(&self) -> Result<Option<Event>> {
        if self.copy.is_done.load(Ordering::Relaxed) { Ok(None) } else { self.look() }
    }

    #[cold]
    fn look(&self) -> Result<Option<Event>> {
        match &*lock(&self.copy.state) {
            Loading::Runs(event) => Ok(Some(event.clone())),
            Loading::Ended(outcome) => outcome.clone().map(|()| None),
        }
    }

    /// Waits until it is on the device.
    pub(crate) fn wait(&self) -> Result<()> {
        self.pending()?.map_or(Ok(()), |event| event.wait(self.patience).map(drop))
    }
}

impl Copy {
    fn settle(&self, outcome: Result<()>) {
        let is_done = outcome.is_ok();
        let before = std::mem::replace(&mut *lock(&self.state), Loading::Ended(outcome));
        // Relaxed: whoever reads it sends a command, which is behind the copy in any case.
        self.is_done.store(is_done, Ordering::Relaxed);
        drop(before);
    }
}

/// Images that are on the device, by what is in their files.
///
/// Only of files with nothing to write: two kernels that have variables must not share them.
#[derive(Debug, Default)]
pub(crate) struct Images(Mutex<HashMap<Arc<[u8]>, Weak<Image>>>);

impl Images {
    pub(crate) fn find(&self, elf: &[u8]) -> Option<Arc<Image>> {
        let image = lock(&self.0).get(elf)?.upgrade()?;
        image.pending().is_ok().then_some(image)
    }

    pub(crate) fn insert(&self, image: &Arc<Image>) {
        let mut images = lock(&self.0);
        images.retain(|_, image| image.strong_count() != 0);
        images.insert(Arc::clone(&image.elf), Arc::downgrade(image));
    }
}
