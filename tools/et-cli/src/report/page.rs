//! The page: tables that need no script, and the data that the script draws.

use std::collections::HashMap;
use std::fmt::{self, Write};

use serde_json::{Value, json};

use super::analysis::{self, CriticalPath};
use super::instructions;
use super::mix::Mix;
use super::profile::{Group, Profile, Span};
use crate::output;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// Rows of tables; what is behind them is on the timeline.
pub(super) const ROWS: usize = 50;

/// Text that was written by others, for any place of the page outside the script.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Would turn the direction of what follows.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => f.write_char('\u{fffd}')?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A time of so many nanoseconds, with three digits or more.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "µs")];
        let Some((unit, sign)) = UNITS.into_iter().find(|(unit, _)| self.0 >= *unit) else {
            return write!(f, "{} ns", self.0);
        };
        let scaled = ratio(self.0, unit);
        match scaled {
            _ if scaled < 10.0 => write!(f, "{scaled:.2} {sign}"),
            _ if scaled < 100.0 => write!(f, "{scaled:.1} {sign}"),
            _ => write!(f, "{scaled:.0} {sign}"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

pub(super) fn percent(part: u64, whole: u64) -> f64 {
    100.0 * ratio(part, whole)
}

/// A number whose thousands can be told apart.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// The numbers that the script gives to spans: those of the data, in their order.
#[derive(Default)]
struct Ids {
    of_span: HashMap<(u64, u64, u32, Option<u64>), usize>,
    of_task: HashMap<u64, usize>,
    of_operation: HashMap<u64, usize>,
}

impl Ids {
    fn key(span: &Span) -> (u64, u64, u32, Option<u64>) {
        (span.start, span.end, span.name, span.number)
    }

    fn get(&self, span: &Span) -> Option<usize> {
        self.of_span.get(&Self::key(span)).copied()
    }

    /// What failed: a task, or else an operation.
    fn failed(&self, number: Option<u64>) -> Option<usize> {
        let number = number?;
        self.of_task.get(&number).or_else(|| self.of_operation.get(&number)).copied()
    }
}

/// Writes the page.
pub(super) fn page(title: &str, profile: &Profile, mixes: &[Mix]) -> anyhow::Result<String> {
    let path = analysis::critical_path(profile);
    let (data, ids) = data(profile, path.as_ref());
    // Inside a script element nothing may look like its end.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let mut out = String::with_capacity(data.len() + 64 * 1024);
    let title = Escaped(title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>{title} – et report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1><button id=\"theme\" type=\"button\" \
         title=\"Switch between light and dark\">◐ theme</button></header>\n<main>\n"
    )?;
    summary(&mut out, profile, path.as_ref())?;
    failures(&mut out, profile, &ids)?;
    out.push_str(include_str!("timeline.html"));
    if !profile.memory.is_empty() {
        out.push_str(
            "<section id=\"memory\"><h2>Device memory in use</h2><canvas id=\"memory-canvas\" \
             role=\"img\" aria-label=\"Device memory in use over time\"></canvas></section>\n",
        );
    }
    out.push_str("<div class=\"tables\">\n");
    kernels(&mut out, profile)?;
    critical_path(&mut out, profile, path.as_ref(), &ids)?;
    slowest(&mut out, profile, &ids)?;
    instructions::section(&mut out, profile, mixes)?;
    counters(&mut out, profile)?;
    if profile.memory.is_empty() {
        out.push_str(
            "<section id=\"memory\"><h2>Device memory in use</h2><p class=\"note\">Not recorded in \
             this profile. What <code>--profile</code> of <code>et run</code>, <code>et graph</code> \
             and <code>et demo</code> writes has it.</p></section>\n",
        );
    }
    write!(
        out,
        "</div>\n</main>\n<script id=\"data\" type=\"application/json\">{data}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )?;
    Ok(out)
}

fn summary(
    out: &mut String,
    profile: &Profile,
    path: Option<&CriticalPath<'_>>,
) -> anyhow::Result<()> {
    let measured = profile.measured();
    let busy: u64 = profile.spans(measured).map(Span::nanos).sum();
    let rows = profile.tracks.iter().filter(|track| track.group == measured).count() as u64;
    let end = profile.end();
    let mut tiles = vec![("time", Time(end).to_string())];
    match profile.tasks {
        Some(tasks) => {
            let run = profile.spans(Group::Tasks).count();
            let is_whole = u64::try_from(run).is_ok_and(|run| run == tasks);
            let [run, tasks] = [run as u64, tasks].map(grouped);
            let run = if is_whole { format!("all {tasks}") } else { format!("{run} of {tasks}") };
            tiles.push(("tasks run", run));
            if profile.skipped != 0 {
                tiles.push(("tasks skipped", grouped(profile.skipped)));
            }
        }
        None => tiles.push(("spans", grouped(profile.count() as u64))),
    }
    tiles.push(("kernels and operations", analysis::kernels(profile).len().to_string()));
    if measured != Group::Host && rows != 0 {
        let (what, rows) = match measured {
            Group::Tasks => ("used workers busy", rows),
            _ => ("device busy", 1),
        };
        let share = percent(busy, end.saturating_mul(rows));
        // Operations of a device overlap; what is more than all of it says nothing.
        if share <= 100.0 {
            tiles.push((what, format!("{share:.1} %")));
        }
    }
    if let Some(path) = path {
        tiles.push(("critical path", Time(path.nanos).to_string()));
    }
    if let Some(place) = &profile.place {
        tiles.push(("place", place.clone()));
    }
    if let Some(most) = profile.memory.iter().map(|(_, used)| *used).max() {
        tiles.push(("most memory in use", output::bytes(most)));
    }
    tiles.push(("failures", profile.failures.len().to_string()));
    out.push_str("<dl class=\"tiles\">");
    for (name, value) in tiles {
        let class = if name == "failures" && value != "0" { " class=\"bad\"" } else { "" };
        write!(out, "<div{class}><dt>{name}</dt><dd>{}</dd></div>", Escaped(&value))?;
    }
    out.push_str("</dl>\n");
    let mut notes = Vec::new();
    if let Some(error) = profile.clock_error_us {
        notes.push(match profile.clock_is_consistent {
            Some(false) => {
                "the clocks of host and device did not run evenly; times of the device are \
                 approximate"
                    .to_owned()
            }
            _ => format!("times of the device may be off by {error:.1} µs against the host's"),
        });
    }
    if profile.dropped != 0 {
        notes.push(format!("{} more were recorded than there was room for", profile.dropped));
    }
    if profile.ignored != 0 {
        let count = output::plural(profile.ignored, "event", "events");
        notes.push(format!("{count} of unknown kinds left out"));
    }
    if !notes.is_empty() {
        writeln!(out, "<p class=\"note\">{}.</p>", Escaped(&notes.join("; ")))?;
    }
    Ok(())
}

fn failures(out: &mut String, profile: &Profile, ids: &Ids) -> anyhow::Result<()> {
    if profile.failures.is_empty() {
        return Ok(());
    }
    out.push_str("<section class=\"bad\" id=\"failures\"><h2>Failures</h2><ul class=\"failures\">");
    for failure in profile.failures.iter().take(ROWS) {
        let what = Escaped(&failure.what);
        out.push_str("<li>");
        link(out, ids.failed(failure.number), &what)?;
        if failure.dependents != 0 {
            let tasks = output::plural(failure.dependents, "task was", "tasks were");
            write!(out, " <em>{tasks} not run because of it</em>")?;
        }
        write!(out, "<pre>{}</pre></li>", Escaped(&failure.why))?;
    }
    out.push_str("</ul>");
    more(out, profile.failures.len())?;
    out.push_str("</section>\n");
    Ok(())
}

/// A button that shows a span on the timeline; text alone if it has none.
fn link(out: &mut String, id: Option<usize>, text: &impl fmt::Display) -> fmt::Result {
    match id {
        Some(id) => {
            write!(out, "<button type=\"button\" class=\"go\" data-span=\"{id}\">{text}</button>")
        }
        None => write!(out, "{text}"),
    }
}

fn more(out: &mut String, count: usize) -> fmt::Result {
    match count.checked_sub(ROWS) {
        None | Some(0) => Ok(()),
        Some(rest) => write!(out, "<p class=\"note\">and {rest} more, on the timeline.</p>"),
    }
}

fn kernels(out: &mut String, profile: &Profile) -> fmt::Result {
    let kernels = analysis::kernels(profile);
    let whole: u64 = kernels.iter().map(|kernel| kernel.total).sum();
    let source = match profile.measured() {
        Group::Tasks => "by the times of the tasks",
        Group::Device => "by the device's clock",
        _ => "from call to completion, as the device reports no times",
    };
    write!(
        out,
        "<section id=\"kernels\"><h2>Kernels by time</h2><p class=\"note\">{source}</p>\
         <div class=\"scroll\"><table><thead><tr><th>kernel</th><th class=\"n\">total</th>\
         <th class=\"n\">share</th><th class=\"n\">count</th><th class=\"n\">mean</th>\
         <th class=\"n\">least</th><th class=\"n\">most</th></tr></thead><tbody>"
    )?;
    for kernel in kernels.iter().take(ROWS) {
        let share = percent(kernel.total, whole);
        let name = Escaped(profile.name(kernel.name));
        let failed = match kernel.failed {
            0 => String::new(),
            count => format!(" <b class=\"flag\">{count} failed</b>"),
        };
        write!(
            out,
            "<tr><td><button type=\"button\" class=\"find\" data-find=\"{name}\">{name}</button>\
             {failed}</td><td class=\"n\">{}</td><td class=\"n bar\"><i style=\"--share:{share:.2}\">\
             </i>{share:.1} %</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            Time(kernel.total),
            grouped(kernel.count),
            Time(kernel.mean()),
            Time(kernel.least),
            Time(kernel.most)
        )?;
    }
    out.push_str("</tbody></table></div>");
    more(out, kernels.len())?;
    out.push_str("</section>\n");
    Ok(())
}

fn critical_path(
    out: &mut String,
    profile: &Profile,
    path: Option<&CriticalPath<'_>>,
    ids: &Ids,
) -> fmt::Result {
    out.push_str("<section id=\"path\"><h2>Critical path</h2>");
    let Some(path) = path else {
        out.push_str(
            "<p class=\"note\">This profile has no dependencies between tasks; those of \
             <code>et graph --profile</code> do.</p></section>\n",
        );
        return Ok(());
    };
    let waiting: u64 = path.steps.iter().map(|(_, wait)| *wait).sum();
    write!(
        out,
        "<p>{} one after the other took <b>{}</b>, {:.0} % of the whole time; between them {} passed. \
         With any number of workers the graph takes at least as long. \
         <button type=\"button\" id=\"show-path\">Show on the timeline</button></p>\
         <p class=\"note\">{}</p>\
         <div class=\"scroll\"><table><thead><tr><th>task</th><th>kernel</th>\
         <th class=\"n\">after a wait of</th><th class=\"n\">time</th><th class=\"n\">share</th></tr>\
         </thead><tbody>",
        output::plural(path.steps.len() as u64, "task", "tasks"),
        Time(path.nanos),
        percent(path.nanos, profile.end()),
        Time(waiting),
        path_by_kernel(profile, path)
    )?;
    for (span, wait) in path.steps.iter().take(ROWS) {
        let share = percent(span.nanos(), path.nanos);
        out.push_str("<tr><td>");
        link(out, ids.get(span), &Escaped(profile.name(span.name)))?;
        write!(
            out,
            "</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n bar\"><i style=\"--share:{share:.2}\"></i>{share:.1} %</td></tr>",
            Escaped(profile.name(span.kernel)),
            Time(*wait),
            Time(span.nanos())
        )?;
    }
    out.push_str("</tbody></table></div>");
    more(out, path.steps.len())?;
    out.push_str("</section>\n");
    Ok(())
}

/// What share of the path each kernel has, the largest first.
fn path_by_kernel(profile: &Profile, path: &CriticalPath<'_>) -> String {
    let mut shares = HashMap::<u32, u64>::new();
    for (span, _) in &path.steps {
        *shares.entry(span.kernel).or_default() += span.nanos();
    }
    let mut shares: Vec<_> = shares.into_iter().collect();
    shares.sort_by_key(|(kernel, nanos)| (std::cmp::Reverse(*nanos), *kernel));
    let shown = shares.iter().take(8).map(|(kernel, nanos)| {
        format!("{} {:.0} %", Escaped(profile.name(*kernel)), percent(*nanos, path.nanos))
    });
    shown.collect::<Vec<_>>().join(" · ")
}

fn slowest(out: &mut String, profile: &Profile, ids: &Ids) -> fmt::Result {
    let what = if profile.measured() == Group::Tasks { "tasks" } else { "operations" };
    write!(
        out,
        "<section id=\"slowest\"><h2>Slowest {what}</h2><div class=\"scroll\"><table><thead><tr>\
         <th>name</th><th class=\"n\">time</th><th class=\"n\">begin</th><th class=\"n\">number</th>\
         </tr></thead><tbody>"
    )?;
    for span in analysis::slowest(profile, ROWS / 2) {
        out.push_str("<tr><td>");
        link(out, ids.get(span), &Escaped(profile.name(span.name)))?;
        let flag = if span.failed { " <b class=\"flag\">failed</b>" } else { "" };
        let number = span.number.map_or(String::new(), |number| number.to_string());
        write!(
            out,
            "{flag}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{number}</td></tr>",
            Time(span.nanos()),
            Time(span.start)
        )?;
    }
    out.push_str("</tbody></table></div></section>\n");
    Ok(())
}

fn counters(out: &mut String, profile: &Profile) -> fmt::Result {
    if profile.counters.is_empty() {
        return Ok(());
    }
    out.push_str(
        "<section id=\"counters\"><h2>Hardware counters</h2><div class=\"scroll\"><table><thead><tr>\
         <th>counter</th><th class=\"n\">first</th><th class=\"n\">last</th>\
         <th class=\"n\">difference</th><th class=\"n\">readings</th></tr></thead><tbody>",
    );
    for counter in profile.counters.iter().take(ROWS) {
        write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td></tr>",
            Escaped(&counter.name),
            counter.first,
            counter.last,
            counter.last - counter.first,
            counter.readings
        )?;
    }
    out.push_str("</tbody></table></div>");
    match profile.counters.len().checked_sub(ROWS) {
        None | Some(0) => {}
        Some(rest) => write!(out, "<p class=\"note\">and {rest} more.</p>")?,
    }
    out.push_str("</section>\n");
    Ok(())
}

/// What the script draws. Numbers of spans are those of their order here; times are nanoseconds,
/// starts as distances from the one before.
fn data(profile: &Profile, path: Option<&CriticalPath<'_>>) -> (Value, Ids) {
    let mut ids = Ids::default();
    let mut next = 0;
    let mut groups: Vec<(Group, Vec<Value>)> = Vec::new();
    for track in &profile.tracks {
        if groups.last().is_none_or(|(group, _)| *group != track.group) {
            groups.push((track.group, Vec::new()));
        }
        for (row, lane) in track.lanes().into_iter().enumerate() {
            let spans: Vec<&Span> = lane.into_iter().map(|at| &track.spans[at]).collect();
            let mut failed = Vec::new();
            for span in &spans {
                ids.of_span.insert(Ids::key(span), next);
                if let Some(number) = span.number {
                    let numbers = match track.group {
                        Group::Tasks => Some(&mut ids.of_task),
                        Group::Host => Some(&mut ids.of_operation),
                        _ => None,
                    };
                    numbers.and_then(|numbers| numbers.insert(number, next));
                }
                if span.failed {
                    failed.push(next);
                }
                next += 1;
            }
            let marks: &[_] = if row == 0 { &track.marks } else { &[] };
            let lane = json!({
                "label": (row == 0).then(|| track.label()),
                "start": deltas(spans.iter().map(|span| span.start)),
                "nanos": spans.iter().map(|span| span.nanos()).collect::<Vec<_>>(),
                "name": spans.iter().map(|span| span.name).collect::<Vec<_>>(),
                "kernel": spans.iter().map(|span| span.kernel).collect::<Vec<_>>(),
                "number": spans.iter().map(|span| span.number).collect::<Vec<_>>(),
                "failed": failed,
                "marks": deltas(marks.iter().map(|mark| mark.at)),
                "texts": marks.iter().map(|mark| mark.name).collect::<Vec<_>>(),
            });
            if let Some((_, lanes)) = groups.last_mut() {
                lanes.push(lane);
            }
        }
    }
    let edges = profile
        .edges
        .iter()
        .filter_map(|(from, to)| Some([*ids.of_task.get(from)?, *ids.of_task.get(to)?]));
    let path = path.iter().flat_map(|path| &path.steps);
    let document = json!({
        "end": profile.end(),
        "names": profile.names(),
        "groups": groups.into_iter().map(|(group, lanes)| {
            json!({"title": group.title(), "lanes": lanes})
        }).collect::<Vec<_>>(),
        "edges": edges.flatten().collect::<Vec<_>>(),
        "path": path.filter_map(|(span, _)| ids.get(span)).collect::<Vec<_>>(),
        "memory": [
            deltas(profile.memory.iter().map(|(at, _)| *at)),
            profile.memory.iter().map(|(_, used)| *used).collect::<Vec<_>>(),
        ],
    });
    (document, ids)
}

/// Distances between times that do not fall.
fn deltas(times: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut before = 0;
    times.map(|time| time.saturating_sub(std::mem::replace(&mut before, time))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::read::read;
    use super::*;

    const HOSTILE: &str = "</script><script>alert(1)</script>\" onx='&\u{202e}";

    #[test]
    fn names_cannot_leave_their_place() {
        let event =
            json!({"ph": "X", "name": HOSTILE, "ts": 1, "dur": 2, "args": {"failed": true}});
        let failed = json!({"task": 0, "name": HOSTILE, "state": "failed", "error": HOSTILE});
        let other = json!({"incomplete": [failed], "place": HOSTILE});
        let text = json!({"traceEvents": [event], "otherData": other}).to_string();
        let profile = read(text.as_bytes()).unwrap();
        let page = page(HOSTILE, &profile, &[(HOSTILE.into(), vec![("integer", 1)])]).unwrap();
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
        let (tables, data) = page.split_once("application/json\">").unwrap();
        assert!(!tables.contains("\" onx"), "an attribute was left");
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(data["names"][0], HOSTILE);
    }

    #[test]
    fn the_page_asks_the_network_for_nothing() {
        let page = page("a", &Profile::default(), &[]).unwrap();
        assert!(page.contains("default-src 'none'"));
        for part in ["http:", "https:", "src=", "href=", "@import", "url(", "fetch("] {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits() {
        let times = [0, 999, 1000, 12_345, 123_456_789, 5_000_000_000];
        let shown = times.map(|nanos| Time(nanos).to_string());
        assert_eq!(shown, ["0 ns", "999 ns", "1.00 µs", "12.3 µs", "123 ms", "5.00 s"]);
        let counts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(counts, ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
    }
}
