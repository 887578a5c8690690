//! Profiles as files.

use std::collections::HashSet;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Call, ClockFit, Profile, Record, harts, micros};
use crate::timeline::Timeline;
use crate::trace::Trace;

/// How a profile is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileFormat {
    /// Chrome trace events, which Perfetto opens: a track for each stream with the time from call
    /// to completion, one with the times at which the device waited and executed, and one for each
    /// thread with its calls.
    Chrome,
    /// A JSON object for each operation, call or entry, on a line of its own.
    JsonLines,
    /// Operations with a line of headings; calls, entries of traces, executed instructions and the
    /// memory in use have no place in it.
    Csv,
}

/// Writes a profile piece by piece, so that a recording may be longer than what fits into memory.
#[derive(Debug)]
pub struct ProfileWriter<W: Write> {
    out: W,
    format: ProfileFormat,
    clock: ClockFit,
    has_events: bool,
    dropped: u64,
    /// Threads that have a name in the file.
    threads: HashSet<u32>,
}

/// The process that has the threads of calls, in Chrome's format.
const CALLS: u32 = 4;

impl<W: Write> ProfileWriter<W> {
    /// Begins a file. `frequency_mhz` converts the device's cycles; without it times of the device
    /// are given in cycles only.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(mut out: W, format: ProfileFormat, frequency_mhz: Option<u32>) -> io::Result<Self> {
        match format {
            ProfileFormat::Chrome => {
                out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?
            }
            ProfileFormat::JsonLines => {}
            ProfileFormat::Csv => writeln!(
                out,
                "id,name,kernel,stream,failed,queued_us,sent_us,completed_us,start_cycle,wait_cycles,execute_cycles"
            )?,
        }
        let clock = ClockFit::new(frequency_mhz.unwrap_or(0));
        let mut writer =
            Self { out, format, clock, has_events: false, dropped: 0, threads: HashSet::new() };
        if format == ProfileFormat::Chrome {
            for (pid, name) in [(1, "host"), (2, "device"), (3, "harts")] {
                let args = json!({ "name": name });
                writer
                    .event(&json!({"ph": "M", "pid": pid, "name": "process_name", "args": args}))?;
            }
        }
        Ok(writer)
    }

    /// Adds operations.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&mut self, profile: &Profile) -> io::Result<()> {
        self.dropped += profile.dropped;
        profile.records.iter().for_each(|record| self.clock.add(&record.timeline));
        profile.records.iter().try_for_each(|record| match self.format {
            ProfileFormat::Chrome => self.chrome(record),
            ProfileFormat::JsonLines => self.line(&self.object(record)),
            ProfileFormat::Csv => self.csv(record),
        })?;
        profile.calls.iter().try_for_each(|call| match self.format {
            ProfileFormat::Chrome => self.chrome_call(call),
            ProfileFormat::JsonLines => self.line(&json!({
                "kind": "call", "name": call.name, "thread": call.thread,
                "thread_name": call.thread_name.as_deref(), "stream": call.stream,
                "operation": call.operation, "failed": call.failed,
                "begin_us": micros(call.start), "end_us": micros(call.end),
            })),
            ProfileFormat::Csv => Ok(()),
        })?;
        profile.memory.iter().try_for_each(|sample| match self.format {
            ProfileFormat::Chrome => self.event(&memory_event(sample.at, sample.used_bytes)),
            ProfileFormat::JsonLines => self.line(&json!({
                "kind": "memory", "us": micros(sample.at), "used_bytes": sample.used_bytes,
            })),
            ProfileFormat::Csv => Ok(()),
        })
    }

    /// Adds what kernels or firmware have traced, by hart: regions, counters, and everything else
    /// as marks.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_trace(&mut self, trace: &Trace) -> io::Result<()> {
        let clock = self.clock;
        match self.format {
            ProfileFormat::Csv => Ok(()),
            ProfileFormat::JsonLines => {
                let mut regions =
                    trace.regions().into_iter().map(|region| harts::region_line(&region, &clock));
                regions.try_for_each(|line| self.line(&line))?;
                let mut entries = trace.entries();
                entries.try_for_each(|(source, entry)| {
                    harts::entry_line(source, &entry, &clock)
                        .map_or(Ok(()), |line| self.line(&line))
                })
            }
            ProfileFormat::Chrome => {
                let regions = trace.regions();
                let mut slices =
                    regions.iter().filter_map(|region| harts::region_slice(region, &clock));
                slices.try_for_each(|slice| self.event(&slice))?;
                let mut entries = trace.entries();
                entries.try_for_each(|(source, entry)| {
                    harts::entry_event(source, &entry, &clock)
                        .map_or(Ok(()), |event| self.event(&event))
                })
            }
        }
    }

    /// Adds which instructions the launches of a kernel have executed, and how often, as a
    /// simulated device counts them.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_executed(&mut self, kernel: &str, counts: &[(String, u64)]) -> io::Result<()> {
        match self.format {
            ProfileFormat::Csv => Ok(()),
            ProfileFormat::JsonLines => self.line(&json!({
                "kind": "executed", "kernel": kernel, "instructions": counts,
            })),
            // It has no time: viewers of the format pass over metadata that they do not know.
            ProfileFormat::Chrome => self.event(&json!({
                "ph": "M", "pid": 2, "name": "executed",
                "args": {"name": kernel, "instructions": counts},
            })),
        }
    }

    /// Returns where the device's clock is, as far as is known.
    #[must_use]
    pub fn clock(&self) -> &ClockFit {
        &self.clock
    }

    /// Ends the file; says in it how many operations are missing, and how exact the times of the
    /// device are.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<()> {
        let mut end = json!({ "dropped": self.dropped });
        // Without a frequency there is no clock to be wrong.
        if let Some(error) = self.clock.error() {
            end["clock_error_us"] = json!(micros(error));
            end["clock_is_consistent"] = json!(self.clock.is_consistent());
        }
        match self.format {
            ProfileFormat::Chrome => write!(self.out, "],\"otherData\":{end}}}")?,
            ProfileFormat::JsonLines => self.line(&json!({ "kind": "end", "end": end }))?,
            ProfileFormat::Csv => {}
        }
        self.out.flush()
    }

    fn line(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }

    fn event(&mut self, value: &Value) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.has_events, true) { "," } else { "" };
        write!(self.out, "{comma}\n{value}")
    }

    fn object(&self, record: &Record) -> Value {
        let Timeline { queued, sent, completed, device } = record.timeline;
        let begin = device.map(|d| d.start.wrapping_add(d.wait));
        let end = device.zip(begin).map(|(d, begin)| begin.wrapping_add(d.execute));
        let time = |cycle: Option<u64>| cycle.and_then(|cycle| self.clock.host_time(cycle));
        json!({
            "kind": "operation", "id": record.id, "name": record.name, "kernel": record.kernel.as_deref(),
            "stream": record.stream, "failed": record.failed, "error": record.error.as_deref(),
            "queued_us": micros(queued), "sent_us": micros(sent), "completed_us": micros(completed),
            "device_begin_us": time(begin).map(micros), "device_end_us": time(end).map(micros),
            "start_cycle": device.map(|d| d.start), "wait_cycles": device.map(|d| d.wait),
            "execute_cycles": device.map(|d| d.execute),
        })
    }

    fn chrome(&mut self, record: &Record) -> io::Result<()> {
        let Timeline { queued, sent, completed, device } = record.timeline;
        let (title, id) = (record.title(), record.id);
        // Operations of a stream overlap, which tracks of plain slices cannot show.
        let span = |phase: &str, at: Duration| {
            let mut event = json!({
                "ph": phase, "cat": "operation", "pid": 1, "tid": record.stream, "id": id,
                "name": title, "ts": micros(at),
                "args": {
                    "operation": record.name, "failed": record.failed,
                    "sent_us": micros(sent.saturating_sub(queued)),
                },
            });
            if let Some(error) = record.error.as_deref() {
                event["args"]["error"] = error.into();
            }
            event
        };
        let (begin, end) = (span("b", queued), span("e", completed));
        self.event(&begin)?;
        self.event(&end)?;
        let Some(device) = device else { return Ok(()) };
        let start = device.start.wrapping_add(device.wait);
        let stop = start.wrapping_add(device.execute);
        let times = self.clock.host_time(start).zip(self.clock.host_time(stop));
        let Some((start, stop)) = times else { return Ok(()) };
        self.event(&json!({
            "ph": "X", "pid": 2, "tid": record.stream, "name": title,
            "ts": micros(start), "dur": micros(stop.saturating_sub(start)),
            "args": {
                "id": id, "cycles": device.execute, "wait_cycles": device.wait,
                "failed": record.failed,
            },
        }))
    }

    fn chrome_call(&mut self, call: &Call) -> io::Result<()> {
        let name = |what: &str, tid: u32, name: &str| json!({"ph": "M", "pid": CALLS, "tid": tid, "name": what, "args": {"name": name}});
        if self.threads.is_empty() {
            self.event(&name("process_name", call.thread, "calls"))?;
        }
        if self.threads.insert(call.thread) {
            let thread = call.thread_name.as_deref();
            let thread = thread.map_or_else(|| format!("thread {}", call.thread), str::to_owned);
            self.event(&name("thread_name", call.thread, &thread))?;
        }
        self.event(&json!({
            "ph": "X", "cat": "call", "pid": CALLS, "tid": call.thread, "name": call.name,
            "ts": micros(call.start), "dur": micros(call.end.saturating_sub(call.start)),
            "args": {"id": call.operation, "stream": call.stream, "failed": call.failed},
        }))
    }

    fn csv(&mut self, record: &Record) -> io::Result<()> {
        let Timeline { queued, sent, completed, device } = record.timeline;
        let kernel = record.kernel.as_deref().unwrap_or_default().replace('"', "\"\"");
        write!(
            self.out,
            "{},{},\"{kernel}\",{},{},{},{},{}",
            record.id,
            record.name,
            record.stream,
            record.failed,
            micros(queued),
            micros(sent),
            micros(completed)
        )?;
        match device {
            Some(d) => writeln!(self.out, ",{},{},{}", d.start, d.wait, d.execute),
            None => writeln!(self.out, ",,,"),
        }
    }
}

