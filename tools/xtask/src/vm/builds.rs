//! Programs of the workspace, and what a guest needs of this machine to run them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::hindrance::Hindrance;
use super::program::limited;
use crate::shell::{build_programs, capture};

const LIMIT: Duration = Duration::from_secs(1200);

/// The programs built in this run.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    done: HashMap<String, Result<PathBuf, Hindrance>>,
}

impl Builds {
    /// Takes a program that is there for one that was built.
    pub(crate) fn have(&mut self, program: &Path) {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.done.insert(name, Ok(program.to_owned()));
    }

    /// The program of that name.
    pub(crate) fn program(&mut self, name: &str) -> Result<PathBuf, Hindrance> {
        let build = || {
            let mut command = build_programs(&[name]);
            command.args(["--release", "--message-format=json"]);
            let output = capture(&mut limited(LIMIT, &command))?;
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                return Err(anyhow::anyhow!("building {name}: {}: {errors}", output.status).into());
            }
            Ok(executable(&String::from_utf8_lossy(&output.stdout), name)?)
        };
        self.done.entry(name.to_owned()).or_insert_with(build).clone()
    }
}

/// The program without what only a debugger reads: a guest has it in memory.
pub(crate) fn stripped(program: &Path, work: &Path) -> anyhow::Result<Vec<u8>> {
    let into = work.join("stripped");
    let output = capture(Command::new("strip").arg("-o").args([&into, program]))?;
    ensure!(output.status.success(), "strip {}: {}", program.display(), output.status);
    std::fs::read(&into).with_context(|| format!("reading {}", into.display()))
}

/// What a program is linked with when it starts, its loader included.
pub(crate) fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = capture(Command::new("ldd").arg(program))?;
    ensure!(output.status.success(), "ldd {}: {}", program.display(), output.status);
    Ok(paths(&String::from_utf8_lossy(&output.stdout)))
}

/// The files that `ldd` names; what the kernel brings along has no path.
fn paths(listing: &str) -> Vec<PathBuf> {
    let words = listing.lines().flat_map(str::split_whitespace);
    words.filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// The program among cargo's messages.
fn executable(messages: &str, name: &str) -> anyhow::Result<PathBuf> {
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(path) = message["executable"].as_str()
            && Path::new(path).file_name().is_some_and(|file| file == name)
        {
            return Ok(path.into());
        }
    }
    bail!("cargo built no {name}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{executable, paths};

    #[test]
    fn libraries_are_those_with_a_path() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                       \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(paths(listing), expected.map(Path::new));
        assert!(paths("\tstatically linked\n").is_empty());
    }

    #[test]
    fn the_program_is_found_among_the_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/release/et\"}\n";
        assert_eq!(executable(messages, "et").unwrap().to_str(), Some("/t/release/et"));
        executable(messages, "t").unwrap_err();
    }
}
