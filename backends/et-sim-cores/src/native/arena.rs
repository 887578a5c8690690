//! Memory for translated code, and the way into it.

#![expect(unsafe_code, reason = "code is made and called here, and nowhere else")]

use std::num::NonZeroUsize;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::context::Context;
use super::thunks::{self, Thunks};
use crate::machine::hart::Hart;

/// Room for code. Only what is used costs memory.
const BYTES: usize = 32 << 20;

/// A mapping, which is unmapped when it is dropped.
#[derive(Debug)]
struct Mapping(NonNull<u8>);

impl Mapping {
    fn new(fd: &rustix::fd::OwnedFd, protection: ProtFlags) -> Option<Self> {
        let length = NonZeroUsize::new(BYTES)?.get();
        // SAFETY: the system chooses where the mapping is, so it replaces no other one.
        let mapped = unsafe {
            rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, fd, 0)
        };
        NonNull::new(mapped.ok()?.cast()).map(Self)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing of it is in use: what
        // hands out its addresses borrows the arena.
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), BYTES) };
        debug_assert!(unmapped.is_ok(), "the mapping is there");
    }
}

/// Memory that is written at one address and executed at another.
#[derive(Debug)]
pub(super) struct Arena {
    writable: Mapping,
    executable: Mapping,
    /// Bytes in use.
    used: Mutex<usize>,
    pub(super) thunks: Thunks,
}

// SAFETY: the mappings belong to the arena, and are written under a lock, where no code is yet.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates memory for code with the routines that all code calls; none if the system refuses.
    pub(super) fn new(is_private: bool) -> Option<Self> {
        let fd = rustix::fs::memfd_create("code", MemfdFlags::CLOEXEC).ok()?;
        rustix::fs::ftruncate(&fd, BYTES as u64).ok()?;
        let writable = Mapping::new(&fd, ProtFlags::READ | ProtFlags::WRITE)?;
        let executable = Mapping::new(&fd, ProtFlags::READ | ProtFlags::EXEC)?;
        let (code, thunks) = thunks::make(is_private)?;
        let arena = Self { writable, executable, used: Mutex::new(0), thunks };
        arena.add(|_| Some((code, ())))?;
        Some(arena)
    }

    /// Adds code that `make` writes for an offset; none if there is none, or no room.
    pub(super) fn add<T>(&self, make: impl FnOnce(usize) -> Option<(Vec<u8>, T)>) -> Option<T> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let at = *used;
        let (code, made) = make(at)?;
        let end = at.checked_add(code.len()).filter(|&end| end <= BYTES)?;
        let to = self.writable.0.as_ptr().wrapping_add(at);
        // SAFETY: the bytes from `at` to `end` are inside the mapping and not in use: the lock is
        // held, and `used` only grows.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), to, code.len()) };
        // Lines of the processor's cache, so that no code shares one with data that is written.
        *used = end.next_multiple_of(64);
        Some(made)
    }

    /// Where code is executed.
    pub(super) fn code(&self) -> *const u8 {
        self.executable.0.as_ptr().cast_const()
    }

    /// Executes code from `start` on, after what loads its registers at `prologue`.
    ///
    /// `hart.left` becomes how many of `left` instructions were not executed.
    pub(super) fn enter(
        &self,
        hart: &mut Hart,
        context: &Context,
        (prologue, start): (usize, usize),
        left: u64,
    ) {
        type Enter =
            unsafe extern "sysv64" fn(*mut Hart, *const Context, u64, *const u8, *const u8);
        let code = self.executable.0.as_ptr().cast_const();
        let enter = code.wrapping_add(self.thunks.enter);
        // SAFETY: the routine that enters code is at this offset: `new` put it there, and code is
        // never changed. It keeps to the calling convention.
        let enter: Enter = unsafe { std::mem::transmute(enter) };
        let (prologue, start) = (code.wrapping_add(prologue), code.wrapping_add(start));
        // SAFETY: both offsets come from a translation for this arena. Such code changes the hart,
        // the memory that it may access by the bounds in the context, and the cache of the hart;
        // all three are lent to it. It calls nothing but `context::execute_one`.
        unsafe { enter(hart, context, left, prologue, start) }
    }
}
