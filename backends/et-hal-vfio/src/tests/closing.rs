//! Memory while the device is being closed.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use et_hal::{DeviceAccess, Dma, ErrorKind, Hal, LossReason, ResetScope, Widths};

use super::{address, kernel, kind, options};
use crate::owner::Owner;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::sync::lock;
use crate::sys::fake::Fake;
use crate::sys::{Fd, Sys};
use crate::transport::{
    Addressing, DmaRequest, IrqIndex, Region, Transport, Vectors, open as open_transport,
};
use crate::{HugePages, Mode, VfioError, VfioHal};

const PAGE: usize = 4096;
/// Longer than any call of the fake kernel takes.
const MOMENT: Duration = Duration::from_millis(100);

/// A call that is held until the test lets it go on.
#[derive(Debug)]
struct Held {
    entered: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

/// The test's end of it.
struct Holder {
    entered: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

fn hold() -> (Held, Holder) {
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    (Held { entered, go_on: may_go_on }, Holder { entered: has_entered, go_on })
}

/// A transport whose next mapping or unmapping can be held.
#[derive(Debug)]
struct Gated {
    inner: Arc<dyn Transport>,
    map: Mutex<Option<Held>>,
    unmap: Mutex<Option<Held>>,
}

impl Gated {
    fn new(fake: &Arc<Fake>) -> Arc<Self> {
        let sys: Arc<dyn Sys> = Arc::clone(fake) as _;
        let inner = open_transport(&sys, &address("group"), &options()).unwrap();
        Arc::new(Self { inner, map: Mutex::default(), unmap: Mutex::default() })
    }

    fn pass(gate: &Mutex<Option<Held>>) {
        let held = lock(gate).take();
        if let Some(held) = held {
            held.entered.send(()).unwrap();
            held.go_on.recv().unwrap();
        }
    }
}

impl Transport for Gated {
    fn mode(&self) -> Mode {
        self.inner.mode()
    }
    fn interface(&self) -> String {
        self.inner.interface()
    }
    fn region(&self, index: u32) -> Result<Region, VfioError> {
        self.inner.region(index)
    }
    fn file(&self, region: &Region, at: u64) -> (Fd, u64) {
        self.inner.file(region, at)
    }
    fn read(&self, region: &Region, at: u64, into: &mut [u8]) -> Result<(), VfioError> {
        self.inner.read(region, at, into)
    }
    fn write(&self, region: &Region, at: u64, from: &[u8]) -> Result<(), VfioError> {
        self.inner.write(region, at, from)
    }
    fn unsplit_widths(&self) -> Widths {
        self.inner.unsplit_widths()
    }
    fn vectors(&self, index: IrqIndex) -> Result<u32, VfioError> {
        self.inner.vectors(index)
    }
    fn set_vectors(&self, index: IrqIndex, events: &[Fd]) -> Result<Vectors, VfioError> {
        self.inner.set_vectors(index, events)
    }
    fn disable_vectors(&self, index: IrqIndex) -> Result<(), VfioError> {
        self.inner.disable_vectors(index)
    }
    fn trigger(&self, index: IrqIndex, vector: u32) -> Result<(), VfioError> {
        self.inner.trigger(index, vector)
    }
    fn addressing(&self) -> Result<Addressing, VfioError> {
        self.inner.addressing()
    }
    fn map_dma(&self, request: &DmaRequest) -> Result<(), VfioError> {
        Self::pass(&self.map);
        self.inner.map_dma(request)
    }
    fn unmap_dma(&self, iova: u64, len: u64) -> Result<u64, VfioError> {
        Self::pass(&self.unmap);
        self.inner.unmap_dma(iova, len)
    }
    fn gone(&self) -> Option<Fd> {
        self.inner.gone()
    }
    fn can_reset(&self, scope: ResetScope) -> bool {
        self.inner.can_reset(scope)
    }
    fn reset(&self, scope: ResetScope) -> Result<(), VfioError> {
        self.inner.reset(scope)
    }
}

fn opened(fake: &Arc<Fake>) -> (Arc<Gated>, VfioHal) {
    let sys: Arc<dyn Sys> = Arc::clone(fake) as _;
    let gated = Gated::new(fake);
    let transport: Arc<dyn Transport> = Arc::clone(&gated) as _;
    let memory = (HugePages::Never, 64);
    let (name, owner) = ("card".into(), Owner::unknown());
    let hal = VfioHal::with_transport(&sys, transport, name, memory, &options(), owner, None);
    (gated, hal.unwrap())
}

/// A page of the test's own.
struct Page(NonNull<u8>);

impl Page {
    const SHAPE: Layout = match Layout::from_size_align(PAGE, PAGE) {
        Ok(shape) => shape,
        Err(_) => panic!("a page is aligned to itself"),
    };

    #[expect(unsafe_code, reason = "allocates whole pages")]
    fn new() -> Self {
        // SAFETY: the size is not 0.
        Self(NonNull::new(unsafe { alloc_zeroed(Self::SHAPE) }).unwrap())
    }

