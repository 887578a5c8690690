//! A window on memory of this process.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use et_hal::{AccessError, AccessPath, BarOffset, ErrorKind, ErrorType, Mmio, Width, Widths};

/// A register write that a [`TestWindow`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterWrite {
    /// Where.
    pub at: BarOffset,
    /// How wide.
    pub width: Width,
    /// What.
    pub value: u64,
}

/// An [`Mmio`] of atomics: any number of threads may use it, so one can play the device.
///
/// It keeps what was written to registers, how often an index was loaded and how many bytes were
/// read, and fails on demand.
#[derive(Debug)]
pub struct TestWindow {
    words: Box<[AtomicU64]>,
    register_writes: Mutex<Vec<RegisterWrite>>,
    index_loads: AtomicUsize,
    bytes_read: AtomicUsize,
    is_lost: AtomicBool,
}

impl TestWindow {
    /// Makes a window of zeros; the length is rounded up to a multiple of 8.
    #[must_use]
    pub fn new(len_bytes: usize) -> Self {
        Self {
            words: (0..len_bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(),
            register_writes: Mutex::default(),
            index_loads: AtomicUsize::new(0),
            bytes_read: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Makes every later access fail with `Stale`, as after a reset.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Lets accesses succeed again.
    pub fn restore(&self) {
        self.is_lost.store(false, Ordering::Relaxed);
    }

    /// Returns the register writes so far, oldest first.
    #[must_use]
    pub fn register_writes(&self) -> Vec<RegisterWrite> {
        self.register_writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how often a 64-bit index was loaded.
    #[must_use]
    pub fn index_loads(&self) -> usize {
        self.index_loads.load(Ordering::Relaxed)
    }

    /// Returns how many bytes were copied out.
    #[must_use]
    pub fn bytes_read(&self) -> usize {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn check(&self, at: BarOffset, len: u64) -> Result<usize, ErrorKind> {
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(ErrorKind::Stale);
        }
        AccessError::check(at, len, self.len_bytes())?;
        usize::try_from(at.as_u64()).map_err(|_| ErrorKind::OutOfBounds)
    }

    fn aligned(&self, at: BarOffset, width: Width) -> Result<usize, ErrorKind> {
        let place = self.check(at, width.bytes())?;
        AccessError::check_register(at, width, self.len_bytes())?;
        Ok(place)
    }

    /// Changes the bits of `mask` in one word.
    fn merge(&self, index: usize, mask: u64, bits: u64) {
        if mask == u64::MAX {
            return self.words[index].store(bits, Ordering::Relaxed);
        }
        let merged = |word: u64| Some(word & !mask | bits & mask);
        let _ = self.words[index].fetch_update(Ordering::Relaxed, Ordering::Relaxed, merged);
    }
}

impl ErrorType for TestWindow {
    type Error = ErrorKind;
}

impl Mmio for TestWindow {
    fn len_bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn widths(&self) -> Widths {
        Widths::ALL
    }

    fn path(&self, _: BarOffset, _: u64) -> AccessPath {
        AccessPath::Direct
    }

    fn read(&self, at: BarOffset, width: Width) -> Result<u64, ErrorKind> {
        let at = self.aligned(at, width)?;
        let word = self.words[at / 8].load(Ordering::Relaxed);
        Ok(word >> (at % 8 * 8) & width.max_value())
    }

    fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), ErrorKind> {
        let place = self.aligned(at, width)?;
        AccessError::check_write(at, width, value, self.len_bytes())?;
        let shift = place % 8 * 8;
        self.merge(place / 8, width.max_value() << shift, value << shift);
        let mut writes = self.register_writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.push(RegisterWrite { at, width, value });
        Ok(())
    }

    fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), ErrorKind> {
        let mut at = self.check(at, into.len() as u64)?;
        self.bytes_read.fetch_add(into.len(), Ordering::Relaxed);
        let mut rest = into;
        while !rest.is_empty() {
            let word = self.words[at / 8].load(Ordering::Relaxed).to_le_bytes();
            let part = &word[at % 8..];
            let len = part.len().min(rest.len());
            let (here, after) = rest.split_at_mut(len);
            here.copy_from_slice(&part[..len]);
            at += len;
            rest = after;
        }
        Ok(())
    }

    fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), ErrorKind> {
        let mut at = self.check(at, from.len() as u64)?;
        let mut rest = from;
        while !rest.is_empty() {
            let (start, len) = (at % 8, rest.len().min(8 - at % 8));
            let (mut bits, mut mask) = ([0; 8], [0; 8]);
            bits[start..start + len].copy_from_slice(&rest[..len]);
            mask[start..start + len].fill(0xff);
            self.merge(at / 8, u64::from_le_bytes(mask), u64::from_le_bytes(bits));
            at += len;
            rest = &rest[len..];
        }
        Ok(())
    }

    fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, ErrorKind> {
        let at = self.aligned(at, Width::W64)?;
        self.index_loads.fetch_add(1, Ordering::Relaxed);
        // Acquire: pairs with the Release of the thread that plays the other side.
        Ok(self.words[at / 8].load(Ordering::Acquire))
    }

    fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), ErrorKind> {
        let at = self.aligned(at, Width::W64)?;
        self.words[at / 8].store(value, Ordering::Release);
        Ok(())
    }

    fn flush(&self) -> Result<(), ErrorKind> {
        self.check(BarOffset::new(0), 0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_touch_nothing_else() {
        let window = TestWindow::new(32);
        window.write_bytes(BarOffset::new(0), &[0xff; 32]).unwrap();
        window.write_bytes(BarOffset::new(5), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
        let mut bytes = [0; 32];
        window.read_bytes(BarOffset::new(0), &mut bytes).unwrap();
        let mut expected = [0xff; 32];
        expected[5..17].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn registers_are_checked_and_recorded() {
        let window = TestWindow::new(16);
        let at = BarOffset::new(4);
        assert_eq!(window.write(at, Width::W32, 0x1_0000_0000), Err(ErrorKind::TooLarge));
        assert_eq!(window.write(at, Width::W64, 1), Err(ErrorKind::Misaligned));
        assert_eq!(window.read(BarOffset::new(16), Width::W8), Err(ErrorKind::OutOfBounds));
        window.write(at, Width::W32, 7).unwrap();
        assert_eq!(window.read(BarOffset::new(0), Width::W64), Ok(7 << 32));
        assert_eq!(window.register_writes(), [RegisterWrite { at, width: Width::W32, value: 7 }]);
    }

    #[test]
    fn a_lost_window_fails_until_restored() {
        let window = TestWindow::new(8);
        window.lose();
        assert_eq!(window.load_acquire_u64(BarOffset::new(0)), Err(ErrorKind::Stale));
        assert_eq!(window.flush(), Err(ErrorKind::Stale));
        window.restore();
        assert_eq!(window.load_acquire_u64(BarOffset::new(0)), Ok(0));
        assert_eq!(window.index_loads(), 1);
    }
}
