//! The card: configuration space, BARs, interrupts.

use std::collections::BTreeMap;

use super::super::{Errno, Fd, Linux, Pages, Sys};

const BAR2_BYTES: u64 = 0x4000;
const BAR0_BYTES: u64 = 0x8_0000_0000;
const CONFIG: u32 = 7;
const COMMAND: usize = 4;

/// What the kernel shows of the card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) config: Vec<u8>,
    /// Bits of the command register that do not go away.
    pub(crate) stuck_command: u16,
    /// Real files behind the BARs.
    bars: BTreeMap<u32, Fd>,
    pub(crate) sizes: BTreeMap<u32, u64>,
    /// Areas that may be mapped, if not the whole region.
    pub(crate) sparse: BTreeMap<u32, Vec<(u64, u64)>>,
    /// Regions that cannot be mapped at all.
    pub(crate) trapped: Vec<u32>,
    /// Vectors the machine can give, by interrupt index.
    pub(crate) vectors: BTreeMap<u32, u32>,
    /// Vectors the card claims to have, by interrupt index.
    pub(crate) claimed_vectors: BTreeMap<u32, u32>,
    /// Enabled vectors and their event counters.
    pub(crate) irqs: BTreeMap<u32, Vec<Fd>>,
    pub(crate) has_reset: bool,
    pub(crate) resets: u32,
    pub(crate) slot_resets: u32,
    /// Groups of the devices in the slot.
    pub(crate) slot_groups: Vec<u32>,
    /// In mode cdev: the kernel says that all of them are ours.
    pub(crate) slot_owned: bool,
    /// It was opened and closed.
    pub(crate) was_open: bool,
    /// Its command register means nothing.
    pub(crate) dead: bool,
    /// The card is unplugged: calls say so.
    pub(crate) unplugged: bool,
}

impl Card {
    pub(crate) fn new(linux: &Linux) -> Self {
        let mut config = vec![0; 256];
        config[0..4].copy_from_slice(&[0x0a, 0x1e, 0x01, 0xeb]);
        config[8] = 0x02;
        config[0x2c..0x30].copy_from_slice(&[0x0a, 0x1e, 0x07, 0x00]);
        // The last owner left bus mastering on.
        config[COMMAND] = 0x06;
        config[6] = 1 << 4;
        config[0x34] = 0x50;
        config[0x50..0x52].copy_from_slice(&[0x05, 0x70]);
        config[0x70..0x72].copy_from_slice(&[0x10, 0x00]);
        config[0x74..0x78].copy_from_slice(&0x1000_8001_u32.to_le_bytes());
        let sizes = BTreeMap::from([(0, BAR0_BYTES), (2, BAR2_BYTES), (CONFIG, 256)]);
        let bars = [0, 2].map(|bar| {
            let len = usize::try_from(sizes[&bar]).unwrap();
            (bar, linux.memory_file(len, Pages::Small).unwrap())
        });
        Self {
            config,
            stuck_command: 0,
            bars: BTreeMap::from(bars),
            sizes,
            sparse: BTreeMap::new(),
            trapped: Vec::new(),
            vectors: BTreeMap::from([(1, 4), (3, 1), (4, 1)]),
            claimed_vectors: BTreeMap::from([(1, 4), (3, 1), (4, 1)]),
            irqs: BTreeMap::new(),
            has_reset: true,
            resets: 0,
            slot_resets: 0,
            slot_groups: vec![super::GROUP],
            slot_owned: true,
            was_open: false,
            dead: false,
            unplugged: false,
        }
    }

    /// Where a region is in the device's file; not where a reader of old examples would guess.
    pub(crate) fn offset(region: u32) -> u64 {
        u64::from(region) * 0x20_0000_0000 + 0x7000_0000
    }

    fn place(&self, at: u64, len: usize) -> Result<(u32, u64), Errno> {
        let found = self.sizes.iter().find_map(|(&region, &size)| {
            let inside = at.checked_sub(Self::offset(region))?;
            (inside + len as u64 <= size).then_some((region, inside))
        });
        found.ok_or(Errno::INVAL)
    }

    pub(crate) fn command(&self) -> u16 {
        u16::from_le_bytes([self.config[COMMAND], self.config[COMMAND + 1]])
    }

    pub(crate) fn is_bus_master(&self) -> bool {
        self.command() & 4 != 0
    }

    /// Makes everything read as ones.
    pub(crate) fn die(&mut self, linux: &Linux, config_too: bool) {
        linux.write_at(self.bars[&2], &[0xff; 0x2000], 0).unwrap();
        if config_too {
            self.config.fill(0xff);
        }
    }

    /// Dies behind a kernel that answers for part of its configuration space, as one was seen to
    /// do.
    pub(crate) fn die_behind(&mut self, linux: &Linux) {
        self.die(linux, false);
        self.config[4..].fill(0xff);
        self.stuck_command = 0xfbff;
        self.dead = true;
        self.config[5] = 0xfb;
    }

    /// Writes device memory behind the host's back.
    pub(crate) fn poke(&self, linux: &Linux, bar: u32, at: u64, bytes: &[u8]) {
        linux.write_at(self.bars[&bar], bytes, at).unwrap();
    }

    pub(crate) fn peek<const N: usize>(&self, linux: &Linux, bar: u32, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        linux.read_at(self.bars[&bar], &mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn read(&self, linux: &Linux, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let (region, inside) = self.place(at, into.len())?;
        if self.unplugged {
            return Err(Errno::NODEV);
        }
        if region == CONFIG {
            let start = usize::try_from(inside).unwrap();
            into.copy_from_slice(&self.config[start..start + into.len()]);
            return Ok(into.len());
        }
        linux.read_at(self.bars[&region], into, inside)
    }

    pub(crate) fn name_of_write(&self, at: u64, from: &[u8]) -> String {
        match self.place(at, from.len()) {
            Ok((CONFIG, 4)) => format!("command {:#x}", from[0]),
            Ok((region, inside)) => format!("write {region}:{inside:#x}+{}", from.len()),
            Err(_) => format!("write {at:#x}"),
        }
    }

    pub(crate) fn write(&mut self, linux: &Linux, at: u64, from: &[u8]) -> Result<usize, Errno> {
        let (region, inside) = self.place(at, from.len())?;
        if self.unplugged {
            return Err(Errno::NODEV);
        }
        if region != CONFIG {
            return linux.write_at(self.bars[&region], from, inside);
        }
        let start = usize::try_from(inside).unwrap();
        assert_eq!((start, from.len()), (COMMAND, 2), "nothing else is written");
        let value = u16::from_le_bytes([from[0], from[1]]) | self.stuck_command;
        self.config[COMMAND..COMMAND + 2].copy_from_slice(&value.to_le_bytes());
        Ok(2)
    }

    /// The real file behind part of the device's file.
    pub(crate) fn file(&self, at: u64, len: usize) -> Result<(Fd, u64), Errno> {
        let (region, inside) = self.place(at, len)?;
        let end = inside + len as u64;
        let allowed = match self.sparse.get(&region) {
            _ if self.trapped.contains(&region) || region == CONFIG => false,
            None => true,
            Some(areas) => areas.iter().any(|&(start, len)| start <= inside && end <= start + len),
        };
        if allowed { Ok((self.bars[&region], inside)) } else { Err(Errno::INVAL) }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        for &fd in self.bars.values() {
            Linux.close(fd);
        }
    }
}
