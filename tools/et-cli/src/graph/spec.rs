//! The file of `et graph`: read, checked and brought into order before a device is touched.
//!
//! What is wrong is said with its place: line and column where the file is not what it should be,
//! and the path of keys (`tasks[2] "s", args[0] "in:x"`) where it does not make sense.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use et::KernelArgs;
use et::graph::{Access, Comparison, CoreSet};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::npy::{self, Array};
use crate::value::{self, Type};

/// A file that makes sense.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) buffers: Vec<(String, Array)>,
    /// Beside `buffers`: whether the graph has it for itself.
    pub(super) is_transient: Vec<bool>,
    /// Name and content.
    pub(super) kernels: Vec<(String, Vec<u8>)>,
    pub(super) tasks: Vec<Task>,
    /// Index of the buffer, and the file it goes to.
    pub(super) outputs: Vec<(usize, PathBuf)>,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) name: Option<String>,
    /// Where it is in the file.
    pub(super) at: String,
    pub(super) kernel: usize,
    pub(super) args: Vec<Argument>,
    /// Indices of tasks.
    pub(super) after: Vec<usize>,
    /// As `after`, and the graph's own buffers that these write live until this one has ended.
    pub(super) retain: Vec<usize>,
    pub(super) cores: Option<CoreSet>,
    pub(super) shires: Option<u64>,
    pub(super) parts: Option<u32>,
    pub(super) condition: Option<Condition>,
}

/// A word that decides whether a task runs.
#[derive(Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) buffer: usize,
    /// Its first byte in the buffer.
    pub(super) offset: u64,
    pub(super) comparison: Comparison,
    pub(super) value: Value,
}

/// What it is compared with, in the type of the buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    U32(u32),
    U64(u64),
    I32(i32),
    I64(i64),
}

