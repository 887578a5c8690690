//! Bytes on the host that graphs copy from and to.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_void;
use std::mem::MaybeUninit;

use et::graph::HostData;

use crate::call::{guard, may_wait};
use crate::raw;
use crate::status::{Failure, et_status};
use crate::table::{self, handle};

/// Bytes on the host that copies of a graph read or write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_host_data {
    /// A number to be looked up; 0 is no data.
    pub id: u64,
}

handle!(et_host_data, 10, HostData);

/// Makes so many zero bytes.
#[unsafe(no_mangle)]
pub extern "C" fn et_host_data_create(
    bytes: usize,
    data: Option<&mut MaybeUninit<et_host_data>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(data, "data")?;
        let mut zeroes = Vec::new();
        zeroes
            .try_reserve_exact(bytes)
            .map_err(|error| Failure::of(et_status::ET_NO_HOST_MEMORY, &error))?;
        zeroes.resize(bytes, 0);
        out.write(table::insert(HostData::new(zeroes))?);
        Ok(())
    })
}

fn range(data: &HostData, offset: usize, bytes: usize) -> Result<std::ops::Range<usize>, Failure> {
    let end = offset.checked_add(bytes).filter(|&end| end <= data.len());
    end.map(|end| offset..end).ok_or_else(|| {
        let (offset, len, buffer) = (offset as u64, bytes as u64, data.len() as u64);
        et::Error::OutOfRange { offset, len, buffer }.into()
    })
}

/// Copies into host data. Waits for a copy of a graph that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_host_data_write(
    data: et_host_data,
    offset: usize,
    from: *const c_void,
    bytes: usize,
) -> et_status {
    guard(|| {
        may_wait()?;
        let data = table::get(data)?;
        // SAFETY: promised by the caller.
        let from = unsafe { raw::bytes(from, bytes, "from") }?;
        let range = range(&data, offset, bytes)?;
        data.with_mut(|bytes| bytes[range].copy_from_slice(from));
        Ok(())
    })
}

/// Copies out of host data. Waits for a copy of a graph that uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_host_data_read(
    data: et_host_data,
    offset: usize,
    to: *mut c_void,
    bytes: usize,
) -> et_status {
    guard(|| {
        may_wait()?;
        let data = table::get(data)?;
        let range = range(&data, offset, bytes)?;
        // SAFETY: promised by the caller.
        let to = unsafe { raw::bytes_mut(to, bytes, "to") }?;
        data.with(|bytes| to.copy_from_slice(&bytes[range]));
        Ok(())
    })
}

/// Frees host data, once the last graph that uses it is gone.
#[unsafe(no_mangle)]
pub extern "C" fn et_host_data_free(data: et_host_data) -> et_status {
    guard(|| table::remove(data))
}
