//! The commands of the README that build and run the same programs in each language.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::blocks::{Block, Check, blocks};
use crate::shell::{capture, root};
use crate::tools::Done;

/// What stands in the README for each of the programs.
const SHOWN: &str = "formula";
const PROGRAMS: [&str; 3] = [SHOWN, "saxpy", "matmul"];
/// What runs say, once for each of the languages that are checked here: Rust, C and C++. Python's
/// are checked with the package.
const SAYS: &str = " elements are right";
const LANGUAGES: usize = 3;

/// Runs them as they stand there, for each of the programs.
pub(crate) fn check() -> anyhow::Result<Done> {
    for compiler in ["cc", "c++"] {
        if Command::new(compiler).arg("--version").output().is_err() {
            return Ok(Done::Skipped(format!("{compiler} is not installed")));
        }
    }
    let block = examples(&fs::read_to_string(root().join("README.md"))?)?;
    let commands = commands(&block);
    for program in PROGRAMS {
        let mut said = String::new();
        // What is installed for one of them is there for the others.
        for command in commands.iter().filter(|line| program == SHOWN || line.contains(SHOWN)) {
            let command = command.replace(SHOWN, program);
            println!("$ {command}");
            let output = capture(Command::new("sh").args(["-c", &command]).current_dir(root()))?;
            let errors = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{command}: {}\n{errors}", output.status);
            said += &String::from_utf8_lossy(&output.stdout);
        }
        let right = said.matches(SAYS).count();
        ensure!(right == LANGUAGES, "{program} is right in {right} languages of {LANGUAGES}");
    }
    Ok(Done::Checked)
}

/// The block with the examples.
fn examples(text: &str) -> anyhow::Result<Block> {
    let mut blocks = blocks("README.md", text)?.into_iter();
    let block = blocks.find(|block| block.check().is_ok_and(|check| check == Check::By("readme")));
    block.context("README.md has no commands for the examples")
}

fn commands(block: &Block) -> Vec<&str> {
    block.text.lines().filter_map(|line| line.strip_prefix("$ ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_the_commands() {
        let block = examples(&fs::read_to_string(root().join("README.md")).unwrap()).unwrap();
        let commands = commands(&block);
        assert_eq!(commands.iter().filter(|line| line.contains(SHOWN)).count(), 5);
    }
}
