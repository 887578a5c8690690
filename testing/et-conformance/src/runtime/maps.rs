//! Device memory that the host maps.

use std::time::Duration;

use et_hal::Hal;
use et_runtime::memory::{Access, BufferOptions};
use et_runtime::{Error, Launch, MapPath};

use super::bench::Bench;
use crate::check::{check, check_eq, check_matches, same};
use crate::{Failure, Need, Rig};

crate::case::group! { Runtime, "runtime::maps":
    a_mapping_shows_a_part_and_writes_it_back,
    what_is_only_written_is_not_fetched,
    a_mapping_is_behind_what_its_stream_was_given [Need::Compute],
    who_writes_is_alone_and_readers_are_not,
    what_a_mapping_is_not_for_is_refused,
    a_mapping_that_is_dropped_is_written_back,
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect()
}

fn a_mapping_shows_a_part_and_writes_it_back<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let mut expected = pattern(3 << 20);
    let buffer = bench.device.alloc(expected.len() as u64)?;
    bench.done(&bench.stream().copy_to_device(&expected, &buffer)?)?;
    let part = 4096..2 * 1024 * 1024 + 8;
    let slice = || buffer.slice(part.start as u64..part.end as u64);
    let mut mapping = bench.stream().map(slice()?, Access::Update, bench.patience)?;
    check_eq!(mapping.len_bytes(), part.len() as u64, "the length");
    let is_window = bench.device.properties().cpu_access;
    check!(is_window || mapping.path() == MapPath::Copy, "a window on memory of the device alone");
    let mut all = vec![0u8; part.len()];
    mapping.read(0, &mut all)?;
    same("what is mapped", &all, &expected[part.clone()])?;
    let mut few = [0u8; 5];
    mapping.read(1003, &mut few)?;
    same("five bytes of it", &few, &expected[part.start + 1003..][..5])?;
    mapping.write(77, &[9u8; 3])?;
    mapping.write(part.len() - 8, &[0x1122_3344_5566_7788u64])?;
    expected[part.start + 77..][..3].fill(9);
    expected[part.end - 8..part.end].copy_from_slice(&0x1122_3344_5566_7788u64.to_le_bytes());
    mapping.flush(bench.patience)?;
    same("after a flush", &bench.download::<u8>(&buffer)?, &expected)?;
    mapping.write(0, &[1u8])?;
    expected[part.start] = 1;
    mapping.unmap(bench.patience)?;
    same("at the end", &bench.download::<u8>(&buffer)?, &expected)
}

fn what_is_only_written_is_not_fetched<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.zeroed(1 << 20)?;
    let profiler = bench.device.profiler();
    let copies = |access: Access| -> Result<(usize, MapPath), Failure> {
        profiler.start();
        let mapping = bench.stream().map(&buffer, access, bench.patience)?;
        Ok((profiler.stop().records.len(), mapping.path()))
    };
    let (read, path) = copies(Access::Read)?;
    check_eq!(read, usize::from(path == MapPath::Copy), "copies to be read");
    check_eq!(copies(Access::Write)?.0, 0, "copies to be overwritten");
    let mut mapping = bench.stream().map(&buffer, Access::Write, bench.patience)?;
    mapping.write(0, &pattern(1 << 20))?;
    mapping.unmap(bench.patience)?;
    same("what was written", &bench.download::<u8>(&buffer)?, &pattern(1 << 20))
}

fn a_mapping_is_behind_what_its_stream_was_given<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let memset = bench.load("memset")?;
    let buffer = bench.zeroed(64 << 10)?;
    let launch = |value: u64| {
        let launch = Launch::new(&memset).buffer(&buffer).u64(value).u64(64 << 10);
        bench.stream().launch(&launch)
    };
    for round in 1..=4 {
        drop(launch(round)?);
        let mut mapping = bench.stream().map(&buffer, Access::Update, bench.patience)?;
        let mut seen = [0u8; 64];
        mapping.read(64 << 9, &mut seen)?;
        check_eq!(seen, [round.to_le_bytes()[0]; 64], "of the kernel in round {round}");
        mapping.write(0, &[0xa5u8; 16])?;
        mapping.unmap(bench.patience)?;
        check_eq!(
            bench.download::<u8>(&buffer)?[..17],
            {
                let mut head = [round.to_le_bytes()[0]; 17];
                head[..16].fill(0xa5);
                head
            },
            "of both in round {round}"
        );
    }
    Ok(())
}

