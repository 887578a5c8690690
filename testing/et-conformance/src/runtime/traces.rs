//! What kernels trace. Spec: §16

use et_devapi::abi::HARTS_PER_SHIRE;
use et_devapi::trace::{
    BufferType, EntryHeader, EntryType, MAGIC, TraceHeader, TraceSizeHeader, ValueU64,
};
use et_hal::{Dma, ErrorKind, Hal};
use et_runtime::kernel::UserTrace;
use et_runtime::trace::{FirmwareTraceConfig, KernelTraceConfig, Losses};
use et_runtime::{DeviceBuffer, Kernel, Launch};
use zerocopy::FromBytes;

use super::bench::Bench;
use crate::check::{check, check_eq};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::traces":
    each_selected_hart_traces_into_its_own_part [Need::Compute],
    a_full_part_starts_again_behind_its_header [Need::Compute],
    strings_obey_kinds_and_levels [Need::Compute],
    a_launch_that_does_not_trace_leaves_the_last_trace_alone [Need::Compute],
    a_trace_that_is_read_has_all_harts_and_is_empty_then [Need::Compute],
    what_firmware_traces_can_be_decoded,
}

/// What a buffer holds before a launch.
const OLD: u8 = 0xee;
/// Strings, up to level debug.
const STRINGS: (u32, u32) = (1, 4);
const INFO: u64 = 3;

/// A trace that cases look into.
struct Traced {
    config: UserTrace,
    buffer: DeviceBuffer,
    /// Bytes of each part.
    part_bytes: usize,
}

impl Traced {
    fn new<H: Hal>(
        bench: &Bench<H>,
        (shire_mask, thread_mask): (u64, u64),
        part_bytes: usize,
        (event_mask, filter_mask): (u32, u32),
    ) -> Result<Self, Failure> {
        let harts = u64::from(shire_mask.count_ones() * thread_mask.count_ones());
        let buffer = bench.device.alloc_aligned(harts * part_bytes as u64, 64)?;
        bench.done(&bench.stream().fill(&buffer, OLD)?)?;
        let config = UserTrace {
            buffer: (&buffer).into(),
            threshold: 0,
            shire_mask,
            thread_mask,
            event_mask,
            filter_mask,
        };
        Ok(Self { config, buffer, part_bytes })
    }

    /// The harts that trace, in the order of their parts.
    fn harts(&self) -> Vec<u32> {
        let bits = |mask: u64| (0..64).filter(move |bit| mask >> bit & 1 != 0);
        let threads = || bits(self.config.thread_mask);
        bits(self.config.shire_mask)
            .flat_map(|shire| threads().map(move |thread| shire * HARTS_PER_SHIRE + thread))
            .collect()
    }
}

/// An entry without its time.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Value { tag: u32, value: u64 },
    Text(String),
}

/// What the kernel traces on a hart.
fn expected(hart: u32, values: u32) -> Vec<Entry> {
    let value = |tag| Entry::Value { tag, value: (u64::from(hart) << 32) + u64::from(tag) };
    let text = format!("hart {hart:04} of shire {:02}", hart / HARTS_PER_SHIRE);
    (0..values).map(value).chain([Entry::Text(text)]).collect()
}

/// Bytes of an entry. Spec: §16.2
fn len_of(entry: &Entry) -> usize {
    match entry {
        Entry::Value { .. } => 32,
        Entry::Text(text) => 16 + (text.len() + 8) / 8 * 8,
    }
}

