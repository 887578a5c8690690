//! The allocator of device memory: two-level segregated fit.
//!
//! It only keeps books on the host; device memory itself is never touched. Free blocks are held in
//! lists by size class, and two levels of bitmaps find a fitting class in constant time. Blocks
//! know their neighbours, so a freed block is merged with the free ones beside it at once, and no
//! two free blocks are ever adjacent.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use et_hal::DeviceAddr;
use thiserror::Error;

use super::usage::{TagStats, list};

/// Unit of all sizes and the least alignment, in bytes: a cache line of the device.
pub(super) const GRANULE_BYTES: u64 = 64;
/// More granules do not fit the 32-bit positions; the last value marks "none".
const MAX_GRANULES: u64 = (u32::MAX - 1) as u64;
/// No block.
const NONE: u32 = u32::MAX;
/// Base-2 logarithm of the classes that each power of two is split into.
const SPLIT_LOG2: u32 = 5;
/// Classes that each power of two is split into.
const SPLIT: usize = 1 << SPLIT_LOG2;
/// First-level rows: one for the sizes below [`SPLIT`], then one for each power of two.
const ROWS: usize = (u32::BITS - SPLIT_LOG2 + 1) as usize;

/// Why device memory was not allocated or freed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// Nothing was asked for, or the memory to manage is smaller than the unit of 64 bytes.
    #[error("a length of 0 bytes cannot be allocated")]
    ZeroLength,
    /// The alignment is not a power of two.
    #[error("alignment {align} is not a power of two")]
    BadAlignment {
        /// The alignment in bytes.
        align: u64,
    },
    /// The memory to manage does not fit the address space, or is larger than 256 GiB.
    #[error("{len_bytes} bytes from {base} on are not a range that can be managed")]
    BadRange {
        /// First byte.
        base: DeviceAddr,
        /// Length in bytes.
        len_bytes: u64,
    },
    /// No free block is large enough at this alignment.
    #[error(
        "out of device memory: {asked} bytes aligned to {align} do not fit; {free} bytes are free, the largest block has {largest}{}",
        list(holders)
    )]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Alignment asked for, in bytes.
        align: u64,
        /// Free bytes.
        free: u64,
        /// Bytes of the largest free block, whatever its alignment.
        largest: u64,
        /// Who has the memory, as far as buffers have tags: most bytes first.
        holders: Vec<TagStats>,
    },
    /// No live allocation starts at the address.
    #[error("no allocation starts at {addr}")]
    NotAllocated {
        /// The address.
        addr: DeviceAddr,
    },
}

/// A piece of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Block {
    /// First byte.
    pub addr: DeviceAddr,
    /// Length in bytes: what was asked for, rounded up to a multiple of 64.
    pub len_bytes: u64,
}

/// State of the allocator of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes that are managed.
    pub total_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes in live blocks.
    pub used_bytes: u64,
    /// Bytes of the largest free block.
    pub largest_free_bytes: u64,
    /// The most bytes that were ever in live blocks at the same time.
    pub peak_used_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Allocations so far, freed or not.
    pub allocations: u64,
}

/// An allocator of device memory.
///
/// Lengths are rounded up to 64 bytes. Allocating and freeing take constant time, except that an
/// allocation which finds no class of large enough blocks looks at every free block that might
/// still do: it fails only if there is none.
///
/// A call that returns an error has changed nothing.
///
/// Spec: §12.1
#[derive(Debug)]
pub(crate) struct Allocator {
    /// Address of granule 0.
    base: u64,
    /// Granules that are managed.
    total: u32,
    /// Granules in live blocks.
    used: u32,
    /// Most granules that were ever in live blocks.
    peak: u32,
    /// Allocations so far.
    allocations: u64,
    /// Every block, in no order; spare entries are chained from `spare`.
    nodes: Vec<Node>,
    /// First spare entry of `nodes`.
    spare: u32,
    /// Bit *r* is set if `classes[r]` is not 0.
    rows: u32,
    /// Bit *c* of entry *r* is set if class (*r*, *c*) has a free block.
    classes: [u32; ROWS],
    /// First free block of each class.
    heads: Box<[[u32; SPLIT]; ROWS]>,
    /// Live blocks by their first granule.
    live: HashMap<u32, u32, BuildHasherDefault<GranuleHasher>>,
}

