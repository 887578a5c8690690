//! The BARs as the host's side of the bus sees them.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use et_devapi::pci::{
    BAR0_BYTES, BAR0_DEVICE_ADDR, BAR2_BYTES, DOORBELLS, DRAM_BAR, MAILBOX_BAR, NO_ANSWER,
};
use et_hal::{AccessError, Bar, BarOffset, Generation, Mmio, Width};

use crate::{Board, Dram, Link};

/// A BAR of a board, from the host's side.
///
/// Accesses behave as on a bus: a read without an answer returns ones, a write without a taker is
/// lost. There is no answer while the link is down, behind the installed memory, outside the BAR,
/// and where the doorbells are, which only take writes. What a host should not even try is for its
/// backend to check.
///
/// Spec: §1, §2.2
#[derive(Clone, Debug)]
pub struct BarWindow {
    board: Arc<Board>,
    view: View,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// BAR0: device memory.
    Memory,
    /// BAR2: mailboxes, then doorbells.
    Mailboxes,
}

/// The host's handle is older than the last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handle is older than the last reset")]
pub struct StaleHandle;

impl BarWindow {
    /// Creates a window; `None` if the card has no such BAR.
    #[must_use]
    pub fn new(board: Arc<Board>, bar: Bar) -> Option<Self> {
        let view = match bar {
            DRAM_BAR => View::Memory,
            MAILBOX_BAR => View::Mailboxes,
            _ => return None,
        };
        Some(Self { board, view })
    }