/// How much device memory is in use, among Chrome's events.
pub(crate) fn memory_event(at: Duration, used_bytes: u64) -> Value {
    json!({
        "ph": "C", "pid": 1, "name": "device memory", "ts": micros(at),
        "args": {"used_bytes": used_bytes},
    })
}

#[cfg(test)]
mod tests {
    use et_devapi::msg::ops::Times;

    use super::*;

    #[test]
    fn names_with_quotes_stay_one_field() {
        let (sent, completed) = (Duration::from_micros(1), Duration::from_micros(3));
        let device = Some(Times { start: 5, wait: 0, execute: 6 });
        let record = Record {
            name: "launch",
            kernel: Some("a,\"b\"".into()),
            id: 7,
            stream: 1,
            timeline: Timeline { queued: sent, sent, completed, device },
            failed: false,
            error: None,
        };
        let mut out = Vec::new();
        let mut writer = ProfileWriter::new(&mut out, ProfileFormat::Csv, None).unwrap();
        let (calls, memory) = (Vec::new(), Vec::new());
        writer.write(&Profile { records: vec![record], calls, memory, dropped: 0 }).unwrap();
        writer.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().nth(1).unwrap(), "7,launch,\"a,\"\"b\"\"\",1,false,1,1,3,5,0,6");
    }
}
