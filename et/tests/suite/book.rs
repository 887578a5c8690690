//! Figures of the book that the code has, too.

use crate::common::open;
use et::memory::AllocError;
use et::{Error, kernel};

const MEMORY: &str = include_str!("../../../docs/src/memory.md");

#[test]
fn the_book_has_the_memory_that_the_card_has() {
    let device = open("shires=1,dram=1GiB");
    let properties = device.properties();
    assert!(properties.address_map.len() > 5);
    for range in &properties.address_map {
        let row = format!("| {} | `{:#x}` |", range.name, range.base.as_u64());
        assert!(MEMORY.contains(&row), "{row}");
    }
    let named = |text: String| assert!(MEMORY.contains(&text), "{text}");
    named(format!("lengths are multiples of `dma_align_bytes`, {} on", properties.dma_align_bytes));
    named(format!("arguments above 1 MiB ({} bytes)", kernel::MAX_ARGS));
    // The unit, and that blocks are merged at once.
    let before = device.memory_stats();
    let block = device.alloc(1).unwrap();
    let unit = before.free_bytes - device.memory_stats().free_bytes;
    named(format!("| {unit} bytes, a cache line |"));
    let align = 1 << 20;
    assert_eq!(device.alloc_aligned(64, align).unwrap().addr().as_u64() % align, 0);
    drop(block);
    assert_eq!(device.memory_stats().largest_free_bytes, before.largest_free_bytes);
    let none = device.alloc(0).unwrap_err();
    assert!(matches!(none, Error::Memory(AllocError::ZeroLength)), "{none}");
}
