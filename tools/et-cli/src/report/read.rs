//! Reads the profiles that this project writes: Chrome trace events and JSON lines.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::profile::{Counter, Failure, Group, Mark, Profile, Span, Track};

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow, rename = "traceEvents")]
    events: Vec<Event<'a>>,
    #[serde(borrow, default, rename = "otherData")]
    other: Other<'a>,
}

/// What the ends of the formats say, all of it optional.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Other<'a> {
    dropped: u64,
    clock_error_us: Option<f64>,
    clock_is_consistent: Option<bool>,
    tasks: Option<u64>,
    #[serde(borrow)]
    place: Option<Cow<'a, str>>,
    #[serde(borrow)]
    incomplete: Vec<Incomplete<'a>>,
    skipped: Vec<u64>,
}

/// A task that is not complete.
#[derive(Deserialize)]
struct Incomplete<'a> {
    task: u64,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<Cow<'a, str>>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    root_cause: Option<u64>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    id: u64,
    #[serde(borrow, default)]
    args: EventArgs<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventArgs<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    failed: bool,
    task: Option<u64>,
    id: Option<u64>,
    from: Option<u64>,
    to: Option<u64>,
    used_bytes: Option<u64>,
    value: Option<f64>,
    #[serde(borrow)]
    instructions: Vec<(Cow<'a, str>, u64)>,
}

/// A line of the other format.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    Operation {
        id: u64,
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        kernel: Option<Cow<'a, str>>,
        stream: u64,
        failed: bool,
        #[serde(borrow, default)]
        error: Option<Cow<'a, str>>,
        queued_us: f64,
        completed_us: f64,
        device_begin_us: Option<f64>,
        device_end_us: Option<f64>,
    },
    Call {
        #[serde(borrow)]
        name: Cow<'a, str>,
        thread: u64,
        operation: Option<u64>,
        failed: bool,
        begin_us: f64,
        end_us: f64,
    },
    Entry {
        hart: u64,
        us: Option<f64>,
        #[serde(borrow)]
        text: Cow<'a, str>,
    },
    Memory {
        us: f64,
        used_bytes: u64,
    },
    Executed {
        #[serde(borrow)]
        kernel: Cow<'a, str>,
        #[serde(borrow)]
        instructions: Vec<(Cow<'a, str>, u64)>,
    },
    End {
        #[serde(borrow)]
        end: Other<'a>,
    },
}

/// Reads a profile.
pub(super) fn read(bytes: &[u8]) -> anyhow::Result<Profile> {
    let text = std::str::from_utf8(bytes).context("a profile is text in UTF-8")?;
    let mut reader = Reader::default();
    let is_lines = text.lines().find(|line| !line.trim().is_empty()).is_some_and(|first| {
        first.contains("\"kind\"") && serde_json::from_str::<Line<'_>>(first).is_ok()
    });
    if is_lines {
        for (number, line) in text.lines().enumerate() {
            if !line.trim().is_empty() {
                let line = serde_json::from_str(line);
                reader.line(line.with_context(|| format!("line {}", number + 1))?);
            }
        }
    } else if text.trim_start().starts_with('{') {
        let document: Document<'_> = serde_json::from_str(text)?;
        for event in &document.events {
            reader.event(event);
        }
        reader.other(document.other);
    } else {
        bail!("this is neither Chrome trace events nor JSON lines; profiles in CSV have no report");
    }
    Ok(reader.finish())
}

/// Times in nanoseconds, on the clock of the file.
#[derive(Default)]
struct Reader {
    profile: Profile,
    tracks: BTreeMap<(Group, u64), RawTrack>,
    /// What `process_name` says of processes.
    groups: HashMap<u64, Group>,
    /// Spans of which only the start has been seen.
    begun: HashMap<(u64, u64, u64), i64>,
    memory: Vec<(i64, u64)>,
    counters: BTreeMap<String, Counter>,
    failed_tasks: Vec<u64>,
}

#[derive(Default)]
struct RawTrack {
    spans: Vec<RawSpan>,
    /// Names and times.
    marks: Vec<(u32, i64)>,
}

struct RawSpan {
    name: u32,
    kernel: u32,
    start: i64,
    end: i64,
    number: Option<u64>,
    failed: bool,
}

/// Most a time may be, so that differences fit: 73 years.
const FAR: f64 = 2.3e18;

