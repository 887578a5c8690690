//! Reading a core file back.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use et_devapi::abi::ExceptionEntry;
use et_devapi::msg::ops::LaunchStatus;
use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use serde_json::Value;
use zerocopy::FromBytes;

use super::{NOTE_HARTS, NOTE_KERNEL, NOTE_LAUNCH, NOTE_NAME};
use crate::kernel::{HartContext, LaunchFailure, Program};

const ENDIAN: LittleEndian = LittleEndian;
/// Larger tables and notes are taken for nonsense; the kernel's file is in a note.
const MAX_BYTES: u64 = 1 << 30;

/// Why a file is not a core file of a kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreFileError {
    /// The file cannot be read, or ends too early.
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
    /// Not an ELF core file for RISC-V.
    #[error("not an ELF core file of a RISC-V processor")]
    NotACore,
    /// A core file, but not of a kernel, or damaged.
    #[error("the core file has no usable note about {what}")]
    Note {
        /// What is missing.
        what: &'static str,
    },
}

/// A region of memory in a core file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoreRegion {
    /// What it is.
    pub name: String,
    /// First device address.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Bytes that are in the file.
    pub written: u64,
    /// Why the rest is not, if so.
    pub error: Option<String>,
}

/// A core file that has been read, without its regions' content.
#[derive(Debug)]
#[non_exhaustive]
pub struct CoreFile {
    /// The failure, as its launch reported it.
    pub failure: LaunchFailure,
    /// Shires of the launch.
    pub shires: u64,
    /// Device address of the first instruction.
    pub entry: u64,
    /// Where the kernel is on the device.
    pub load: u64,
    /// What must be added to the addresses in the kernel's file, modulo 2⁶⁴.
    pub bias: u64,
    /// The kernel's file.
    pub kernel: Arc<[u8]>,
    /// Regions of memory.
    pub regions: Vec<CoreRegion>,
}

impl CoreFile {
    /// Reads headers and notes.
    ///
    /// # Errors
    /// [`CoreFileError`]. Never panics, whatever the file holds.
    pub fn read(mut file: impl Read + Seek) -> Result<Self, CoreFileError> {
        let mut notes = Notes::default();
        for segment in note_segments(&mut file)? {
            let (offset, len) = segment;
            file.seek(SeekFrom::Start(offset))?;
            let data = take(&mut file, len)?;
            let iterator = NoteIterator::<FileHeader64<LittleEndian>>::new(ENDIAN, 4, &data)
                .map_err(|_| CoreFileError::NotACore)?;
            // Behind a note that makes no sense there is nothing.
            for note in iterator.map_while(Result::ok) {
                if note.name() == NOTE_NAME.as_bytes() {
                    notes.take(note.n_type(ENDIAN).0, note.desc());
                }
            }
        }
        notes.finish()
    }
}

fn take(file: &mut impl Read, len: u64) -> Result<Vec<u8>, CoreFileError> {
    if len > MAX_BYTES {
        return Err(CoreFileError::NotACore);
    }
    let mut data = Vec::new();
    file.take(len).read_to_end(&mut data)?;
    if (data.len() as u64) < len {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(data)
}

/// Finds where the notes are, and how many bytes.
fn note_segments(file: &mut (impl Read + Seek)) -> Result<Vec<(u64, u64)>, CoreFileError> {
    type Header = FileHeader64<LittleEndian>;
    type Segment = ProgramHeader64<LittleEndian>;
    file.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    file.take(size_of::<Header>() as u64).read_to_end(&mut head)?;
    let header = Header::parse(&head[..]).map_err(|_| CoreFileError::NotACore)?;
    if header.e_type(ENDIAN) != elf::ET_CORE || header.e_machine(ENDIAN) != elf::EM_RISCV {
        return Err(CoreFileError::NotACore);
    }
    let count = usize::from(header.e_phnum.get(ENDIAN));
    file.seek(SeekFrom::Start(header.e_phoff.get(ENDIAN)))?;
    let table = take(file, (count * size_of::<Segment>()) as u64)?;
    let (segments, _) = object::pod::slice_from_bytes::<Segment>(&table, count)
        .map_err(|()| CoreFileError::NotACore)?;
    Ok(segments
        .iter()
        .filter(|segment| segment.p_type(ENDIAN) == elf::PT_NOTE)
        .map(|segment| (segment.p_offset(ENDIAN), segment.p_filesz(ENDIAN)))
        .collect())
}

#[derive(Default)]
struct Notes {
    launch: Option<Value>,
    harts: Vec<HartContext>,
    kernel: Option<Arc<[u8]>>,
}

impl Notes {
    fn take(&mut self, kind: u32, data: &[u8]) {
        match kind {
            NOTE_LAUNCH => self.launch = serde_json::from_slice(data).ok(),
            NOTE_HARTS => {
                let entries = data.chunks_exact(size_of::<ExceptionEntry>());
                let entries =
                    entries.filter_map(|bytes| ExceptionEntry::ref_from_bytes(bytes).ok());
                self.harts = entries.filter_map(HartContext::from_entry).collect();
            }
            NOTE_KERNEL => self.kernel = Some(data.into()),
            _ => {}
        }
    }

    fn finish(self) -> Result<CoreFile, CoreFileError> {
        let launch = self.launch.ok_or(CoreFileError::Note { what: "the launch" })?;
        let kernel = self.kernel.ok_or(CoreFileError::Note { what: "the kernel" })?;
        let number = |name: &str| launch[name].as_u64().unwrap_or(0);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (load, bias) = (number("load"), number("bias"));
        let range = load..load.saturating_add(number("load_bytes"));
        let name = text(&launch["kernel"]);
        let program = Arc::new(Program::new(name.into(), range, bias, Arc::clone(&kernel)));
        let status = LaunchStatus::from(u32::try_from(number("status")).unwrap_or(u32::MAX));
        let mut failure = LaunchFailure::new(&program, status, None);
        failure.shire_mask = number("failed_shires");
        failure.contexts = self.harts;
        failure.contexts_error = launch["contexts_error"].as_str().map(Into::into);
        let regions = launch["regions"].as_array().into_iter().flatten();
        let regions = regions.map(|region| CoreRegion {
            name: text(&region["name"]),
            address: region["address"].as_u64().unwrap_or(0),
            bytes: region["bytes"].as_u64().unwrap_or(0),
            written: region["written"].as_u64().unwrap_or(0),
            error: region["error"].as_str().map(Into::into),
        });
        Ok(CoreFile {
            regions: regions.collect(),
            failure,
            shires: number("shires"),
            entry: number("entry"),
            load,
            bias,
            kernel,
        })
    }
}
