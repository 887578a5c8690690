//! The address map as a kernel sees it. Spec: ISA §1.2, §4.1, §4.3

use std::ops::Range;

/// First address of DRAM.
pub(crate) const DRAM_BASE: u64 = 0x80_0000_0000;
/// Bytes at the start of DRAM that belong to the firmware of both privileged modes. Kernels can
/// neither access nor execute them.
pub(crate) const FIRMWARE_BYTES: u64 = 0x400_0000;
/// First address a kernel may access in DRAM.
pub(crate) const USER_BASE: u64 = DRAM_BASE + FIRMWARE_BYTES;
/// First address above the DRAM window.
const DRAM_END: u64 = 0xC0_0000_0000;
const SCRATCHPAD: Range<u64> = 0x8000_0000..0x1_0000_0000;
/// First address of the L2 scratchpads.
pub(crate) const SCRATCHPAD_BASE: u64 = SCRATCHPAD.start;
/// Shire field of a scratchpad address that means the own shire.
pub(crate) const SCRATCHPAD_OWN_SHIRE: u64 = 0x7F << 23;
const ESRS: Range<u64> = 0x1_0000_0000..0x2_0000_0000;

/// Shires with minions.
pub(crate) const SHIRES: u32 = 33;
/// Harts of a shire.
pub(crate) const HARTS_PER_SHIRE: u32 = 64;
/// Slots for harts: every hart of every shire, whether it runs kernels or firmware.
pub(crate) const HART_SLOTS: u32 = SHIRES * HARTS_PER_SHIRE;
/// Harts that run kernels, of all shires together.
pub(crate) const COMPUTE_HARTS: u32 = HART_SLOTS - FIRMWARE_HARTS;
/// The shire of which only the upper half runs kernels.
const MASTER_SHIRE: u32 = 32;
/// First hart of the master shire that runs kernels.
const FIRST_MASTER_COMPUTE_HART: u32 = 2080;
/// Harts of the master shire that run firmware; compute hart indices skip them.
const FIRMWARE_HARTS: u32 = 32;

/// Bytes of L2 scratchpad in each shire.
pub(crate) const SCRATCHPAD_BYTES: u64 = 0x28_0000;

/// Bits of an effective address below its sign extension.
const VIRTUAL_BITS: u32 = 48;

/// Returns `address` with bits 63 to 48 replaced by copies of bit 47.
#[inline]
fn sign_extended(address: u64) -> u64 {
    let unused = u64::BITS - VIRTUAL_BITS;
    ((address << unused).cast_signed() >> unused).cast_unsigned()
}

/// Returns the address that the hart uses, and reports in a trap, for `effective`.
///
/// That is the address itself if bits 63 to 48 are copies of bit 47. Otherwise the hart sets them
/// to the complement of bit 47, which names nothing.
#[inline]
pub(crate) fn canonical(effective: u64) -> u64 {
    let extended = sign_extended(effective);
    if extended == effective { effective } else { extended ^ !0 << VIRTUAL_BITS }
}

/// Returns the physical address behind a result of [`canonical`], or `None` if there is none.
/// Translation is off.
#[inline]
pub(crate) fn physical(address: u64) -> Option<u64> {
    (sign_extended(address) == address).then_some(address & 0xFF_FFFF_FFFF)
}

/// What lies at a physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// DRAM open to kernels; the value is the offset from [`DRAM_BASE`]. It may lie beyond the
    /// configured size.
    Dram(u64),
    /// L2 scratchpad; the value is the offset in the array of all scratchpads.
    Scratchpad(u64),
    /// An address of the scratchpad window behind which there is nothing.
    Nothing,
    /// A shire's register; the value is the offset in the ESR window.
    Esr(u64),
    /// Closed to user mode, the PCIe window included.
    Forbidden,
}

/// Finds what lies at `address`, a result of [`canonical`], for a hart of `own_shire`.
pub(crate) fn place(address: u64, own_shire: u32) -> Place {
    let Some(physical) = physical(address) else { return Place::Forbidden };
    if (USER_BASE..DRAM_END).contains(&physical) {
        Place::Dram(physical - DRAM_BASE)
    } else if SCRATCHPAD.contains(&physical) {
        scratchpad_offset(physical, own_shire).map_or(Place::Nothing, Place::Scratchpad)
    } else if ESRS.contains(&physical) {
        Place::Esr(physical - ESRS.start)
    } else {
        Place::Forbidden
    }
}

