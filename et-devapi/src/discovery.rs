//! Finding out what a device has.
//!
//! Nothing here waits: the caller polls the status with its own clock and deadline, then reads the
//! registers.
//!
//! Spec: §4

use et_hal::{BarOffset, DeviceAddr, Doorbell, Endpoint, MailboxLayout, Mmio, RingSet, Width};

use crate::dir::{
    BarSizes, DirError, DmaInfo, MgmtDir, MgmtRegion, MgmtStatus, OpsDir, OpsRegion, OpsStatus,
    Region, check_overlap,
};
use crate::pci::{DIR_BYTES, MAILBOX_BAR, MGMT_DIR, OPS_DIR};

const MGMT_STATUS: BarOffset = BarOffset::new(MGMT_DIR.as_u64() + 44);
const OPS_STATUS: BarOffset = BarOffset::new(OPS_DIR.as_u64() + 8);
const MGMT_TOTAL_SIZE: BarOffset = BarOffset::new(MGMT_DIR.as_u64() + 4);
const OPS_TOTAL_SIZE: BarOffset = BarOffset::new(OPS_DIR.as_u64() + 4);

/// Registers that could not be read or are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError<E> {
    /// The window failed.
    #[error("register access failed")]
    Access(#[source] E),
    /// The registers are invalid.
    #[error("registers are invalid")]
    Registers(#[source] DirError),
}

/// Reads the boot status of the service processor.
///
/// All ones is both "boot error" and what an untranslated read returns: treat it as "not ready"
/// until the deadline.
///
/// # Errors
/// Those of the window.
///
/// Spec: §4
pub fn mgmt_status<M: Mmio>(bar2: &M) -> Result<MgmtStatus, M::Error> {
    Ok(read_i16(bar2, MGMT_STATUS)?.into())
}

/// Reads the boot status of the master minions. The remark at [`mgmt_status`] holds here too.
///
/// # Errors
/// Those of the window.
///
/// Spec: §4
pub fn ops_status<M: Mmio>(bar2: &M) -> Result<OpsStatus, M::Error> {
    Ok(read_i16(bar2, OPS_STATUS)?.into())
}

fn read_i16<M: Mmio>(bar2: &M, at: BarOffset) -> Result<i16, M::Error> {
    let bits = u16::try_from(bar2.read(at, Width::W16)?).unwrap_or(u16::MAX);
    Ok(bits.cast_signed())
}

/// Copies a DIR once, after checking the size it claims.
fn copy<M: Mmio>(
    bar2: &M,
    at: BarOffset,
    total_size: BarOffset,
) -> Result<([u8; DIR_BYTES], usize), DiscoveryError<M::Error>> {
    let claimed = bar2.read(total_size, Width::W16).map_err(DiscoveryError::Access)?;
    let mut bytes = [0; DIR_BYTES];
    let total_size = u16::try_from(claimed).unwrap_or(u16::MAX);
    let bad = DirError::TotalSize { total_size, min: 0, max: DIR_BYTES };
    let into = bytes.get_mut(..usize::from(total_size)).ok_or(DiscoveryError::Registers(bad))?;
    bar2.read_bytes(at, into).map_err(DiscoveryError::Access)?;
    Ok((bytes, usize::from(total_size)))
}

/// Reads the management registers.
///
/// # Errors
/// [`DiscoveryError`].
pub fn read_mgmt<M: Mmio>(bar2: &M, bars: &BarSizes) -> Result<MgmtDir, DiscoveryError<M::Error>> {
    let (bytes, len) = copy(bar2, MGMT_DIR, MGMT_TOTAL_SIZE)?;
    MgmtDir::parse(bytes.get(..len).unwrap_or_default(), bars).map_err(DiscoveryError::Registers)
}

/// Reads the operations registers.
///
/// # Errors
/// [`DiscoveryError`].
pub fn read_ops<M: Mmio>(bar2: &M, bars: &BarSizes) -> Result<OpsDir, DiscoveryError<M::Error>> {
    let (bytes, len) = copy(bar2, OPS_DIR, OPS_TOTAL_SIZE)?;
    OpsDir::parse(bytes.get(..len).unwrap_or_default(), bars).map_err(DiscoveryError::Registers)
}

/// Device memory that belongs to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostManaged {
    /// First byte.
    pub base: DeviceAddr,
    /// Bytes.
    pub len: u64,
}

/// Everything a runtime needs to know, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Management registers.
    pub mgmt: MgmtDir,
    /// Operations registers.
    pub ops: OpsDir,
    /// Memory for the user.
    pub host_managed: HostManaged,
    /// Limits of DMA on it.
    pub dma: DmaInfo,
    /// Queues of the operations endpoint.
    pub ops_mailbox: MailboxLayout,
    /// Queues of the management endpoint.
    pub mgmt_mailbox: MailboxLayout,
}

