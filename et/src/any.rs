//! One backend out of those compiled in, chosen at run time.

#![expect(unsafe_code, reason = "forwards the unsafe traits of DMA buffers")]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use embedded_dma::{ReadBuffer, WriteBuffer};
use et_hal::{
    AccessPath, Bar, BarOffset, BusAddr, DeviceAccess, DeviceAddr, Dma, DmaBuffer, DmaLimits,
    ErrorKind, ErrorType, Generation, Hal, Identity, Loss, Mailbox, MailboxLayout, MemoryWatch,
    Mmio, OutOfRange, Pop, Push, QueueId, Reset, ResetScope, ResetState, Ticket, Wake, Width,
    Widths,
};

/// Makes, of the list of backends, the enums with a variant for each, and the macros that do the
/// same with whichever is there.
macro_rules! backends {
    ($d:tt $($feature:literal $variant:ident($hal:path) $as:ident, $what:literal;)+) => {
        /// Makes an enum with a variant for each backend.
        macro_rules! any {
            ($d(#[$d attr:meta])* $d vis:vis enum $d name:ident of $d part:ident) => {
                $d(#[$d attr])*
                $d vis enum $d name {
                    $(
                        #[cfg(feature = $feature)]
                        #[doc = concat!("Of ", $what, ".")]
                        $variant($d part<$hal>),
                    )+
                }
            };
        }

        /// Does the same with whichever variant is there.
        macro_rules! each {
            ($d of:ident, $d value:expr, $d it:pat => $d do:expr) => {
                match $d value {
                    $(#[cfg(feature = $feature)] $d of::$variant($d it) => $d do,)+
                }
            };
        }

        /// Calls a method that returns a part of the backend, and wraps part and error.
        macro_rules! wrap {
            ($d part:ident, $d value:expr, $d it:pat => $d do:expr) => {
                match $d value {
                    $(
                        #[cfg(feature = $feature)]
                        Inner::$variant($d it) => {
                            $d do.map($d part::$variant).map_err(AnyError::$variant)
                        }
                    )+
                }
            };
        }

        /// The same, of a method that may return nothing.
        macro_rules! wrap_some {
            ($d part:ident, $d value:expr, $d it:pat => $d do:expr) => {
                match $d value {
                    $(
                        #[cfg(feature = $feature)]
                        Inner::$variant($d it) => {
                            $d do.map(|it| it.map($d part::$variant)).map_err(AnyError::$variant)
                        }
                    )+
                }
            };
        }

        /// Calls a method of a part, and wraps the error.
        macro_rules! call {
            ($d of:ident, $d value:expr, $d it:pat => $d do:expr) => {
                match $d value {
                    $(
                        #[cfg(feature = $feature)]
                        $d of::$variant($d it) => $d do.map_err(AnyError::$variant),
                    )+
                }
            };
        }

        /// Passes buffer and allocator of the same backend on. A buffer of another is none of its
        /// memory: there is nothing to make visible.
        macro_rules! sync {
            ($d dma:expr, $d buffer:expr, $d range:expr, $d sync:ident) => {
                match (&*$d dma.hal, $d buffer) {
                    $(
                        #[cfg(feature = $feature)]
                        (Inner::$variant(hal), AnyBuffer::$variant(buffer)) => {
                            hal.dma().$d sync(buffer, $d range).map_err(AnyError::$variant)
                        }
                    )+
                    #[allow(unreachable_patterns, reason = "there may be one backend only")]
                    _ => Ok(()),
                }
            };
        }

        /// An error of [`AnyHal`].
        #[derive(Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum AnyError {
            $(
                #[cfg(feature = $feature)]
                #[doc = concat!("Of ", $what, ".")]
                #[error(transparent)]
                $variant(<$hal as ErrorType>::Error),
            )+
        }

        $(
            #[cfg(feature = $feature)]
            impl AnyHal {
                #[doc = concat!("Returns ", $what, ", if that is the backend.")]
                #[must_use]
                pub fn $as(&self) -> Option<&$hal> {
                    match self.inner() {
                        Inner::$variant(hal) => Some(hal),
                        #[allow(unreachable_patterns, reason = "there may be one backend only")]
                        _ => None,
                    }
                }
            }

            #[cfg(feature = $feature)]
            impl From<$hal> for AnyHal {
                fn from(hal: $hal) -> Self {
                    Self { dma: AnyDma { hal: Arc::new(Inner::$variant(hal)) } }
                }
            }
        )+
    };
}

// A new backend is a line here, and its locator in `open`.
backends! { $
    "sim" Sim(et_hal_sim::SimHal) as_sim, "the simulator";
    "vfio" Vfio(et_hal_vfio::VfioHal) as_vfio, "the VFIO backend";
}

type Whole<H> = H;
type Window<H> = <H as Hal>::Mmio;
type Buffer<H> = <<H as Hal>::Dma as Dma>::Buffer;
type MailboxOf<H> = <H as Hal>::Mailbox;
type ResetOf<H> = <H as Hal>::Reset;

any! {
    #[derive(Debug)]
    enum Inner of Whole
}

/// The backend behind [`open`](crate::open).
#[derive(Debug)]
pub struct AnyHal {
    /// Holds the backend, too.
    dma: AnyDma,
}

any! {
    /// A window of [`AnyHal`].
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum AnyWindow of Window
}

/// The DMA memory of [`AnyHal`].
#[derive(Debug)]
pub struct AnyDma {
    hal: Arc<Inner>,
}

any! {
    /// A DMA buffer of [`AnyHal`].
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum AnyBuffer of Buffer
}

any! {
    /// A mailbox of [`AnyHal`].
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum AnyMailbox of MailboxOf
}

any! {
    /// Control over the resets of [`AnyHal`].
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum AnyReset of ResetOf
}

impl et_hal::Error for AnyError {
    fn kind(&self) -> ErrorKind {
        each!(Self, self, error => error.kind())
    }
}

impl AnyHal {
    fn inner(&self) -> &Inner {
        &self.dma.hal
    }
}

impl ErrorType for AnyHal {
    type Error = AnyError;
}

impl Hal for AnyHal {
    type Mmio = AnyWindow;
    type Dma = AnyDma;
    type Mailbox = AnyMailbox;
    type Reset = AnyReset;

    fn window(&self, bar: Bar) -> Result<AnyWindow, AnyError> {
        wrap!(AnyWindow, self.inner(), hal => hal.window(bar))
    }

    fn dma(&self) -> &AnyDma {
        &self.dma
    }

    fn open_mailbox(&self, layout: &MailboxLayout) -> Result<AnyMailbox, AnyError> {
        wrap!(AnyMailbox, self.inner(), hal => hal.open_mailbox(layout))
    }

    fn reset(&self) -> Result<AnyReset, AnyError> {
        wrap!(AnyReset, self.inner(), hal => hal.reset())
    }

    fn generation(&self) -> Generation {
        each!(Inner, self.inner(), hal => hal.generation())
    }

    fn watch_memory(&self, base: DeviceAddr, len_bytes: u64) -> Option<Box<dyn MemoryWatch>> {
        each!(Inner, self.inner(), hal => hal.watch_memory(base, len_bytes))
    }

    fn identity(&self) -> Identity<'_> {
        each!(Inner, self.inner(), hal => hal.identity())
    }
}

impl ErrorType for AnyWindow {
    type Error = AnyError;
}

impl Mmio for AnyWindow {
    fn len_bytes(&self) -> u64 {
        each!(Self, self, window => window.len_bytes())
    }

    fn widths(&self) -> Widths {
        each!(Self, self, window => window.widths())
    }

    fn path(&self, at: BarOffset, len: u64) -> AccessPath {
        each!(Self, self, window => window.path(at, len))
    }

    #[inline]
    fn read(&self, at: BarOffset, width: Width) -> Result<u64, AnyError> {
        call!(Self, self, window => window.read(at, width))
    }

    #[inline]
    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), AnyError> {
        call!(Self, self, window => window.write(at, width, value))
    }

    #[inline]
    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), AnyError> {
        call!(Self, self, window => window.read_bytes(at, into))
    }

    #[inline]
    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), AnyError> {
        call!(Self, self, window => window.write_bytes(at, from))
    }

    #[inline]
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, AnyError> {
        call!(Self, self, window => window.load_acquire_u64(at))
    }

    #[inline]
    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), AnyError> {
        call!(Self, self, window => window.store_release_u64(at, value))
    }

    fn flush(&self) -> Result<(), AnyError> {
        call!(Self, self, window => window.flush())
    }
}

