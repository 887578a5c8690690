//! The kernel's VFIO calls.
//!
//! All structures of this interface are sequences of 32-bit words, wider fields being two of them
//! on a little-endian machine; the first word of most is the size of the whole.

#![expect(unsafe_code, reason = "device calls take a number or a pointer, by their kind")]

use std::ffi::{CStr, c_void};
use std::io::Result;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};

/// Calls that take a structure which begins with its size.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Structure {
    GroupStatus = 0x3b67,
    RegionInfo = 0x3b6c,
    IrqInfo = 0x3b6d,
    SetIrqs = 0x3b6e,
    MapDma = 0x3b71,
    UnmapDma = 0x3b72,
    BindIommufd = 0x3b76,
    AttachIommufd = 0x3b77,
    IoasAlloc = 0x3b81,
    IoasMap = 0x3b85,
    IoasUnmap = 0x3b86,
}

/// Calls that take a number, or nothing.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Plain {
    ApiVersion = 0x3b64,
    CheckExtension = 0x3b65,
    SetIommu = 0x3b66,
    Reset = 0x3b6f,
}

const SET_CONTAINER: Opcode = 0x3b68;
const DEVICE_FD: Opcode = 0x3b6a;

/// One call: its number and what it takes.
struct Call {
    opcode: Opcode,
    argument: *mut c_void,
}

// SAFETY: the kernel gets exactly the number and the argument that the call was made with, and its
// answer is a number.
unsafe impl Ioctl for Call {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

/// Makes a call with a structure; its first word becomes its size.
pub(crate) fn structure(fd: BorrowedFd<'_>, what: Structure, words: &mut [u32]) -> Result<i32> {
    let size = u32::try_from(size_of_val(words)).map_err(std::io::Error::other)?;
    words[0] = size;
    let call = Call { opcode: what as Opcode, argument: words.as_mut_ptr().cast() };
    // SAFETY: the calls of this kind take a pointer to a structure and touch no more of it than its
    // first word says, which is the size of the slice.
    Ok(unsafe { ioctl(fd, call) }?)
}

/// Makes a call with a number.
pub(crate) fn plain(fd: BorrowedFd<'_>, what: Plain, value: usize) -> Result<i32> {
    let argument = std::ptr::without_provenance_mut(value);
    // SAFETY: the calls of this kind take their argument for a number.
    Ok(unsafe { ioctl(fd, Call { opcode: what as Opcode, argument }) }?)
}

/// Puts a group into a container.
pub(crate) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> Result<()> {
    let mut number = container.as_raw_fd();
    let argument = (&raw mut number).cast();
    // SAFETY: this call reads one descriptor where its argument points.
    unsafe { ioctl(group, Call { opcode: SET_CONTAINER, argument }) }?;
    Ok(())
}

/// Opens a device of a group.
pub(crate) fn device(group: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let argument = name.as_ptr().cast_mut().cast();
    // SAFETY: this call reads a string where its argument points, up to its zero.
    let number = unsafe { ioctl(group, Call { opcode: DEVICE_FD, argument }) }?;
    // SAFETY: the kernel has just opened it for this call, and it is known only here.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