impl Layout {
    /// Puts both DIRs together.
    ///
    /// # Errors
    /// [`DirError::RegionOverlap`] across the DIRs; [`DirError::OutsideRegion`] for queues or
    /// doorbells outside their regions; [`DirError::RegionInOtherBar`]; [`DirError::MemoryWraps`];
    /// [`DirError::DoorbellSize`]; [`DirError::RegionMissing`].
    pub fn new(mgmt: MgmtDir, ops: OpsDir) -> Result<Self, DirError> {
        check_overlap(mgmt.regions().chain(ops.regions()))?;
        let host = *need(ops.region(OpsRegion::HostManaged), OpsRegion::HostManaged as u8)?;
        let ops_buffer = need(ops.region(OpsRegion::VqBuffer), OpsRegion::VqBuffer as u8)?;
        let bells = need(mgmt.region(MgmtRegion::Doorbells), MgmtRegion::Doorbells as u8)?;
        let mgmt_mailbox = mgmt_mailbox(&mgmt)?;
        check_bar(ops_buffer)?;
        if host.device_addr.checked_add(host.len_bytes).is_none() {
            let (base, len) = (host.device_addr.as_u64(), host.len_bytes);
            return Err(DirError::MemoryWraps { base, len });
        }
        let q = ops.queues();
        let ops_mailbox = MailboxLayout {
            endpoint: Endpoint::Operations,
            submission: rings(
                ops_buffer,
                q.sq_offset.get(),
                q.per_sq_size.get(),
                q.sq_count.get(),
            )?,
            high_priority: rings(
                ops_buffer,
                q.sq_hp_offset.get(),
                q.per_sq_hp_size.get(),
                q.sq_hp_count.get(),
            )?,
            completion: rings(
                ops_buffer,
                q.cq_offset.get(),
                q.per_cq_size.get(),
                q.cq_count.get(),
            )?,
            doorbell: doorbell(bells, q.int_trg_offset.get(), q.int_trg_size, q.int_id)?,
        };
        let dma = host.access.dma_info();
        let host_managed = HostManaged { base: host.device_addr, len: host.len_bytes };
        Ok(Self { mgmt, ops, host_managed, dma, ops_mailbox, mgmt_mailbox })
    }
}

/// Returns where the queues of the management endpoint are; needs no operations registers.
///
/// # Errors
/// [`DirError::OutsideRegion`]; [`DirError::RegionInOtherBar`]; [`DirError::DoorbellSize`];
/// [`DirError::RegionMissing`].
pub fn mgmt_mailbox(mgmt: &MgmtDir) -> Result<MailboxLayout, DirError> {
    let buffer = need(mgmt.region(MgmtRegion::VqBuffer), MgmtRegion::VqBuffer as u8)?;
    let bells = need(mgmt.region(MgmtRegion::Doorbells), MgmtRegion::Doorbells as u8)?;
    check_bar(buffer)?;
    check_bar(bells)?;
    let q = mgmt.queues();
    Ok(MailboxLayout {
        endpoint: Endpoint::Management,
        submission: rings(buffer, q.sq_offset.get(), q.per_sq_size.get(), q.sq_count.get())?,
        high_priority: RingSet { at: BarOffset::new(0), size_bytes: 0, count: 0 },
        completion: rings(buffer, q.cq_offset.get(), q.per_cq_size.get(), q.cq_count.get())?,
        doorbell: doorbell(bells, q.int_trg_offset.get(), q.int_trg_size, q.int_id)?,
    })
}

/// Queues and doorbells are where mailboxes are.
fn check_bar(region: &Region) -> Result<(), DirError> {
    if region.bar == MAILBOX_BAR.index() {
        return Ok(());
    }
    Err(DirError::RegionInOtherBar { kind: region.kind, bar: region.bar })
}

fn need(region: Option<&Region>, kind: u8) -> Result<&Region, DirError> {
    region.ok_or(DirError::RegionMissing { kind })
}

/// Spec: §5.1.
fn rings(region: &Region, offset: u32, size: u16, count: u16) -> Result<RingSet, DirError> {
    let bytes = u64::from(size).saturating_mul(u64::from(count));
    if u64::from(offset).saturating_add(bytes) > region.len_bytes {
        return Err(DirError::OutsideRegion { what: "queue", region_bytes: region.len_bytes });
    }
    let at = BarOffset::new(region.bar_offset.saturating_add(u64::from(offset)));
    Ok(RingSet { at, size_bytes: size.into(), count })
}

/// Spec: §2.2.
fn doorbell(region: &Region, offset: u32, size: u8, value: u8) -> Result<Doorbell, DirError> {
    let width = Width::from_bytes(size.into()).ok_or(DirError::DoorbellSize { bytes: size })?;
    if u64::from(offset).saturating_add(width.bytes()) > region.len_bytes {
        return Err(DirError::OutsideRegion { what: "doorbell", region_bytes: region.len_bytes });
    }
    let at = BarOffset::new(region.bar_offset.saturating_add(u64::from(offset)));
    Ok(Doorbell { at, width, value: value.into() })
}
