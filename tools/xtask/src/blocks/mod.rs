//! `cargo xtask blocks`: what the book and the READMEs show is built and run.
//!
//! A word behind the language of a block, with a comma, says what is done with it:
//!
//! | Block | Is |
//! |---|---|
//! | `c`, `cpp` | a program for the host: built without warnings, linked, run |
//! | `c,kernel` | a kernel: built by `et cc --check`; run if it states no arguments |
//! | `console` | commands, each after `$ `, and what they print: run, compared |
//! | `console,card` | not run: [`page`] has the words and the reasons, which CI counts as skipped |
//! | `…,file:NAME` | a file for the commands that follow on the page |
//! | `…,from:PATH` | a part of that file, which something else checks |
//! | `…,by:STEP` | run by this step of `cargo xtask ci` |
//! | `python`, `python,torch` | run by the tests of the Python package |
//! | `rust…` | run by `cargo test`: the page is among the documents of a crate |
//! | `json` | a document that can be read |
//! | `text` | no program |
//!
//! Any other block is an error. Lines that begin with `~` are part of a program and hidden in the
//! book, as those with `#` are in Rust.
//!
//! All of a page is done in one folder, in its order. There are the committed kernels as files and
//! sources, arrays `x.npy` and so on, and the installed SDK as `~/et`. What `cargo` would do is
//! done: such commands are only read. So is `et` in a block that is not run. `$ cat FILE` writes a
//! file that is not there, with what is shown.
//!
//! Of what a command prints all words must be shown, with any numbers; `…` stands for what is left
//! out. It must end well, unless a line that begins with `error: ` or `wrong with ` is shown.

mod output;
mod page;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::sdk;
use crate::shell::{capture, root};
pub(crate) use page::{Block, Check, blocks};
use session::{Ended, Session};

/// Which pages have blocks that are checked.
const PAGES: [&str; 2] = ["*README.md", "docs/src/*.md"];

/// Places of blocks that were not run, by the reason.
pub(crate) type Skipped = BTreeMap<String, Vec<String>>;

/// Checks the pages whose names contain one of the texts, or all without any.
pub(crate) fn check(only: &[String]) -> anyhow::Result<Skipped> {
    let files = listed(&["*.rs"])?;
    let mut crates = String::new();
    for name in &files {
        crates += &std::fs::read_to_string(root().join(name)).with_context(|| name.clone())?;
    }
    let folder = tempfile::tempdir()?;
    // Everything that pages name is found from where the prefix is.
    let prefix = folder.path().join("et");
    sdk::run(&sdk::Options::unoptimised(prefix.clone()))?;
    let mut found = Found { crates, ..Found::default() };
    for name in listed(&PAGES)? {
        if only.is_empty() || only.iter().any(|part| name.contains(part)) {
            let text = std::fs::read_to_string(root().join(&name)).with_context(|| name.clone())?;
            let started = Instant::now();
            found.page(&name, &text, &prefix)?;
            println!("blocks: {name} took {:.1?}", started.elapsed());
        }
    }
    ensure!(found.wrong.is_empty(), "{}", found.wrong.join("\n"));
    println!("blocks: {} checked", found.checked);
    Ok(found.skipped)
}

/// What git knows.
fn listed(patterns: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut git = std::process::Command::new("git");
    let output = capture(git.current_dir(root()).arg("ls-files").args(patterns))?;
    ensure!(output.status.success(), "git does not list the files");
    let all: BTreeSet<_> =
        std::str::from_utf8(&output.stdout)?.lines().map(str::to_owned).collect();
    Ok(all.into_iter().collect())
}

#[derive(Default)]
struct Found {
    /// The sources of all crates.
    crates: String,
    checked: usize,
    skipped: Skipped,
    wrong: Vec<String>,
}

impl Found {
    fn page(&mut self, name: &str, text: &str, sdk: &Path) -> anyhow::Result<()> {
        let mut session = None;
        // What commands have yet to use.
        let mut files = Vec::new();
        for block in blocks(name, text)? {
            let session = match &mut session {
                Some(session) => session,
                none => none.insert(Session::new(sdk)?),
            };
            match block.check() {
                Ok(Check::File(_)) => files.push(block.place()),
                Ok(Check::Commands) => files.clear(),
                _ => {}
            }
            match self.block(&block, session) {
                Ok(Ended::Well) => self.checked += 1,
                Ok(Ended::Skipped(why)) => self.skipped.entry(why).or_default().push(block.place()),
                Err(error) => self.wrong.push(format!("{}: {error:#}", block.place())),
            }
        }
        self.wrong.extend(files.iter().map(|place| format!("{place}: no command uses this file")));
        Ok(())
    }

    /// Returns `true` if a crate has a page among its documents.
    fn is_document(&self, page: &str) -> anyhow::Result<bool> {
        // The README of the workspace is none.
        let Some((folder, name)) = page.rsplit_once('/') else { return Ok(false) };
        let of_crate = root().join(folder).join("src/lib.rs");
        let is_own = of_crate.exists()
            && std::fs::read_to_string(of_crate)?.contains(&format!("(\"../{name}\")]"));
        Ok(is_own || self.crates.contains(&format!("/{page}\")]")))
    }

