//! Windows on the BARs of the simulated card.

use std::sync::Arc;

use et_devapi::pci::NO_ANSWER;
use et_hal::{AccessError, AccessPath, Bar, BarOffset, ErrorType, Generation, Mmio, Width, Widths};
use et_sim_device::{BarWindow, Board};

use crate::SimError;

/// A window on BAR0 or BAR2.
///
/// Before the device has booted, and after its link is lost, reads return all ones and writes go
/// nowhere, as on a bus.
#[derive(Clone, Debug)]
pub struct SimWindow {
    bar: BarWindow,
    generation: Generation,
}

impl SimWindow {
    pub(crate) fn new(board: &Arc<Board>, bar: Bar) -> Result<Self, SimError> {
        let window = BarWindow::new(Arc::clone(board), bar).ok_or(SimError::NoWindow(bar))?;
        Ok(Self { bar: window, generation: board.generation() })
    }

    #[inline]
    fn is_open(&self) -> Result<bool, SimError> {
        self.bar.is_open(self.generation).map_err(|_| SimError::Stale)
    }

    #[inline]
    fn check_register(&self, at: BarOffset, width: Width) -> Result<(), SimError> {
        Ok(AccessError::check_register(at, width, self.len_bytes())?)
    }

    /// Checks a range that is not to touch the doorbells.
    #[inline]
    fn check_memory(&self, at: BarOffset, len: u64) -> Result<(), SimError> {
        AccessError::check(at, len, self.len_bytes())?;
        if self.bar.has_doorbells(at, len) {
            return Err(SimError::Doorbell { at });
        }
        Ok(())
    }
}

impl ErrorType for SimWindow {
    type Error = SimError;
}

impl Mmio for SimWindow {
    #[inline]
    fn len_bytes(&self) -> u64 {
        self.bar.len_bytes()
    }

    fn widths(&self) -> Widths {
        Widths::ALL
    }

    fn path(&self, _: BarOffset, _: u64) -> AccessPath {
        AccessPath::Direct
    }

    fn read(&self, at: BarOffset, width: Width) -> Result<u64, SimError> {
        let open = self.is_open()?;
        self.check_register(at, width)?;
        self.check_memory(at, width.bytes())?;
        Ok(if open { self.bar.read(at, width) } else { width.max_value() })
    }

    #[inline]
    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), SimError> {
        let open = self.is_open()?;
        AccessError::check_write(at, width, value, self.len_bytes())?;
        if open {
            self.bar.write(at, width, value);
        }
        Ok(())
    }

    #[inline]
    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), SimError> {
        let open = self.is_open()?;
        self.check_memory(at, into.len() as u64)?;
        if open {
            self.bar.read_bytes(at, into);
        } else {
            into.fill(NO_ANSWER);
        }
        Ok(())
    }

    #[inline]
    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), SimError> {
        let open = self.is_open()?;
        self.check_memory(at, from.len() as u64)?;
        if open {
            self.bar.write_bytes(at, from);
        }
        Ok(())
    }

    #[inline]
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, SimError> {
        let open = self.is_open()?;
        self.check_register(at, Width::W64)?;
        self.check_memory(at, 8)?;
        Ok(if open { self.bar.load_acquire_u64(at) } else { u64::MAX })
    }

    #[inline]
    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), SimError> {
        let open = self.is_open()?;
        self.check_register(at, Width::W64)?;
        self.check_memory(at, 8)?;
        if open {
            self.bar.store_release_u64(at, value);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), SimError> {
        self.is_open().map(|_| ())
    }
}