#[derive(Debug, PartialEq)]
pub(super) enum Argument {
    Scalar(Type, String),
    /// Bytes of a buffer, by its index.
    Buffer(Access, usize, Range<u64>),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSpec {
    #[serde(default)]
    buffers: Named<RawBuffer>,
    kernels: Named<PathBuf>,
    tasks: Vec<RawTask>,
    #[serde(default)]
    outputs: Named<PathBuf>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBuffer {
    npy: Option<PathBuf>,
    dtype: Option<String>,
    shape: Option<Vec<u64>>,
    fill: Option<serde_json::Number>,
    #[serde(default)]
    transient: bool,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTask {
    name: Option<String>,
    kernel: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    retain: Vec<String>,
    cores: Option<Vec<u32>>,
    shires: Option<String>,
    parts: Option<u32>,
    r#if: Option<String>,
}

/// The entries of an object in the order of the file; a name that comes twice is an error.
struct Named<T>(Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut seen = std::collections::HashSet::new();
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(de::Error::custom(format_args!("\"{name}\" comes twice")));
                    }
                    entries.push((name, map.next_value()?));
                }
                Ok(Named(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Names, and what they stand for.
struct Names<'a> {
    what: &'static str,
    indices: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    /// Names shown where one is missing.
    const SHOWN: usize = 10;

    fn new(what: &'static str, names: impl Iterator<Item = &'a str>) -> Self {
        Self { what, indices: names.zip(0..).collect() }
    }

    fn find(&self, name: &str) -> anyhow::Result<usize> {
        self.indices.get(name).copied().with_context(|| {
            let what = self.what;
            let mut names: Vec<(usize, &str)> =
                self.indices.iter().map(|(name, index)| (*index, *name)).collect();
            names.sort_unstable();
            let shown: Vec<&str> = names.iter().take(Self::SHOWN).map(|(_, name)| *name).collect();
            let more = if names.len() > Self::SHOWN { ", …" } else { "" };
            match names.is_empty() {
                true => format!("no {what} \"{name}\"; there are none"),
                false => format!("no {what} \"{name}\"; there are {}{more}", shown.join(", ")),
            }
        })
    }
}

impl Spec {
    /// Reads a file, and the arrays and kernels it names; their paths start at its folder.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str, folder: &Path) -> anyhow::Result<Self> {
        let raw: RawSpec = serde_json::from_str(text)?;
        let (mut buffers, mut is_transient) = (Vec::new(), Vec::new());
        for (name, buffer) in raw.buffers.0 {
            is_transient.push(buffer.transient);
            let array = array(buffer, folder).with_context(|| format!("buffers, \"{name}\""))?;
            buffers.push((name, array));
        }
        let mut kernels = Vec::new();
        for (name, path) in raw.kernels.0 {
            let path = folder.join(path);
            let bytes = std::fs::read(&path)
                .with_context(|| format!("reading {}", path.display()))
                .with_context(|| format!("kernels, \"{name}\""))?;
            kernels.push((name, bytes));
        }
        ensure!(!raw.tasks.is_empty(), "tasks: there are none");
        let tasks = tasks(&raw.tasks, &buffers, &kernels)?;
        let names = Names::new("buffer", buffers.iter().map(|(name, _)| name.as_str()));
        let outputs = raw.outputs.0.into_iter().map(|(name, path)| {
            let buffer = names.find(&name).with_context(|| format!("outputs, \"{name}\""))?;
            ensure!(
                !is_transient[buffer],
                "outputs, \"{name}\": a transient buffer ends with its tasks"
            );
            Ok((buffer, folder.join(path)))
        });
        let outputs = outputs.collect::<anyhow::Result<_>>()?;
        Ok(Self { buffers, is_transient, kernels, tasks, outputs })
    }
}

fn tasks(
    raw: &[RawTask],
    buffers: &[(String, Array)],
    kernels: &[(String, Vec<u8>)],
) -> anyhow::Result<Vec<Task>> {
    let kernel_names = Names::new("kernel", kernels.iter().map(|(name, _)| name.as_str()));
    let buffer_names = Names::new("buffer", buffers.iter().map(|(name, _)| name.as_str()));
    let at = |index: usize| match &raw[index].name {
        Some(name) => format!("tasks[{index}] \"{name}\""),
        None => format!("tasks[{index}]"),
    };
    let mut task_indices = HashMap::new();
    for (index, task) in raw.iter().enumerate() {
        let Some(name) = task.name.as_deref() else { continue };
        if let Some(first) = task_indices.insert(name, index) {
            bail!("{}, name: tasks[{first}] has it already", at(index));
        }
    }
    let task_names = Names { what: "task", indices: task_indices };

    let parse = |(index, task): (usize, &RawTask)| {
        let at = at(index);
        let kernel = kernel_names.find(&task.kernel).with_context(|| format!("{at}, kernel"))?;
        let args = task.args.iter().enumerate().map(|(number, text)| {
            argument(text, buffers, &buffer_names)
                .with_context(|| format!("{at}, args[{number}] \"{text}\""))
        });
        let before = |key: &str, names: &[String]| -> anyhow::Result<Vec<usize>> {
            let before = names.iter().enumerate().map(|(number, name)| {
                let at = || format!("{at}, {key}[{number}]");
                let before = task_names.find(name).with_context(at)?;
                ensure!(before != index, "{}: that is the task itself", at());
                Ok(before)
            });
            before.collect()
        };
        let shires = task.shires.as_deref().map(|text| {
            let mask = value::shires(text).with_context(|| format!("{at}, shires"))?;
            ensure!(mask != 0, "{at}, shires: the mask is empty");
            Ok(mask)
        });
        let cores = task.cores.as_ref().map(|cores| {
            ensure!(!cores.is_empty(), "{at}, cores: the list is empty");
            Ok(CoreSet::of(cores.iter().copied()))
        });
        ensure!(task.parts != Some(0), "{at}, parts: there are none");
        let condition = task.r#if.as_deref().map(|text| {
            condition(text, buffers, &buffer_names).with_context(|| format!("{at}, if \"{text}\""))
        });
        Ok(Task {
            name: task.name.clone(),
            kernel,
            args: args.collect::<anyhow::Result<_>>()?,
            after: before("after", &task.after)?,
            retain: before("retain", &task.retain)?,
            cores: cores.transpose()?,
            shires: shires.transpose()?,
            parts: task.parts,
            condition: condition.transpose()?,
            at,
        })
    };
    raw.iter().enumerate().map(parse).collect()
}

