//! What compilers do not look at: width and wording of comments, and where atomics are named.

use anyhow::{Context, ensure};

use crate::shell::{capture, root};

/// Widest line of a comment, in columns.
const WIDTH: usize = 100;
/// Phrases for which the field has shorter ones: "Returns `true` if", "no thread", "another user".
const PHRASES: [&str; 3] = ["tells whether", "nobody ", "somebody "];
/// What would be invisible to the models of `testing/et-loom`.
const UNMODELLED: [&str; 6] = [
    "std::sync::Mutex",
    "std::sync::Condvar",
    "std::sync::RwLock",
    "std::sync::atomic",
    "core::sync::atomic",
    "std::sync::{Mutex",
];

/// Checks every source file that git knows.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut git = std::process::Command::new("git");
    let listed = capture(git.current_dir(root()).args(["ls-files", "*.rs"]))?;
    ensure!(listed.status.success(), "git does not list the sources");
    let mut found = Vec::new();
    for name in String::from_utf8_lossy(&listed.stdout).lines() {
        let text = std::fs::read_to_string(root().join(name)).with_context(|| name.to_owned())?;
        look(name, &text, &mut found);
    }
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

fn look(name: &str, text: &str, found: &mut Vec<String>) {
    let must_be_modelled = (name.starts_with("et-runtime/src/")
        || name.starts_with("et-devapi/src/"))
        && !name.ends_with("/sync.rs")
        && !name.ends_with("/tests.rs");
    for (number, line) in (1..).zip(text.lines()) {
        let is_comment = line.trim_start().starts_with("//");
        let is_doc_code = is_comment && line.contains("/// use ");
        if is_comment && line.chars().count() > WIDTH {
            found.push(format!("{name}:{number}: a comment is wider than {WIDTH} columns"));
        }
        let line_in_lower_case = line.to_lowercase();
        let phrase = PHRASES.iter().find(|phrase| line_in_lower_case.contains(*phrase));
        if let (true, Some(phrase)) = (is_comment, phrase) {
            found.push(format!("{name}:{number}: \"{}\" in a comment", phrase.trim_end()));
        }
        let hidden = UNMODELLED.iter().find(|path| line.contains(*path));
        if let (true, false, Some(path)) = (must_be_modelled, is_doc_code, hidden) {
            found.push(format!("{name}:{number}: {path} is not seen by the models"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_applied_where_it_holds() {
        let found = |name: &str, text: &str| {
            let mut found = Vec::new();
            look(name, text, &mut found);
            found.len()
        };
        let wide = format!("// {}", "x".repeat(WIDTH));
        assert_eq!(found("et/src/lib.rs", &wide), 1);
        assert_eq!(found("et/src/lib.rs", &wide[3..]), 0, "code is the formatter's");
        assert_eq!(found("et/src/lib.rs", &["// ", "Tells", " whether it is"].concat()), 1);
        assert_eq!(found("et-runtime/src/link/mod.rs", "use std::sync::Mutex;"), 1);
        assert_eq!(found("et-runtime/src/sync.rs", "use std::sync::Mutex;"), 0);
        assert_eq!(found("backends/x/src/lib.rs", "use std::sync::Mutex;"), 0);
    }
}
