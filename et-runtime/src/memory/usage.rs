//! What buffers are for, and whose they are.

use std::fmt;
use std::ops::Range;

use et_hal::DeviceAddr;

use super::access::Access;
use crate::report::debug_as_report;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, lock};

/// How a buffer is allocated, and what for.
///
/// ```
/// use et_runtime::graph::Access;
/// use et_runtime::memory::BufferOptions;
/// let weights = BufferOptions::new().kernels(Access::Read).host(Access::Write).tag("weights");
/// # drop(weights);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct BufferOptions {
    pub(crate) align: u64,
    pub(crate) usage: Usage,
    pub(crate) tag: Option<Arc<str>>,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl BufferOptions {
    /// Aligned to 64 bytes, for any use, without a tag.
    pub const fn new() -> Self {
        Self { align: 64, usage: Usage::ANY, tag: None }
    }

    /// Sets the alignment in bytes, a power of two.
    pub const fn align(mut self, bytes: u64) -> Self {
        self.align = bytes;
        self
    }

    /// Sets what kernels may do with it.
    pub const fn kernels(mut self, access: Access) -> Self {
        self.usage.kernels = access;
        self
    }

    /// Sets what copies and fills by the host may do with it. Those within the device are among
    /// them, as their data goes through the host.
    pub const fn host(mut self, access: Access) -> Self {
        self.usage.host = Some(access);
        self
    }

    /// Only kernels may use it.
    pub const fn no_host(mut self) -> Self {
        self.usage.host = None;
        self
    }

    /// Sets whose memory it is, for [statistics](crate::Device::memory_by_tag) and the error when
    /// there is no more. Buffers may share a tag.
    pub fn tag(mut self, tag: impl Into<Arc<str>>) -> Self {
        self.tag = Some(tag.into());
        self
    }
}

/// Who uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum User {
    /// Kernels, by launches and tasks.
    Kernels,
    /// Copies and fills.
    Host,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernels => "kernels",
            Self::Host => "copies of the host",
        })
    }
}

/// A buffer is not for what was asked of it. Nothing was sent.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{op} needs {} access to {}, and {user} have {}",
    wanted.as_str(), name(tag.as_deref(), *address, *len_bytes), allowed.map_or("none", Access::as_str))]
#[non_exhaustive]
pub struct UsageError {
    /// What was asked for.
    pub op: &'static str,
    /// The tag of the buffer.
    pub tag: Option<Arc<str>>,
    /// Where the part is that was to be used.
    pub address: DeviceAddr,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Who was to use it.
    pub user: User,
    /// How.
    pub wanted: Access,
    /// What the user may do with it, at most; `None` for nothing.
    pub allowed: Option<Access>,
}

debug_as_report!(UsageError);

fn name(tag: Option<&str>, address: DeviceAddr, len_bytes: u64) -> String {
    match tag {
        Some(tag) => format!("\"{tag}\", {len_bytes} bytes at {address}"),
        None => format!("{len_bytes} bytes at {address}"),
    }
}

/// Memory that buffers of one tag have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TagStats {
    /// The tag.
    pub tag: Arc<str>,
    /// Bytes of its live buffers, as they were asked for.
    pub used_bytes: u64,
    /// Live buffers.
    pub buffers: u64,
}

/// The first of these, for the message of an allocation that failed.
pub(super) fn list(holders: &[TagStats]) -> String {
    const SHOWN: usize = 4;
    let mut text = String::new();
    for (at, TagStats { tag, used_bytes, buffers }) in holders.iter().take(SHOWN).enumerate() {
        let before = if at == 0 { "; in use by " } else { ", " };
        let plural = if *buffers == 1 { "" } else { "s" };
        text += &format!("{before}\"{tag}\" {used_bytes} bytes in {buffers} buffer{plural}");
    }
    if let Some(more @ 1..) = holders.len().checked_sub(SHOWN) {
        text += &format!(" and {more} more");
    }
    text
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) kernels: Access,
    pub(crate) host: Option<Access>,
}

impl Usage {
    pub(crate) const ANY: Self = Self { kernels: Access::Update, host: Some(Access::Update) };

    pub(super) fn of(self, user: User) -> Option<Access> {
        match user {
            User::Kernels => Some(self.kernels),
            User::Host => self.host,
        }
    }
}

/// Parts of a buffer that kernels may use for less than the buffer.
#[derive(Debug, Default)]
pub(super) struct Limits {
    parts: Mutex<Vec<(Range<u64>, Access)>>,
    /// There are some, so that most buffers need no lock.
    are_there: AtomicBool,
}

impl Limits {
    pub(super) fn add(&self, part: Range<u64>, access: Access) {
        let mut parts = lock(&self.parts);
        // What is inside is replaced.
        parts.retain(|(known, _)| known.start < part.start || known.end > part.end);
        parts.push((part, access));
        // Relaxed: whoever is to heed it has been told by the caller.
        self.are_there.store(true, Ordering::Relaxed);
    }

    /// Returns the access of the first part that overlaps `range` and does not permit `wanted`.
    pub(super) fn against(&self, range: &Range<u64>, wanted: Access) -> Option<Access> {
        if !self.are_there.load(Ordering::Relaxed) {
            return None;
        }
        let parts = lock(&self.parts);
        let overlaps = |part: &Range<u64>| part.start < range.end && range.start < part.end;
        parts
            .iter()
            .find(|(part, access)| overlaps(part) && !access.permits(wanted))
            .map(|(_, access)| *access)
    }

    pub(super) fn are_none(&self) -> bool {
        !self.are_there.load(Ordering::Relaxed)
    }
}