fn nanos(micros: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "limited to what fits")]
    let nanos = (micros * 1000.0).round().clamp(-FAR, FAR) as i64;
    nanos
}

impl Reader {
    fn event(&mut self, event: &Event<'_>) {
        let Event { name, pid, tid, args, .. } = event;
        let at = nanos(event.ts);
        match &*event.ph {
            "M" if name == "process_name" => {
                let group = match args.name.as_deref() {
                    Some("task graph") => Group::Tasks,
                    Some("calls") => Group::Calls,
                    Some("device") => Group::Device,
                    Some("harts") => Group::Harts,
                    _ => Group::Host,
                };
                self.groups.insert(*pid, group);
            }
            "M" if name == "executed" => {
                self.executed(args.name.as_deref().unwrap_or_default(), &args.instructions);
            }
            "M" => {}
            "X" => {
                let end = nanos(event.ts + event.dur).max(at);
                let kernel = args.function.as_deref().unwrap_or(name);
                let (group, number) = (self.group(*pid), args.task.or(args.id));
                self.span(group, *tid, (name, kernel), (at, end), number, args.failed);
            }
            "b" => {
                self.begun.insert((*pid, *tid, event.id), at);
            }
            "e" => {
                let Some(start) = self.begun.remove(&(*pid, *tid, event.id)) else { return };
                let group = self.group(*pid);
                let times = (start, at.max(start));
                self.span(group, *tid, (name, name), times, Some(event.id), args.failed);
                if args.failed {
                    self.failure(name, args.error.as_deref(), Some(event.id));
                }
            }
            "s" => {
                if let (Some(from), Some(to)) = (args.from, args.to) {
                    self.profile.edges.push((from, to));
                }
            }
            "f" => {}
            "i" => self.mark(*tid, name, at),
            "C" => match (args.used_bytes, args.value) {
                (Some(used), _) => self.memory.push((at, used)),
                (None, Some(value)) => {
                    let new =
                        Counter { name: name.to_string(), first: value, last: value, readings: 0 };
                    let counter = self.counters.entry(name.to_string()).or_insert(new);
                    counter.last = value;
                    counter.readings += 1;
                }
                (None, None) => self.profile.ignored += 1,
            },
            _ => self.profile.ignored += 1,
        }
    }

    fn line(&mut self, line: Line<'_>) {
        match line {
            Line::Operation {
                id,
                name,
                kernel,
                stream,
                failed,
                error,
                queued_us,
                completed_us,
                device_begin_us,
                device_end_us,
            } => {
                let title = kernel.as_deref().unwrap_or(&name);
                let times = (nanos(queued_us), nanos(completed_us.max(queued_us)));
                self.span(Group::Host, stream, (title, title), times, Some(id), failed);
                if let (Some(begin), Some(end)) = (device_begin_us, device_end_us) {
                    let times = (nanos(begin), nanos(end.max(begin)));
                    self.span(Group::Device, stream, (title, title), times, Some(id), failed);
                }
                if failed {
                    self.failure(title, error.as_deref(), Some(id));
                }
            }
            Line::Call { name, thread, operation, failed, begin_us, end_us } => {
                let times = (nanos(begin_us), nanos(end_us.max(begin_us)));
                self.span(Group::Calls, thread, (&name, &name), times, operation, failed);
            }
            Line::Entry { hart, us: Some(us), text } => self.mark(hart, &text, nanos(us)),
            Line::Entry { .. } => self.profile.ignored += 1,
            Line::Memory { us, used_bytes } => self.memory.push((nanos(us), used_bytes)),
            Line::Executed { kernel, instructions } => self.executed(&kernel, &instructions),
            Line::End { end } => self.other(end),
        }
    }

