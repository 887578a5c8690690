//! The allocator of device memory against a map of intervals.
use std::collections::BTreeMap;

use et_hal::DeviceAddr;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::TestCaseError;
use proptest::{collection, prop_assert, prop_assert_eq};

use super::{AllocError, Allocator};

const BASE: u64 = 0x80_0580_1000;

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        len_bytes: u64,
        align: u64,
    },
    /// Frees the live block of this number, counted around.
    Free(usize),
    /// Frees an address that may be anything.
    FreeAt(u64),
}

fn step(len_bytes: u64) -> impl Strategy<Value = Step> {
    let size = prop_oneof![
        4 => 0..4096u64,
        2 => 0..=len_bytes / 4,
        1 => 0..=len_bytes + 64,
        1 => Just(u64::MAX),
    ];
    let align = prop_oneof![
        6 => (0..8u32).prop_map(|log2| 1 << log2),
        3 => (6..34u32).prop_map(|log2| 1 << log2),
        1 => any::<u64>(),
    ];
    prop_oneof![
        6 => (size, align).prop_map(|(len_bytes, align)| Step::Alloc { len_bytes, align }),
        4 => any::<usize>().prop_map(Step::Free),
        1 => (0..len_bytes + 64).prop_map(|offset| Step::FreeAt(BASE.wrapping_add(offset))),
    ]
}

/// What must hold: live blocks by address, and how the free space lies between them.
struct Model {
    len_bytes: u64,
    live: BTreeMap<u64, u64>,
    peak: u64,
    allocations: u64,
}

impl Model {
    fn used(&self) -> u64 {
        self.live.values().sum()
    }

    fn holes(&self) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut at = BASE;
        for (&start, &len) in &self.live {
            if start > at {
                holes.push((at, start));
            }
            at = start + len;
        }
        if at < BASE + self.len_bytes {
            holes.push((at, BASE + self.len_bytes));
        }
        holes
    }

    fn largest(&self) -> u64 {
        self.holes().iter().map(|(start, end)| end - start).max().unwrap_or(0)
    }

    fn has_room(&self, len: u64, align: u64) -> bool {
        self.holes().iter().any(|&(start, end)| {
            let first = start.checked_next_multiple_of(align.max(64));
            first.and_then(|first| first.checked_add(len)).is_some_and(|last| last <= end)
        })
    }
}

fn run(len_bytes: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut memory = Allocator::new(DeviceAddr::new(BASE), len_bytes).unwrap();
    let len_bytes = len_bytes / 64 * 64;
    let mut model = Model { len_bytes, live: BTreeMap::new(), peak: 0, allocations: 0 };
    for step in steps {
        match step {
            Step::Alloc { len_bytes, align } => alloc(&mut memory, &mut model, len_bytes, align)?,
            Step::Free(number) if !model.live.is_empty() => {
                let number = number % model.live.len();
                let (addr, len) = model.live.iter().nth(number).map(|(a, l)| (*a, *l)).unwrap();
                model.live.remove(&addr);
                prop_assert_eq!(memory.free(DeviceAddr::new(addr)), Ok(len));
            }
            Step::Free(_) => {}
            Step::FreeAt(addr) => {
                let expected = model.live.remove(&addr);
                let addr = DeviceAddr::new(addr);
                let expected = expected.ok_or(AllocError::NotAllocated { addr });
                prop_assert_eq!(memory.free(addr), expected);
            }
        }
        let stats = memory.stats();
        prop_assert_eq!(stats.total_bytes, model.len_bytes);
        prop_assert_eq!(stats.used_bytes, model.used());
        prop_assert_eq!(stats.free_bytes, model.len_bytes - model.used());
        prop_assert_eq!(stats.largest_free_bytes, model.largest());
        prop_assert_eq!(stats.peak_used_bytes, model.peak);
        prop_assert_eq!(stats.live_blocks, model.live.len() as u64);
        prop_assert_eq!(stats.allocations, model.allocations);
    }
    for &addr in model.live.keys() {
        prop_assert!(memory.free(DeviceAddr::new(addr)).is_ok());
    }
    prop_assert_eq!(memory.stats().largest_free_bytes, model.len_bytes);
    Ok(())
}

fn alloc(
    memory: &mut Allocator,
    model: &mut Model,
    len_bytes: u64,
    align: u64,
) -> Result<(), TestCaseError> {
    let result = memory.alloc(len_bytes, align);
    if len_bytes == 0 {
        prop_assert_eq!(result, Err(AllocError::ZeroLength));
        return Ok(());
    }
    if !align.is_power_of_two() {
        prop_assert_eq!(result, Err(AllocError::BadAlignment { align }));
        return Ok(());
    }
    let rounded = len_bytes.checked_next_multiple_of(64);
    match result {
        Ok(block) => {
            let addr = block.addr.as_u64();
            prop_assert_eq!(Some(block.len_bytes), rounded);
            prop_assert!(addr.is_multiple_of(align.max(64)));
            let free = |&(start, end): &(u64, u64)| start <= addr && addr + block.len_bytes <= end;
            prop_assert!(model.holes().iter().any(free), "{:?} is not free", block);
            model.live.insert(addr, block.len_bytes);
            model.peak = model.peak.max(model.used());
            model.allocations += 1;
        }
        Err(error) => {
            prop_assert!(!rounded.is_some_and(|len| model.has_room(len, align)), "{}", error);
            let free = model.len_bytes - model.used();
            let largest = model.largest();
            let (asked, holders) = (len_bytes, Vec::new());
            let expected = AllocError::OutOfMemory { asked, align, free, largest, holders };
            prop_assert_eq!(error, expected);
        }
    }
    Ok(())
}

fn memory_and_steps() -> impl Strategy<Value = (u64, Vec<Step>)> {
    prop_oneof![64..65_536u64, 65_536..1u64 << 24, Just(0x7_fa60_0000u64)]
        .prop_flat_map(|len| (Just(len), collection::vec(step(len), 1..200)))
}

proptest! {
    #[test]
    fn blocks_are_disjoint_and_memory_is_used_to_the_last_byte(case in memory_and_steps()) {
        run(case.0, case.1)?;
    }
}
