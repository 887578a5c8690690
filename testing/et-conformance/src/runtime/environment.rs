//! How kernels start, and what loading does.

use et_devapi::abi::{DEFAULT_STACK_BYTES, DEFAULT_STACK_TOP, compute_hart_index};
use et_devapi::pci::{MAILBOX_BAR, MGMT_DIR, OPS_DIR};
use et_hal::{BarOffset, Hal, Mmio, Width};
use et_runtime::kernel::ElfError;
use et_runtime::{ArchRevision, CacheKind, FirmwareType, FormFactor, Kernel, Launch, LoadError};

use super::bench::Bench;
use crate::check::{check, check_eq, check_matches};
use crate::{Failure, Need, Rig, kernels};

crate::case::group! { Runtime, "runtime::environment":
    the_device_describes_itself,
    every_property_is_that_of_the_registers,
    harts_start_as_the_specification_says [Need::Compute],
    zero_fill_and_relocation_work_at_every_load_address [Need::Compute],
    custom_stacks_are_as_large_as_asked_for_and_do_not_overlap [Need::Compute],
    bad_kernels_are_refused,
    memory_comes_back_when_it_is_dropped,
}

fn the_device_describes_itself<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let properties = bench.device.properties();
    check!(properties.shire_mask != 0, "no shires");
    check_eq!(properties.shires, properties.shire_mask.count_ones(), "the number of shires");
    let compute = u32::try_from(bench.shires().len())?;
    check_eq!(
        (properties.harts, properties.cores),
        (64 * compute, 32 * compute),
        "harts and cores"
    );
    check_eq!(properties.api_version.major, et_devapi::msg::ops::API_MAJOR, "the major version");
    check!(properties.dma_max_nodes > 0 && properties.dma_align_bytes.is_power_of_two(), "DMA");
    check!(properties.queues > 0, "no queues");
    let identity = bench.device.hal().identity();
    let backend = &properties.backend;
    let versions = (backend.name.as_str(), backend.version.as_str());
    check_eq!(versions, (identity.backend, identity.backend_version), "the backend");
    let below = (backend.interface.as_deref(), backend.driver.as_deref());
    check_eq!(below, (identity.interface, identity.driver), "what is below the backend");
    check_eq!(properties.sharing, identity.sharing, "who may use the device");
    let place = (properties.pci, properties.pci_address.as_deref());
    check_eq!(place, (identity.pci, identity.pci_address), "what the device is on its bus");
    let memory = bench.device.memory_stats();
    check!(memory.total_bytes <= properties.global_memory_bytes, "{memory:?}");
    check!(memory.free_bytes + memory.used_bytes == memory.total_bytes, "{memory:?}");
    let version = bench.device.firmware_version(FirmwareType::MasterMinion)?;
    check_eq!(bench.device.firmware_version(FirmwareType::MasterMinion)?, version, "the version");
    Ok(())
}

