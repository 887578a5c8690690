//! Memory that is mapped where its owner wants it.

#![cfg(feature = "sim")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(unsafe_code, reason = "maps memory at an address of choice")]

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr;

use crate::common::{LONG, open};
use et::hal::{DeviceAccess, StableDeref};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

const LEN: usize = 64 << 10;

/// Pages at an address of choice.
struct At(*mut c_void);

impl At {
    fn map(address: usize) -> Result<Self, Errno> {
        let wanted = ptr::without_provenance_mut(address);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: what is mapped there already stays.
        let at = unsafe { mmap_anonymous(wanted, LEN, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        assert_eq!(at.addr(), address, "a kernel that does not know the flag");
        Ok(Self(at))
    }
}

// SAFETY: it owns its mapping.
unsafe impl Send for At {}
// SAFETY: as above.
unsafe impl Sync for At {}
// SAFETY: the mapping stays until the drop.
unsafe impl StableDeref for At {}

impl Deref for At {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped with this length, zeroed.
        unsafe { std::slice::from_raw_parts(self.0.cast(), LEN) }
    }
}

impl DerefMut for At {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), LEN) }
    }
}

impl Drop for At {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and unmapped only here.
        unsafe { munmap(self.0, LEN) }.unwrap();
    }
}

#[test]
fn memory_mapped_at_a_chosen_address_is_imported_there() {
    let device = open("shires=1,dram=256MiB");
    // Wherever the system would have put it is free; it is given back at once.
    let free = et::memory::Pages::zeroed(LEN, LEN).unwrap().as_ptr().addr();
    let chosen = (free ^ 1 << 40) & !(LEN - 1);
    let mut memory = At::map(chosen).unwrap();
    assert_eq!(At::map(chosen).map(drop), Err(Errno::EXIST), "nothing is mapped over it");
    memory.fill(0x21);
    let buffer = device.alloc(LEN as u64).unwrap();
    let lent = device.import_mut(memory, DeviceAccess::ReadWrite).unwrap();
    assert!(lent.is_zero_copy());
    let stream = device.default_stream();
    let lent = stream.upload(lent, &buffer).unwrap().wait(LONG).unwrap();
    let mut seen = vec![0u8; LEN];
    stream.read(&buffer, &mut seen, LONG).unwrap();
    assert_eq!(seen, [0x21; LEN]);
    let _ = stream.fill(&buffer, 0x43).unwrap();
    let lent = stream.download(&buffer, lent).unwrap().wait(LONG).unwrap();
    let memory: At = lent.into_owner().unwrap();
    assert_eq!(memory.as_ptr().addr(), chosen);
    assert_eq!(*memory, [0x43; LEN]);
}