/// `u32:7`, `in:a`, `out:a`, `inout:a`, or some elements of a buffer: `in:a[0..512]`.
fn argument(
    text: &str,
    buffers: &[(String, Array)],
    names: &Names<'_>,
) -> anyhow::Result<Argument> {
    let (kind, rest) = text.split_once(':').context(
        "this is no argument; write for example u64:16384, f32:2.5, in:a, out:b or inout:c[0..512]",
    )?;
    let access = match kind {
        "in" => Access::Read,
        "out" => Access::Write,
        "inout" => Access::Update,
        ty => {
            let ty: Type = ty.parse()?;
            value::scalar(KernelArgs::new(), ty, rest)?;
            return Ok(Argument::Scalar(ty, rest.to_owned()));
        }
    };
    let part = rest.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    let (name, elements) = part.map_or((rest, None), |(name, part)| (name, Some(part)));
    let buffer = names.find(name)?;
    let array = &buffers[buffer].1;
    let size = array.ty.size() as u64;
    let count = array.bytes.len() as u64 / size;
    let Some(text) = elements else {
        return Ok(Argument::Buffer(access, buffer, 0..count * size));
    };
    let bounds = text.split_once("..").and_then(|(first, end)| {
        Some(first.trim().parse::<u64>().ok()?..end.trim().parse::<u64>().ok()?)
    });
    let elements = bounds.with_context(|| format!("\"{text}\" is no range, as 0..512"))?;
    ensure!(
        elements.start < elements.end && elements.end <= count,
        "\"{name}\" has {count} elements, {text} is empty or not inside"
    );
    Ok(Argument::Buffer(access, buffer, elements.start * size..elements.end * size))
}

/// `flags[3] != 0`
fn condition(
    text: &str,
    buffers: &[(String, Array)],
    names: &Names<'_>,
) -> anyhow::Result<Condition> {
    // The name of a buffer may have anything in it, so from the end.
    let parse = || {
        let (rest, value) = text.rsplit_once(char::is_whitespace)?;
        let (word, operator) = rest.trim_end().rsplit_once(char::is_whitespace)?;
        let (name, element) = word.trim_end().strip_suffix(']')?.rsplit_once('[')?;
        Some((name, element.trim().parse::<u64>().ok()?, Comparison::named(operator)?, value))
    };
    let (name, element, comparison, value) =
        parse().context("this is no condition; write for example flags[0] != 0")?;
    let buffer = names.find(name)?;
    let Array { ty, bytes, .. } = &buffers[buffer].1;
    let no_value = || format!("\"{value}\" is no {}", ty.name());
    let value = match ty {
        Type::U32 => Value::U32(value.parse().with_context(no_value)?),
        Type::U64 => Value::U64(value.parse().with_context(no_value)?),
        Type::I32 => Value::I32(value.parse().with_context(no_value)?),
        Type::I64 => Value::I64(value.parse().with_context(no_value)?),
        _ => bail!("\"{name}\" has elements of type {}, not u32, i32, u64 or i64", ty.name()),
    };
    let (size, count) = (ty.size() as u64, (bytes.len() / ty.size()) as u64);
    ensure!(element < count, "\"{name}\" has {count} elements");
    Ok(Condition { buffer, offset: element * size, comparison, value })
}