/// Each number is read from the registers themselves, by its offset. Spec: §3.2, §3.3, §3.5
fn every_property_is_that_of_the_registers<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let properties = bench.device.properties();
    let bar2 = bench.device.hal().window(MAILBOX_BAR)?;
    let mgmt = |offset: u64, width| bar2.read(BarOffset::new(MGMT_DIR.as_u64() + offset), width);
    let byte = |offset| mgmt(offset, Width::W8);
    let word = |offset| mgmt(offset, Width::W32);
    let some = |value: u64| (value != 0).then_some(value);
    let mask = word(24)?;
    check_eq!(properties.shire_mask, mask, "the shires");
    check_eq!(u64::from(properties.master_shire), byte(47)?, "the master shire");
    let units = (properties.cores, properties.scalar_units, properties.vector_units);
    let minions = 32 * mask.count_ones();
    check_eq!(units, (minions, minions, minions), "cores, scalar and vector units");
    check!(!properties.unified_address_space, "host and device share no addresses");
    let frequency = some(word(28)?);
    check_eq!(properties.boot_frequency_mhz.map(u64::from), frequency, "the frequency");
    check_eq!(properties.timestamp_hz, frequency.map(|mhz| mhz * 1_000_000), "the time stamps");
    check_eq!(properties.memory_bandwidth_mbps.map(u64::from), some(word(20)?), "the bandwidth");
    let scratchpad = some(word(32)?).map(|kib| (kib << 10) / u64::from(mask.count_ones()));
    check_eq!(properties.local_memory_bytes, scratchpad, "the scratchpads");
    let line = byte(51)?;
    check_eq!(u64::from(properties.cache_line_bytes), line, "the cache line");
    let caches: Vec<_> = properties
        .caches
        .iter()
        .map(|c| (c.level, c.size_bytes, u64::from(c.line_bytes), c.kind, c.banks_per_shire))
        .collect();
    let kind = CacheKind::ReadWrite;
    let banks = u8::try_from(byte(46)?)?;
    let expected = [
        (2, word(36)? << 10, line, kind, Some(banks).filter(|&banks| banks != 0)),
        (3, word(40)? << 10, line, kind, None),
    ];
    let expected: Vec<_> = expected.into_iter().filter(|(_, size, ..)| *size != 0).collect();
    check_eq!(caches, expected, "the caches");
    check_eq!(properties.tdp_watts.map(u64::from), some(byte(50)?), "the power");
    let form = match byte(49)? {
        1 => FormFactor::PcieCard,
        2 => FormFactor::M2,
        other => FormFactor::Unknown(u8::try_from(other)?),
    };
    check_eq!(properties.form_factor, form, "the form factor");
    let arch = match byte(48)? {
        0 => ArchRevision::EtSoc1,
        1 => ArchRevision::Pantero,
        2 => ArchRevision::Gepardo,
        other => ArchRevision::Unknown(u8::try_from(other)?),
    };
    check_eq!(properties.arch_revision, arch, "the architecture");

    // The operations registers: header, queue block, then regions of 32 bytes each.
    let ops = |offset: u64, width| bar2.read(BarOffset::new(OPS_DIR.as_u64() + offset), width);
    let queues_at = ops(0, Width::W16)?;
    check_eq!(u64::from(properties.queues), ops(queues_at + 12, Width::W16)?, "the queues");
    let regions_at = queues_at + ops(queues_at, Width::W16)?;
    let count = ops(6, Width::W16)?;
    let mut found = false;
    for region in (0..count).map(|index| regions_at + 32 * index) {
        if ops(region + 2, Width::W8)? != 1 {
            continue;
        }
        found = true;
        let long = |offset: u64| {
            let halves = (ops(offset, Width::W16)?, ops(offset + 2, Width::W16)?);
            let upper = (ops(offset + 4, Width::W16)?, ops(offset + 6, Width::W16)?);
            Ok::<u64, Failure>(halves.0 | halves.1 << 16 | upper.0 << 32 | upper.1 << 48)
        };
        let access = ops(region + 4, Width::W16)? | ops(region + 6, Width::W16)? << 16;
        check_eq!(properties.global_memory_bytes, long(region + 16)?, "the memory");
        check_eq!(properties.constant_memory_bytes, long(region + 16)?, "constant memory");
        let base = properties.global_memory_base.as_u64();
        check_eq!(base, long(region + 24)?, "where the memory begins");
        check_eq!(properties.cpu_access, access & 1 != 0, "access by the host");
        check_eq!(properties.peer_to_peer, access >> 17 & 1 != 0, "access by other devices");
        check_eq!(u64::from(properties.dma_max_nodes), access >> 5 & 0xf, "nodes of a list");
        let node = (access >> 9 & 0xff) * (32 << 20);
        check_eq!(properties.dma_max_node_bytes, node, "bytes of a node");
        let align = [1, 1, 4, 8][usize::try_from(access >> 3 & 3)?];
        check_eq!(properties.dma_align_bytes, align, "the alignment of DMA");
    }
    check!(found, "the registers name no memory");
    let map = &properties.address_map;
    check!(map.iter().any(|range| range.base == properties.global_memory_base), "{map:?}");
    for pair in map.windows(2) {
        let end = pair[0].base.checked_add(pair[0].len_bytes);
        check!(end.is_some_and(|end| end <= pair[1].base), "ranges overlap: {pair:?}");
    }
    Ok(())
}

