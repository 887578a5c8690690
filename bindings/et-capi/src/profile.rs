//! Recording what a device did.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_char;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::mem::MaybeUninit;
use std::sync::Arc;

use et::Profile;

use crate::call::guard;
use crate::device::{self, et_device};
use crate::raw;
use crate::status::{Failure, et_status};
use crate::table::{self, handle};

/// A finished recording.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_profile {
    /// A number to be looked up; 0 is no profile.
    pub id: u64,
}

// With the frequency of the device.
handle!(et_profile, 16, (Arc<Profile>, Option<u32>));

/// Starts to record the operations of a device.
#[unsafe(no_mangle)]
pub extern "C" fn et_profile_start(device: et_device) -> et_status {
    guard(|| {
        device::with(device, |device| {
            device.profiler().start();
            Ok(())
        })
    })
}

/// Stops to record, and gives what was recorded.
#[unsafe(no_mangle)]
pub extern "C" fn et_profile_stop(
    device: et_device,
    profile: Option<&mut MaybeUninit<et_profile>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(profile, "profile")?;
        let recorded = device::with(device, |device| {
            Ok((Arc::new(device.profiler().stop()), device.properties().boot_frequency_mhz))
        })?;
        out.write(table::insert(recorded)?);
        Ok(())
    })
}

/// Returns the number of recorded operations, and of those for which there was no room; the latter
/// may be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_profile_count(
    profile: et_profile,
    operations: Option<&mut MaybeUninit<usize>>,
    dropped: Option<&mut MaybeUninit<u64>>,
) -> et_status {
    guard(|| {
        let (profile, _) = &*table::get(profile)?;
        raw::wanted(operations, "operations")?.write(profile.records.len());
        raw::store(dropped, profile.dropped);
        Ok(())
    })
}

/// Writes a recording as a file that Perfetto and Chrome open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_profile_write(profile: et_profile, path: *const c_char) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let path = unsafe { raw::text(path, "path") }?;
        let (profile, frequency_mhz) = &*table::get(profile)?;
        write_file(path, |out| profile.write_chrome_json(out, *frequency_mhz))
    })
}

/// Makes a file that the caller names.
pub(crate) fn write_file(
    path: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = File::create(path).and_then(|file| write(&mut BufWriter::new(file)));
    written.map_err(|error| Failure::new(et_status::ET_FILE, format!("writing {path}: {error}")))
}

/// Frees a recording.
#[unsafe(no_mangle)]
pub extern "C" fn et_profile_free(profile: et_profile) -> et_status {
    guard(|| table::remove(profile))
}