/// Reads `bytes`, which hold whole entries of `hart`; their times must not run backwards.
fn entries(mut bytes: &[u8], hart: u32) -> Result<Vec<Entry>, Failure> {
    let mut found = Vec::new();
    let mut last_cycle = 0;
    while !bytes.is_empty() {
        let short = || Failure::new(format!("half an entry of hart {hart}: {bytes:x?}"));
        let (header, _) = EntryHeader::read_from_prefix(bytes).map_err(|_| short())?;
        check_eq!(u32::from(header.hart_id.get()), hart, "who wrote an entry");
        check!(header.cycle.get() >= last_cycle, "the clock of hart {hart} runs backwards");
        last_cycle = header.cycle.get();
        let len = size_of::<EntryHeader>() + usize::try_from(header.payload_size.get())?;
        let entry = bytes.get(..len).ok_or_else(short)?;
        found.push(match EntryType::from_number(header.r#type.get()) {
            Some(EntryType::ValueU64) => {
                let entry = ValueU64::read_from_bytes(entry).map_err(|_| short())?;
                Entry::Value { tag: entry.tag.get(), value: entry.value.get() }
            }
            Some(EntryType::String) => {
                let text = entry[16..].split(|byte| *byte == 0).next().unwrap_or_default();
                Entry::Text(String::from_utf8_lossy(text).into_owned())
            }
            _ => return Err(Failure::new(format!("hart {hart} traced {header:?}"))),
        });
        bytes = &bytes[len..];
    }
    Ok(found)
}

/// A part of a buffer: its hart, where its entries begin, how many bytes are used, all its bytes.
type Part<'a> = (u32, usize, usize, &'a [u8]);

/// Returns the parts of a buffer after a launch, with their headers checked.
fn parts<'a>(traced: &Traced, bytes: &'a [u8]) -> Result<Vec<Part<'a>>, Failure> {
    let harts = traced.harts();
    let mut found = Vec::new();
    for (index, (part, hart)) in bytes.chunks(traced.part_bytes).zip(harts.iter()).enumerate() {
        let (first, used) = if index == 0 {
            let (header, _) = TraceHeader::read_from_prefix(part).map_err(|_| short(*hart))?;
            check_eq!(header.magic_header.get(), MAGIC, "the magic number");
            check_eq!(header.r#type.get(), BufferType::CmUmode as u16, "the type of the buffer");
            let size = usize::try_from(header.sub_buffer_size.get())?;
            check_eq!(size, traced.part_bytes, "the size of parts");
            check_eq!(usize::from(header.sub_buffer_count.get()), harts.len(), "parts");
            (size_of::<TraceHeader>(), header.data_size.get())
        } else {
            let (header, _) = TraceSizeHeader::read_from_prefix(part).map_err(|_| short(*hart))?;
            (size_of::<TraceSizeHeader>(), header.data_size.get())
        };
        let used = usize::try_from(used)?;
        check!(first <= used && used <= part.len(), "hart {hart} used {used} bytes");
        found.push((*hart, first, used, part));
    }
    check_eq!(found.len(), harts.len(), "the number of parts");
    Ok(found)
}

fn short(hart: u32) -> Failure {
    Failure::new(format!("no header in the part of hart {hart}"))
}

fn launch(kernel: &Kernel, mask: u64, values: u32) -> Launch {
    Launch::new(kernel).u64(values.into()).u64(INFO).shires(mask)
}

fn each_selected_hart_traces_into_its_own_part<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const VALUES: u32 = 7;
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trace")?;
    let [_, every_other, all] = bench.masks();
    for threads in [1 << 63 | 1 << 6 | 1 << 5 | 1, u64::MAX] {
        let traced = Traced::new(&bench, (every_other, threads), 512, STRINGS)?;
        bench.run(&launch(&kernel, all, VALUES).trace(traced.config.clone()))?;
        let bytes = bench.download::<u8>(&traced.buffer)?;
        for (hart, first, used, part) in parts(&traced, &bytes)? {
            check_eq!(entries(&part[first..used], hart)?, expected(hart, VALUES), "of {hart}");
            let behind = part[used..].iter().filter(|byte| **byte != OLD).count();
            check_eq!(behind, 0, "bytes changed behind the entries of hart {hart}");
        }
    }
    Ok(())
}