    fn executed(&mut self, kernel: &str, counts: &[(Cow<'_, str>, u64)]) {
        let counts = counts.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        self.profile.executed.push((kernel.to_owned(), counts));
    }

    fn group(&self, pid: u64) -> Group {
        self.groups.get(&pid).copied().unwrap_or(Group::Host)
    }

    fn span(
        &mut self,
        group: Group,
        row: u64,
        (name, kernel): (&str, &str),
        (start, end): (i64, i64),
        number: Option<u64>,
        failed: bool,
    ) {
        let (name, kernel) = (self.profile.intern(name), self.profile.intern(kernel));
        let span = RawSpan { name, kernel, start, end, number, failed };
        self.tracks.entry((group, row)).or_default().spans.push(span);
    }

    fn mark(&mut self, hart: u64, text: &str, at: i64) {
        let name = self.profile.intern(text);
        self.tracks.entry((Group::Harts, hart)).or_default().marks.push((name, at));
    }

    fn failure(&mut self, what: &str, why: Option<&str>, number: Option<u64>) {
        let why = why.unwrap_or("the profile does not say why").to_owned();
        self.profile.failures.push(Failure { what: what.to_owned(), why, number, dependents: 0 });
    }

    fn other(&mut self, other: Other<'_>) {
        let profile = &mut self.profile;
        profile.dropped += other.dropped;
        profile.clock_error_us = other.clock_error_us;
        profile.clock_is_consistent = other.clock_is_consistent;
        profile.tasks = other.tasks;
        profile.skipped = other.skipped.len() as u64;
        profile.place = other.place.map(Cow::into_owned);
        let mut dependents = HashMap::<u64, u64>::new();
        for task in &other.incomplete {
            if let Some(root) = task.root_cause {
                *dependents.entry(root).or_default() += 1;
            }
        }
        for task in other.incomplete {
            // What was not run because of another one is counted there.
            if task.root_cause.is_some() {
                continue;
            }
            self.failed_tasks.push(task.task);
            let function = task.function.as_deref().unwrap_or_default();
            let what = task.name.as_deref().unwrap_or(function);
            profile.failures.push(Failure {
                what: format!("task {} {what}", task.task),
                why: task.error.unwrap_or(task.state).into_owned(),
                number: Some(task.task),
                dependents: dependents.get(&task.task).copied().unwrap_or(0),
            });
        }
    }

    fn finish(self) -> Profile {
        let Self { mut profile, tracks, mut memory, counters, mut failed_tasks, .. } = self;
        let all = tracks.values();
        let starts = all.clone().flat_map(|track| &track.spans).map(|span| span.start);
        let marks = all.flat_map(|track| &track.marks).map(|(_, at)| *at);
        let samples = memory.iter().map(|(at, _)| *at);
        let zero = starts.chain(marks).chain(samples).min().unwrap_or(0);
        let time = |at: i64| at.abs_diff(zero);
        failed_tasks.sort_unstable();
        for ((group, number), RawTrack { spans, marks }) in tracks {
            let has_failed = |span: &RawSpan| {
                let task = span.number.filter(|_| group == Group::Tasks);
                span.failed || task.is_some_and(|task| failed_tasks.binary_search(&task).is_ok())
            };
            let span = |raw: RawSpan| Span {
                failed: has_failed(&raw),
                name: raw.name,
                kernel: raw.kernel,
                start: time(raw.start),
                end: time(raw.end),
                number: raw.number,
            };
            let mut spans: Vec<_> = spans.into_iter().map(span).collect();
            spans.sort_by_key(|span| (span.start, span.end));
            let mut marks: Vec<_> =
                marks.into_iter().map(|(name, at)| Mark { name, at: time(at) }).collect();
            marks.sort_by_key(|mark| mark.at);
            profile.tracks.push(Track { group, number, spans, marks });
        }
        memory.sort_by_key(|(at, _)| *at);
        profile.memory = memory.into_iter().map(|(at, used)| (time(at), used)).collect();
        profile.counters = counters.into_values().collect();
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHROME: &str = r#"{"traceEvents":[
        {"ph":"M","pid":1,"name":"process_name","args":{"name":"host"}},
        {"ph":"M","pid":2,"name":"process_name","args":{"name":"device"}},
        {"ph":"b","cat":"operation","pid":1,"tid":4,"id":7,"name":"add","ts":10,"args":{"failed":true,"error":"no"}},
        {"ph":"e","cat":"operation","pid":1,"tid":4,"id":7,"name":"add","ts":30.5,"args":{"failed":true,"error":"no"}},
        {"ph":"X","pid":2,"tid":4,"name":"add","ts":12,"dur":3,"args":{"id":7,"cycles":9}},
        {"ph":"C","pid":1,"name":"device memory","ts":9,"args":{"used_bytes":64}},
        {"ph":"C","pid":3,"tid":8,"name":"counter 3 of hart 8","ts":9,"args":{"value":5}},
        {"ph":"i","s":"t","pid":3,"tid":8,"name":"hi","ts":20,"args":{"source":"kernel"}},
        {"ph":"M","pid":2,"name":"executed","args":{"name":"add","instructions":[["flw",5],["fadd.s",4]]}},
        {"ph":"M","pid":4,"tid":2,"name":"process_name","args":{"name":"calls"}},
        {"ph":"M","pid":4,"tid":2,"name":"thread_name","args":{"name":"main"}},
        {"ph":"X","cat":"call","pid":4,"tid":2,"name":"wait","ts":11,"dur":2,"args":{"id":7,"stream":null,"failed":true}},
        {"ph":"?","pid":1}
        ],"otherData":{"dropped":2,"clock_error_us":1.5}}"#;

    const LINES: &str = r#"
        {"kind":"operation","id":7,"name":"launch","kernel":"add","stream":4,"failed":true,"error":"no","queued_us":10,"sent_us":11,"completed_us":30.5,"device_begin_us":12,"device_end_us":15}
        {"kind":"memory","us":9,"used_bytes":64}
        {"kind":"executed","kernel":"add","instructions":[["flw",5],["fadd.s",4]]}
        {"kind":"call","name":"wait","thread":2,"thread_name":null,"stream":null,"operation":7,"failed":true,"begin_us":11,"end_us":13}
        {"kind":"entry","source":"kernel","hart":8,"cycle":1,"us":20,"text":"hi"}
        {"kind":"end","end":{"dropped":2,"clock_error_us":1.5}}"#;

    #[test]
    fn both_formats_say_the_same() {
        for (text, ignored) in [(CHROME, 1), (LINES, 0)] {
            let profile = read(text.as_bytes()).unwrap();
            let tracks: Vec<_> = profile.tracks.iter().map(|t| (t.group, t.number)).collect();
            let groups =
                [(Group::Calls, 2), (Group::Host, 4), (Group::Device, 4), (Group::Harts, 8)];
            assert_eq!(tracks, groups);
            let call = &profile.tracks[0].spans[0];
            assert_eq!((call.nanos(), call.number, call.failed), (2000, Some(7), true));
            let host = &profile.tracks[1].spans[0];
            let executed = [("flw".to_owned(), 5), ("fadd.s".to_owned(), 4)];
            assert_eq!(profile.executed, [("add".to_owned(), executed.to_vec())]);
            // The first sample of the memory is the earliest moment.
            assert_eq!((host.start, host.end, host.number), (1000, 21_500, Some(7)));
            assert!(host.failed && profile.name(host.name) == "add");
            assert_eq!(profile.tracks[2].spans[0].nanos(), 3000);
            assert_eq!(profile.tracks[3].marks[0].at, 11_000);
            assert_eq!(profile.memory, [(0, 64)]);
            assert_eq!((profile.dropped, profile.ignored), (2, ignored));
            assert_eq!((profile.failures.len(), &*profile.failures[0].why), (1, "no"));
        }
    }

    #[test]
    fn what_was_not_run_is_counted_at_its_cause() {
        let text = r#"{"traceEvents":[
            {"ph":"M","pid":1,"name":"process_name","args":{"name":"task graph"}},
            {"ph":"X","pid":1,"tid":0,"name":"a","ts":0,"dur":1,"args":{"task":0,"function":"f"}}],
            "otherData":{"tasks":5,"place":"cores","skipped":[3,4],"incomplete":[
            {"task":0,"name":"a","function":"f","state":"failed","error":"trapped","root_cause":null},
            {"task":1,"name":null,"function":"f","state":"not run","error":null,"root_cause":0},
            {"task":2,"name":null,"function":"f","state":"not run","error":null,"root_cause":0}]}}"#;
        let profile = read(text.as_bytes()).unwrap();
        let [failure] = &profile.failures[..] else { panic!("{:?}", profile.failures) };
        assert_eq!((&*failure.what, &*failure.why, failure.dependents), ("task 0 a", "trapped", 2));
        assert!(profile.tracks[0].spans[0].failed);
        assert_eq!((profile.tasks, profile.skipped), (Some(5), 2));
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for text in ["", "id,name,kernel\n1,a,b\n", "{}", "{\"traceEvents\":[{\"ph\":1}]}", "[1"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        assert!(read(b"\xff").is_err());
        let cut = &LINES[..LINES.len() - 5];
        assert!(format!("{:#}", read(cut.as_bytes()).unwrap_err()).contains("line 7"));
        let far = r#"{"traceEvents":[{"ph":"X","name":"a","ts":-1e300,"dur":1e300}]}"#;
        assert_eq!(read(far.as_bytes()).unwrap().count(), 1);
    }
}