/// Reads or makes the array of a buffer.
fn array(buffer: RawBuffer, folder: &Path) -> anyhow::Result<Array> {
    let RawBuffer { npy, dtype, shape, fill, transient } = buffer;
    ensure!(
        !transient || npy.is_none() && fill.is_none(),
        "transient: what is in it comes from tasks, so npy and fill have no place"
    );
    if let Some(path) = npy {
        ensure!(
            dtype.is_none() && shape.is_none() && fill.is_none(),
            "npy stands alone: the file has dtype, shape and content"
        );
        let array = npy::read(&folder.join(path)).context("npy")?;
        ensure!(!array.bytes.is_empty(), "npy: the array has no elements");
        return Ok(array);
    }
    let ty: Type = dtype.context("neither npy nor dtype")?.parse().context("dtype")?;
    let shape = shape.context("no shape")?;
    let bytes = shape.iter().try_fold(ty.size() as u64, |bytes, &dim| bytes.checked_mul(dim));
    let len = bytes
        .filter(|&bytes| bytes != 0)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .with_context(|| format!("shape: {shape:?} has no elements, or too many"))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).context("shape: too large for this machine's memory")?;
    match fill {
        None => bytes.resize(len, 0),
        Some(number) => {
            let element = value::scalar(KernelArgs::new(), ty, &number.to_string());
            let element = element.context("fill")?;
            while bytes.len() < len {
                bytes.extend_from_slice(&element.as_bytes()[..ty.size()]);
            }
        }
    }
    Ok(Array { ty, shape, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with `k.elf`; nothing is loaded here.
    fn parse(text: &str) -> anyhow::Result<Spec> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("k.elf"), "no elf").unwrap();
        std::fs::write(folder.path().join("text.npy"), "no array").unwrap();
        Spec::parse(text, folder.path())
    }

    const HEAD: &str = r#"{"buffers":{"a":{"dtype":"f32","shape":[4,2],"fill":2.5},
        "b":{"dtype":"u16","shape":[3],"fill":258},
        "c d":{"dtype":"i32","shape":[4]}},"kernels":{"k":"k.elf"},"#;

    fn with_tasks(tasks: &str) -> anyhow::Result<Spec> {
        parse(&format!("{HEAD}\"tasks\":{tasks}}}"))
    }

    #[test]
    fn a_file_is_brought_into_order() {
        let spec = with_tasks(
            r#"[{"name":"x","kernel":"k","args":["in:a","out:b[1..3]","u32:0x10"],"after":["y"],"retain":["y"]},
                {"name":"y","kernel":"k","cores":[3,1],"shires":"0-1","parts":5},
                {"kernel":"k","if":"c d[2] >= -7"}]"#,
        )
        .unwrap();
        assert_eq!(spec.buffers[0].1.bytes, 2.5f32.to_le_bytes().repeat(8));
        assert_eq!(spec.buffers[1].1.bytes, [2, 1].repeat(3));
        let [x, y, z] = &spec.tasks[..] else { panic!("{:?}", spec.tasks) };
        assert_eq!((&*x.after, &*x.retain), (&[1][..], &[1][..]));
        assert_eq!(x.args[0], Argument::Buffer(Access::Read, 0, 0..32));
        assert_eq!(x.args[1], Argument::Buffer(Access::Write, 1, 2..6));
        assert_eq!(x.args[2], Argument::Scalar(Type::U32, "0x10".into()));
        assert_eq!((y.cores.clone(), y.shires), (Some(CoreSet::of([1, 3])), Some(3)));
        assert_eq!((x.parts, y.parts), (None, Some(5)));
        assert_eq!((z.at.as_str(), &z.name), ("tasks[2]", &None));
        let condition = Condition {
            buffer: 2,
            offset: 8,
            comparison: Comparison::GreaterOrEqual,
            value: Value::I32(-7),
        };
        assert_eq!((&x.condition, &z.condition), (&None, &Some(condition)));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let tasks = |tasks: &str| with_tasks(tasks).unwrap_err();
        let buffer = |buffer: &str| {
            let text = format!(r#"{{"buffers":{{"q":{buffer}}},"kernels":{{}},"tasks":[]}}"#);
            parse(&text).unwrap_err()
        };
        for (error, parts) in [
            (parse("{").unwrap_err(), &["line 1 column 1"][..]),
            (
                buffer(r#"{"dtype":"f32","shape":[1],"fill":1,"transient":true}"#),
                &["buffers, \"q\"", "transient: what is in it"],
            ),
            (
                parse(
                    r#"{"buffers":{"t":{"dtype":"f32","shape":[1],"transient":true}},
                        "kernels":{"k":"k.elf"},"tasks":[{"kernel":"k"}],"outputs":{"t":"t.npy"}}"#,
                )
                .unwrap_err(),
                &["outputs, \"t\": a transient buffer"],
            ),
            (parse(r#"{"kernels":{}}"#).unwrap_err(), &["missing field `tasks`"]),
            (parse(r#"{"kernel":{}}"#).unwrap_err(), &["unknown field `kernel`", "line 1"]),
            (
                parse(r#"{"kernels":{"k":"k.elf","k":"k.elf"}}"#).unwrap_err(),
                &["\"k\" comes twice", "line 1"],
            ),
            (
                parse(r#"{"kernels":{"k":"none.elf"},"tasks":[]}"#).unwrap_err(),
                &["kernels, \"k\"", "none.elf"],
            ),
            (tasks("[]"), &["tasks: there are none"]),
            (tasks(r#"[{"name":"x"}]"#), &["missing field `kernel`", "line 3"]),
            (tasks(r#"[{"name":"x","kernel":"l"}]"#), &["tasks[0] \"x\", kernel", "there are k"]),
            (
                tasks(r#"[{"kernel":"k"},{"kernel":"k","args":["u32:1","in:c"]}]"#),
                &["tasks[1], args[1] \"in:c\"", "no buffer \"c\"; there are a, b, c d"],
            ),
            (
                tasks(r#"[{"kernel":"k","args":["in:b[1..4]"]}]"#),
                &["args[0]", "\"b\" has 3 elements"],
            ),
            (tasks(r#"[{"kernel":"k","args":["in:b[1]"]}]"#), &["\"1\" is no range"]),
            (tasks(r#"[{"kernel":"k","if":"c d = 1"}]"#), &["tasks[0], if", "no condition"]),
            (tasks(r#"[{"kernel":"k","if":"c d[0] = 1"}]"#), &["no condition"]),
            (tasks(r#"[{"kernel":"k","if":"e[0] == 1"}]"#), &["no buffer \"e\""]),
            (tasks(r#"[{"kernel":"k","if":"a[0] == 1"}]"#), &["elements of type f32"]),
            (tasks(r#"[{"kernel":"k","if":"c d[4] == 1"}]"#), &["\"c d\" has 4 elements"]),
            (tasks(r#"[{"kernel":"k","if":"c d[0] < 4e9"}]"#), &["\"4e9\" is no i32"]),
            (tasks(r#"[{"kernel":"k","args":["u8:256"]}]"#), &["args[0]", "is no u8"]),
            (tasks(r#"[{"kernel":"k","args":["q8:1"]}]"#), &["unknown type \"q8\""]),
            (tasks(r#"[{"kernel":"k","args":["7"]}]"#), &["this is no argument"]),
            (tasks(r#"[{"kernel":"k","after":["y"]}]"#), &["after[0]", "no task \"y\""]),
            (tasks(r#"[{"name":"x","kernel":"k","after":["x"]}]"#), &["the task itself"]),
            (
                tasks(r#"[{"name":"x","kernel":"k","retain":["x"]}]"#),
                &["retain[0]", "the task itself"],
            ),
            (
                tasks(r#"[{"name":"x","kernel":"k"},{"name":"x","kernel":"k"}]"#),
                &["tasks[1] \"x\", name", "tasks[0]"],
            ),
            (tasks(r#"[{"kernel":"k","cores":[]}]"#), &["tasks[0], cores"]),
            (tasks(r#"[{"kernel":"k","shires":"0x0"}]"#), &["tasks[0], shires"]),
            (tasks(r#"[{"kernel":"k","parts":0}]"#), &["tasks[0], parts"]),
            (tasks(r#"[{"kernel":"k","shires":"x"}]"#), &["tasks[0], shires", "bad shire"]),
            (buffer("{}"), &["buffers, \"q\"", "neither npy nor dtype"]),
            (buffer(r#"{"dtype":"f32"}"#), &["no shape"]),
            (buffer(r#"{"dtype":"q8","shape":[1]}"#), &["dtype", "unknown type"]),
            (buffer(r#"{"dtype":"f32","shape":[0]}"#), &["shape: [0]"]),
            (buffer(r#"{"dtype":"u8","shape":[1],"fill":1.5}"#), &["fill", "is no u8"]),
            (buffer(r#"{"dtype":"f64","shape":[9999999999,9999999999]}"#), &["too many"]),
            (buffer(r#"{"dtype":"u8","shape":[9000000000000000000]}"#), &["shape: too large"]),
            (buffer(r#"{"npy":"x.npy","fill":1}"#), &["npy stands alone"]),
            (buffer(r#"{"npy":"x.npy"}"#), &["npy", "x.npy"]),
            (buffer(r#"{"npy":"text.npy"}"#), &["not an .npy file"]),
            (
                parse(&format!(r#"{HEAD}"tasks":[{{"kernel":"k"}}],"outputs":{{"z":"z.npy"}}}}"#))
                    .unwrap_err(),
                &["outputs, \"z\"", "there are a, b"],
            ),
        ] {
            let text = format!("{error:#}");
            for part in parts {
                assert!(text.contains(part), "\"{part}\" in \"{text}\"");
            }
        }
    }
}
