//! Core files of failed launches: ELF, as debuggers for RISC-V read them.
//!
//! | Part | Content |
//! |---|---|
//! | `NT_PRSTATUS` | program counter and registers of one failed hart |
//! | `NT_PRPSINFO` | name of the kernel |
//! | load segments | kernel, arguments, stacks, buffers, and regions that the caller names |
//! | [`NOTE_NAME`], type [`NOTE_LAUNCH`] | the launch and the regions, as JSON |
//! | [`NOTE_NAME`], type [`NOTE_HARTS`] | the entries of the exception buffer. Spec: §15 |
//! | [`NOTE_NAME`], type [`NOTE_KERNEL`] | the kernel's file |
//!
//! Thread *n* is hart *n*, and thread 65536 is hart 0, since debuggers have no thread 0.
//! Floating-point registers are not part of what firmware saves.

mod elf;
mod read;
mod scene;
mod summary;
mod writer;

use std::fmt;
use std::io::{self, Seek, Write};
use std::ops::Range;
use std::time::Duration;

use et_hal::Hal;
use serde_json::json;
use zerocopy::{FromZeros, IntoBytes};

use self::elf::{ProcessInfo, ThreadStatus, Writer};
use crate::Stream;
use crate::kernel::{Cause, ExceptionKind, HartContext, KernelImage, LaunchFailure};
use crate::memory::DeviceSlice;

pub use read::{CoreFile, CoreFileError, CoreRegion};
pub(crate) use scene::{Kept, Scene, StackArea};
pub use summary::{CoreSummary, CoreWriteError, DumpedRegion};
pub(crate) use writer::start as start_writer;

/// Owner of the notes that only this project's tools read.
pub const NOTE_NAME: &str = "ET-SoC-1";
/// The launch, as JSON.
pub const NOTE_LAUNCH: u32 = 0x4554_0001;
/// Entries of the exception buffer.
pub const NOTE_HARTS: u32 = 0x4554_0002;
/// The kernel's file.
pub const NOTE_KERNEL: u32 = 0x4554_0003;

const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
/// Number of the process, which must not be that of a hart.
const PROCESS: u32 = 0x1_0001;
/// The thread that stands for hart 0.
const THREAD_OF_HART_0: u32 = 0x1_0000;

/// A core file to be, of a failed launch.
///
/// Without more, it has the registers of the failed harts, the kernel as its file has it, and
/// arguments that went with the launch message. If the launch was
/// [`dumpable`](crate::Launch::dumpable), it has the kernel, arguments, stacks and buffers as they
/// are in device memory now.
pub struct CoreDump<'a, H: Hal> {
    failure: &'a LaunchFailure,
    stream: Stream<H>,
    named: Vec<(String, DeviceSlice)>,
    timeout: Duration,
}

/// Where the content of a region comes from.
enum Content {
    Device(DeviceSlice),
    Host(Vec<u8>),
}

struct Region {
    name: String,
    range: Range<u64>,
    content: Content,
}

impl<H: Hal> fmt::Debug for CoreDump<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreDump").field("regions", &self.named.len()).finish_non_exhaustive()
    }
}

impl<'a, H: Hal> CoreDump<'a, H> {
    pub(crate) fn new(failure: &'a LaunchFailure, stream: Stream<H>, timeout: Duration) -> Self {
        Self { failure, stream, named: Vec::new(), timeout }
    }

    /// Adds a region of device memory.
    #[must_use]
    pub fn region(mut self, name: impl Into<String>, memory: impl Into<DeviceSlice>) -> Self {
        self.named.push((name.into(), memory.into()));
        self
    }

    /// How long the copy of one region may take; by default as long as one of the runtime's own
    /// commands.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Writes the file to `out`, from its start. Needs a few MiB of memory, however large the
    /// regions are.
    ///
    /// A region that cannot be read, for instance because the device is gone, is cut off where that
    /// was found, and the summary says why.
    ///
    /// # Errors
    /// Those of the writer. The file is then not a core file, because its headers come last.
    pub fn write(&self, out: impl Write + Seek) -> io::Result<CoreSummary> {
        let regions = self.regions();
        let mut writer = Writer::new(out, regions.len(), self.failure.program.elf_flags())?;
        let mut summary = CoreSummary { bytes: 0, harts: 0, regions: Vec::new() };
        for region in regions {
            summary.regions.push(self.write_region(&mut writer, region)?);
        }
        summary.harts = self.write_notes(&mut writer, &summary.regions);
        summary.bytes = writer.finish()?;
        Ok(summary)
    }

