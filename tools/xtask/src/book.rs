//! The book and the READMEs: links lead somewhere, every chapter is in the summary, and shell lines
//! name commands and files that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Parser;

use crate::shell::{capture, root};

/// What the C++ runtime offers, and the page that says where users of each call go.
const RUNTIME: &str = "bindings/et-cpp/compat/include/runtime/IRuntime.h";
const MIGRATION: &str = "docs/src/cpp-runtime.md";
const SUMMARY: &str = "docs/src/SUMMARY.md";

/// Checks every page that git knows.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut git = std::process::Command::new("git");
    let listed = capture(git.current_dir(root()).args(["ls-files"]))?;
    ensure!(listed.status.success(), "git does not list the files");
    let files: BTreeSet<String> =
        String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
    let mut pages = BTreeMap::new();
    for name in files.iter().filter(|name| name.ends_with(".md")) {
        let text = std::fs::read_to_string(root().join(name)).with_context(|| name.clone())?;
        pages.insert(name.clone(), text);
    }
    let main = root().join("tools/et-cli/src/main.rs");
    let names = Names { et: variants(&std::fs::read_to_string(main)?, "enum Command {"), files };
    ensure!(names.et.contains("demo"), "the commands of et were not found");
    let mut found = look(&pages, &names);
    let header = std::fs::read_to_string(root().join(RUNTIME))?;
    found.extend(unnamed(&header, pages.get(MIGRATION).context("no page for migrations")?));
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// Says which methods of a class in C++ a page does not name.
fn unnamed(header: &str, page: &str) -> Vec<String> {
    let code = header.lines().filter_map(|line| line.split("//").next());
    let code = code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    let mut methods = BTreeSet::new();
    for kind in ["virtual ", "static "] {
        methods.extend(code.split(kind).skip(1).filter_map(method));
    }
    if methods.is_empty() {
        return vec![format!("{RUNTIME} declares nothing")];
    }
    let words: BTreeSet<_> = page.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let missing = methods.into_iter().filter(|method| !words.contains(method));
    missing.map(|method| format!("{MIGRATION} does not say what becomes of {method}")).collect()
}

/// The name of a method whose declaration begins so.
fn method(declaration: &str) -> Option<&str> {
    let (before, _) = declaration.split_once('(')?;
    let name = before.rsplit([' ', '*', '&']).next()?;
    (!name.starts_with('~')).then_some(name)
}

/// What pages may name.
struct Names {
    et: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Names {
    /// Returns `true` if there is a file or folder of this name.
    fn has_path(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.contains(path)
            || self.files.range(folder.clone()..).next().is_some_and(|f| f.starts_with(&folder))
    }
}

/// Names of the variants of an enum of subcommands, as they are written on a command line.
fn variants(source: &str, start: &str) -> BTreeSet<String> {
    let body = source.split_once(start).map_or("", |(_, rest)| rest);
    body.lines()
        .take_while(|line| *line != "}")
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .filter_map(|line| line.split(['(', ',', ' ']).next())
        .map(str::to_lowercase)
        .collect()
}

fn look(pages: &BTreeMap<String, String>, names: &Names) -> Vec<String> {
    let mut found = Vec::new();
    let anchors: BTreeMap<_, _> = pages.iter().map(|(name, text)| (name, anchors(text))).collect();
    let mut in_summary = BTreeSet::new();
    for (page, text) in pages {
        for (line, target) in links(text) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let to = if path.is_empty() { Some(page.clone()) } else { resolve(page, path) };
            let Some(to) = to.filter(|to| names.has_path(to)) else {
                found.push(format!("{page}:{line}: there is no {target}"));
                continue;
            };
            if page == SUMMARY {
                in_summary.insert(to.clone());
            }
            if !anchor.is_empty() && !anchors.get(&to).is_some_and(|all| all.contains(anchor)) {
                found.push(format!("{page}:{line}: {to} has no heading #{anchor}"));
            }
        }
        for (line, command) in commands(text) {
            if let Some(what) = wrong(&command, names) {
                found.push(format!("{page}:{line}: {what}"));
            }
        }
    }
    for page in pages.keys().filter(|page| page.starts_with("docs/src/") && *page != SUMMARY) {
        if !in_summary.contains(page) {
            found.push(format!("{page} is not in the summary"));
        }
    }
    found
}

/// The file that a link on a page leads to; `None` if that is outside of the workspace.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => path.pop().then_some(())?,
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path.to_str()?.to_owned())
}

/// Lines of a page outside and inside of blocks of code, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, Option<&str>, &str)> {
    let mut block: Option<&str> = None;
    (1..).zip(text.lines()).map(move |(number, line)| {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            block = if block.is_some() { None } else { Some(fence.trim()) };
            return (number, Some(""), "");
        }
        (number, block, line)
    })
}

/// Targets of the links of a page that are not on the net, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for (number, block, line) in lines(text) {
        if block.is_some() {
            continue;
        }
        // What is between backticks is no link; a link's text may have some.
        let mut code = false;
        let mut rest = line;
        while let Some(at) = rest.find(['`', ']']) {
            let is_tick = rest[at..].starts_with('`');
            rest = &rest[at + 1..];
            if is_tick {
                code = !code;
            } else if let (false, Some(target)) = (code, rest.strip_prefix('(')) {
                let Some((target, after)) = target.split_once(')') else { continue };
                rest = after;
                if !target.contains(':') && !target.is_empty() {
                    all.push((number, target.to_owned()));
                }
            }
        }
    }
    all
}