    /// Returns the length of the BAR in bytes.
    #[must_use]
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        match self.view {
            View::Memory => BAR0_BYTES,
            View::Mailboxes => BAR2_BYTES,
        }
    }

    /// Returns how much of the BAR is memory that can be mapped, from its start, in bytes.
    #[must_use]
    pub fn mappable_bytes(&self) -> u64 {
        match self.view {
            View::Memory => {
                let before = BAR0_DEVICE_ADDR.as_u64() - Dram::BASE;
                (self.board.dram().size() - before).min(BAR0_BYTES)
            }
            View::Mailboxes => DOORBELLS.as_u64(),
        }
    }

    /// Returns `true` if the device answers at all; ask before each access.
    ///
    /// # Errors
    /// [`StaleHandle`] if the board has been reset since generation `of`.
    #[inline]
    pub fn is_open(&self, of: Generation) -> Result<bool, StaleHandle> {
        match self.board.link(of) {
            Link::Up => Ok(true),
            Link::Down => Ok(false),
            Link::Stale => Err(StaleHandle),
        }
    }

    /// Returns `true` if one of `len` bytes from `at` belongs to the doorbells.
    #[inline]
    #[must_use]
    pub fn has_doorbells(&self, at: BarOffset, len: u64) -> bool {
        let end = at.as_u64().checked_add(len);
        self.view == View::Mailboxes && end.is_none_or(|end| end > DOORBELLS.as_u64())
    }

    /// Reads a register. The link is up.
    #[must_use]
    pub fn read(&self, at: BarOffset, width: Width) -> u64 {
        if self.has_doorbells(at, width.bytes()) {
            return width.max_value();
        }
        match self.view {
            View::Mailboxes => self.board.page().read(at, width).unwrap_or(width.max_value()),
            View::Memory => {
                let mut bytes = [0; 8];
                self.read_memory(at, &mut bytes[..len_of(width)]);
                u64::from_le_bytes(bytes)
            }
        }
    }

    /// Writes a register, or rings a doorbell. The link is up.
    #[inline]
    pub fn write(&self, at: BarOffset, width: Width, value: u64) {
        match (self.view, at.as_u64().checked_sub(DOORBELLS.as_u64())) {
            (View::Mailboxes, Some(bell)) => self.board.ring(BarOffset::new(bell), width, value),
            (View::Mailboxes, None) => lost(at, self.board.page().write(at, width, value)),
            (View::Memory, _) => self.write_memory(at, &value.to_le_bytes()[..len_of(width)]),
        }
    }

    /// Copies bytes out. The link is up.
    #[inline]
    pub fn read_bytes(&self, at: BarOffset, into: &mut [u8]) {
        if self.view == View::Memory {
            return self.read_memory(at, into);
        }
        let answered = !self.has_doorbells(at, into.len() as u64)
            && self.board.page().read_bytes(at, into).is_ok();
        if !answered {
            into.fill(NO_ANSWER);
        }
    }

    /// Copies bytes in; doorbells do not take them. The link is up.
    #[inline]
    pub fn write_bytes(&self, at: BarOffset, from: &[u8]) {
        match self.view {
            View::Memory => self.write_memory(at, from),
            View::Mailboxes if self.has_doorbells(at, from.len() as u64) => {}
            View::Mailboxes => lost(at, self.board.page().write_bytes(at, from)),
        }
    }

    /// Reads 64 bits, before everything that follows. The link is up.
    ///
    /// # Ordering
    /// Acquire; pairs with the release store of a ring index on the other side.
    #[inline]
    #[must_use]
    pub fn load_acquire_u64(&self, at: BarOffset) -> u64 {
        if self.view == View::Memory {
            let value = self.read(at, Width::W64);
            // Acquire: orders the plain read of device memory before what follows.
            fence(Ordering::Acquire);
            return value;
        }
        if self.has_doorbells(at, 8) {
            return u64::MAX;
        }
        self.board.page().load_acquire_u64(at).unwrap_or(u64::MAX)
    }

    /// Writes 64 bits, after everything that was written before. The link is up.
    ///
    /// # Ordering
    /// Release; pairs with the acquire load of a ring index on the other side.
    #[inline]
    pub fn store_release_u64(&self, at: BarOffset, value: u64) {
        if self.view == View::Memory {
            // Release: orders what was written before the plain write to device memory.
            fence(Ordering::Release);
            self.write(at, Width::W64, value);
        } else if !self.has_doorbells(at, 8) {
            lost(at, self.board.page().store_release_u64(at, value));
        }
    }

    /// Reads device memory; what is not installed does not answer.
    fn read_memory(&self, at: BarOffset, into: &mut [u8]) {
        let address = BAR0_DEVICE_ADDR.as_u64().checked_add(at.as_u64());
        let read = address.map(|address| self.board.dram().read(address, into));
        if !matches!(read, Some(Ok(()))) {
            into.fill(NO_ANSWER);
        }
    }

    /// Writes device memory; what is not installed takes nothing.
    fn write_memory(&self, at: BarOffset, from: &[u8]) {
        let address = BAR0_DEVICE_ADDR.as_u64().checked_add(at.as_u64());
        if matches!(address.map(|address| self.board.dram().write(address, from)), Some(Ok(()))) {
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

fn lost(at: BarOffset, written: Result<(), AccessError>) {
    if let Err(error) = written {
        let error = &error as &dyn std::error::Error;
        tracing::debug!(%at, error, "write to the mailboxes is lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoardConfig, ComputeKind};

    fn windows() -> (Arc<Board>, BarWindow, BarWindow) {
        let config = BoardConfig {
            dram_bytes: 256 << 20,
            compute: ComputeKind::Null,
            ..BoardConfig::default()
        };
        let board = Board::power_on(config).unwrap();
        let window = |bar| BarWindow::new(Arc::clone(&board), bar).unwrap();
        (Arc::clone(&board), window(DRAM_BAR), window(MAILBOX_BAR))
    }

    #[test]
    fn a_card_has_two_bars() {
        let (board, memory, mailboxes) = windows();
        assert_eq!((memory.len_bytes(), mailboxes.len_bytes()), (0x8_0000_0000, 0x4000));
        assert_eq!(memory.mappable_bytes(), (256 << 20) - 0x400_1000);
        assert_eq!(mailboxes.mappable_bytes(), 0x2000);
        let others = [1, 3, 4, 5].into_iter().filter_map(Bar::new);
        assert!(others.into_iter().all(|bar| BarWindow::new(Arc::clone(&board), bar).is_none()));
    }

    #[test]
    fn doorbells_take_register_writes_and_answer_nothing() {
        let (board, memory, mailboxes) = windows();
        let bell = BarOffset::new(0x2004);
        mailboxes.write(bell, Width::W32, 1);
        assert_eq!(board.counters().ops_doorbells, 1);
        mailboxes.write_bytes(bell, &[1, 0, 0, 0]);
        mailboxes.write(bell, Width::W32, 2);
        mailboxes.write(bell, Width::W8, 1);
        mailboxes.store_release_u64(BarOffset::new(0x2000), 1 << 32);
        memory.write(bell, Width::W32, 1);
        assert_eq!(board.counters().ops_doorbells, 1, "only the one write counts");
        assert_eq!(mailboxes.read(bell, Width::W16), 0xffff);
        assert_eq!(mailboxes.load_acquire_u64(BarOffset::new(0x2000)), u64::MAX);
        let mut bytes = [0; 16];
        mailboxes.read_bytes(BarOffset::new(0x1ff8), &mut bytes);
        assert_eq!(bytes, [0xff; 16], "half in the doorbells");
        assert!(mailboxes.has_doorbells(BarOffset::new(0x1fff), 2));
        assert!(!mailboxes.has_doorbells(BarOffset::new(0x1ff8), 8));
        assert!(!memory.has_doorbells(BarOffset::new(0x2000), 8));
    }

    #[test]
    fn what_is_not_there_reads_as_ones_and_takes_nothing() {
        let (_board, memory, mailboxes) = windows();
        for at in [0x7_0000_0000, u64::MAX, u64::MAX - 7] {
            let at = BarOffset::new(at);
            memory.write(at, Width::W32, 0);
            memory.write_bytes(at, &[0; 3]);
            assert_eq!(memory.read(at, Width::W32), 0xffff_ffff);
            let mut bytes = [0; 3];
            memory.read_bytes(at, &mut bytes);
            assert_eq!(bytes, [0xff; 3]);
            mailboxes.write_bytes(at, &[0; 3]);
            mailboxes.read_bytes(at, &mut bytes);
            assert_eq!(bytes, [0xff; 3]);
        }
    }

    #[test]
    fn memory_is_that_of_the_device() {
        let (board, memory, mailboxes) = windows();
        memory.store_release_u64(BarOffset::new(0x180_0000), 0x0102_0304_0506_0708);
        let mut bytes = [0; 2];
        board.dram().read(0x80_0580_1000, &mut bytes).unwrap();
        assert_eq!(bytes, [8, 7]);
        assert_eq!(memory.read(BarOffset::new(0x180_0004), Width::W16), 0x0304);
        mailboxes.write(BarOffset::new(0x1c00), Width::W16, 0xaabb);
        assert_eq!(mailboxes.load_acquire_u64(BarOffset::new(0x1c00)), 0xaabb);
    }
}
