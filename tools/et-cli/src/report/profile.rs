//! A profile in memory, whatever its format was.

use std::collections::HashMap;

/// Rows that the overlapping spans of one track may take; what needs more shares the last one.
const LANES: usize = 6;

/// What a track shows. The order is that of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// Tasks of a graph, by worker.
    Tasks,
    /// Calls of the interface, by thread.
    Calls,
    /// Operations from call to completion, by stream.
    Host,
    /// What the device executed, by stream.
    Device,
    /// What harts traced.
    Harts,
}

impl Group {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Tasks => "Tasks, by worker",
            Self::Calls => "Calls, by thread",
            Self::Host => "Host, by stream: from call to completion",
            Self::Device => "Device, by stream: execution",
            Self::Harts => "Harts: what kernels traced",
        }
    }

    /// What the rows are numbered by.
    fn row(self) -> &'static str {
        match self {
            Self::Tasks => "worker",
            Self::Calls => "thread",
            Self::Host | Self::Device => "stream",
            Self::Harts => "hart",
        }
    }
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    /// Number of its name.
    pub(super) name: u32,
    /// Number of the name of its kernel; its own if there is none.
    pub(super) kernel: u32,
    /// Nanoseconds since the earliest moment of the profile.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Number of the task or operation.
    pub(super) number: Option<u64>,
    pub(super) failed: bool,
}

impl Span {
    pub(super) fn nanos(&self) -> u64 {
        self.end - self.start
    }
}

/// Something that happened at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) name: u32,
    pub(super) at: u64,
}

/// Spans and marks that belong together.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) group: Group,
    pub(super) number: u64,
    /// By start.
    pub(super) spans: Vec<Span>,
    pub(super) marks: Vec<Mark>,
}

impl Track {
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.group.row(), self.number)
    }

    /// Divides the spans among rows in which nothing overlaps, by their positions.
    pub(super) fn lanes(&self) -> Vec<Vec<usize>> {
        let mut lanes: Vec<(u64, Vec<usize>)> = Vec::new();
        for (at, span) in self.spans.iter().enumerate() {
            let free = lanes.iter().position(|(end, _)| *end <= span.start);
            let lane = match free {
                Some(lane) => lane,
                None if lanes.len() < LANES => {
                    lanes.push((0, Vec::new()));
                    lanes.len() - 1
                }
                None => LANES - 1,
            };
            let (end, spans) = &mut lanes[lane];
            *end = span.end.max(*end);
            spans.push(at);
        }
        if lanes.is_empty() {
            lanes.push((0, Vec::new()));
        }
        lanes.into_iter().map(|(_, spans)| spans).collect()
    }
}

/// Something that did not go well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) what: String,
    pub(super) why: String,
    /// Number of the operation or task.
    pub(super) number: Option<u64>,
    /// Tasks that were not run because of it.
    pub(super) dependents: u64,
}

/// First and last value of a counter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counter {
    pub(super) name: String,
    pub(super) first: f64,
    pub(super) last: f64,
    pub(super) readings: u64,
}

/// What is in a file. Times are nanoseconds since its earliest moment.
#[derive(Debug, Default)]
pub(super) struct Profile {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// In the order of the page.
    pub(super) tracks: Vec<Track>,
    /// Tasks by number, and those that depend on them.
    pub(super) edges: Vec<(u64, u64)>,
    /// Times, and bytes in use from then on.
    pub(super) memory: Vec<(u64, u64)>,
    pub(super) failures: Vec<Failure>,
    pub(super) counters: Vec<Counter>,
    /// Kernels, and how often each instruction was executed for them.
    pub(super) executed: Vec<(String, Vec<(String, u64)>)>,
    /// Tasks of the graph, if it is known.
    pub(super) tasks: Option<u64>,
    /// Tasks whose conditions were false.
    pub(super) skipped: u64,
    /// Where the graph ran.
    pub(super) place: Option<String>,
    /// Operations that the recorder had no room for.
    pub(super) dropped: u64,
    /// How far times of the device may be off, in µs.
    pub(super) clock_error_us: Option<f64>,
    pub(super) clock_is_consistent: Option<bool>,
    /// Events of kinds that are not known here.
    pub(super) ignored: u64,
}

impl Profile {
    /// Returns the number of a name.
    pub(super) fn intern(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the end of the last span, mark or sample.
    pub(super) fn end(&self) -> u64 {
        let spans = self.tracks.iter().flat_map(|track| &track.spans).map(|span| span.end);
        let marks = self.tracks.iter().flat_map(|track| &track.marks).map(|mark| mark.at);
        spans.chain(marks).chain(self.memory.iter().map(|(at, _)| *at)).max().unwrap_or(0)
    }

    pub(super) fn spans(&self, group: Group) -> impl Iterator<Item = &Span> {
        self.tracks.iter().filter(move |track| track.group == group).flat_map(|track| &track.spans)
    }

    pub(super) fn count(&self) -> usize {
        self.tracks.iter().map(|track| track.spans.len()).sum()
    }

    /// Returns the group that says most exactly how long kernels took: tasks, else what the device
    /// measured, else what the host saw.
    pub(super) fn measured(&self) -> Group {
        let has = |group| self.spans(group).next().is_some();
        [Group::Tasks, Group::Device].into_iter().find(|group| has(*group)).unwrap_or(Group::Host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_get_rows_of_their_own_as_far_as_there_are_some() {
        let span =
            |start, end| Span { name: 0, kernel: 0, start, end, number: None, failed: false };
        let mut track =
            Track { group: Group::Host, number: 0, spans: Vec::new(), marks: Vec::new() };
        track.spans = vec![span(0, 10), span(2, 4), span(4, 6), span(10, 11)];
        assert_eq!(track.lanes(), [vec![0, 3], vec![1, 2]]);
        track.spans = (0..20).map(|start| span(start, 100)).collect();
        let lanes = track.lanes();
        assert_eq!(lanes.len(), LANES);
        assert_eq!(lanes.iter().map(Vec::len).sum::<usize>(), 20);
    }
}
