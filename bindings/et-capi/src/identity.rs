//! What devices are, and who has them.

#![expect(unsafe_code, reason = "exported names")]

use std::ffi::c_char;
use std::mem::MaybeUninit;

use et::DeviceInfo;
use et::hal::Sharing;

use crate::call::guard;
use crate::device::{self, et_device, no_such};
use crate::raw::{self, Growing};
use crate::status::{Failure, et_status};

/// A text about a device and what connects it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_identity {
    /// Name of the backend.
    ET_IDENTITY_BACKEND = 1,
    /// Version of the backend.
    ET_IDENTITY_BACKEND_VERSION = 2,
    /// The interface below the backend, with its version.
    ET_IDENTITY_INTERFACE = 3,
    /// The kernel's driver that has the device.
    ET_IDENTITY_DRIVER = 4,
    /// PCI ids and revision, as `lspci -n` has them.
    ET_IDENTITY_PCI_IDS = 5,
    /// Where the device is on the bus, `domain:bus:device.function`.
    ET_IDENTITY_PCI_ADDRESS = 6,
    /// Who may use it at a time: `exclusive` for one owner, `one each` where each opening makes a
    /// device of its own.
    ET_IDENTITY_SHARING = 7,
    /// Version of the runtime.
    ET_IDENTITY_RUNTIME_VERSION = 8,
}

/// A process that has a device, by its own words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_holder {
    /// `sizeof(et_holder)`, set by the caller.
    pub size: usize,
    /// Process id; 0 if no process is known to have the device.
    pub pid: u32,
    /// Number of the user that it acts for.
    pub user: u32,
    /// 1 if it says for which user it acts.
    pub has_user: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, begins with a `usize`, and has numbers only.
unsafe impl Growing for et_holder {
    const FIRST: usize = size_of::<Self>();
}

/// Returns a text about an open device, an `et_identity`; an empty one if its backend does not say
/// that. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_device_identity(
    device: et_device,
    identity: u32,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let found = device::with(device, |device| Ok(device.properties()))?;
        let sharing = match found.sharing {
            Sharing::Exclusive => "exclusive",
            Sharing::OneEach => "one each",
            _ => "",
        };
        let all = [
            (et_identity::ET_IDENTITY_BACKEND, Some(found.backend.name)),
            (et_identity::ET_IDENTITY_BACKEND_VERSION, Some(found.backend.version)),
            (et_identity::ET_IDENTITY_INTERFACE, found.backend.interface),
            (et_identity::ET_IDENTITY_DRIVER, found.backend.driver),
            (et_identity::ET_IDENTITY_PCI_IDS, found.pci.map(|ids| ids.to_string())),
            (et_identity::ET_IDENTITY_PCI_ADDRESS, found.pci_address),
            (et_identity::ET_IDENTITY_SHARING, Some(sharing.to_owned())),
            (et_identity::ET_IDENTITY_RUNTIME_VERSION, Some(found.runtime_version.to_owned())),
        ];
        let text = all.into_iter().find(|(number, _)| *number as u32 == identity);
        let unknown =
            || Failure::new(et_status::ET_INVALID, format!("there is no identity {identity}"));
        let (_, text) = text.ok_or_else(unknown)?;
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text.unwrap_or_default(), buffer, capacity, needed) }
    })
}

fn found(index: usize) -> Result<DeviceInfo, Failure> {
    et::list().into_iter().nth(index).ok_or_else(|| no_such("device", index))
}

/// Returns what a device is that can be opened, as a text. `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_device_description(
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&found(index)?.description, buffer, capacity, needed) }
    })
}

/// Returns who has a device now, so that it cannot be opened, and the command line of that process.
/// The caller sets `holder->size`; `needed` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_device_holder(
    index: usize,
    holder: *mut et_holder,
    command: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> et_status {
    guard(|| {
        let found = found(index)?.holder;
        let user = found.as_ref().and_then(|holder| holder.user);
        let value = et_holder {
            size: 0,
            pid: found.as_ref().map_or(0, |holder| holder.pid),
            user: user.unwrap_or(0),
            has_user: user.is_some().into(),
            reserved: 0,
        };
        // SAFETY: promised by the caller.
        unsafe { raw::put(&value, holder, "holder") }?;
        let text = found.map(|holder| holder.command).unwrap_or_default();
        // SAFETY: promised by the caller.
        unsafe { raw::put_text(&text, command, capacity, needed) }
    })
}
