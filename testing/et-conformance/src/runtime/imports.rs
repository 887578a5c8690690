//! Memory of the caller.

#![expect(unsafe_code, reason = "looks at memory that was lent, while nothing writes it")]

use std::sync::Arc;

use et_hal::{DeviceAccess, Hal};
use et_runtime::Error;
use et_runtime::memory::{Bounce, Pages};

use super::bench::{Bench, floats, pattern};
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Rig};

crate::case::group! { Runtime, "runtime::imports":
    memory_of_the_caller_is_copied_from_and_to_where_it_is,
    what_cannot_be_imported_says_so_and_is_copied_all_the_same,
    memory_for_reading_may_be_shared_and_is_not_written,
    parts_of_memory_of_the_caller_are_copied_without_their_surroundings,
}

/// As many whole granules as hold `len` bytes.
fn pages<H: Hal>(bench: &Bench<H>, len: usize) -> Result<Pages, Failure> {
    let granule = bench.device.import_granule().unwrap_or(4096);
    Pages::zeroed(len, granule).ok_or_else(|| Failure::new("no memory"))
}

fn memory_of_the_caller_is_copied_from_and_to_where_it_is<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    for len in [1, 4096, rig.times(3 << 20, 200_000)] {
        let mut owner = pages(&bench, len)?;
        let len = owner.len();
        let data = pattern(len);
        owner.copy_from_slice(&data);
        let address = owner.as_ptr();
        let lent = bench.device.import_mut(owner, DeviceAccess::ReadWrite)?;
        let is_direct = lent.is_zero_copy();
        match (bench.device.import_granule(), lent.bounce()) {
            (Some(_), None | Some(Bounce::Refused(_))) | (None, Some(Bounce::Unsupported)) => {}
            (granule, bounce) => {
                return Err(Failure::new(format!("granule {granule:?}, bounced: {bounce:?}")));
            }
        }
        let target = bench.device.alloc(len as u64)?;
        let lent = bench.stream().upload(lent, &target)?.wait(bench.patience)?;
        same("what was uploaded", &bench.download(&target)?, &data)?;
        let mut news = data.clone();
        news.reverse();
        bench.done(&bench.stream().copy_to_device(&news, &target)?)?;
        let lent = bench.stream().download(&target, lent)?.wait(bench.patience)?;
        if is_direct {
            // SAFETY: the owner is inside `lent`, and the device has no command that concerns it.
            let seen = unsafe { std::slice::from_raw_parts(address, len) };
            same("the memory of the caller itself", seen, &news)?;
        }
        let owner: Pages = lent.into_owner().map_err(|_| Failure::new("another owner"))?;
        check_eq!(owner.as_ptr(), address, "the place of the memory");
        same("what came back", &owner, &news)?;
    }
    Ok(())
}

fn what_cannot_be_imported_says_so_and_is_copied_all_the_same<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let granule = bench.device.import_granule();
    for count in [1, 1000, 100_003] {
        let data = floats(7, u32::try_from(count)?);
        let lent = bench.device.import_mut(data.clone(), DeviceAccess::ReadWrite)?;
        let expected = granule.map_or(Bounce::Unsupported, Bounce::Granule);
        check_eq!(lent.bounce(), Some(expected), "why {count} floats are not imported");
        let target = bench.device.alloc(count as u64 * 4)?;
        let lent = bench.stream().upload(lent, &target)?.wait(bench.patience)?;
        same("what was uploaded", &bench.download::<f32>(&target)?, &data)?;
        bench.done(&bench.stream().fill(&target, 0x41)?)?;
        let lent = bench.stream().download(&target, lent)?.wait(bench.patience)?;
        let owner: Vec<f32> = lent.into_owner().map_err(|_| Failure::new("another owner"))?;
        let expected = f32::from_bits(0x4141_4141);
        same("what came back", &owner, &vec![expected; count])?;
    }
    let lent = bench.device.import_mut(Vec::<u8>::new(), DeviceAccess::Read)?;
    check!(lent.is_empty() && !lent.is_zero_copy(), "nothing was imported");
    Ok(())
}

fn memory_for_reading_may_be_shared_and_is_not_written<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    static NUMBERS: [f32; 5] = [1.0, -2.0, 3.5, 0.0, 9.0];
    let bench = Bench::open(rig)?;
    let data: Arc<[u8]> = pattern(8192).into();
    for lent in [
        bench.device.import(Arc::clone(&data))?,
        bench.device.import(&NUMBERS[..]).map_err(|refused| refused.error)?,
    ] {
        let target = bench.device.alloc(lent.len_bytes() as u64)?;
        let mut expected = vec![0u8; lent.len_bytes()];
        lent.copy_out(0, &mut expected)?;
        let lent = bench.stream().upload(lent, &target)?.wait(bench.patience)?;
        same("what was uploaded", &bench.download::<u8>(&target)?, &expected)?;
        let outcome = bench.stream().download(&target, lent);
        check_matches!(outcome, Err(Error::Access { .. }), "a download to what is for reading");
    }
    check_eq!(Arc::strong_count(&data), 1, "the owners left");
    same("what others read", &data, &pattern(8192))?;
    Ok(())
}

fn parts_of_memory_of_the_caller_are_copied_without_their_surroundings<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let data = pattern(2048);
    let target = bench.upload(&data)?;
    // One that can be imported where that is possible, and one that cannot.
    let mut whole = pages(&bench, 12_288)?;
    whole.fill(0x5c);
    let len = whole.len();
    let odd = vec![0x5cu8; len + 8];
    for lent in [
        bench.device.import_mut(whole, DeviceAccess::Write).map_err(|refused| refused.error)?,
        bench.device.import_mut(odd, DeviceAccess::Write).map_err(|refused| refused.error)?,
    ] {
        let copies = [(4096 - 64, target.whole())];
        let lent = bench.stream().download_list(&copies, lent)?.wait(bench.patience)?;
        let owner = match lent.into_owner::<Pages>() {
            Ok(pages) => pages.to_vec(),
            Err(lent) => lent.into_owner().map_err(|_| Failure::new("another owner"))?,
        };
        same("the part", &owner[4032..4032 + 2048], &data)?;
        same("before it", &owner[..4032], &[0x5c; 4032])?;
        let behind = &owner[4032 + 2048..];
        same("behind it", behind, &vec![0x5c; behind.len()])?;
    }
    Ok(())
}
