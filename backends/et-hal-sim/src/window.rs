//! Windows on the BARs of the simulated card.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use et_devapi::pci::{BAR0_BYTES, BAR0_DEVICE_ADDR};
use et_hal::{AccessError, AccessPath, BarOffset, ErrorType, Generation, Mmio, Width, Widths};
use et_sim_device::{Board, Link};

use crate::SimError;

pub(crate) use et_devapi::pci::BAR2_BYTES;

/// Start of the doorbells in BAR2; they reach to its end. Spec: §1
const DOORBELLS: u64 = 0x2000;

/// Which BAR a window shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// BAR2: mailboxes and doorbells.
    Mailboxes,
    /// BAR0: device memory.
    Memory,
}

/// A window on BAR0 or BAR2.
///
/// Before the device has booted, and after its link is lost, reads return all ones and writes go
/// nowhere, as on a bus.
#[derive(Clone, Debug)]
pub struct SimWindow {
    board: Arc<Board>,
    generation: Generation,
    view: View,
}

/// What an access meets, once the handle is known to be valid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Device,
    Nobody,
}

impl SimWindow {
    pub(crate) fn new(board: Arc<Board>, view: View) -> Self {
        Self { generation: board.generation(), board, view }
    }

    #[inline]
    fn target(&self) -> Result<Target, SimError> {
        match self.board.link(self.generation) {
            Link::Up => Ok(Target::Device),
            Link::Down => Ok(Target::Nobody),
            Link::Stale => Err(SimError::Stale),
        }
    }

    /// Checks a range of BAR2 that is not to touch the doorbells.
    #[inline]
    fn check_mailboxes(&self, at: BarOffset, len: u64) -> Result<(), SimError> {
        if at.as_u64().checked_add(len).is_some_and(|end| end <= DOORBELLS) {
            return Ok(());
        }
        AccessError::check(at, len, self.len_bytes())?;
        Err(SimError::Doorbell { at })
    }

    /// Reads device memory through BAR0; what is not translated reads as ones.
    fn read_memory(&self, at: BarOffset, into: &mut [u8]) {
        let address = BAR0_DEVICE_ADDR.as_u64() + at.as_u64();
        if self.board.dram().read(address, into).is_err() {
            into.fill(0xff);
        }
    }

    /// Writes device memory through BAR0; what is not translated is lost.
    fn write_memory(&self, at: BarOffset, from: &[u8]) {
        let address = BAR0_DEVICE_ADDR.as_u64() + at.as_u64();
        if self.board.dram().write(address, from).is_ok() {
            self.board.bar0_written();
        }
    }
}

/// Bytes of a register.
fn len_of(width: Width) -> usize {
    match width {
        Width::W8 => 1,
        Width::W16 => 2,
        Width::W32 => 4,
        Width::W64 => 8,
    }
}

impl ErrorType for SimWindow {
    type Error = SimError;
}

impl Mmio for SimWindow {
    fn len_bytes(&self) -> u64 {
        match self.view {
            View::Mailboxes => BAR2_BYTES,
            View::Memory => BAR0_BYTES,
        }
    }

    fn widths(&self) -> Widths {
        Widths::ALL
    }

    fn path(&self, _: BarOffset, _: u64) -> AccessPath {
        AccessPath::Direct
    }

    fn read(&self, at: BarOffset, width: Width) -> Result<u64, SimError> {
        let target = self.target()?;
        AccessError::check_register(at, width, self.len_bytes())?;
        if self.view == View::Mailboxes {
            self.check_mailboxes(at, width.bytes())?;
        }
        match (target, self.view) {
            (Target::Nobody, _) => Ok(width.max_value()),
            (Target::Device, View::Mailboxes) => Ok(self.board.page().read(at, width)?),
            (Target::Device, View::Memory) => {
                let mut bytes = [0; 8];
                self.read_memory(at, &mut bytes[..len_of(width)]);
                Ok(u64::from_le_bytes(bytes))
            }
        }
    }

    #[inline]
    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), SimError> {
        let target = self.target()?;
        AccessError::check_write(at, width, value, self.len_bytes())?;
        if target == Target::Nobody {
            return Ok(());
        }
        match (self.view, at.as_u64().checked_sub(DOORBELLS)) {
            (View::Mailboxes, Some(bell)) => self.board.ring(BarOffset::new(bell), width, value),
            (View::Mailboxes, None) => {
                self.board.page().write(at, width, value)?;
            }
            (View::Memory, _) => {
                self.write_memory(at, &value.to_le_bytes()[..len_of(width)]);
            }
        }
        Ok(())
    }

    #[inline]
    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), SimError> {
        let target = self.target()?;
        let len = into.len() as u64;
        match self.view {
            View::Mailboxes => self.check_mailboxes(at, len)?,
            View::Memory => AccessError::check(at, len, self.len_bytes())?,
        }
        match (target, self.view) {
            (Target::Nobody, _) => into.fill(0xff),
            (Target::Device, View::Mailboxes) => {
                self.board.page().read_bytes(at, into)?;
            }
            (Target::Device, View::Memory) => self.read_memory(at, into),
        }
        Ok(())
    }

    #[inline]
    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), SimError> {
        let target = self.target()?;
        let len = from.len() as u64;
        match self.view {
            View::Mailboxes => self.check_mailboxes(at, len)?,
            View::Memory => AccessError::check(at, len, self.len_bytes())?,
        }
        match (target, self.view) {
            (Target::Nobody, _) => {}
            (Target::Device, View::Mailboxes) => {
                self.board.page().write_bytes(at, from)?;
            }
            (Target::Device, View::Memory) => self.write_memory(at, from),
        }
        Ok(())
    }

    #[inline]
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, SimError> {
        if self.view == View::Memory {
            let value = self.read(at, Width::W64)?;
            // Acquire: orders the plain read of device memory before what follows.
            fence(Ordering::Acquire);
            return Ok(value);
        }
        let target = self.target()?;
        self.check_mailboxes(at, 8)?;
        let value = self.board.page().load_acquire_u64(at)?;
        Ok(if target == Target::Device { value } else { u64::MAX })
    }

    #[inline]
    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), SimError> {
        if self.view == View::Memory {
            // Release: orders what was written before the plain write to device memory.
            fence(Ordering::Release);
            return self.write(at, Width::W64, value);
        }
        let target = self.target()?;
        self.check_mailboxes(at, 8)?;
        AccessError::check_register(at, Width::W64, self.len_bytes())?;
        if target == Target::Nobody {
            return Ok(());
        }
        Ok(self.board.page().store_release_u64(at, value)?)
    }

    fn flush(&self) -> Result<(), SimError> {
        self.target().map(|_| ())
    }
}