impl ErrorType for AnyDma {
    type Error = AnyError;
}

impl Dma for AnyDma {
    type Buffer = AnyBuffer;

    fn limits(&self) -> DmaLimits {
        each!(Inner, &*self.hal, hal => hal.dma().limits())
    }

    fn alloc(&self, len_bytes: usize, access: DeviceAccess) -> Result<AnyBuffer, AnyError> {
        wrap!(AnyBuffer, &*self.hal, hal => hal.dma().alloc(len_bytes, access))
    }

    fn sync_for_device(&self, buffer: &AnyBuffer, range: Range<usize>) -> Result<(), AnyError> {
        sync!(self, buffer, range, sync_for_device)
    }

    fn sync_for_cpu(&self, buffer: &AnyBuffer, range: Range<usize>) -> Result<(), AnyError> {
        sync!(self, buffer, range, sync_for_cpu)
    }

    fn import_granule(&self) -> Option<usize> {
        each!(Inner, &*self.hal, hal => hal.dma().import_granule())
    }

    unsafe fn import_buffer(
        &self,
        memory: NonNull<u8>,
        len_bytes: usize,
        access: DeviceAccess,
    ) -> Result<Option<AnyBuffer>, AnyError> {
        wrap_some!(AnyBuffer, &*self.hal, hal => {
            // SAFETY: the caller promises the same.
            unsafe { hal.dma().import_buffer(memory, len_bytes, access) }
        })
    }
}

