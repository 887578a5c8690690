//! What an error number of the kernel means for each call, and what to do about it.

use et_hal::{ErrorKind, LossReason, ResetScope, Resource};
use rustix::io::Errno;

use crate::Call;

const NO_VFIO: &str = "load vfio-pci, turn the IOMMU on in the firmware and with intel_iommu=on or iommu=on, \
                       and bind the device to vfio-pci";
const NOT_YOURS: &str = "give the user this node with a udev rule \
                         (SUBSYSTEM==\"vfio\", OWNER=\"...\") or run as its owner";

/// Returns the kind and the advice for a failed call.
pub(crate) fn advice(call: Call, errno: Errno) -> (ErrorKind, &'static str) {
    use ErrorKind::{
        Busy, Exhausted, Lost, NeedsReset, Other, OutOfBounds, Permission, Unsupported,
    };
    let memory = Exhausted(Resource::HostMemory);
    match (call, errno) {
        (_, Errno::MFILE | Errno::NFILE) => {
            (Exhausted(Resource::Handles), "raise the limit of open files (ulimit -n)")
        }
        (
            Call::OpenContainer | Call::OpenDevice | Call::OpenIommufd | Call::OpenGroup,
            Errno::NOENT | Errno::NODEV | Errno::NXIO,
        )
        | (Call::Sysfs, Errno::NOENT) => (Unsupported, NO_VFIO),
        (Call::OpenUnprotectedGroup, Errno::NOENT | Errno::NODEV | Errno::NXIO) => (
            Unsupported,
            "there is no such group: load vfio with enable_unsafe_noiommu_mode=1 and bind the device to vfio-pci, \
             or use the IOMMU",
        ),
        (Call::OpenUnprotectedGroup, Errno::PERM | Errno::ACCESS) => {
            (Permission, "the process needs CAP_SYS_RAWIO for a device without IOMMU")
        }
        (
            Call::OpenContainer | Call::OpenGroup | Call::OpenDevice | Call::OpenIommufd,
            Errno::PERM | Errno::ACCESS,
        ) => (Permission, NOT_YOURS),
        (
            Call::OpenGroup | Call::OpenUnprotectedGroup | Call::OpenDevice | Call::Bind,
            Errno::BUSY,
        ) => (Busy, "another process has the device open: end it, or share the handle"),
        (Call::Bind | Call::Attach, Errno::INVAL | Errno::NODEV) => {
            (Unsupported, "the device cannot be attached to iommufd: use mode=group")
        }
        (Call::SetContainer, Errno::INVAL | Errno::BUSY) => {
            (Busy, "the group already has a container, or cannot share this one: open it alone")
        }
        (Call::SetIommu, Errno::NODEV) => {
            (Unsupported, "no IOMMU driver serves the container: load vfio_iommu_type1")
        }
        (Call::SetIommu, Errno::PERM) => (
            Permission,
            "the machine has no interrupt remapping: turn it on in the firmware \
             (allow_unsafe_interrupts=1 of vfio_iommu_type1 gives isolation up)",
        ),
        (Call::DeviceFd, Errno::NODEV) => {
            (Unsupported, "no such device in the group: check the address and that vfio-pci has it")
        }
        (Call::DeviceFd, Errno::ACCESS | Errno::INVAL) => (
            Permission,
            "the device is a virtual function that needs its token: use the physical function",
        ),
        (Call::MapDma, Errno::NOMEM) => {
            (memory, "raise the limit of locked memory (ulimit -l, LimitMEMLOCK=)")
        }
        (Call::MapDma, Errno::NOSPC) => (
            Exhausted(Resource::BusAddresses),
            "all mapping entries are in use: allocate fewer, larger buffers, or raise dma_entry_limit of \
             vfio_iommu_type1",
        ),
        (Call::MapDma, Errno::EXIST) => {
            (Other, "the range is mapped already: this is a defect of this crate, report it")
        }
        (Call::MapDma, Errno::INVAL) => {
            (OutOfBounds, "the IOMMU does not take these addresses: name its width with iova-bits=")
        }
        (Call::MapDma, Errno::FAULT | Errno::OPNOTSUPP) => (
            OutOfBounds,
            "the memory cannot be pinned: import ordinary memory, not files on DAX or other devices",
        ),
        (Call::SetIrqs, Errno::INVAL | Errno::NOTTY) => (
            Unsupported,
            "another interrupt type is active, or the device lacks this one: close other users of the device",
        ),
        (Call::Reset | Call::HotReset, Errno::NOTTY | Errno::INVAL) => {
            (Unsupported, "the device has no such reset: try the other scope")
        }
        (Call::Reset | Call::HotReset, Errno::AGAIN | Errno::BUSY) => {
            (Busy, "the kernel is busy with the device: try again")
        }
        (Call::HotReset, Errno::PERM) => {
            (Permission, "other devices share the slot and are not ours: open them here too")
        }
        (Call::Region | Call::Info | Call::SetIrqs, Errno::NODEV | Errno::NXIO) => {
            (Lost(LossReason::Removed), "the device was removed: plug it in or bind it again")
        }
        (Call::Region, Errno::IO) => (
            NeedsReset(ResetScope::Function),
            "memory decode is off, or the device refused: reset it",
        ),
        (Call::PageMap, _) => (Permission, "physical addresses need CAP_SYS_ADMIN"),
        (Call::Memory, Errno::NOMEM | Errno::NOSPC) => {
            (memory, "free memory, or reserve huge pages (sysctl vm.nr_hugepages)")
        }
        (_, Errno::NOMEM) => (memory, "free memory, or raise the limits of the process"),
        (_, Errno::PERM | Errno::ACCESS) => (Permission, "run as the owner of the VFIO nodes"),
        (_, Errno::BUSY | Errno::AGAIN) => (Busy, "try again"),
        _ => (Other, "the kernel's log (dmesg) may say why"),
    }
}
