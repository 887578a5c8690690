//! What recorded tasks got and left, and how to run them again.

use std::fs;
use std::io;
use std::path::Path;

use et_hal::Hal;
use serde_json::{Value, json};

use super::TaskState;
use crate::graph::{Access, FunctionId, GraphBuilder, GraphError, HostData, Task, TaskId};
use crate::kernel::KernelArgs;
use crate::report::debug_as_report;
use crate::sync::Arc;
use crate::{Device, DeviceBuffer, Error};

/// A task that was to be [recorded](crate::graph::Task::recorded), in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskRecord {
    /// Index of the task in its graph.
    pub task: usize,
    /// The name that it was given.
    pub name: Option<String>,
    /// What it runs, as [`Graph::function`](crate::graph::Graph::function) says.
    pub function: String,
    /// What became of it.
    pub state: TaskState,
    /// Shires that it asked for.
    pub shires: Option<u64>,
    /// In how many [parts](crate::graph::Task::parts) it runs.
    pub parts: u32,
    /// These start together.
    pub starts_together: bool,
    /// Its arguments.
    pub args: Vec<u8>,
    /// The regions of device memory that it declares, each once.
    pub regions: Vec<RegionRecord>,
}

/// A region of device memory that a recorded task uses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionRecord {
    /// First device address.
    pub address: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// How the task uses it.
    pub access: Access,
    /// What it had before the task: `None` if the task does not read it, or the run ended before
    /// it was copied.
    pub before: Option<Vec<u8>>,
    /// What it had after the task: `None` if the task does not write it, or did not succeed.
    pub after: Option<Vec<u8>>,
}

