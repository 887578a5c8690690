//! What both DIRs have in common: blocks, CRC, region records.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BarSizes, DirError, DirWarning, Region, RegionRecord, Warnings};
use crate::pci::DIR_BYTES;

/// Goes through the blocks of one DIR.
pub(crate) struct Blocks<'a> {
    /// The bytes up to the total size.
    bytes: &'a [u8],
    total_size: u16,
    at: usize,
    pub(crate) warnings: Warnings,
}

/// What a region type demands. Spec: §3.6.
pub(crate) struct Rule {
    pub(crate) is_compulsory: bool,
    pub(crate) is_valid: fn(&Region) -> bool,
}

impl<'a> Blocks<'a> {
    /// Checks the total size and cuts the bytes to it.
    pub(crate) fn new(
        bytes: &'a [u8],
        header_size: u16,
        total_size: u16,
    ) -> Result<Self, DirError> {
        let (min, max) = (usize::from(header_size), bytes.len().min(DIR_BYTES));
        let bad = DirError::TotalSize { total_size, min, max };
        let total = usize::from(total_size);
        if total < min || total > max {
            return Err(bad);
        }
        let bytes = bytes.get(..total).ok_or(bad)?;
        Ok(Self { bytes, total_size, at: 0, warnings: Warnings::default() })
    }

    /// Reads the next block of which `T` is known, and goes on by the size it claims.
    pub(crate) fn block<T>(&mut self, block: &'static str) -> Result<&'a T, DirError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let past_end = DirError::BlockPastEnd { block, at: self.at, total_size: self.total_size };
        let rest = self.bytes.get(self.at..).ok_or(past_end)?;
        let size = match rest {
            [low, high, ..] => u16::from_le_bytes([*low, *high]),
            _ => return Err(past_end),
        };
        let known = size_of::<T>();
        if usize::from(size) < known {
            return Err(DirError::BlockTooSmall { block, size, known });
        }
        let whole = rest.get(..usize::from(size)).ok_or(past_end)?;
        if usize::from(size) > known {
            self.warnings.push(DirWarning::LargerBlock { at: self.at });
        }
        self.at = self.at.saturating_add(usize::from(size));
        T::ref_from_prefix(whole).map(|(known, _)| known).map_err(|_| past_end)
    }

    pub(crate) fn check_crc(&self, header_size: u16, expected: u32) -> Result<(), DirError> {
        let covered = self.bytes.get(usize::from(header_size)..).unwrap_or_default();
        let computed = crc32fast::hash(covered);
        if computed == expected { Ok(()) } else { Err(DirError::Crc { computed, expected }) }
    }

    /// Reads `count` region records into `places`, which are indexed by type.
    pub(crate) fn regions(
        &mut self,
        count: u16,
        bars: &BarSizes,
        rules: &[Rule],
        places: &mut [Option<Region>],
    ) -> Result<(), DirError> {
        let mut seen = 0u64;
        for _ in 0..count {
            let record: &RegionRecord = self.region_record()?;
            let region = Region::from_record(record);
            let kind = region.kind;
            let (Some(rule), Some(place)) =
                (rules.get(usize::from(kind)), places.get_mut(usize::from(kind)))
            else {
                self.warnings.push(DirWarning::UnknownRegion { kind });
                continue;
            };
            // One that is skipped below counts too.
            let bit = 1u64.checked_shl(u32::from(kind)).unwrap_or(0);
            if seen & bit != 0 {
                return Err(DirError::DuplicateRegion { kind });
            }
            seen |= bit;
            if region.len_bytes == 0 || !(rule.is_valid)(&region) {
                self.warnings.push(DirWarning::BadRegion { kind });
                continue;
            }
            region.check_fit(bars)?;
            *place = Some(region);
        }
        if self.at != usize::from(self.total_size) {
            self.warnings.push(DirWarning::SizeSum { sum: self.at });
        }
        for ((kind, rule), place) in (0u8..).zip(rules).zip(&*places) {
            if rule.is_compulsory && place.is_none() {
                return Err(DirError::RegionMissing { kind });
            }
        }
        check_all(places)
    }

    fn region_record(&mut self) -> Result<&'a RegionRecord, DirError> {
        self.block("region record")
    }
}

fn check_all(places: &[Option<Region>]) -> Result<(), DirError> {
    super::check_overlap(places.iter().flatten())
}

/// Checks that the numbers are not 0. Spec: §3.8.
pub(crate) fn check_nonzero(fields: &[(&'static str, u64)]) -> Result<(), DirError> {
    match fields.iter().find(|(_, value)| *value == 0) {
        Some((field, _)) => Err(DirError::QueueZero { field }),
        None => Ok(()),
    }
}

/// Writes a DIR: header with the CRC set by `seal`, queue block, regions. Returns its length;
/// `None` if it does not fit.
pub(crate) fn write<'o, H, Q>(
    header: &H,
    queues: &Q,
    regions: impl Iterator<Item = Region>,
    out: &'o mut [u8],
) -> Option<(usize, &'o mut [u8])>
where
    H: IntoBytes + Immutable,
    Q: IntoBytes + Immutable,
{
    let mut len = 0usize;
    let mut put = |bytes: &[u8], out: &mut [u8]| -> Option<()> {
        let end = len.checked_add(bytes.len())?;
        out.get_mut(len..end)?.copy_from_slice(bytes);
        len = end;
        Some(())
    };
    put(header.as_bytes(), out)?;
    put(queues.as_bytes(), out)?;
    for region in regions {
        put(region.to_record().as_bytes(), out)?;
    }
    let whole = out.get_mut(..len)?;
    Some((len, whole))
}
