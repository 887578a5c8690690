//! A register window made of loom's atomics.

use et_hal::{AccessPath, BarOffset, ErrorKind, ErrorType, Mmio, Width, Widths};
use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Three control words and then bytes: one ring.
///
/// Bytes are relaxed atomics, so that a byte read without the order that the indices give shows its
/// old value in some execution.
#[derive(Debug)]
pub struct LoomWindow {
    words: Vec<AtomicU64>,
    bytes: Vec<AtomicU8>,
}

impl LoomWindow {
    /// Makes a window for a ring of `length` data bytes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self {
            words: (0..4).map(|_| AtomicU64::new(0)).collect(),
            bytes: (0..length).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    fn word(&self, at: BarOffset) -> Result<&AtomicU64, ErrorKind> {
        let index = usize::try_from(at.as_u64() / 8).map_err(|_| ErrorKind::OutOfBounds)?;
        self.words.get(index).ok_or(ErrorKind::OutOfBounds)
    }

    fn range(&self, at: BarOffset, len: usize) -> Result<&[AtomicU8], ErrorKind> {
        let start = at.as_u64().checked_sub(32).ok_or(ErrorKind::OutOfBounds)?;
        let start = usize::try_from(start).map_err(|_| ErrorKind::OutOfBounds)?;
        self.bytes.get(start..start + len).ok_or(ErrorKind::OutOfBounds)
    }
}

impl ErrorType for LoomWindow {
    type Error = ErrorKind;
}

impl Mmio for LoomWindow {
    fn len_bytes(&self) -> u64 {
        32 + self.bytes.len() as u64
    }
    fn widths(&self) -> Widths {
        Widths::only(Width::W64)
    }
    fn path(&self, _: BarOffset, _: u64) -> AccessPath {
        AccessPath::Direct
    }
    fn read(&self, at: BarOffset, _: Width) -> Result<u64, ErrorKind> {
        Ok(self.word(at)?.load(Ordering::Relaxed))
    }
    fn write(&self, at: BarOffset, _: Width, value: u64) -> Result<(), ErrorKind> {
        self.word(at)?.store(value, Ordering::Relaxed);
        Ok(())
    }
    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), ErrorKind> {
        for (byte, into) in self.range(at, into.len())?.iter().zip(into) {
            *into = byte.load(Ordering::Relaxed);
        }
        Ok(())
    }
    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), ErrorKind> {
        for (byte, from) in self.range(at, from.len())?.iter().zip(from) {
            byte.store(*from, Ordering::Relaxed);
        }
        Ok(())
    }
    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, ErrorKind> {
        Ok(self.word(at)?.load(Ordering::Acquire))
    }
    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), ErrorKind> {
        self.word(at)?.store(value, Ordering::Release);
        Ok(())
    }
    fn flush(&self) -> Result<(), ErrorKind> {
        Ok(())
    }
}
