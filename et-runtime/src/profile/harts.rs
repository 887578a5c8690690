//! What harts have traced, as parts of a profile.

use et_devapi::trace::{Body, CounterId, Entry};
use serde_json::{Map, Value, json};

use super::{ClockFit, micros};
use crate::trace::{Region, Source, Text};

/// Names of `hpmcounter4` to `hpmcounter8`; number 3 is the time.
const COUNTERS: [&str; 5] =
    ["instructions of thread 0", "instructions of thread 1", "L2 misses", "icache", "icache link"];

/// A region as a slice; `None` without an end, or while the clock is not known.
pub(super) fn region_slice(region: &Region, clock: &ClockFit) -> Option<Value> {
    let (begin, end) = (clock.host_time(region.begin)?, clock.host_time(region.end?)?);
    Some(json!({
        "ph": "X", "cat": "region", "pid": 3, "tid": region.hart, "name": &*region.name,
        "ts": micros(begin), "dur": micros(end.saturating_sub(begin)),
        "args": {
            "function": region.function.as_deref(), "line": region.line,
            "cycles": region.end.map(|end| end.wrapping_sub(region.begin)),
            "instructions": region.instructions,
        },
    }))
}

/// The same as an object of its own.
pub(super) fn region_line(region: &Region, clock: &ClockFit) -> Value {
    let time = |cycle: u64| clock.host_time(cycle).map(micros);
    json!({
        "kind": "region", "hart": region.hart, "name": &*region.name,
        "function": region.function.as_deref(), "line": region.line, "depth": region.depth,
        "begin_cycle": region.begin, "end_cycle": region.end,
        "begin_us": time(region.begin), "end_us": region.end.and_then(time),
        "instructions": region.instructions,
    })
}

/// An entry as an event; marks are regions already.
pub(super) fn entry_event(source: Source, entry: &Entry<'_>, clock: &ClockFit) -> Option<Value> {
    let hart = entry.hart_id;
    let at = clock.host_time(entry.cycle).map(micros)?;
    if matches!(entry.body, Body::UserProfile(_)) {
        return None;
    }
    Some(match counters(entry) {
        Some((what, values)) => json!({
            "ph": "C", "pid": 3, "tid": hart, "ts": at, "name": format!("{what} of hart {hart}"),
            "args": values,
        }),
        None => json!({
            "ph": "i", "s": "t", "pid": 3, "tid": hart, "ts": at, "name": Text(entry).to_string(),
            "args": {"source": source.to_string(), "cycle": entry.cycle},
        }),
    })
}

/// The same as an object of its own.
pub(super) fn entry_line(source: Source, entry: &Entry<'_>, clock: &ClockFit) -> Option<Value> {
    if matches!(entry.body, Body::UserProfile(_)) {
        return None;
    }
    let mut line = json!({
        "source": source.to_string(), "hart": entry.hart_id, "cycle": entry.cycle,
        "us": clock.host_time(entry.cycle).map(micros),
    });
    match counters(entry) {
        Some((what, values)) => {
            line["kind"] = "counters".into();
            line["name"] = what.into();
            line["values"] = values.into();
        }
        None => {
            line["kind"] = "entry".into();
            line["text"] = Text(entry).to_string().into();
        }
    }
    Some(line)
}

/// The counters of an entry, and what they belong to; `None` if it has none.
fn counters(entry: &Entry<'_>) -> Option<(String, Map<String, Value>)> {
    let two = |what: String, first: u64, second: u64| {
        let values = [("counter 1", first), ("counter 2", second)];
        (what, values.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect())
    };
    Some(match entry.body {
        Body::PmcCounter(pmc) => {
            let name = match CounterId::from_number(pmc.counter.into()) {
                Some(counter) => format!("{counter:?}"),
                None => format!("counter {}", pmc.counter),
            };
            ("counter".to_owned(), Map::from_iter([(name, pmc.value.get().into())]))
        }
        Body::PmcCountersCompute(pmc) => {
            let values = COUNTERS.iter().zip(pmc.hpmcounter.iter().skip(1));
            let values = values.map(|(name, value)| ((*name).to_owned(), value.get().into()));
            ("counters".to_owned(), values.collect())
        }
        Body::PmcCountersSc(pmc) => {
            two("shire cache".to_owned(), pmc.sc_pmc0.get(), pmc.sc_pmc1.get())
        }
        Body::PmcCountersMs(pmc) => {
            two(format!("memory shire {}", pmc.ms_id), pmc.ms_pmc0.get(), pmc.ms_pmc1.get())
        }
        _ => return None,
    })
}
