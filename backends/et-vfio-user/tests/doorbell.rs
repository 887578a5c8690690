//! The path of a doorbell: one packet, no allocation.
#![expect(unsafe_code, reason = "counts allocations")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use et_vfio_user::wire::{Header, RegionAccess, flag};
use et_vfio_user::{Client, Command, NoHostMemory};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use support::LONG;
use zerocopy::{FromBytes, IntoBytes};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator; the count is a plain number of the thread and
// allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn posted_write_is_one_packet_without_allocation() {
    // On a socket that keeps packets apart, each system call makes one.
    let flags = SocketFlags::CLOEXEC;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let answering = std::thread::spawn(move || {
        let mut packet = [0; 512];
        let (len, _) = recv(&far, &mut packet, RecvFlags::empty()).unwrap();
        let (header, _) = Header::read_from_prefix(&packet[..len]).unwrap();
        // The client reads header and body separately.
        rustix::io::write(&far, header.reply(4).as_bytes()).unwrap();
        rustix::io::write(&far, &[0; 4]).unwrap();
        far
    });
    let stream = UnixStream::from(near);
    let client = Client::from_stream(stream, Arc::new(NoHostMemory), LONG).unwrap();
    let far = answering.join().unwrap();

    let before = ALLOCATIONS.get();
    for value in 0..100_u32 {
        client.posted_write(2, 0x2000, &value.to_le_bytes()).unwrap();
    }
    assert_eq!(ALLOCATIONS.get(), before);
    drop(vec![0_u8; 100]);
    assert_eq!(ALLOCATIONS.get(), before + 1, "the count works");

    for value in 0..100_u32 {
        let mut packet = [0; 64];
        let (len, _) = recv(&far, &mut packet, RecvFlags::DONTWAIT).unwrap();
        let (offset, region, count) = (0x2000.into(), 2.into(), 4.into());
        let mut header = Header::request(0, Command::RegionWrite, 20, flag::NO_REPLY);
        header.id = u16::MAX.into();
        let access = RegionAccess { offset, region, count };
        let whole = [header.as_bytes(), access.as_bytes(), &value.to_le_bytes()].concat();
        assert_eq!(packet[..len], whole);
    }
    assert!(recv(&far, &mut [0; 64], RecvFlags::DONTWAIT).is_err());
}