/// Spec: §14
fn harts_start_as_the_specification_says<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const LINE: usize = 8;
    let bench = Bench::open(rig)?;
    let properties = bench.device.properties();
    let kernel = bench.load("echo_env")?;
    let every_other = bench.masks()[1];
    let harts = 64 * u64::from(every_other.count_ones());
    let out = bench.device.alloc_aligned(64 * (harts + 1), 64)?;
    bench.done(&bench.stream().fill(&out, 0xee)?)?;
    bench.run(&Launch::new(&kernel).buffer(&out).shires(every_other))?;
    let out = bench.download::<u64>(&out)?;
    // The environment: version 0.1.0, mask, frequency.
    check_eq!(out[0] & 0xffff_ffff_ffff, 0x1_0000, "the version");
    check_eq!(out[1], every_other, "the shire mask");
    let mhz = properties.boot_frequency_mhz.map(u64::from);
    check_eq!(Some(out[2] & 0xffff_ffff), mhz, "the frequency");
    let shires = (0u32..32).filter(|shire| every_other >> shire & 1 != 0);
    let ids = shires.flat_map(|shire| (0..64).map(move |hart| 64 * shire + hart));
    for ((rank, id), hart) in (0u64..).zip(ids).zip(out[LINE..].chunks(LINE)) {
        let index = compute_hart_index(id).ok_or_else(|| Failure::new("no such hart"))? as u64;
        let stack = DEFAULT_STACK_TOP.as_u64() - index * DEFAULT_STACK_BYTES;
        check_eq!(hart[0], u64::from(id), "the id of rank {rank}");
        check_eq!(hart[1], rank, "the rank of hart {id}");
        check_eq!(hart[2], harts, "the harts that hart {id} knows of");
        check_eq!(hart[3], stack - 32, "sp of hart {id}");
        check_eq!(hart[6], 0, "ra of hart {id}");
        check_eq!(hart[7], 0, "all other registers of hart {id}");
    }
    Ok(())
}

fn zero_fill_and_relocation_work_at_every_load_address<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let mask = bench.one_shire();
    // Whatever the loader does not write keeps what is there now.
    let dirt = bench.device.alloc(1 << 20)?;
    bench.done(&bench.stream().fill(&dirt, 0xd1)?)?;
    drop(dirt);
    // Each copy is loaded somewhere else.
    let copies = [bench.load("bss")?, bench.load("bss")?, bench.load("bss")?];
    let mut places: Vec<_> = copies.iter().map(Kernel::load_address).collect();
    places.dedup();
    check_eq!(places.len(), 3, "the number of places");
    for kernel in &copies {
        for launch in 0..2 {
            let out = bench.zeroed(8 * (8 + 64))?;
            bench.run(&Launch::new(kernel).buffer(&out).shires(mask))?;
            let out = bench.download::<u64>(&out)?;
            check_eq!(out[0], 0, "bytes that were not zero in launch {launch}");
            check_eq!(out[1], 0, "bytes that did not keep what was stored");
            let (start, span) = (kernel.load_address().as_u64(), kernel.len_bytes());
            check!((start..start + span).contains(&out[2]), "zeros at {:#x}", out[2]);
            check!((start..start + span).contains(&out[3]), "code at {:#x}", out[3]);
            check_eq!((out[4], out[5]), (out[3], out[3]), "the relocated pointers");
            check_eq!(out[6], 0x0123_4567_89ab_cdef, "the initialised variable");
            check_eq!(out[7], 64, "the harts of the launch");
            for (rank, value) in (0u64..).zip(&out[8..]) {
                let expected = [rank + 1, rank * 2, rank ^ 0x55, !rank][usize::try_from(rank % 4)?];
                check_eq!(*value, expected, "what rank {rank} computed");
            }
        }
    }
    Ok(())
}