/// Anchors of the headings of a page, as mdBook and code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (_, block, line) in lines(text) {
        let title = line.trim_start_matches('#');
        if block.is_some() || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>();
        let anchor = anchor.to_lowercase();
        let again = (1..).map(|n| format!("{anchor}-{n}")).find(|name| !all.contains(name));
        all.insert(if all.contains(&anchor) { again.unwrap_or_default() } else { anchor });
    }
    all
}

/// Commands that readers are shown, with their lines.
fn commands(text: &str) -> Vec<(usize, String)> {
    lines(text)
        .filter(|(_, block, _)| block.and_then(|info| info.split(',').next()) == Some("console"))
        .filter_map(|(number, _, line)| {
            let command = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "))?;
            Some((number, command.split(" #").next().unwrap_or(command).to_owned()))
        })
        .collect()
}

/// Returns what is wrong with a command, as far as it is one of ours.
fn wrong(command: &str, names: &Names) -> Option<String> {
    for part in command.split(['|', ';', '&']) {
        let mut words = part.split_whitespace().filter(|word| *word != "sudo").peekable();
        while words.peek().is_some_and(|word| word.contains('=')) {
            words.next();
        }
        let words: Vec<_> = words.collect();
        match words[..] {
            ["cargo", "xtask", ref rest @ ..] => {
                let call = std::iter::once("xtask").chain(rest.iter().copied());
                if let Err(error) = crate::Cli::try_parse_from(call) {
                    return Some(format!("`cargo xtask {}`: {error}", rest.join(" ")));
                }
            }
            ["et", ref rest @ ..] => {
                let what = subcommand(rest);
                if let Some(what) = what.filter(|what| !names.et.contains(*what)) {
                    return Some(format!("there is no `et {what}`"));
                }
            }
            _ => {}
        }
        const TOPS: [&str; 5] = ["bindings/", "testing/", "docs/", "tools/", "backends/"];
        for word in words {
            if TOPS.iter().any(|top| word.starts_with(top)) && !names.has_path(word) {
                return Some(format!("there is no file {word}"));
            }
        }
    }
    None
}

/// The first word of a call of `et` that is no option and no value of one.
fn subcommand<'a>(words: &[&'a str]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--device" | "-d" => drop(words.next()),
            word if word.starts_with('-') => {}
            word => return Some(word),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_runtime_is_on_the_page_for_its_users() {
        let header = "  virtual ~IRuntime() = default;\n  // virtual words(in a comment)\n  virtual \
                      std::byte*\n  mallocDevice(DeviceId device);\n  static RuntimePtr \
                      create(const Path& p);\n  virtual bool isIt() const = 0;";
        assert_eq!(unnamed(header, "`create`, `mallocDevice` and isIt"), [""; 0]);
        let found = unnamed(header, "`create` and `mallocDeviceMore`");
        let missing = |name| format!("{MIGRATION} does not say what becomes of {name}");
        assert_eq!(found, ["isIt", "mallocDevice"].map(missing));
        assert_eq!(unnamed("", "all").len(), 1, "a header that moved is no reason to be silent");
    }

    fn found(page: &str) -> Vec<String> {
        let pages = BTreeMap::from([
            ("docs/src/a.md".to_owned(), page.to_owned()),
            ("docs/src/b.md".to_owned(), "# A `title`, twice\n## Same\n## Same\n".to_owned()),
            (SUMMARY.to_owned(), "[a](a.md) [b](b.md)".to_owned()),
        ]);
        let files = pages.keys().cloned().chain(["tools/x/main.rs".to_owned()]).collect();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        look(&pages, &Names { et: set(&["run"]), files })
    }

    #[test]
    fn links_and_their_headings_must_exist() {
        let good = "[x](b.md#a-title-twice) [y `z`](b.md#same-1) [w](../../tools/x) [n](http://x)\n\
                    ## Here\n[me](#here) `[no](link)`\n```text\n[no](link)\n```\n";
        assert_eq!(found(good), Vec::<String>::new());
        for bad in ["[x](c.md)", "[x](b.md#none)", "[x](#none)", "[x](../../../y)", "[x](../x.md)"]
        {
            assert_eq!(found(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn chapters_are_in_the_summary() {
        let pages = BTreeMap::from([
            ("docs/src/a.md".to_owned(), String::new()),
            (SUMMARY.to_owned(), String::new()),
        ]);
        let files = pages.keys().cloned().collect();
        let names = Names { et: BTreeSet::new(), files };
        assert_eq!(look(&pages, &names), ["docs/src/a.md is not in the summary"]);
    }

    #[test]
    fn shell_lines_name_what_there_is() {
        let console = |line: &str| found(&format!("```console\n{line}\n```\n"));
        for good in [
            "$ cargo xtask ci # all",
            "# et --device sim: run x",
            "$ et --json",
            "anything at all",
            "$ sudo et run x && A=b cargo xtask ci",
            "$ sh tools/x/main.rs",
            "$ cargo xtask sdk --prefix ~/x",
        ] {
            assert_eq!(console(good), Vec::<String>::new());
        }
        for bad in [
            "$ cargo xtask c",
            "$ cargo xtask sdk --where x",
            "$ A=1 et -d sim: nothing",
            "# cat x | et fly",
            "$ sh tools/y",
        ] {
            assert_eq!(console(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn commands_are_found_in_their_enum() {
        let source =
            "enum Command {\n    /// Text.\n    Run(x),\n    #[a]\n    List,\n}\n    Other(x)";
        assert_eq!(variants(source, "enum Command {"), ["list", "run"].map(str::to_owned).into());
    }
}
