//! Device memory as the host sees it without messages.

use et_devapi::dir::{OpsRegion, Region};
use et_hal::{AccessPath, Bar, BarOffset, Hal, Mmio};

use super::Link;

/// The memory of the host-managed region, in a BAR.
pub(crate) struct Window<H: Hal> {
    pub(crate) mmio: H::Mmio,
    /// Where device address 0 would be in it.
    origin: u64,
}

impl<H: Hal> Window<H> {
    /// Where an address is.
    pub(crate) fn at(&self, addr: u64) -> BarOffset {
        BarOffset::new(addr.wrapping_add(self.origin))
    }
}

impl<H: Hal> Link<H> {
    /// Returns `true` if the registers let the host use device memory.
    pub(crate) fn grants_cpu_access(&self) -> bool {
        self.layout.ops.region(OpsRegion::HostManaged).is_some_and(|r| r.access.is_io())
    }

    /// Opens the window on device memory; `None` unless the host may use it, and is able to without
    /// messages.
    pub(crate) fn window(&self) -> Option<Window<H>> {
        let region: Region = *self.layout.ops.region(OpsRegion::HostManaged)?;
        if !self.grants_cpu_access() {
            return None;
        }
        let window = self.hal.window(Bar::new(region.bar)?).ok()?;
        let origin = region.bar_offset.wrapping_sub(region.device_addr.as_u64());
        let path = window.path(BarOffset::new(region.bar_offset), region.len_bytes);
        (path == AccessPath::Direct).then_some(Window { mmio: window, origin })
    }
}
