//! The bundle.

use crate::{Bar, Dma, ErrorType, Generation, Identity, Mailbox, MailboxLayout, Mmio, Reset};
#[cfg(feature = "alloc")]
use crate::{DeviceAddr, MemoryWatch};

/// One device, as a backend offers it: a window on each BAR, DMA memory, a mailbox for each
/// endpoint, resets.
///
/// When a value of this trait exists, the device is powered, its memory space and bus mastering are
/// enabled and its interrupts are configured for good: firmware looks at the interrupt set-up once.
///
/// # For HAL authors
///
/// Dropping the value MUST stop the device from reaching host memory before that memory is freed.
pub trait Hal: ErrorType + Send + Sync + 'static {
    /// Windows on BARs.
    type Mmio: Mmio<Error = Self::Error> + Send + Sync + 'static;
    /// DMA memory.
    type Dma: Dma<Error = Self::Error> + Send + Sync;
    /// Mailboxes.
    type Mailbox: Mailbox<Error = Self::Error> + Send + Sync + 'static;
    /// Resets.
    type Reset: Reset<Error = Self::Error> + Send;

    /// Opens a window on a whole BAR.
    ///
    /// # Errors
    /// `Unsupported` if the device has no such BAR or it cannot be mapped; `Exhausted`; `Lost`.
    fn window(&self, bar: Bar) -> Result<Self::Mmio, Self::Error>;

    /// Returns the allocator of DMA memory.
    fn dma(&self) -> &Self::Dma;

    /// Opens the mailbox that the device describes by `layout`.
    ///
    /// Queue indices continue where the device has them; they are not set to zero.
    ///
    /// # Errors
    /// `OutOfBounds` or `Misaligned` if the layout does not fit the BAR; `Protocol` if a queue is
    /// corrupt; `Lost`.
    fn open_mailbox(&self, layout: &MailboxLayout) -> Result<Self::Mailbox, Self::Error>;

    /// Returns control over resets.
    ///
    /// # Errors
    /// `Busy` while another caller has it.
    fn reset(&self) -> Result<Self::Reset, Self::Error>;

    /// Returns the present generation.
    fn generation(&self) -> Generation;

    /// Returns who wants to know what the memory of so many bytes from `base` on is in use for, if
    /// this device checks what kernels access. Hardware does not.
    ///
    /// All of that memory is free to begin with.
    #[cfg(feature = "alloc")]
    fn watch_memory(
        &self,
        base: DeviceAddr,
        len_bytes: u64,
    ) -> Option<alloc::boxed::Box<dyn MemoryWatch>> {
        let _ = (base, len_bytes);
        None
    }

    /// Returns what the device is and what connects it. It is the same as long as the value exists,
    /// also when the device is lost.
    ///
    /// A backend that does not say needs no method of its own.
    fn identity(&self) -> Identity<'_> {
        Identity::default()
    }
}

#[cfg(feature = "alloc")]
impl<T: Hal + ?Sized> Hal for alloc::sync::Arc<T> {
    type Mmio = T::Mmio;
    type Dma = T::Dma;
    type Mailbox = T::Mailbox;
    type Reset = T::Reset;

    fn window(&self, bar: Bar) -> Result<Self::Mmio, Self::Error> {
        T::window(self, bar)
    }
    fn dma(&self) -> &Self::Dma {
        T::dma(self)
    }
    fn open_mailbox(&self, layout: &MailboxLayout) -> Result<Self::Mailbox, Self::Error> {
        T::open_mailbox(self, layout)
    }
    fn reset(&self) -> Result<Self::Reset, Self::Error> {
        T::reset(self)
    }
    fn generation(&self) -> Generation {
        T::generation(self)
    }
    fn watch_memory(
        &self,
        base: DeviceAddr,
        len_bytes: u64,
    ) -> Option<alloc::boxed::Box<dyn MemoryWatch>> {
        T::watch_memory(self, base, len_bytes)
    }

    fn identity(&self) -> Identity<'_> {
        T::identity(self)
    }
}
