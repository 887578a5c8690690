//! What the simulator's checks have found wrong with an access to memory.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_char;
use std::mem::MaybeUninit;

use et::kernel::{Access, RaceKind, Violation};

use crate::call::guard;
use crate::failure::{et_failure, hart, put_function, put_source};
use crate::raw::{self, Growing};
use crate::status::et_status;
use crate::table;

/// What is wrong with an access to memory. The first four are of `check=memory` and `check=races`,
/// the others of `check=races`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_finding_kind {
    /// Nothing: the hart stopped for another reason.
    ET_FINDING_NONE = 0,
    /// A byte of it is in no buffer, nor in anything else that kernels may use.
    ET_FINDING_OUT_OF_BOUNDS = 1,
    /// It is in a buffer that has been freed.
    ET_FINDING_USE_AFTER_FREE = 2,
    /// It writes code or constants, or what kernels may only read.
    ET_FINDING_READ_ONLY = 3,
    /// It reads what nothing has written.
    ET_FINDING_UNINITIALISED = 4,
    /// Nothing orders it and an access of another hart.
    ET_FINDING_DATA_RACE = 5,
    /// What another hart has written before is still in a cache, or on its way.
    ET_FINDING_NOT_WRITTEN_BACK = 6,
    /// It found what its own cache has kept from before.
    ET_FINDING_OLD_COPY = 7,
    /// Something that this version does not know.
    ET_FINDING_OTHER = 8,
}

/// What an instruction does to memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_memory_access {
    /// Reads.
    ET_MEMORY_LOAD = 1,
    /// Writes.
    ET_MEMORY_STORE = 2,
    /// Reads and writes at once.
    ET_MEMORY_ATOMIC = 3,
    /// Reads a whole line of 64 bytes, as the tensor unit does.
    ET_MEMORY_LINE = 4,
    /// Something that this version does not know.
    ET_MEMORY_OTHER = 5,
}

/// What a check has found where a hart stopped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct et_finding {
    /// `sizeof(et_finding)`, set by the caller.
    pub size: usize,
    /// An `et_finding_kind`; all that follows is 0 if it is `ET_FINDING_NONE`.
    pub kind: u32,
    /// An `et_memory_access`.
    pub access: u32,
    /// Address of the access.
    pub address: u64,
    /// Bytes of the access.
    pub bytes: u64,
    /// Address of the buffer nearest to it, as it was used then; 0 if there is none.
    pub buffer: u64,
    /// Bytes of that buffer.
    pub buffer_bytes: u64,
    /// 1 if that buffer has been freed.
    pub buffer_is_freed: u32,
    /// What another hart did before, an `et_memory_access`; 0 if no other is part of it.
    pub other_access: u32,
    /// Number of that hart; its own if it did that itself, in another way.
    pub other_hart: u64,
    /// Where that hart was in the kernel; 0 if unknown.
    pub other_pc: u64,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_finding {
    const FIRST: usize = size_of::<Self>();
}

fn access(access: Access) -> u32 {
    let access = match access {
        Access::Load => et_memory_access::ET_MEMORY_LOAD,
        Access::Store => et_memory_access::ET_MEMORY_STORE,
        Access::Atomic => et_memory_access::ET_MEMORY_ATOMIC,
        Access::Line => et_memory_access::ET_MEMORY_LINE,
        _ => et_memory_access::ET_MEMORY_OTHER,
    };
    access as u32
}

/// Returns what a check of the simulated card has found where a hart stopped, by the hart's index
/// from 0; of the kind `ET_FINDING_NONE` if it stopped for another reason. The caller sets
/// `finding->size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_finding(
    failure: et_failure,
    index: usize,
    finding: *mut et_finding,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        let context = hart(&failure, index)?;
        let mut found = et_finding::default();
        let mut kind = et_finding_kind::ET_FINDING_NONE;
        if let Some((fault, address)) = context.memory_fault() {
            kind = match fault.violation {
                Violation::Outside => et_finding_kind::ET_FINDING_OUT_OF_BOUNDS,
                Violation::Freed => et_finding_kind::ET_FINDING_USE_AFTER_FREE,
                Violation::ReadOnly => et_finding_kind::ET_FINDING_READ_ONLY,
                Violation::Unwritten => et_finding_kind::ET_FINDING_UNINITIALISED,
                _ => et_finding_kind::ET_FINDING_OTHER,
            };
            found.access = access(fault.access);
            (found.address, found.bytes) = (address, fault.bytes.into());
        } else if let Some((race, address)) = context.race() {
            kind = match race.kind {
                RaceKind::Unordered => et_finding_kind::ET_FINDING_DATA_RACE,
                RaceKind::NotWrittenBack => et_finding_kind::ET_FINDING_NOT_WRITTEN_BACK,
                RaceKind::OldCopy => et_finding_kind::ET_FINDING_OLD_COPY,
                _ => et_finding_kind::ET_FINDING_OTHER,
            };
            (found.access, found.other_access) = (access(race.access), access(race.other));
            (found.address, found.bytes) = (address, race.bytes.into());
            found.other_hart = race.other_hart.into();
            found.other_pc = context.other_pc().unwrap_or(0);
        }
        found.kind = kind as u32;
        if let Some(buffer) = context.nearest {
            (found.buffer, found.buffer_bytes) = (buffer.addr.as_u64(), buffer.len_bytes);
            found.buffer_is_freed = buffer.is_freed.into();
        }
        // SAFETY: promised by the caller.
        unsafe { raw::put(&found, finding, "finding") }
    })
}

/// Returns the function in which the other hart of a finding was, and the bytes from its start; an
/// empty text if that is unknown, or there is none. `distance` and `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_other_function(
    failure: et_failure,
    index: usize,
    distance: Option<&mut MaybeUninit<u64>>,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        let location = failure.other_location(hart(&failure, index)?);
        // SAFETY: promised by the caller.
        unsafe { put_function(location, distance, buffer, capacity, needed) }
    })
}

/// Returns the source file and line in which the other hart of a finding was; an empty text and 0
/// if that is unknown, or there is none. `line` and `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_failure_other_source(
    failure: et_failure,
    index: usize,
    line: Option<&mut MaybeUninit<u32>>,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let failure = table::get(failure)?;
        let location = failure.other_location(hart(&failure, index)?);
        // SAFETY: promised by the caller.
        unsafe { put_source(location, line, buffer, capacity, needed) }
    })
}
