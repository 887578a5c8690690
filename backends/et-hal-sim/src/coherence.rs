//! A bus on which the caches of the host are not coherent with what the device reads and writes.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use vm_memory::bitmap::BitmapSlice;
use vm_memory::{MmapRegion, VolatileMemory, VolatileSlice};

/// Unit in which caches hold memory.
const LINE_BYTES: usize = 64;

/// What the device has of a buffer. The buffer itself stands for the host's cache.
///
/// Nothing moves between the two but by a synchronisation, and that in whole lines. What the host
/// has changed in a line since the last one is *dirty*. A real cache may write a dirty line back at
/// any time, over whatever the device has written there, and so does this one when the line is
/// synchronised, in either direction.
#[derive(Debug)]
pub(crate) struct DeviceCopy {
    memory: Arc<MmapRegion>,
    /// The host's side as it was when each line was last synchronised.
    clean: Mutex<Box<[u8]>>,
}

/// Which way a synchronisation looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Device,
    Host,
}

impl DeviceCopy {
    /// Creates the device's side of a buffer of zeros, in memory of the same length.
    pub(crate) fn new(memory: Arc<MmapRegion>) -> Self {
        let clean = vec![0; memory.size()].into_boxed_slice();
        Self { memory, clean: Mutex::new(clean) }
    }

    /// Synchronises all lines that `range` touches. The range has been checked.
    pub(crate) fn sync(&self, host: &MmapRegion, range: &Range<usize>, to: Side) {
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        if range.is_empty() {
            return;
        }
        let first = range.start / LINE_BYTES * LINE_BYTES;
        let lines = clean[first..].chunks_mut(LINE_BYTES);
        for (at, clean) in (first..range.end).step_by(LINE_BYTES).zip(lines) {
            let (Ok(host), Ok(device)) =
                (host.get_slice(at, clean.len()), self.memory.get_slice(at, clean.len()))
            else {
                debug_assert!(false, "both sides have the length of the buffer");
                return;
            };
            sync_line(&host, &device, clean, to);
        }
    }
}

fn sync_line<B: BitmapSlice>(
    host: &VolatileSlice<'_, B>,
    device: &VolatileSlice<'_, B>,
    clean: &mut [u8],
    to: Side,
) {
    let mut line = [0; LINE_BYTES];
    let line = &mut line[..clean.len()];
    host.copy_to(line);
    if *line != *clean {
        device.copy_from(line);
    } else if to == Side::Host {
        device.copy_to(line);
        host.copy_from(line);
    }
    clean.copy_from_slice(line);
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    struct Sides {
        host: MmapRegion,
        copy: DeviceCopy,
    }

    impl Sides {
        fn new(len: usize) -> Self {
            let copy = DeviceCopy::new(Arc::new(MmapRegion::new(len).unwrap()));
            Self { host: MmapRegion::new(len).unwrap(), copy }
        }

        fn write(&self, side: Side, at: usize, bytes: &[u8]) {
            self.region(side).get_slice(at, bytes.len()).unwrap().write_slice(bytes, 0).unwrap();
        }

        fn read(&self, side: Side, at: usize) -> u8 {
            let mut byte = [0];
            self.region(side).get_slice(at, 1).unwrap().read_slice(&mut byte, 0).unwrap();
            byte[0]
        }

        fn region(&self, side: Side) -> &MmapRegion {
            if side == Side::Host { &self.host } else { &self.copy.memory }
        }

        fn sync(&self, range: Range<usize>, to: Side) {
            self.copy.sync(&self.host, &range, to);
        }
    }

    #[test]
    fn nothing_moves_by_itself_or_the_wrong_way() {
        let sides = Sides::new(256);
        sides.write(Side::Host, 0, &[1]);
        sides.write(Side::Device, 128, &[2]);
        sides.sync(64..64, Side::Device);
        sides.sync(64..128, Side::Host);
        assert_eq!((sides.read(Side::Device, 0), sides.read(Side::Host, 128)), (0, 0));
        sides.sync(128..129, Side::Device);
        assert_eq!((sides.read(Side::Device, 128), sides.read(Side::Host, 128)), (2, 0));
        sides.sync(0..1, Side::Device);
        sides.sync(128..129, Side::Host);
        assert_eq!((sides.read(Side::Device, 0), sides.read(Side::Host, 128)), (1, 2));
    }

    #[test]
    fn lines_move_as_a_whole() {
        let sides = Sides::new(100);
        sides.write(Side::Host, 0, &[1; 100]);
        sides.sync(63..65, Side::Device);
        assert_eq!((sides.read(Side::Device, 0), sides.read(Side::Device, 99)), (1, 1));
        sides.write(Side::Device, 0, &[2; 100]);
        sides.sync(10..11, Side::Host);
        assert_eq!((sides.read(Side::Host, 63), sides.read(Side::Host, 64)), (2, 1));
    }

    #[test]
    fn a_dirty_line_goes_over_what_the_device_has_written() {
        let sides = Sides::new(64);
        sides.write(Side::Host, 0, &[1]);
        sides.write(Side::Device, 8, &[2]);
        sides.sync(8..9, Side::Host);
        assert_eq!((sides.read(Side::Host, 8), sides.read(Side::Device, 8)), (0, 0), "lost");
        assert_eq!(sides.read(Side::Device, 0), 1);
        // Clean now: what the device writes next arrives.
        sides.write(Side::Device, 8, &[3]);
        sides.sync(8..9, Side::Host);
        assert_eq!((sides.read(Side::Host, 8), sides.read(Side::Host, 0)), (3, 1));
    }
}