fn custom_stacks_are_as_large_as_asked_for_and_do_not_overlap<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("stack_probe")?;
    let out = bench.zeroed(16 * 64)?;
    // The highest shire: the stacks of lower ones count too.
    let shires = bench.shires();
    let mask = 1u64 << shires[shires.len() - 1];
    let probe = |bytes: u64| Launch::new(&kernel).u64(bytes).buffer(&out).shires(mask);
    // Five pages do not fit the default stack, but the one asked for.
    bench.run(&probe(20_000).stack_bytes(24 << 10))?;
    let out = bench.download::<u64>(&out)?;
    for (rank, hart) in out.chunks(2).enumerate() {
        check_eq!(hart[1], 0, "words that rank {rank} lost");
    }
    for (rank, pair) in out.chunks(2).map(|hart| hart[0]).collect::<Vec<_>>().windows(2).enumerate()
    {
        check_eq!(pair[0].wrapping_sub(pair[1]), 24 << 10, "the distance below rank {rank}");
    }
    Ok(())
}

fn bad_kernels_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let good = kernels::elf("add")?;
    let used = bench.device.memory_stats().used_bytes;
    let refused = |outcome: Result<Kernel, LoadError>| match outcome {
        Err(LoadError::Elf { source, .. }) => Ok((*source).clone()),
        other => Err(Failure::new(format!("a bad kernel gave {other:?}"))),
    };
    let load = |bytes: &[u8]| refused(bench.device.load_kernel("bad", bytes));
    check_matches!(load(&[])?, ElfError::NotElf, "an empty file");
    load(&good[..good.len() / 2])?;
    let mut narrow = good.to_vec();
    narrow[4] = 1;
    check_matches!(load(&narrow)?, ElfError::NotSixtyFourBit { .. }, "a file for 32 bits");
    let mut foreign = good.to_vec();
    foreign[18] = 62;
    check_matches!(load(&foreign)?, ElfError::WrongMachine { machine: 62 }, "a file for x86");
    let unknown = bench.device.load_kernel_entry("add", good, Some("no_such_function"));
    check_matches!(refused(unknown)?, ElfError::UnknownSymbol { .. }, "an unknown entry");
    check_eq!(bench.device.memory_stats().used_bytes, used, "the memory of refused kernels");
    Ok(())
}

fn memory_comes_back_when_it_is_dropped<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let before = bench.device.memory_stats();
    for _ in 0..3 {
        let kernel = bench.load("add")?;
        let buffers = [1, 100, 5000, 3 << 20].map(|len| bench.device.alloc(len));
        let mut ranges = vec![(kernel.load_address().as_u64(), kernel.len_bytes())];
        for buffer in &buffers {
            let buffer = buffer.as_ref().map_err(Clone::clone)?;
            check!(buffer.addr().is_aligned_to(64), "a buffer at {}", buffer.addr());
            ranges.push((buffer.addr().as_u64(), buffer.len_bytes()));
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            check!(pair[0].0 + pair[0].1 <= pair[1].0, "memory overlaps: {ranges:x?}");
        }
    }
    let after = bench.device.memory_stats();
    check_eq!(after.used_bytes, before.used_bytes, "the memory in use");
    check_eq!(after.largest_free_bytes, before.largest_free_bytes, "the largest free block");
    // All of it, in one piece.
    drop(bench.device.alloc(after.largest_free_bytes)?);
    let text = match bench.device.alloc(after.largest_free_bytes + (1 << 20)) {
        Err(error) => error.to_string(),
        Ok(_) => return Err(Failure::new("more memory than there is")),
    };
    check!(text.contains(&after.largest_free_bytes.to_string()), "{text}");
    Ok(())
}
