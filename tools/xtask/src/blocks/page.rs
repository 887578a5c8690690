//! The blocks of a page, and what their info-strings ask for.

use anyhow::{Context, bail, ensure};

/// What a line of a block that readers do not see begins with, as `docs/book.toml` has it.
const HIDDEN: char = '~';

/// A block of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The page, and the line where the block begins.
    pub(crate) page: String,
    pub(crate) line: usize,
    language: String,
    words: Vec<String>,
    /// What is in it, hidden lines and all.
    pub(crate) text: String,
}

/// What is done with a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Check<'a> {
    /// It stands like this in a file.
    Excerpt(&'a str),
    /// It is a file for the commands that follow.
    File(&'a str),
    /// A step of `cargo xtask ci` runs it.
    By(&'a str),
    /// It is not run, and this is why.
    Skipped(&'static str),
    /// Its commands are run.
    Commands,
    /// It is a program for the host, for this compiler.
    Program { compiler: &'static str, standard: &'static str, extension: &'static str },
    /// It is a kernel.
    Kernel,
    /// Rust's own tools run it, if the page is among the documents of a crate.
    DocTest,
    /// It is a document that can be read.
    Json,
    /// It is for people.
    Shown,
}

/// Why blocks are not run, by the word that says so.
const REASONS: [(&str, &str); 4] = [
    ("card", "they need a card"),
    ("root", "they change the system they run on"),
    ("network", "they need a network"),
    ("endless", "they go on until their user ends them, or need a terminal"),
];

impl Block {
    /// Where it is.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// What is to be done with it.
    pub(crate) fn check(&self) -> anyhow::Result<Check<'_>> {
        let words: Vec<_> = self.words.iter().map(String::as_str).collect();
        let one = words.first().filter(|_| words.len() == 1);
        if let Some((key, value)) = one.and_then(|word| word.split_once(':')) {
            return match key {
                "file" => Ok(Check::File(value)),
                "from" => Ok(Check::Excerpt(value)),
                "by" => Ok(Check::By(value)),
                _ => bail!("`{key}:` means nothing here"),
            };
        }
        Ok(match (self.language.as_str(), &words[..]) {
            ("c", []) => Check::Program { compiler: "cc", standard: "-std=c99", extension: "c" },
            ("cpp", []) => {
                Check::Program { compiler: "c++", standard: "-std=c++17", extension: "cpp" }
            }
            ("c", ["kernel"]) => Check::Kernel,
            ("console", []) => Check::Commands,
            ("console" | "sh" | "ini", [word]) => {
                let reason = REASONS.iter().find(|(name, _)| name == word);
                Check::Skipped(reason.with_context(|| format!("`{word}` is no reason"))?.1)
            }
            ("json", []) => Check::Json,
            ("python", []) => Check::By("python"),
            ("python", ["torch"]) => Check::By("pytorch"),
            ("rust", ["ignore", ..]) => bail!("an ignored example is compiled by none"),
            ("rust", _) => Check::DocTest,
            ("text", []) => Check::Shown,
            _ => bail!("nothing checks a block with these words: {}", self.info()),
        })
    }

    /// Returns `true` if it is in this language.
    pub(crate) fn is(&self, language: &str) -> bool {
        self.language == language
    }

    fn info(&self) -> String {
        [std::slice::from_ref(&self.language), &self.words].concat().join(",")
    }

    /// The whole program: hidden lines as the others.
    pub(crate) fn program(&self) -> String {
        let lines = self.text.lines().map(|line| match line.strip_prefix(HIDDEN) {
            Some(hidden) if !self.is("rust") => hidden.strip_prefix(' ').unwrap_or(hidden),
            _ => line,
        });
        lines.map(|line| format!("{line}\n")).collect()
    }
}

/// All blocks of a page, in their order.
pub(crate) fn blocks(page: &str, text: &str) -> anyhow::Result<Vec<Block>> {
    let mut all = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, first)) = lines.next() {
        let indent = first.len() - first.trim_start().len();
        let Some(info) = first.trim_start().strip_prefix("```") else { continue };
        let mut block = String::new();
        let is_closed = lines.by_ref().any(|(_, line)| {
            let is_end = line.trim_start().starts_with("```");
            if !is_end {
                block += line.get(indent..).unwrap_or_default();
                block.push('\n');
            }
            is_end
        });
        ensure!(is_closed, "{page}:{line}: the block has no end");
        let mut words = info.trim().split(',').map(|word| word.trim().to_owned());
        let language = words.next().unwrap_or_default();
        let words = words.collect();
        all.push(Block { page: page.to_owned(), line, language, words, text: block });
    }
    Ok(all)
}

/// A command, and what the page says that it prints.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) shown: String,
}

/// The commands of a block.
pub(crate) fn steps(text: &str) -> anyhow::Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        let goes_on = |step: &&mut Step| step.command.ends_with('\\') && step.shown.is_empty();
        if let Some(step) = steps.last_mut().filter(goes_on) {
            step.command += &format!("\n{line}");
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: String::new() });
        } else {
            ensure!(!line.starts_with("# "), "root does `{line}`, without the word `root`");
            let step = steps.last_mut().with_context(|| format!("no command prints `{line}`"))?;
            step.shown += &format!("{line}\n");
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Block {
        let [block] = &blocks("p.md", text).unwrap()[..] else { panic!("one block") };
        block.clone()
    }

    #[test]
    fn blocks_are_found_with_their_words_and_places() {
        let block = one("Text.\n\n- item:\n\n  ```c,kernel\n  int a;\n    int b;\n\n  ```\nmore");
        assert_eq!(block.place(), "p.md:5");
        assert_eq!(block.text, "int a;\n  int b;\n\n");
        assert_eq!(block.check().unwrap(), Check::Kernel);
        assert!(blocks("p.md", "```c\nint a;\n").is_err());
    }

    #[test]
    fn hidden_lines_are_part_of_the_program() {
        assert_eq!(one("```c\n~ int a;\n~\na = ~b;\n```").program(), "int a;\n\na = ~b;\n");
    }

    #[test]
    fn every_block_is_checked_or_says_why_not() {
        let check = |info: &str| {
            let block = one(&format!("```{info}\n```"));
            block.check().map(|check| format!("{check:?}")).map_err(drop)
        };
        assert_eq!(check("json,file:a.json").unwrap(), "File(\"a.json\")");
        assert_eq!(check("python,from:a.py").unwrap(), "Excerpt(\"a.py\")");
        assert_eq!(check("python").unwrap(), "By(\"python\")");
        assert_eq!(check("rust,no_run").unwrap(), "DocTest");
        assert!(check("console,card").unwrap().starts_with("Skipped"));
        for bad in [
            "",
            "c,fragment",
            "cmake",
            "python,ignore",
            "rust,ignore",
            "console,later",
            "console,card,root",
            "c,of:a",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn commands_have_their_output_and_go_on_over_lines() {
        let step = |command: &str, shown: &str| Step {
            command: command.to_owned(),
            shown: shown.to_owned(),
        };
        let found = steps("$ a \\\n    b\nx\ny\n$ c\n").unwrap();
        assert_eq!(found, [step("a \\\n    b", "x\ny\n"), step("c", "")]);
        assert!(steps("x\n$ a\n").is_err() && steps("# a\n").is_err());
    }
}