/// A free or live block; all positions and lengths count granules from the start of the memory.
#[derive(Clone, Copy, Debug)]
struct Node {
    start: u32,
    len: u32,
    /// The block that ends where this one starts.
    before: u32,
    /// The block that starts where this one ends.
    after: u32,
    /// Neighbours in the list of the class, if free.
    previous: u32,
    next: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Live,
    /// Not a block.
    Spare,
}

/// A class of free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    row: usize,
    column: usize,
}

impl Class {
    /// Returns the class of blocks of `len` granules: one for each length below [`SPLIT`], then
    /// [`SPLIT`] for each power of two.
    const fn of(len: u32) -> Self {
        if len < 1 << SPLIT_LOG2 {
            return Self { row: 0, column: len as usize };
        }
        let log2 = len.ilog2();
        Self {
            row: (log2 - SPLIT_LOG2 + 1) as usize,
            column: (len >> (log2 - SPLIT_LOG2)) as usize & (SPLIT - 1),
        }
    }

    /// Returns the first class of which every block has at least `len` granules; `None` if there is
    /// none.
    fn at_least(len: u64) -> Option<Self> {
        let len = u32::try_from(len).ok()?;
        if len < 1 << SPLIT_LOG2 {
            return Some(Self::of(len));
        }
        let round = (1u32 << (len.ilog2() - SPLIT_LOG2)) - 1;
        Some(Self::of(len.checked_add(round)?))
    }
}

impl Allocator {
    /// Makes the allocator of `len_bytes` bytes from `base` on, all free.
    ///
    /// Bytes at both ends that do not fill a unit of 64 bytes are left out.
    ///
    /// # Errors
    /// [`AllocError::ZeroLength`] if no unit is left; [`AllocError::BadRange`] if the memory does
    /// not fit the address space or is larger than 256 GiB.
    pub(crate) fn new(base: DeviceAddr, len_bytes: u64) -> Result<Self, AllocError> {
        let bad_range = AllocError::BadRange { base, len_bytes };
        let end = base.as_u64().checked_add(len_bytes).ok_or_else(|| bad_range.clone())?;
        let start = base.as_u64().checked_next_multiple_of(GRANULE_BYTES);
        let start = start.ok_or_else(|| bad_range.clone())?;
        let granules = end.saturating_sub(start) / GRANULE_BYTES;
        let total = match u32::try_from(granules) {
            Ok(0) => return Err(AllocError::ZeroLength),
            Ok(total) if granules <= MAX_GRANULES => total,
            _ => return Err(bad_range),
        };
        let mut allocator = Self {
            base: start,
            total,
            used: 0,
            peak: 0,
            allocations: 0,
            nodes: Vec::new(),
            spare: NONE,
            rows: 0,
            classes: [0; ROWS],
            heads: Box::new([[NONE; SPLIT]; ROWS]),
            live: HashMap::default(),
        };
        let all = allocator.new_node(0, total, NONE, NONE);
        allocator.insert_free(all);
        Ok(allocator)
    }

    /// Allocates `len_bytes` bytes at a multiple of `align` bytes, and of 64.
    ///
    /// # Errors
    /// [`AllocError::ZeroLength`]; [`AllocError::BadAlignment`] unless `align` is a power of two;
    /// [`AllocError::OutOfMemory`] if no free block can hold it.
    pub(crate) fn alloc(&mut self, len_bytes: u64, align: u64) -> Result<Block, AllocError> {
        if len_bytes == 0 {
            return Err(AllocError::ZeroLength);
        }
        if !align.is_power_of_two() {
            return Err(AllocError::BadAlignment { align });
        }
        let found = u32::try_from(len_bytes.div_ceil(GRANULE_BYTES))
            .ok()
            .and_then(|len| Some((self.find(len, align.max(GRANULE_BYTES))?, len)));
        let Some(((node, pad), len)) = found else {
            return Err(AllocError::OutOfMemory {
                asked: len_bytes,
                align,
                free: bytes(self.total - self.used),
                largest: bytes(self.largest_free()),
                holders: Vec::new(),
            });
        };
        let start = self.carve(node, pad, len);
        self.live.insert(start, node);
        self.used += len;
        self.peak = self.peak.max(self.used);
        self.allocations += 1;
        Ok(Block { addr: self.addr_of(start), len_bytes: bytes(len) })
    }