// SAFETY: the variant never changes, and that of the backend keeps the promise.
unsafe impl ReadBuffer for AnyBuffer {
    type Word = u8;

    unsafe fn read_buffer(&self) -> (*const u8, usize) {
        // SAFETY: the caller promises the same.
        each!(Self, self, buffer => unsafe { buffer.read_buffer() })
    }
}

// SAFETY: as above.
unsafe impl WriteBuffer for AnyBuffer {
    type Word = u8;

    unsafe fn write_buffer(&mut self) -> (*mut u8, usize) {
        // SAFETY: the caller promises the same.
        each!(Self, self, buffer => unsafe { buffer.write_buffer() })
    }
}

// SAFETY: as above; every method is that of the backend's buffer.
unsafe impl DmaBuffer for AnyBuffer {
    fn bus_addr(&self) -> BusAddr {
        each!(Self, self, buffer => buffer.bus_addr())
    }

    fn len_bytes(&self) -> usize {
        each!(Self, self, buffer => buffer.len_bytes())
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<(), OutOfRange> {
        each!(Self, self, buffer => buffer.copy_in(offset, from))
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRange> {
        each!(Self, self, buffer => buffer.copy_out(offset, into))
    }

    fn fill(&mut self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfRange> {
        each!(Self, self, buffer => buffer.fill(offset, len, byte))
    }
}

impl ErrorType for AnyMailbox {
    type Error = AnyError;
}

impl Mailbox for AnyMailbox {
    fn max_message_bytes(&self, queue: QueueId) -> Result<usize, AnyError> {
        call!(Self, self, mailbox => mailbox.max_message_bytes(queue))
    }

    fn push(&self, queue: QueueId, message: &[u8]) -> Result<Push, AnyError> {
        call!(Self, self, mailbox => mailbox.push(queue, message))
    }

    fn kick(&self) -> Result<(), AnyError> {
        call!(Self, self, mailbox => mailbox.kick())
    }

    fn pop(&self, into: &mut [u8]) -> Result<Pop, AnyError> {
        call!(Self, self, mailbox => mailbox.pop(into))
    }

    fn ticket(&self) -> Ticket {
        each!(Self, self, mailbox => mailbox.ticket())
    }

    fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, AnyError> {
        call!(Self, self, mailbox => mailbox.wait(seen, timeout))
    }

    fn wake(&self) {
        each!(Self, self, mailbox => mailbox.wake());
    }
}

impl ErrorType for AnyReset {
    type Error = AnyError;
}

impl Reset for AnyReset {
    fn loss(&self, scope: ResetScope) -> Option<Loss> {
        each!(Self, self, reset => reset.loss(scope))
    }

    fn begin(&mut self, scope: ResetScope) -> Result<(), AnyError> {
        call!(Self, self, reset => reset.begin(scope))
    }

    fn poll(&mut self) -> Result<ResetState, AnyError> {
        call!(Self, self, reset => reset.poll())
    }
}