    fn write_region<W: Write + Seek>(
        &self,
        writer: &mut Writer<W>,
        region: Region,
    ) -> io::Result<DumpedRegion> {
        let bytes = region.range.end - region.range.start;
        writer.region(region.range.start, bytes);
        let error = match region.content {
            Content::Host(content) => {
                writer.append(&content)?;
                None
            }
            Content::Device(slice) => {
                let mut written = Ok(());
                let read = self.stream.read_pieces(&slice, self.timeout, &mut |piece| {
                    written = writer.append(piece);
                    written.is_ok()
                });
                written?;
                read.err()
            }
        };
        let Region { name, range, .. } = region;
        Ok(DumpedRegion { name, address: range.start, bytes, written: writer.written(), error })
    }

    /// What goes into the file; no two regions have an address in common.
    fn regions(&self) -> Vec<Region> {
        let mut regions = Regions::default();
        for (name, slice) in &self.named {
            regions.add(name, slice);
        }
        let scene = &self.failure.scene;
        match &scene.kept {
            Some(kept) => {
                regions.add("kernel", &kept.code);
                let harts = self.failure.contexts.iter().filter(|context| context.gpr.is_some());
                let harts: Vec<_> = harts.map(|context| context.hart_id).collect();
                for harts in harts.chunk_by(|one, next| one + 1 == *next) {
                    let stack = kept.stack.as_ref().and_then(|area| area.of(harts));
                    if let (Some(stack), [first, .., last]) = (&stack, harts) {
                        regions.add(&format!("stacks of harts {first}-{last}"), stack);
                    } else if let (Some(stack), [hart]) = (&stack, harts) {
                        regions.add(&format!("stack of hart {hart}"), stack);
                    }
                }
                for (index, slice) in kept.uses.iter().enumerate() {
                    let is_args = slice.addr().as_u64() == scene.args;
                    let name = format!("buffer {index}");
                    regions.add(if is_args { "arguments" } else { &name }, slice);
                }
            }
            None => {
                let program = &self.failure.program;
                if let Ok(image) = KernelImage::parse(program.elf()) {
                    let load = program.load().start;
                    regions.add_host("kernel", load, image.place(load.into()));
                }
            }
        }
        if let Some(args) = scene.args_addr().filter(|_| !scene.args_bytes.is_empty()) {
            regions.add_host("arguments", args.as_u64(), scene.args_bytes.clone());
        }
        regions.0.sort_by_key(|region| region.range.start);
        regions.0
    }

    /// Returns how many harts have registers.
    fn write_notes<W: Write + Seek>(
        &self,
        writer: &mut Writer<W>,
        regions: &[DumpedRegion],
    ) -> usize {
        let failure = self.failure;
        // A debugger shows the first one at first; what trapped says more than what was aborted
        // because of it.
        let mut contexts: Vec<_> = failure.contexts.iter().filter_map(status).collect();
        contexts.sort_by_key(|(rank, _)| *rank);
        for (_, status) in &contexts {
            writer.note("CORE", NT_PRSTATUS, status.as_bytes());
        }
        writer.note("CORE", NT_PRPSINFO, process(failure.kernel()).as_bytes());
        let scene = &failure.scene;
        let region = |region: &DumpedRegion| {
            json!({
                "name": region.name, "address": region.address, "bytes": region.bytes,
                "written": region.written,
                "error": region.error.as_ref().map(ToString::to_string),
            })
        };
        let (load, bias) = (failure.program.load(), failure.program.bias());
        let launch = json!({
            "version": 1,
            "kernel": failure.kernel(),
            "status": u32::from(failure.status),
            "shires": scene.shires,
            "failed_shires": failure.shire_mask,
            "entry": scene.entry,
            "arguments": scene.args,
            "load": load.start,
            "load_bytes": load.end - load.start,
            "bias": bias,
            "contexts_error": failure.contexts_error.as_deref(),
            "regions": regions.iter().map(region).collect::<Vec<_>>(),
        });
        writer.note(NOTE_NAME, NOTE_LAUNCH, launch.to_string().as_bytes());
        let entries: Vec<_> = failure.contexts.iter().map(HartContext::to_entry).collect();
        writer.note(NOTE_NAME, NOTE_HARTS, entries.as_bytes());
        writer.note(NOTE_NAME, NOTE_KERNEL, failure.program.elf());
        contexts.len()
    }
}