    /// Frees the block that starts at `addr`, and returns its length in bytes.
    ///
    /// # Errors
    /// [`AllocError::NotAllocated`] if no live block starts there.
    pub(crate) fn free(&mut self, addr: DeviceAddr) -> Result<u64, AllocError> {
        let mut node = addr
            .checked_offset_from(DeviceAddr::new(self.base))
            .filter(|offset| offset % GRANULE_BYTES == 0)
            .and_then(|offset| u32::try_from(offset / GRANULE_BYTES).ok())
            .and_then(|start| self.live.remove(&start))
            .ok_or(AllocError::NotAllocated { addr })?;
        let Node { len, before, after, .. } = *self.node(node);
        self.used -= len;
        if self.is_free(after) {
            self.remove_free(after);
            self.absorb_next(node);
        }
        if self.is_free(before) {
            self.remove_free(before);
            self.absorb_next(before);
            node = before;
        }
        self.insert_free(node);
        Ok(bytes(len))
    }

    /// Returns the bytes in live blocks.
    pub(super) fn used_bytes(&self) -> u64 {
        bytes(self.used)
    }

    /// Returns how much memory is used and free.
    ///
    /// Takes time in proportion to the free blocks in the class of the largest one.
    #[must_use]
    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            total_bytes: bytes(self.total),
            free_bytes: bytes(self.total - self.used),
            used_bytes: bytes(self.used),
            largest_free_bytes: bytes(self.largest_free()),
            peak_used_bytes: bytes(self.peak),
            live_blocks: self.live.len() as u64,
            allocations: self.allocations,
        }
    }

    fn addr_of(&self, start: u32) -> DeviceAddr {
        DeviceAddr::new(self.base + bytes(start))
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    fn is_free(&self, index: u32) -> bool {
        index != NONE && self.node(index).state == State::Free
    }

    /// Finds a free block for `len` granules at an address that is a multiple of `align` bytes, and
    /// the granules to skip at its start.
    fn find(&self, len: u32, align: u64) -> Option<(u32, u32)> {
        // A block of the same class may be a tighter fit than any of the next one; the first of
        // them was freed last, which is the common case of a buffer replaced by one of the same
        // size.
        let own = Class::of(len);
        let head = self.heads[own.row][own.column];
        if let Some(pad) = self.fits(head, len, align) {
            return Some((head, pad));
        }
        // Any block of this length fits, wherever it starts.
        let roomy = u64::from(len) + (align / GRANULE_BYTES - 1);
        if let Some(class) = Class::at_least(roomy).and_then(|class| self.class_from(class)) {
            let head = self.heads[class.row][class.column];
            return Some((head, self.fits(head, len, align)?));
        }
        self.search(own, len, align)
    }

    /// Tries every free block from class `first` on.
    #[cold]
    fn search(&self, first: Class, len: u32, align: u64) -> Option<(u32, u32)> {
        let mut class = self.class_from(first);
        while let Some(Class { row, column }) = class {
            let mut node = self.heads[row][column];
            while node != NONE {
                if let Some(pad) = self.fits(node, len, align) {
                    return Some((node, pad));
                }
                node = self.node(node).next;
            }
            let after = if column + 1 < SPLIT {
                Class { row, column: column + 1 }
            } else {
                Class { row: row + 1, column: 0 }
            };
            class = self.class_from(after);
        }
        None
    }

    /// Returns the granules to skip at the start of a free block so that `len` granules at a
    /// multiple of `align` bytes fit; `None` if they do not.
    fn fits(&self, index: u32, len: u32, align: u64) -> Option<u32> {
        let node = self.nodes.get(index as usize)?;
        let addr = self.base + bytes(node.start);
        let pad = (addr.checked_next_multiple_of(align)? - addr) / GRANULE_BYTES;
        let pad = u32::try_from(pad).ok()?;
        (pad.checked_add(len)? <= node.len).then_some(pad)
    }

    /// Returns the first class from `from` on that has a free block.
    fn class_from(&self, from: Class) -> Option<Class> {
        let columns = self.classes.get(from.row)? & (u32::MAX << from.column);
        if columns != 0 {
            return Some(Class { row: from.row, column: columns.trailing_zeros() as usize });
        }
        let rows = self.rows & (u32::MAX << from.row) & !(1 << from.row);
        if rows == 0 {
            return None;
        }
        let row = rows.trailing_zeros() as usize;
        Some(Class { row, column: self.classes[row].trailing_zeros() as usize })
    }

    fn largest_free(&self) -> u32 {
        if self.rows == 0 {
            return 0;
        }
        let row = self.rows.ilog2() as usize;
        let mut node = self.heads[row][self.classes[row].ilog2() as usize];
        let mut largest = 0;
        while node != NONE {
            largest = largest.max(self.node(node).len);
            node = self.node(node).next;
        }
        largest
    }

    /// Makes a free block live, after splitting off `pad` granules before and whatever is left
    /// after `len`; returns its start.
    fn carve(&mut self, index: u32, pad: u32, len: u32) -> u32 {
        self.remove_free(index);
        let Node { start, len: whole, before, after, .. } = *self.node(index);
        if pad > 0 {
            let head = self.new_node(start, pad, before, index);
            if before != NONE {
                self.node_mut(before).after = head;
            }
            self.node_mut(index).before = head;
            self.insert_free(head);
        }
        let rest = whole - pad - len;
        if rest > 0 {
            let tail = self.new_node(start + pad + len, rest, index, after);
            if after != NONE {
                self.node_mut(after).before = tail;
            }
            self.node_mut(index).after = tail;
            self.insert_free(tail);
        }
        let node = self.node_mut(index);
        node.start = start + pad;
        node.len = len;
        node.start
    }

    /// Merges the block after `index` into it. Both are in no list.
    fn absorb_next(&mut self, index: u32) {
        let gone = self.node(index).after;
        let Node { len, after, .. } = *self.node(gone);
        let spare = self.spare;
        let node = self.node_mut(gone);
        node.state = State::Spare;
        node.next = spare;
        self.spare = gone;
        let node = self.node_mut(index);
        node.len += len;
        node.after = after;
        if after != NONE {
            self.node_mut(after).before = index;
        }
    }

    fn new_node(&mut self, start: u32, len: u32, before: u32, after: u32) -> u32 {
        let node =
            Node { start, len, before, after, previous: NONE, next: NONE, state: State::Live };
        let index = self.spare;
        if index == NONE {
            // There are never more blocks than granules.
            let index = u32::try_from(self.nodes.len()).expect("granules are counted in 32 bits");
            self.nodes.push(node);
            return index;
        }
        self.spare = self.node(index).next;
        *self.node_mut(index) = node;
        index
    }

    fn insert_free(&mut self, index: u32) {
        let Class { row, column } = Class::of(self.node(index).len);
        let next = std::mem::replace(&mut self.heads[row][column], index);
        let node = self.node_mut(index);
        node.state = State::Free;
        node.previous = NONE;
        node.next = next;
        if next != NONE {
            self.node_mut(next).previous = index;
        }
        self.classes[row] |= 1 << column;
        self.rows |= 1 << row;
    }

    /// Takes a free block out of its list; until it is put into one again it counts as live.
    fn remove_free(&mut self, index: u32) {
        let Node { len, previous, next, .. } = *self.node(index);
        self.node_mut(index).state = State::Live;
        if next != NONE {
            self.node_mut(next).previous = previous;
        }
        if previous != NONE {
            self.node_mut(previous).next = next;
            return;
        }
        let Class { row, column } = Class::of(len);
        self.heads[row][column] = next;
        if next == NONE {
            self.classes[row] &= !(1 << column);
            if self.classes[row] == 0 {
                self.rows &= !(1 << row);
            }
        }
    }
}