    #[expect(unsafe_code, reason = "imports memory of the test")]
    fn import(&self, hal: &VfioHal) -> crate::Imported {
        // SAFETY: the fake kernel only books the page, which outlives the import in these tests.
        unsafe { hal.dma().import(self.0, PAGE, DeviceAccess::ReadWrite) }.unwrap()
    }
}

impl Drop for Page {
    #[expect(unsafe_code, reason = "frees what `new` allocated")]
    fn drop(&mut self) {
        // SAFETY: allocated with this shape.
        unsafe { dealloc(self.0.as_ptr(), Self::SHAPE) };
    }
}

fn is_mapped(fake: &Fake, iova: u64) -> bool {
    fake.with(|state| state.iommu.pins.contains_key(&iova))
}

/// The closing thread is busy with another mapping when the import is dropped.
#[test]
fn an_import_that_is_dropped_during_close_is_unmapped_by_then() {
    let fake = kernel("group");
    let (gated, hal) = opened(&fake);
    let page = Page::new();
    let buffer = hal.dma().alloc(1 << 20, DeviceAccess::Read).unwrap();
    let import = page.import(&hal);
    let iova = import.bus_addr().as_u64();
    let (held, holder) = hold();
    *lock(&gated.unmap) = Some(held);
    let closing = std::thread::spawn(move || hal.close());
    holder.entered.recv().unwrap();
    assert!(is_mapped(&fake, iova), "the buffer has the lower address and goes first");
    drop(import);
    assert!(!is_mapped(&fake, iova), "the device reaches memory that its owner has back");
    holder.go_on.send(()).unwrap();
    let busy = closing.join().unwrap().unwrap_err();
    assert_eq!(kind(&busy), ErrorKind::Busy, "the buffer is still there: {busy}");
    drop(buffer);
    drop(gated);
    fake.assert_clean("after close");
}

/// The closing thread is unmapping the import itself.
#[test]
fn dropping_an_import_waits_for_the_close_that_unmaps_it() {
    let fake = kernel("group");
    let (gated, hal) = opened(&fake);
    let page = Page::new();
    let import = page.import(&hal);
    let iova = import.bus_addr().as_u64();
    let (held, holder) = hold();
    *lock(&gated.unmap) = Some(held);
    let closing = std::thread::spawn(move || hal.close());
    holder.entered.recv().unwrap();
    let (dropped, has_dropped) = mpsc::channel();
    let books = Arc::clone(&fake);
    let dropping = std::thread::spawn(move || {
        drop(import);
        dropped.send(is_mapped(&books, iova)).unwrap();
    });
    let early = has_dropped.recv_timeout(MOMENT);
    assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "returned while it was mapped");
    holder.go_on.send(()).unwrap();
    assert_eq!(has_dropped.recv(), Ok(false));
    dropping.join().unwrap();
    // Whether the handle was still there when the close counted is a matter of who was faster.
    let _ = closing.join().unwrap();
    drop(gated);
    fake.assert_clean("after close");
}

/// A mapping that fails to go keeps the device from the memory in another way.
#[test]
fn an_import_that_cannot_be_unmapped_after_close_leaves_a_silent_device() {
    let fake = kernel("group");
    let (gated, hal) = opened(&fake);
    let page = Page::new();
    let import = page.import(&hal);
    fake.with(|state| state.iommu.short_unmaps = vec![1, 1]);
    assert!(hal.close().is_err());
    drop(import);
    fake.with(|state| assert!(!state.card.is_bus_master()));
    drop(gated);
    fake.assert_clean("after close");
}

fn pool(fake: &Arc<Fake>, gated: &Arc<Gated>) -> Arc<Pool> {
    let sys: Arc<dyn Sys> = Arc::clone(fake) as _;
    let transport: Arc<dyn Transport> = Arc::clone(gated) as _;
    let shared = Arc::new(Shared::new("card".into(), &sys, transport).unwrap());
    Arc::new(Pool::new(&shared, HugePages::Never, 64).unwrap())
}

#[test]
fn nothing_is_mapped_once_the_pool_is_closed() {
    let fake = kernel("group");
    let gated = Gated::new(&fake);
    let pool = pool(&fake, &gated);
    pool.shut_down(true).unwrap();
    let error = pool.map(0x1000, None, 4096, 4096, DeviceAccess::Read).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::Closed));
    let error = pool.take(4096, DeviceAccess::Read).unwrap_err();
    assert_eq!(kind(&error), ErrorKind::Lost(LossReason::Closed));
    fake.with(|state| assert!(state.iommu.pins.is_empty()));
}

/// A mapping that the kernel still makes when the pool is closed is unmapped too.
#[test]
fn a_mapping_in_the_making_does_not_outlive_the_close() {
    let fake = kernel("group");
    let gated = Gated::new(&fake);
    let pool = pool(&fake, &gated);
    let (held, holder) = hold();
    *lock(&gated.map) = Some(held);
    let maker = Arc::clone(&pool);
    let making =
        std::thread::spawn(move || maker.map(0x1000, None, 4096, 4096, DeviceAccess::Read));
    holder.entered.recv().unwrap();
    let (closed, has_closed) = mpsc::channel();
    let closer = Arc::clone(&pool);
    let closing = std::thread::spawn(move || closed.send(closer.shut_down(true).is_ok()));
    let early = has_closed.recv_timeout(MOMENT);
    holder.go_on.send(()).unwrap();
    let made = making.join().unwrap();
    let closed = early.or_else(|_| has_closed.recv()).unwrap();
    closing.join().unwrap().unwrap();
    assert!(closed);
    assert_eq!(kind(&made.unwrap_err()), ErrorKind::Lost(LossReason::Closed));
    fake.with(|state| assert!(state.iommu.pins.is_empty(), "mapped for good"));
}
