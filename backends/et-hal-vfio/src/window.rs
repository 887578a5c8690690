//! Windows on the BARs of the card.

use std::sync::Arc;

use et_devapi::pci::MAILBOX_BAR;
use et_hal::{AccessError, AccessPath, BarOffset, ErrorType, Mmio, Width, Widths};

use crate::bar::Bar;
use crate::barrier::{read_barrier, write_barrier};
use crate::shared::{Shared, Stamp};
use crate::{Call, VfioError};

/// Start of the doorbells in the mailbox BAR; they reach to its end. Spec: §1
const DOORBELLS: u64 = 0x2000;

/// A window on a BAR.
///
/// Accesses are the processor's own where the kernel lets the BAR be mapped, and calls elsewhere. A
/// read of all ones is believed only after the device has shown otherwise that it is there.
#[derive(Clone, Debug)]
pub struct VfioWindow {
    shared: Arc<Shared>,
    bar: Arc<Bar>,
    stamp: Stamp,
    /// First byte that takes register writes only; the length if there is none.
    bells: u64,
    /// Counts the window among the handles that keep the device open.
    #[expect(dead_code, reason = "counted by being there")]
    handle: Arc<()>,
}

impl VfioWindow {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        bar: Arc<Bar>,
        index: et_hal::Bar,
        stamp: Stamp,
    ) -> Self {
        let bells = if index == MAILBOX_BAR { DOORBELLS.min(bar.len()) } else { bar.len() };
        let handle = shared.handle();
        Self { shared: Arc::clone(shared), bar, stamp, bells, handle }
    }

    pub(crate) fn check_usable(&self) -> Result<(), VfioError> {
        self.shared.check(self.stamp)
    }

    /// Returns `true` if a register may be accessed, as the slow ways check with their reasons.
    #[inline]
    fn is_fine(&self, at: BarOffset, width: Width, end: u64) -> bool {
        self.shared.is_usable(self.stamp)
            && at.is_aligned_to(width.bytes())
            && at.as_u64().checked_add(width.bytes()).is_some_and(|last| last <= end)
    }

    #[cold]
    fn read_slowly(&self, at: BarOffset, width: Width) -> Result<u64, VfioError> {
        self.check_usable()?;
        AccessError::check_register(at, width, self.bar.len())?;
        self.check_readable(at, width.bytes())?;
        let value = self.believe(self.bar.read(at.as_u64(), width))?;
        if value == width.max_value() && width != Width::W8 {
            self.shared.confirm()?;
        }
        Ok(value)
    }

    #[cold]
    fn write_slowly(&self, at: BarOffset, width: Width, value: u64) -> Result<(), VfioError> {
        self.check_usable()?;
        AccessError::check_write(at, width, value, self.bar.len())?;
        write_barrier();
        self.believe(self.bar.write(at.as_u64(), width, value))
    }

    #[cold]
    fn load_slowly(&self, at: BarOffset) -> Result<u64, VfioError> {
        self.check_usable()?;
        AccessError::check_register(at, Width::W64, self.bar.len())?;
        self.check_readable(at, 8)?;
        let value = self.believe(self.bar.read_index(at.as_u64()))?;
        if value == u64::MAX {
            self.shared.confirm()?;
        }
        read_barrier();
        Ok(value)
    }

    #[cold]
    fn store_slowly(&self, at: BarOffset, value: u64) -> Result<(), VfioError> {
        self.check_usable()?;
        AccessError::check_register(at, Width::W64, self.bar.len())?;
        self.check_readable(at, 8)?;
        write_barrier();
        self.believe(self.bar.write_index(at.as_u64(), value))
    }

    /// Looks into accesses that the kernel refused: is it the access, or is the device gone?
    #[inline]
    fn believe<T>(&self, outcome: Result<T, VfioError>) -> Result<T, VfioError> {
        if let Err(VfioError::Call { call: Call::Region, .. }) = &outcome {
            self.shared.confirm()?;
        }
        outcome
    }

    /// Checks a range that is not to touch the doorbells: a read may take a pending interrupt away
    /// from the device.
    #[inline]
    fn check_readable(&self, at: BarOffset, len: u64) -> Result<(), VfioError> {
        AccessError::check(at, len, self.bar.len())?;
        if at.as_u64() + len > self.bells {
            return Err(VfioError::Doorbell { at });
        }
        Ok(())
    }
}

impl ErrorType for VfioWindow {
    type Error = VfioError;
}

impl Mmio for VfioWindow {
    fn len_bytes(&self) -> u64 {
        self.bar.len()
    }

    fn widths(&self) -> Widths {
        // Doorbells may be trapped where the rest is not; only what holds everywhere can be
        // promised for the whole.
        match self.path(BarOffset::new(0), self.bar.len()) {
            AccessPath::Direct => Widths::ALL,
            AccessPath::Trapped => self.shared.transport.unsplit_widths(),
        }
    }

    fn path(&self, at: BarOffset, len: u64) -> AccessPath {
        let end = at.as_u64().saturating_add(len);
        if self.bar.is_direct(at.as_u64(), end) { AccessPath::Direct } else { AccessPath::Trapped }
    }

    #[inline]
    fn read(&self, at: BarOffset, width: Width) -> Result<u64, VfioError> {
        if self.is_fine(at, width, self.bells)
            && let Some(value) = self.bar.read_mapped(at.as_u64(), width)
            && value != width.max_value()
        {
            return Ok(value);
        }
        self.read_slowly(at, width)
    }

    #[inline]
    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), VfioError> {
        if self.is_fine(at, width, self.bar.len()) && value <= width.max_value() {
            // A register may be a doorbell: the device must see in memory what was written before
            // it.
            write_barrier();
            if self.bar.write_mapped(at.as_u64(), width, value) {
                return Ok(());
            }
        }
        self.write_slowly(at, width, value)
    }

    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), VfioError> {
        self.check_usable()?;
        self.check_readable(at, into.len() as u64)?;
        self.believe(self.bar.read_bytes(at.as_u64(), into))?;
        if into.len() >= 4 && into.iter().all(|&byte| byte == 0xff) {
            self.shared.confirm()?;
        }
        Ok(())
    }

    #[inline]
    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), VfioError> {
        self.check_usable()?;
        self.check_readable(at, from.len() as u64)?;
        self.believe(self.bar.write_bytes(at.as_u64(), from))
    }

    #[inline]
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, VfioError> {
        if self.is_fine(at, Width::W64, self.bells)
            && let Some(value) = self.bar.read_mapped(at.as_u64(), Width::W64)
            && value != u64::MAX
        {
            read_barrier();
            return Ok(value);
        }
        self.load_slowly(at)
    }

    #[inline]
    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), VfioError> {
        if self.is_fine(at, Width::W64, self.bells) {
            write_barrier();
            if self.bar.write_mapped(at.as_u64(), Width::W64, value) {
                return Ok(());
            }
        }
        self.store_slowly(at, value)
    }

    fn flush(&self) -> Result<(), VfioError> {
        self.check_usable()?;
        // A read of the function pushes the writes before it. Through configuration space it meets
        // no register with side effects.
        let read = self.believe(self.shared.config.command());
        match read {
            Err(VfioError::Lost(because)) => Err(self.shared.lose(because)),
            read => read.map(|_| ()),
        }
    }
}
