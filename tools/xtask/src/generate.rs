//! `cargo xtask generate`: what is written down elsewhere and must say the same in other places.
//!
//! The layout of a cell is that of `et_devapi::handshake`; the mutants are those of
//! `testing/et-loom` and `testing/et-shuttle`; the results of the conformance kit are those of
//! `testing/conformance.json`; the C header is that of the functions of `et-capi`.

use std::path::PathBuf;

use anyhow::Context;
use et_devapi::handshake::{
    CELL_BYTES, Control, DISPATCH, IDENTITY, STATUS, WorkerState, outcome, slot, times,
};
use serde::Deserialize;

use crate::conformance;
use crate::shell::root;

/// A file, and what belongs into it.
struct Generated {
    path: PathBuf,
    text: String,
}

pub(crate) fn run() -> anyhow::Result<()> {
    for Generated { path, text } in all()? {
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn all() -> anyhow::Result<Vec<Generated>> {
    let cell = spliced("docs/src/handshake.md", "cell", "", &cell_table())?;
    let words = spliced("et-devapi/src/handshake/mod.rs", "cell", "//! ", &cell_table())?;
    let conformance =
        spliced("docs/src/conformance.md", "conformance", "", &conformance::table()?)?;
    let mutants = spliced("docs/src/concurrency.md", "mutants", "", &mutants()?)?;
    let header = root().join("bindings/device/include/et/cell.h");
    Ok(vec![
        Generated { path: header, text: cell_header() },
        Generated { path: root().join("bindings/et-capi/include/et.h"), text: c_header()? },
        Generated { text: states(&cell.text)?, ..cell },
        words,
        mutants,
        conformance,
    ])
}

/// Replaces what is between the marks of `name` in a file.
fn spliced(file: &str, name: &str, prefix: &str, lines: &str) -> anyhow::Result<Generated> {
    let path = root().join(file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {file}"))?;
    let text = splice(&text, name, prefix, lines).with_context(|| format!("in {file}"))?;
    Ok(Generated { path, text })
}

fn splice(text: &str, name: &str, prefix: &str, lines: &str) -> anyhow::Result<String> {
    let begin = format!("<!-- `cargo xtask generate` writes this: {name} -->\n");
    let end = format!("{prefix}<!-- end of {name} -->");
    let (before, rest) = text.split_once(&begin).with_context(|| format!("no begin of {name}"))?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("no end of {name}"))?;
    let mut body = String::new();
    for line in std::iter::once("").chain(lines.lines()).chain([""]) {
        body += format!("{prefix}{line}").trim_end();
        body += "\n";
    }
    Ok(format!("{before}{begin}{body}{end}{after}"))
}

/// The byte at which a word is.
fn byte(word: usize) -> usize {
    word * 8
}

fn cell_table() -> String {
    let both = |of: fn(u32) -> usize| format!("{}, {}", byte(of(0)), byte(of(1)));
    let rows = [
        (
            byte(DISPATCH).to_string(),
            "`DISPATCH`",
            "scheduler",
            "low half: number of the newest task; high half: control",
        ),
        (both(slot), "slots 0, 1", "scheduler", "task word, argument word"),
        (
            byte(STATUS).to_string(),
            "`STATUS`",
            "worker",
            "low half: number of the last completed task; high half: state",
        ),
        (
            byte(IDENTITY).to_string(),
            "`IDENTITY`",
            "worker",
            "who it is; the hart number on a device",
        ),
        (
            both(outcome),
            "outcomes 0, 1",
            "worker",
            "result of the slot's last task; users define success",
        ),
        (both(times), "times 0, 1", "worker", "start and end, in cycles, where there is a counter"),
    ];
    let mut table = String::from("| Byte | Word | Writer | Content |\n|---|---|---|---|\n");
    for (bytes, word, writer, content) in rows {
        table += &format!("| {bytes} | {word} | {writer} | {content} |\n");
    }
    table
}

const CONTROLS: [(Control, &str); 4] = [
    (Control::Closed, "not greeted yet"),
    (Control::Run, "take tasks"),
    (Control::Quit, "complete what is there, then leave"),
    (Control::Abort, "leave, do not start what is staged"),
];

const STATES: [(WorkerState, &str); 4] = [
    (WorkerState::Absent, "has not announced itself"),
    (WorkerState::Awake, "looks at `DISPATCH`"),
    (WorkerState::Parked, "sleeps, or is about to"),
    (WorkerState::Exited, "touches nothing any more"),
];

/// Adds the values of control and state to the book's page.
fn states(page: &str) -> anyhow::Result<String> {
    let mut table = String::from("| Control | | State | |\n|---|---|---|---|\n");
    for ((control, told), (state, tells)) in CONTROLS.iter().zip(&STATES) {
        let (c, s) = (*control as u32, *state as u32);
        table += &format!("| {c} `{control:?}` | {told} | {s} `{state:?}` | {tells} |\n");
    }
    splice(page, "states", "", &table)
}

fn cell_header() -> String {
    let bytes = [
        ("BYTES", CELL_BYTES.to_string()),
        ("DISPATCH", byte(DISPATCH).to_string()),
        ("SLOT", byte(slot(0)).to_string()),
        ("STATUS", byte(STATUS).to_string()),
        ("IDENTITY", byte(IDENTITY).to_string()),
        ("OUTCOME", byte(outcome(0)).to_string()),
        ("TIMES", byte(times(0)).to_string()),
    ];
    let controls =
        CONTROLS.map(|(control, _)| (format!("{control:?}").to_uppercase(), control as u32));
    let states = STATES.map(|(state, _)| (format!("{state:?}").to_uppercase(), state as u32));
    let list = |values: &[(String, u32)]| -> String {
        let values: Vec<_> =
            values.iter().map(|(name, value)| format!("    ET_CELL_{name} = {value},\n")).collect();
        values.concat()
    };
    let [slots, outcomes, both_times] =
        [slot as fn(u32) -> usize, outcome, times].map(|of| byte(of(1)) - byte(of(0)));
    let mut text = String::from(
        "/* Cells, as in the host's module et_devapi::handshake, from which `cargo xtask generate`\n \
         * writes this file. */\n#ifndef ET_CELL_H\n#define ET_CELL_H\n\n",
    );
    text += &format!(
        "/* Bytes of the words. Those of an odd task are further on: its slot by {slots}, its outcome by\n \
         * {outcomes}, its times by {both_times}. */\nenum {{\n"
    );
    for (name, value) in bytes {
        text += &format!("    ET_CELL_{name} = {value},\n");
    }
    text += "};\n\n/* High half of the dispatch word, and of the status word. */\n";
    text += &format!("enum {{\n{}}};\nenum {{\n{}}};\n\n#endif\n", list(&controls), list(&states));
    text
}

/// The header of the C interface.
fn c_header() -> anyhow::Result<String> {
    let folder = root().join("bindings/et-capi");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"));
    let config = config.map_err(anyhow::Error::msg)?;
    // The file and its modules, so that no other program is run to find them.
    let builder = cbindgen::Builder::new().with_config(config).with_src(folder.join("src/lib.rs"));
    let mut header = Vec::new();
    builder.generate().context("reading the sources of et-capi")?.write(&mut header);
    Ok(String::from_utf8(header)?)
}

/// A mutant of the loom models, as far as the book names it.
#[derive(Deserialize)]
struct Mutant {
    name: String,
    model: String,
}

fn mutants() -> anyhow::Result<String> {
    let mut table = String::from("| Mutant | Killed by |\n|---|---|\n");
    for tool in ["loom", "shuttle"] {
        let file = root().join(format!("testing/et-{tool}/mutants.json"));
        let json = std::fs::read_to_string(file)?;
        let mutants: Vec<Mutant> = serde_json::from_str(&json).context("reading mutants.json")?;
        for Mutant { name, model } in mutants {
            table += &format!("| {name} | `{model}` |\n");
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_what_their_sources_say() {
        for Generated { path, text } in all().unwrap() {
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(found == text, "{}: run `cargo xtask generate`", path.display());
        }
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let mark = "<!-- `cargo xtask generate` writes this: x -->";
        let old = format!("a\n//! {mark}\n//! old\n//! <!-- end of x -->\nb\n");
        let new = splice(&old, "x", "//! ", "| 1 |\n").unwrap();
        assert_eq!(new, format!("a\n//! {mark}\n//!\n//! | 1 |\n//!\n//! <!-- end of x -->\nb\n"));
        assert!(splice("a\nb\n", "x", "", "").is_err());
    }
}