const fn bytes(granules: u32) -> u64 {
    granules as u64 * GRANULE_BYTES
}

/// Hash of one 32-bit position. The positions are the allocator's own, so no one can choose them to
/// collide.
#[derive(Clone, Copy, Debug, Default)]
struct GranuleHasher(u64);

impl Hasher for GranuleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        // 2^64 divided by the golden ratio; the product's high bits are well mixed, and the table
        // uses both ends.
        let product = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests {
    use super::*;

    const BASE: DeviceAddr = DeviceAddr::new(0x80_0580_1000);
    const DRAM: u64 = 0x7_fa60_0000;

    fn allocator(len_bytes: u64) -> Allocator {
        Allocator::new(BASE, len_bytes).unwrap()
    }

    /// Checks every link and every bit.
    fn check(allocator: &Allocator) {
        let mut at = 0;
        let mut before = NONE;
        let mut blocks = 0;
        let mut live = 0;
        let mut index = allocator
            .nodes
            .iter()
            .position(|node| node.state != State::Spare && node.start == 0)
            .map_or(NONE, |index| u32::try_from(index).unwrap());
        while index != NONE {
            let node = allocator.node(index);
            assert_eq!(node.start, at);
            assert_eq!(node.before, before);
            assert!(node.len > 0);
            assert!(!(allocator.is_free(before) && allocator.is_free(index)), "not merged");
            if node.state == State::Live {
                assert_eq!(allocator.live.get(&at), Some(&index));
                live += node.len;
            }
            at += node.len;
            blocks += 1;
            before = index;
            index = node.after;
        }
        assert_eq!(at, allocator.total);
        assert_eq!(live, allocator.used);
        let spare = allocator.nodes.iter().filter(|node| node.state == State::Spare).count();
        assert_eq!(blocks + spare, allocator.nodes.len());

        let mut free = 0;
        for row in 0..ROWS {
            assert_eq!(allocator.rows & 1 << row != 0, allocator.classes[row] != 0);
            for column in 0..SPLIT {
                let mut index = allocator.heads[row][column];
                assert_eq!(allocator.classes[row] & 1 << column != 0, index != NONE);
                let mut previous = NONE;
                while index != NONE {
                    let node = allocator.node(index);
                    assert_eq!(node.state, State::Free);
                    assert_eq!(node.previous, previous);
                    assert_eq!(Class::of(node.len), Class { row, column });
                    free += node.len;
                    previous = index;
                    index = node.next;
                }
            }
        }
        assert_eq!(free + allocator.used, allocator.total);
    }

    #[test]
    fn classes_are_ordered_by_length() {
        let key = |len| {
            let Class { row, column } = Class::of(len);
            row * SPLIT + column
        };
        let mut lens: Vec<u32> = (0..5000).chain((12..32).map(|log2| 1 << log2)).collect();
        lens.extend(
            (12..32).flat_map(|log2| [(1u32 << log2) - 1, (1 << log2) + 1, 3 << (log2 - 1)]),
        );
        lens.push(u32::MAX);
        lens.sort_unstable();
        for pair in lens.windows(2) {
            assert!(key(pair[0]) <= key(pair[1]), "{pair:?}");
        }
        assert!(key(u32::MAX) < ROWS * SPLIT);
        for &len in &lens {
            let Some(class) = Class::at_least(u64::from(len)) else {
                continue;
            };
            assert!(class.row * SPLIT + class.column >= key(len));
            // No block that is too short is in this class or a later one.
            assert!(len == 0 || key(len - 1) < class.row * SPLIT + class.column, "{len}");
        }
    }

    #[test]
    fn a_hole_is_reused() {
        let mut memory = allocator(1 << 20);
        let blocks: Vec<Block> = (0..100).map(|_| memory.alloc(1000, 64).unwrap()).collect();
        memory.free(blocks[50].addr).unwrap();
        assert_eq!(memory.alloc(1000, 64).unwrap(), blocks[50]);
        check(&memory);
    }

    #[test]
    fn neighbours_are_merged_in_any_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut memory = allocator(4096);
            let blocks: Vec<Block> = (0..3).map(|_| memory.alloc(64, 64).unwrap()).collect();
            for index in order {
                assert_eq!(memory.free(blocks[index].addr), Ok(64));
                check(&memory);
            }
            assert_eq!(memory.stats().largest_free_bytes, 4096);
        }
    }

    #[test]
    fn memory_can_be_used_to_the_last_byte() {
        for len in [64, 128, 2048, 4096, 1 << 20, DRAM, 64 * 12_345] {
            let mut memory = allocator(len);
            let all = memory.alloc(len, 64).unwrap();
            assert_eq!(all, Block { addr: BASE, len_bytes: len });
            assert!(matches!(memory.alloc(1, 1), Err(AllocError::OutOfMemory { free: 0, .. })));
            memory.free(all.addr).unwrap();
            check(&memory);
        }
        let mut memory = allocator(64 * 1000);
        let blocks: Vec<Block> = (0..1000).map(|_| memory.alloc(1, 1).unwrap()).collect();
        assert_eq!(memory.stats().free_bytes, 0);
        for block in blocks {
            memory.free(block.addr).unwrap();
        }
        assert_eq!(memory.stats().largest_free_bytes, 64_000);
        check(&memory);
    }

    #[test]
    fn addresses_are_aligned_up_to_a_gibibyte() {
        let mut memory = allocator(DRAM);
        let mut blocks = Vec::new();
        for log2 in 0..=30 {
            let block = memory.alloc(100, 1 << log2).unwrap();
            assert!(block.addr.is_aligned_to(1 << log2) && block.addr.is_aligned_to(64));
            blocks.push(block);
            check(&memory);
        }
        for block in blocks {
            memory.free(block.addr).unwrap();
        }
        check(&memory);
        assert_eq!(memory.stats().largest_free_bytes, DRAM);
    }

    #[test]
    fn an_aligned_block_is_found_where_only_one_place_is_left() {
        // The aligned address is the third page; no block is as long as length plus alignment.
        let mut memory = Allocator::new(DeviceAddr::new(0x1000), 0x2000).unwrap();
        let block = memory.alloc(0x1000, 0x2000).unwrap();
        assert_eq!(block.addr, DeviceAddr::new(0x2000));
        assert_eq!(memory.alloc(0x1000, 64).unwrap().addr, DeviceAddr::new(0x1000));
        check(&memory);
    }

    #[test]
    fn mistakes_are_refused_and_change_nothing() {
        let mut memory = allocator(1 << 20);
        let block = memory.alloc(4096, 64).unwrap();
        let before = memory.stats();
        assert_eq!(memory.alloc(0, 64), Err(AllocError::ZeroLength));
        for align in [0, 3, 65, u64::MAX] {
            assert_eq!(memory.alloc(1, align), Err(AllocError::BadAlignment { align }));
        }
        assert!(matches!(memory.alloc(u64::MAX, 64), Err(AllocError::OutOfMemory { .. })));
        assert!(matches!(memory.alloc(64, 1 << 63), Err(AllocError::OutOfMemory { .. })));
        for addr in [0, BASE.as_u64() + 64, BASE.as_u64() + 1, BASE.as_u64() - 64, u64::MAX] {
            let addr = DeviceAddr::new(addr);
            assert_eq!(memory.free(addr), Err(AllocError::NotAllocated { addr }));
        }
        assert_eq!(memory.stats(), before);
        assert_eq!(memory.free(block.addr), Ok(4096));
        assert_eq!(memory.free(block.addr), Err(AllocError::NotAllocated { addr: block.addr }));
        check(&memory);
    }

    #[test]
    fn ranges_are_checked_and_trimmed() {
        assert_eq!(Allocator::new(BASE, 63).err(), Some(AllocError::ZeroLength));
        assert_eq!(Allocator::new(DeviceAddr::new(1), 126).err(), Some(AllocError::ZeroLength));
        for (base, len_bytes) in [(u64::MAX, 64), (0, u64::MAX), (1, 1 << 39), (u64::MAX, 0)] {
            let base = DeviceAddr::new(base);
            let error = Allocator::new(base, len_bytes).err();
            assert_eq!(error, Some(AllocError::BadRange { base, len_bytes }));
        }
        let trimmed = Allocator::new(DeviceAddr::new(1), 255).unwrap();
        assert_eq!(trimmed.stats().total_bytes, 192);
        assert_eq!(trimmed.addr_of(0), DeviceAddr::new(64));
    }

    #[test]
    fn errors_say_what_is_missing() {
        let mut memory = allocator(1 << 20);
        memory.alloc(1 << 19, 64).unwrap();
        let error = memory.alloc(1 << 20, 128).unwrap_err();
        assert_eq!(
            error.to_string(),
            "out of device memory: 1048576 bytes aligned to 128 do not fit; 524288 bytes are free, the largest block has 524288"
        );
        assert_eq!(
            AllocError::BadAlignment { align: 3 }.to_string(),
            "alignment 3 is not a power of two"
        );
        let error = memory.free(DeviceAddr::new(0x40)).unwrap_err();
        assert_eq!(error.to_string(), "no allocation starts at 0x40");
    }

    #[test]
    fn statistics_follow_every_call() {
        let mut memory = allocator(1 << 20);
        let first = memory.alloc(100, 64).unwrap();
        memory.alloc(64, 64).unwrap();
        memory.free(first.addr).unwrap();
        assert_eq!(
            memory.stats(),
            MemoryStats {
                total_bytes: 1 << 20,
                free_bytes: (1 << 20) - 64,
                used_bytes: 64,
                largest_free_bytes: (1 << 20) - 192,
                peak_used_bytes: 192,
                live_blocks: 1,
                allocations: 2,
            }
        );
    }

    #[test]
    fn the_allocator_can_move_between_threads() {
        fn movable<T: Send + Sync>() {}
        movable::<Allocator>();
    }
}