/// Why a record cannot be read, or its task cannot be run again.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A file of it cannot be read or written.
    #[error("{file} of the record")]
    File {
        /// Its name.
        file: String,
        /// Why.
        #[source]
        source: Arc<io::Error>,
    },
    /// A file is not what it should be.
    #[error("{file} of the record: {why}")]
    Malformed {
        /// Its name.
        file: String,
        /// What is wrong.
        why: &'static str,
    },
    /// What the task read from a region was not recorded.
    #[error("the record lacks what was at {address:#x} before the task")]
    Incomplete {
        /// Where the region was.
        address: u64,
    },
    /// There is no memory for its regions.
    #[error("no memory for the regions of the record")]
    Device(#[source] Error),
    /// The task cannot be added to the graph.
    #[error("the task does not fit the graph")]
    Graph(#[source] GraphError),
}

debug_as_report!(RecordError);

/// The file that describes a record.
const INDEX: &str = "record.json";

impl TaskRecord {
    /// Writes the record to files of `folder`, which is made if it is not there: `record.json`
    /// with all but the bytes of regions, and one file for each of these.
    ///
    /// # Errors
    /// [`RecordError::File`].
    pub fn save(&self, folder: &Path) -> Result<(), RecordError> {
        let write = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes).map_err(file_error(name))
        };
        fs::create_dir_all(folder).map_err(file_error(""))?;
        let mut regions = Vec::new();
        for (number, region) in self.regions.iter().enumerate() {
            let (before, after) = names(number);
            for (name, bytes) in [(&before, &region.before), (&after, &region.after)] {
                if let Some(bytes) = bytes {
                    write(name, bytes)?;
                }
            }
            regions.push(json!({
                "address": region.address,
                "bytes": region.len_bytes,
                "access": region.access.as_str(),
                "before": region.before.is_some().then_some(before),
                "after": region.after.is_some().then_some(after),
            }));
        }
        let index = json!({
            "version": 1,
            "task": self.task,
            "name": self.name,
            "function": self.function,
            "state": self.state.to_string(),
            "shires": self.shires,
            "parts": self.parts,
            "together": self.starts_together,
            "arguments": self.args,
            "regions": regions,
        });
        write(INDEX, format!("{index:#}\n").as_bytes())
    }

    /// Reads what [`save`](Self::save) has written.
    ///
    /// # Errors
    /// [`RecordError::File`]; [`RecordError::Malformed`].
    pub fn load(folder: &Path) -> Result<Self, RecordError> {
        let read = |name: &str| fs::read(folder.join(name)).map_err(file_error(name));
        let malformed = |why| RecordError::Malformed { file: INDEX.into(), why };
        let index: Value =
            serde_json::from_slice(&read(INDEX)?).map_err(|_| malformed("it is no JSON"))?;
        if index["version"] != 1 {
            return Err(malformed("its version is not 1"));
        }
        let text = |key: &str| index[key].as_str().map(str::to_owned);
        let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let list = |key: &'static str| index[key].as_array().ok_or(malformed(key));
        let region = |(number, region): (usize, &Value)| {
            let (before, after) = names(number);
            let len_bytes = region["bytes"].as_u64().ok_or(malformed("bytes"))?;
            // The names in the file say only which of them are there.
            let bytes = |name: String, key: &str| match &region[key] {
                Value::Null => Ok(None),
                _ => match read(&name)? {
                    bytes if bytes.len() as u64 == len_bytes => Ok(Some(bytes)),
                    _ => Err(RecordError::Malformed { file: name, why: "its length" }),
                },
            };
            let access = region["access"].as_str().and_then(|name| {
                [Access::Read, Access::Write, Access::Update]
                    .into_iter()
                    .find(|access| access.as_str() == name)
            });
            Ok(RegionRecord {
                address: region["address"].as_u64().ok_or(malformed("address"))?,
                len_bytes,
                access: access.ok_or(malformed("access"))?,
                before: bytes(before, "before")?,
                after: bytes(after, "after")?,
            })
        };
        let state = text("state").ok_or(malformed("state"))?;
        let args = list("arguments")?.iter().map(byte).collect::<Option<_>>();
        Ok(Self {
            task: index["task"]
                .as_u64()
                .and_then(|task| usize::try_from(task).ok())
                .ok_or(malformed("task"))?,
            name: text("name"),
            function: text("function").ok_or(malformed("function"))?,
            state: TaskState::named(&state).ok_or(malformed("state"))?,
            shires: index["shires"].as_u64(),
            // Files of earlier versions do not say.
            parts: match &index["parts"] {
                Value::Null => 1,
                parts => number(parts).ok_or(malformed("parts"))?,
            },
            starts_together: index["together"].as_bool().unwrap_or(false),
            args: args.ok_or(malformed("arguments"))?,
            regions: list("regions")?.iter().enumerate().map(region).collect::<Result<_, _>>()?,
        })
    }

    /// Adds the task to another graph, for `function`, to be run again with what it got: in buffers
    /// of its own, which have the bytes from before the task. It is recorded again, so that what it
    /// leaves can be compared.
    ///
    /// Regions that overlapped do so again. A word of the arguments that is an address inside a
    /// region of the record becomes the address in the buffer; what a kernel finds by other
    /// addresses, such as pointers in memory, is not moved.
    ///
    /// # Errors
    /// [`RecordError::Incomplete`]; [`RecordError::Malformed`] if a region is at the end of all
    /// addresses; [`RecordError::Device`]; [`RecordError::Graph`].
    pub fn replay<H: Hal>(
        &self,
        device: &Device<H>,
        builder: &mut GraphBuilder,
        function: FunctionId,
    ) -> Result<TaskId, RecordError> {
        let areas = self.areas(device)?;
        let moved = |address: u64| {
            let area = areas.iter().find(|area| (area.start..area.end).contains(&address))?;
            Some((area, address - area.page))
        };
        let mut args = self.args.clone();
        for word in args.as_chunks_mut::<8>().0 {
            if let Some((area, offset)) = moved(u64::from_le_bytes(*word)) {
                *word = (area.buffer.addr().as_u64() + offset).to_le_bytes();
            }
        }
        // As long as they were: a kernel may state that.
        let mut task = Task::new(function).args(KernelArgs::new().bytes(&args, 1)).recorded();
        if let Some(name) = &self.name {
            task = task.name(name.clone());
        }
        if self.starts_together {
            task = task.parts_together(self.parts);
        } else if self.parts > 1 {
            task = task.parts(self.parts);
        }
        if let Some(mask) = self.shires {
            task = task.shires(mask);
        }
        // A region without bytes declares nothing.
        for region in self.regions.iter().filter(|region| region.len_bytes != 0) {
            let Some((area, offset)) = moved(region.address) else {
                return Err(RecordError::Malformed { file: INDEX.into(), why: "address" });
            };
            let slice = area.buffer.slice(offset..offset.saturating_add(region.len_bytes));
            let slice = slice.map_err(RecordError::Device)?;
            if region.access.reads() {
                let Some(bytes) = &region.before else {
                    return Err(RecordError::Incomplete { address: region.address });
                };
                task = task.stage_in(&HostData::new(bytes.clone()), &slice);
            }
            task = match region.access {
                Access::Read => task.reads(slice),
                Access::Write => task.writes(slice),
                Access::Update => task.updates(slice),
            };
        }
        builder.add(task).map_err(RecordError::Graph)
    }

    /// Makes a buffer for each range of addresses that the regions have, at the same place in a
    /// page of its own.
    fn areas<H: Hal>(&self, device: &Device<H>) -> Result<Vec<Area>, RecordError> {
        const PAGE: u64 = 4096;
        let mut ranges: Vec<_> = self
            .regions
            .iter()
            .map(|region| (region.address, region.address.saturating_add(region.len_bytes)))
            .filter(|(start, end)| start != end)
            .collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match merged.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => merged.push((start, end)),
            }
        }
        let area = |(start, end): (u64, u64)| {
            let page = start / PAGE * PAGE;
            let buffer = device.alloc_aligned(end - page, PAGE).map_err(RecordError::Device)?;
            Ok(Area { page, start, end, buffer })
        };
        merged.into_iter().map(area).collect()
    }
}

/// The buffer in place of a range of addresses.
struct Area {
    /// Where the buffer would begin.
    page: u64,
    start: u64,
    end: u64,
    buffer: DeviceBuffer,
}

/// The files of a region.
fn names(region: usize) -> (String, String) {
    (format!("{region}.before"), format!("{region}.after"))
}

fn file_error(name: &str) -> impl Fn(io::Error) -> RecordError + '_ {
    move |source| RecordError::File { file: name.to_owned(), source: Arc::new(source) }
}
