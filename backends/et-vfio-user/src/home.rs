//! Which process a value belongs to.

#![expect(unsafe_code, reason = "maps a page that a fork wipes")]

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// The process that made a value.
///
/// After a fork the child has a copy of the value and shares what is behind it: connections, event
/// counters, devices. Only one of the two may use them, and that is the parent.
///
/// A look costs one load: the word lies in a page that the kernel hands to a child as zeros
/// (`MADV_WIPEONFORK`, since Linux 4.14). Without that the process id is compared, which costs a
/// system call.
///
/// # Examples
///
/// ```
/// let home = et_vfio_user::Home::new();
/// assert!(home.is_here());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Home(Mark);

#[derive(Clone, Copy, Debug)]
enum Mark {
    Word { word: &'static AtomicU64, token: u64 },
    Process(u32),
}

/// Tokens given out; a child goes on where its parent was, so its tokens differ.
static TOKENS: AtomicU64 = AtomicU64::new(0);

impl Home {
    /// Marks a value of this process.
    #[must_use]
    pub fn new() -> Self {
        let Some(word) = word() else { return Self(Mark::Process(std::process::id())) };
        // Relaxed: numbers, which order nothing.
        let fresh = TOKENS.fetch_add(1, Ordering::Relaxed) + 1;
        let token = match word.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(token) => token,
        };
        Self(Mark::Word { word, token })
    }

    /// Returns `true` in the process that made the value, `false` in its children.
    #[must_use]
    #[inline]
    pub fn is_here(&self) -> bool {
        match self.0 {
            // Relaxed: the word changes only where there is one thread, in the child.
            Mark::Word { word, token } => word.load(Ordering::Relaxed) == token,
            Mark::Process(id) => id == std::process::id(),
        }
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

/// The word that a fork sets to 0; there is one, and it stays.
fn word() -> Option<&'static AtomicU64> {
    static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    *WORD.get_or_init(|| {
        let len = rustix::param::page_size();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses free addresses.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, flags) }.ok()?;
        // SAFETY: the page was mapped above, and is zero before and after.
        let wiped = unsafe { madvise(page, len, Advice::LinuxWipeOnFork) };
        if wiped.is_err() {
            // SAFETY: as above; there is no reference to it yet.
            let (Ok(()) | Err(_)) = unsafe { rustix::mm::munmap(page, len) };
            return None;
        }
        // SAFETY: the page is aligned, holds zeros, is never unmapped, and is used only as this.
        Some(unsafe { AtomicU64::from_ptr(page.cast()) })
    })
}