fn a_full_part_starts_again_behind_its_header<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    const PART: usize = 448;
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trace")?;
    let shires = bench.one_shire();
    // Just full, one entry too many, and several times around.
    for values in [11, 12, 13, 100] {
        let traced = Traced::new(&bench, (shires, 0b11), PART, STRINGS)?;
        bench.run(&launch(&kernel, shires, values).trace(traced.config.clone()))?;
        let bytes = bench.download::<u8>(&traced.buffer)?;
        for (hart, first, used, part) in parts(&traced, &bytes)? {
            // The entries since the last time around.
            let (mut last, mut at) = (Vec::new(), first);
            for entry in expected(hart, values) {
                if at + len_of(&entry) > PART {
                    (last, at) = (Vec::new(), first);
                }
                at += len_of(&entry);
                last.push(entry);
            }
            check_eq!(used, at, "the bytes that hart {hart} used, of {values} values");
            check_eq!(entries(&part[first..used], hart)?, last, "the entries of hart {hart}");
        }
    }
    Ok(())
}

fn strings_obey_kinds_and_levels<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trace")?;
    let shires = bench.one_shire();
    let cases = [((1, 3), true), ((1, 2), false), ((0, 4), false), ((u32::MAX, 0), true)];
    for (masks, is_there) in cases {
        let traced = Traced::new(&bench, (shires, 1), 4096, masks)?;
        bench.run(&launch(&kernel, shires, 2).trace(traced.config.clone()))?;
        let bytes = bench.download::<u8>(&traced.buffer)?;
        for (hart, first, used, part) in parts(&traced, &bytes)? {
            let mut wanted = expected(hart, 2);
            if !is_there {
                wanted.pop();
            }
            check_eq!(entries(&part[first..used], hart)?, wanted, "with the masks {masks:x?}");
        }
    }
    Ok(())
}

fn a_launch_that_does_not_trace_leaves_the_last_trace_alone<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trace")?;
    let shires = bench.one_shire();
    let traced = Traced::new(&bench, (shires, u64::MAX), 256, STRINGS)?;
    bench.run(&launch(&kernel, shires, 3).trace(traced.config.clone()))?;
    let before = bench.download::<u8>(&traced.buffer)?;
    bench.run(&launch(&kernel, shires, 5))?;
    // One hart traces elsewhere.
    let other = Traced::new(&bench, (shires, 1 << 7), 4096, STRINGS)?;
    bench.run(&launch(&kernel, shires, 5).trace(other.config.clone()))?;
    check!(before == bench.download::<u8>(&traced.buffer)?, "the trace of another launch changed");
    Ok(())
}

fn a_trace_that_is_read_has_all_harts_and_is_empty_then<H: Hal>(
    rig: &Rig<H>,
) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let kernel = bench.load("trace")?;
    let shires = bench.one_shire();
    let traced = bench.device.kernel_trace(KernelTraceConfig::new(shires))?;
    bench.run(&launch(&kernel, shires, 2).trace(traced.option()))?;
    let trace = traced.read(bench.patience)?;
    check_eq!(trace.losses(), Losses::default(), "losses");
    let first = shires.trailing_zeros() * HARTS_PER_SHIRE;
    let mut harts: Vec<_> = trace.entries().map(|(_, entry)| entry.hart_id).collect();
    harts.dedup();
    let expected: Vec<_> = (first..first + HARTS_PER_SHIRE).collect();
    let harts: Vec<_> = harts.into_iter().map(u32::from).collect();
    check_eq!(harts, expected, "the harts that traced");
    check_eq!(trace.entries().count(), expected.len() * 3, "entries");
    check_eq!(traced.read(bench.patience)?.entries().count(), 0, "entries read twice");
    Ok(())
}

fn what_firmware_traces_can_be_decoded<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let shires = bench.device.properties().shire_mask;
    bench.device.configure_trace(&FirmwareTraceConfig::new(shires))?;
    let mut reader = bench.device.firmware_trace();
    // The device sends all of it at once, into one buffer.
    let most = bench.device.hal().dma().limits().max_buffer_bytes;
    let mut last = match reader.read(bench.patience) {
        Err(error) if most < 16 << 20 && error.kind() == ErrorKind::TooLarge => return Ok(()),
        read => read?,
    };
    for _ in 0..3 {
        bench.upload(&[1u8; 64])?;
        last = reader.read(bench.patience)?;
        let losses = last.losses();
        check_eq!((losses.entries, losses.bytes), (0, 0), "what was not decoded");
    }
    check!(last.entries().count() != 0, "commands are not traced");
    Ok(())
}