/// Translates both scratchpad formats; none if the shire or the offset does not exist.
fn scratchpad_offset(physical: u64, own_shire: u32) -> Option<u64> {
    let interleaved = physical & 0x4000_0000 != 0;
    let (shire, offset) = if interleaved {
        let shire = (physical >> 6 & 0x1F) | (physical >> 28 & 3) << 5;
        (shire, (physical >> 11 & 0x1_FFFF) << 6 | physical & 0x3F)
    } else {
        (physical >> 23 & 0x7F, physical & 0x7F_FFFF)
    };
    let shire = if shire == 0x7F { u64::from(own_shire) } else { shire };
    (shire < u64::from(SHIRES) && offset < SCRATCHPAD_BYTES)
        .then_some(shire * SCRATCHPAD_BYTES + offset)
}

/// Returns an address of a byte of the array of all scratchpads.
pub(crate) fn scratchpad_address(offset: u64) -> u64 {
    let (shire, offset) = (offset / SCRATCHPAD_BYTES, offset % SCRATCHPAD_BYTES);
    SCRATCHPAD_BASE + (shire << 23) + offset
}

/// Hart numbers of a shire that run kernels.
pub(crate) fn compute_harts(shire: u32) -> Range<u32> {
    let first = shire * HARTS_PER_SHIRE;
    let end = first + HARTS_PER_SHIRE;
    if shire == MASTER_SHIRE { FIRST_MASTER_COMPUTE_HART..end } else { first..end }
}

/// Position of a hart among all compute harts. Spec: §14
pub(crate) fn compute_index(hart_id: u32) -> u32 {
    if hart_id < FIRST_MASTER_COMPUTE_HART { hart_id } else { hart_id - FIRMWARE_HARTS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratchpads_have_addresses() {
        for offset in [0, SCRATCHPAD_BYTES - 1, SCRATCHPAD_BYTES, 33 * SCRATCHPAD_BYTES - 8] {
            assert_eq!(place(scratchpad_address(offset), 0), Place::Scratchpad(offset));
        }
    }

    #[test]
    fn both_scratchpad_formats_name_the_same_bytes() {
        assert_eq!(scratchpad_offset(0x8000_0040, 5), Some(0x40));
        assert_eq!(scratchpad_offset(0xC000_0800, 5), Some(0x40));
        assert_eq!(scratchpad_offset(0xF000_0FC0, 0), Some(0x40));
        assert_eq!(scratchpad_offset(0xBF80_0040, 0), Some(0x40));
        assert_eq!(scratchpad_offset(0xBF80_0040, 2), Some(2 * SCRATCHPAD_BYTES + 0x40));
    }

    #[test]
    fn scratchpad_ends_at_the_configured_size_and_at_the_last_shire() {
        assert_eq!(scratchpad_offset(0x8027_FFFF, 0), Some(0x27_FFFF));
        assert_eq!(scratchpad_offset(0x8028_0000, 0), None);
        assert_eq!(scratchpad_offset(0x8000_0000 + (33 << 23), 0), None);
    }

    #[test]
    fn addresses_that_are_not_canonical_become_ones_that_name_nothing() {
        for (effective, used) in [
            (0x1234_0000_0000_1000, 0xFFFF_0000_0000_1000),
            (0x4141_4141_4141_4140, 0xFFFF_4141_4141_4140),
            (0x0001_0080_0600_0000, 0xFFFF_0080_0600_0000),
            (0x8000_0000_0000, 0x8000_0000_0000),
            (0xFFFE_8000_0000_0000, 0x8000_0000_0000),
        ] {
            assert_eq!(canonical(effective), used, "{effective:#x}");
            assert_eq!(place(used, 0), Place::Forbidden, "{effective:#x}");
        }
    }

    #[test]
    fn canonical_addresses_are_used_as_they_are() {
        for address in [0, 0x80_0600_0000, 0x7FFF_FFFF_FFFF, 0xFFFF_8000_0000_0000, u64::MAX] {
            assert_eq!(canonical(address), address);
        }
        // Only the low 40 bits reach the bus.
        assert_eq!(place(0xFFFF_FF80_0600_0000, 0), Place::Dram(0x600_0000));
    }

    #[test]
    fn firmware_memory_and_the_pcie_window_are_closed() {
        for address in [DRAM_BASE, 0x80_0080_0000, 0x80_03FF_FFFF, 0x40_0000_0000, 0x7F_FFFF_FFF8] {
            assert_eq!(place(address, 0), Place::Forbidden, "{address:#x}");
        }
        assert_eq!(place(0x80_0400_0000, 0), Place::Dram(0x400_0000));
        // The firmware's communication area: kernels read their environment there.
        assert_eq!(place(0x9000_7740, 3), Place::Scratchpad(32 * SCRATCHPAD_BYTES + 0x7740));
    }

    #[test]
    fn the_master_shire_has_half_the_harts() {
        assert_eq!(compute_harts(32), 2080..2112);
        assert_eq!(compute_index(2111), 2079);
        assert_eq!((0..SHIRES).map(|shire| compute_harts(shire).len()).sum::<usize>(), 2080);
        assert_eq!(COMPUTE_HARTS, 2080);
    }
}