/// Regions without addresses in common; what comes first stays whole.
#[derive(Default)]
struct Regions(Vec<Region>);

impl Regions {
    fn add(&mut self, name: &str, slice: &DeviceSlice) {
        let start = slice.addr().as_u64();
        for part in self.free(start..start + slice.len_bytes()) {
            if let Ok(slice) = slice.slice(part.start - start..part.end - start) {
                self.push(name, part, Content::Device(slice));
            }
        }
    }

    fn add_host(&mut self, name: &str, start: u64, bytes: Vec<u8>) {
        let range = start..start.saturating_add(bytes.len() as u64);
        // It cannot overlap unless the caller names memory that is the runtime's own.
        if self.free(range.clone()) == [range.clone()] {
            self.push(name, range, Content::Host(bytes));
        }
    }

    fn push(&mut self, name: &str, range: Range<u64>, content: Content) {
        self.0.push(Region { name: name.to_owned(), range, content });
    }

    /// Returns the parts of a range that no region has.
    fn free(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut free = vec![range];
        for Region { range: taken, .. } in &self.0 {
            free = free
                .into_iter()
                .flat_map(|part| {
                    let before = part.start..part.end.min(taken.start);
                    [before, part.start.max(taken.end)..part.end]
                })
                .filter(|part| !part.is_empty())
                .collect();
        }
        free
    }
}

/// The thread of a hart, and its place among the others; `None` without registers.
fn status(context: &HartContext) -> Option<((bool, u32), ThreadStatus)> {
    let (pc, gpr) = (context.pc?, context.gpr.as_ref()?);
    let thread = if context.hart_id == 0 { THREAD_OF_HART_0 } else { context.hart_id };
    let signal = signal(context.kind);
    let mut status = ThreadStatus::new_zeroed();
    status.signal_info[0] = u32::from(signal.unsigned_abs()).into();
    status.signal = signal.into();
    status.thread = thread.into();
    status.parent_group_session = [PROCESS.into(); 3];
    for (place, value) in status.registers.iter_mut().zip([pc].iter().chain(gpr.iter())) {
        *place = (*value).into();
    }
    let is_aborted = matches!(context.kind, ExceptionKind::SystemAbort);
    Some(((is_aborted, context.hart_id), status))
}

/// The signal that a process on a host would have got.
fn signal(kind: ExceptionKind) -> i16 {
    const ILL: i16 = 4;
    const TRAP: i16 = 5;
    const ABRT: i16 = 6;
    const BUS: i16 = 7;
    const SEGV: i16 = 11;
    const SYS: i16 = 31;
    match kind {
        ExceptionKind::Trap { cause, .. } => match cause {
            Cause::IllegalInstruction | Cause::Microcode => ILL,
            Cause::Breakpoint => TRAP,
            Cause::FetchBusError | Cause::FetchEccError => BUS,
            Cause::EnvironmentCall => SYS,
            _ => SEGV,
        },
        ExceptionKind::BusError(_) => BUS,
        _ => ABRT,
    }
}

fn process(kernel: &str) -> ProcessInfo {
    let mut info = ProcessInfo::new_zeroed();
    info.process = PROCESS.into();
    let copy = |into: &mut [u8]| {
        // The last byte stays 0.
        let len = kernel.len().min(into.len() - 1);
        into[..len].copy_from_slice(&kernel.as_bytes()[..len]);
    };
    copy(&mut info.name);
    copy(&mut info.arguments);
    info
}