    fn block(&self, block: &Block, session: &mut Session) -> anyhow::Result<Ended> {
        let check = block.check()?;
        let is_run = matches!(check, Check::Commands | Check::Program { .. } | Check::Kernel);
        if let (true, Some(why)) = (is_run, &session.lacks) {
            return Ok(Ended::Skipped(why.clone()));
        }
        match check {
            Check::Commands => return session.commands(block),
            Check::Program { compiler, standard, extension } => {
                return session.program(block, compiler, standard, extension);
            }
            Check::Kernel => return session.kernel(block),
            Check::Skipped(why) => {
                if block.is("console") {
                    session.read(block)?;
                }
                return Ok(Ended::Skipped(why.to_owned()));
            }
            Check::File(name) => session.write(name, &block.program())?,
            Check::Excerpt(path) => {
                let file = std::fs::read_to_string(root().join(path)).context(path.to_owned())?;
                ensure!(is_part(&block.text, &file), "this is no part of {path}");
            }
            Check::By(step) => {
                let named = include_str!("../ci.rs").contains(&format!("check(\"{step}\", "));
                ensure!(named, "`cargo xtask ci` has no step {step}");
            }
            Check::DocTest => {
                ensure!(self.is_document(&block.page)?, "no crate has this page as a document");
            }
            Check::Json => drop(serde_json::from_str::<serde_json::Value>(&block.text)?),
            Check::Shown => {}
        }
        Ok(Ended::Well)
    }
}

/// Returns `true` if the lines of a block stand in a file one after the other, but for what is
/// hidden or empty, and however far they are indented.
fn is_part(block: &str, file: &str) -> bool {
    let lines = |text: &'_ str| -> Vec<String> {
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with("# "))
            .map(str::to_owned)
            .collect()
    };
    let (block, file) = (lines(block), lines(file));
    !block.is_empty() && file.windows(block.len()).any(|part| part == block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::is_there;

    /// What is wrong on a page, without the SDK.
    fn wrong(text: &str) -> Vec<String> {
        let sdk = tempfile::tempdir().unwrap();
        let crates = "#[doc = include_str!(\"../../docs/src/a.md\")]".to_owned();
        let mut found = Found { crates, ..Found::default() };
        found.page("docs/src/a.md", text, sdk.path()).unwrap();
        found.wrong
    }

    fn console(text: &str) -> Vec<String> {
        wrong(&format!("```console\n{text}\n```\n"))
    }

    #[test]
    fn commands_must_do_what_is_shown() {
        for good in [
            "$ echo 1 word\n2 word",
            "$ echo anything",
            "$ echo a b c\na …",
            "$ echo error: it; false\nerror: it",
            "$ export A=1; echo $A  # a comment",
            "$ cat f.txt\na word\n$ grep -c word f.txt",
            "$ sh -c 'echo ready 1; exec sleep 9' &\nready 2",
            "$ cargo what is built\nwhat it prints",
        ] {
            assert_eq!(console(good), Vec::<String>::new(), "{good}");
        }
        for bad in [
            "$ echo 1 word\n2 words",
            "$ false",
            "$ echo error: it\nerror: it",
            "$ cat f.txt\na word\n$ grep words f.txt",
            "$ echo steady &\nready",
            "$ no-such-program",
        ] {
            let found = console(bad);
            assert!(found.len() == 1 && found[0].starts_with("docs/src/a.md:1: "), "{found:?}");
        }
    }

    #[test]
    fn a_program_that_does_not_compile_or_fails_is_wrong() {
        if !is_there("cc") {
            println!("skipped, because cc is not installed");
            return;
        }
        // The library is not there.
        let page = |body: &str| wrong(&format!("\n```c\n~ int main(void) {{\n{body}\n~ }}\n```\n"));
        let found = page("return x;");
        assert!(found.len() == 1 && found[0].contains("docs/src/a.md:4:"), "{found:?}");
        let found = page("int x; return 0;");
        assert!(found.len() == 1 && found[0].contains("unused"), "{found:?}");
    }

    #[test]
    fn files_are_used_and_what_others_check_is_there() {
        let used = "```json,file:a.json\n{}\n```\n```console\n$ grep -q {} a.json\n```\n";
        assert_eq!(wrong(used), Vec::<String>::new());
        for good in [
            "```text,by:readme\n```",
            "```text,from:LICENSE-MIT\n  Permission is hereby granted, free of charge, to any person obtaining a copy\n```",
            "```rust\n```",
            "```console,card\n$ no-such-program\n```",
        ] {
            assert_eq!(wrong(good), Vec::<String>::new(), "{good}");
        }
        for bad in [
            "```json,file:a.json\n{}\n```",
            "```json\n{,}\n```\n",
            "```text,by:nothing\n```",
            "```text,from:LICENSE-MIT\nPermission is hereby denied\n```",
            "```text,from:none\na\n```",
            "```c,later\n```",
        ] {
            assert_eq!(wrong(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn rust_is_of_a_page_that_is_a_document() {
        let mut found = Found::default();
        let sdk = tempfile::tempdir().unwrap();
        found.page("docs/src/b.md", "```rust\n```", sdk.path()).unwrap();
        found.page("README.md", "```rust\n```", sdk.path()).unwrap();
        found.page("testing/kernels/README.md", "```rust\n```", sdk.path()).unwrap();
        assert_eq!(found.wrong.len(), 3);
        found.page("et-hal/README.md", "```rust\n```", sdk.path()).unwrap();
        assert_eq!(found.wrong.len(), 3);
    }

    #[test]
    fn parts_of_files_may_be_indented_otherwise() {
        let file = "def f():\n    # hidden\n    a = 1\n\n    b = 2\n";
        assert!(is_part("a = 1\nb = 2\n", file) && is_part("def f():\n  a = 1\n", file));
        assert!(!is_part("def f():\nb = 2\n", file) && !is_part("", file));
    }
}