fn who_writes_is_alone_and_readers_are_not<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.zeroed(4096)?;
    let map = |from: u64, to: u64, access: Access| -> Result<_, Error> {
        bench.stream().map(buffer.slice(from..to)?, access, bench.patience)
    };
    let readers = [map(0, 1024, Access::Read)?, map(512, 2048, Access::Read)?];
    let clash = map(1024, 4096, Access::Write);
    check_matches!(clash, Err(Error::Mapped { len: 1536, .. }), "a writer among readers");
    let writer = map(2048, 4096, Access::Update)?;
    check_matches!(map(4088, 4096, Access::Read), Err(Error::Mapped { .. }), "a reader at it");
    check_matches!(map(2048, 4096, Access::Write), Err(Error::Mapped { .. }), "another writer");
    drop(readers);
    let second = map(0, 2048, Access::Write)?;
    drop((second, writer));
    map(0, 4096, Access::Update)?.unmap(bench.patience)?;
    bench.works()
}

fn what_a_mapping_is_not_for_is_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.zeroed(4096)?;
    let map = |access: Access| bench.stream().map(&buffer, access, bench.patience);
    let mut reader = map(Access::Read)?;
    let refused = reader.write(0, &[1u8]);
    check_matches!(refused, Err(Error::Unsupported { .. }), "a write to what is read");
    check_matches!(reader.read(4090, &mut [0u8; 7]), Err(Error::OutOfRange { .. }), "past the end");
    drop(reader);
    let mut writer = map(Access::Write)?;
    let refused = writer.read(0, &mut [0u8]);
    check_matches!(refused, Err(Error::Unsupported { .. }), "a look at what is not fetched");
    check_matches!(writer.write(4096, &[1u8]), Err(Error::OutOfRange { .. }), "past the end");
    drop(writer);
    let odd = bench.stream().map(buffer.slice(4..100)?, Access::Read, bench.patience);
    check_matches!(odd, Err(Error::Misaligned { .. }), "an odd part");
    let options = BufferOptions::new().host(Access::Read);
    let fixed = bench.device.alloc_with(4096, &options)?;
    let refused = bench.stream().map(&fixed, Access::Update, bench.patience);
    check_matches!(refused, Err(Error::Usage(_)), "a buffer that the host may read");
    same("nothing was written", &bench.download::<u8>(&buffer)?, &[0; 4096])
}

fn a_mapping_that_is_dropped_is_written_back<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let bench = Bench::open(rig)?;
    let buffer = bench.zeroed(4096)?;
    let mut mapping = bench.stream().map(&buffer, Access::Write, bench.patience)?;
    mapping.write(0, &[3u8; 4096])?;
    let forgotten = mapping.flush(Duration::ZERO);
    check!(matches!(forgotten, Ok(()) | Err(Error::Timeout { .. })), "{forgotten:?}");
    drop(mapping);
    bench.stream().synchronize(bench.patience)?;
    same("the buffer", &bench.download::<u8>(&buffer)?, &[3; 4096])?;
    let mut mapping = bench.stream().map(&buffer, Access::Update, bench.patience)?;
    mapping.write(8, &[4u8; 8])?;
    drop(mapping);
    bench.stream().synchronize(bench.patience)?;
    same("the rest of it", &bench.download::<u8>(&buffer)?[..24], &{
        let mut head = [3u8; 24];
        head[8..16].fill(4);
        head
    })
}
