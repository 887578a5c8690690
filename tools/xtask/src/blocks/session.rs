//! A folder in which the commands of a page are run, in their order.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::output;
use super::page::{Block, Step, steps};
use crate::shell::{capture, root};
use crate::tools::is_there;

/// Compiles kernels, behind `et cc`.
const DEVICE_COMPILER: &str = "riscv64-unknown-elf-gcc";
/// Longest time that a command may take.
const SECONDS: &str = "120";
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];
/// Arrays that readers are assumed to have: one-dimensional, of floats, with so many of them.
const ARRAYS: [(&str, u16); 3] = [("x.npy", 1000), ("y.npy", 1000), ("a.npy", 16384)];

/// How a block fared.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    /// It was not run, and this is why.
    Skipped(String),
}

/// The folder of a page.
pub(super) struct Session {
    folder: TempDir,
    path: OsString,
    /// Commands that go on beside the others.
    background: Vec<Child>,
    programs: usize,
    /// Why later blocks cannot be run either: they may need what an earlier one would have made.
    pub(super) lacks: Option<String>,
}

impl Drop for Session {
    fn drop(&mut self) {
        for child in &mut self.background {
            // It may have ended. The signal is passed on by `timeout`.
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
            let _ = child.wait();
        }
    }
}

impl Session {
    /// Makes a folder with everything that pages may name.
    pub(super) fn new(sdk: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let here = folder.path();
        let root = root().canonicalize()?;
        for name in ["bindings", "testing", "tools"] {
            symlink(root.join(name), here.join(name))?;
        }
        symlink(sdk, here.join("et"))?;
        fs::create_dir(here.join("target"))?;
        symlink(sdk.join("bin"), here.join("target/release"))?;
        // Copies: a command may write a file of that name.
        for from in ["elf", "src"] {
            for file in fs::read_dir(root.join("testing/kernels").join(from))? {
                let file = file?;
                if file.file_type()?.is_file() {
                    fs::copy(file.path(), here.join(file.file_name()))?;
                }
            }
        }
        for (name, count) in ARRAYS {
            fs::write(here.join(name), array(count))?;
        }
        let known = std::env::var_os("PATH").unwrap_or_default();
        let bin = std::iter::once(sdk.join("bin"));
        let path = std::env::join_paths(bin.chain(std::env::split_paths(&known)))?;
        Ok(Self { folder, path, background: Vec::new(), programs: 0, lacks: None })
    }

    /// A file of the folder.
    pub(super) fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        ensure!(!name.contains('/'), "{name} is not in the folder");
        fs::write(self.folder.path().join(name), text).with_context(|| name.to_owned())
    }

    /// Runs the commands of a block.
    pub(super) fn commands(&mut self, block: &Block) -> anyhow::Result<Ended> {
        for step in steps(&block.text)? {
            let Some(command) = self.translated(&step)? else { continue };
            if let Some(program) = missing(&command) {
                return Ok(self.without(&program));
            }
            match command.strip_suffix(" &") {
                Some(command) => self.start(command, &step.shown)?,
                None => self.step(&command, &step.shown)?,
            }
        }
        Ok(Ended::Well)
    }

    fn without(&mut self, program: &str) -> Ended {
        let why = format!("{program} is not installed");
        self.lacks = Some(why.clone());
        Ended::Skipped(why)
    }

    /// The command to run here, if there is one.
    fn translated(&self, step: &Step) -> anyhow::Result<Option<String>> {
        let mut command = step.command.split(" #").next().unwrap_or_default().trim().to_owned();
        // What is built stands in the prefix already.
        if let Some(run) = command.strip_prefix("cargo run --release --bin ") {
            command = run.replacen(" -- ", " ", 1);
        } else if words(&command).next() == Some("cargo") {
            return Ok(None);
        }
        if let Some(name) = command.strip_prefix("cat ")
            && !self.folder.path().join(name).exists()
        {
            self.write(name, &step.shown)?;
            return Ok(None);
        }
        // Others may run the same commands now.
        Ok(Some(command.replace("/tmp/", &format!("{}/", self.folder.path().display()))))
    }

    /// What a command says, as if this folder were `/tmp`.
    fn said(&self, output: &[u8]) -> String {
        String::from_utf8_lossy(output).replace(&self.folder.path().display().to_string(), "/tmp")
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("timeout");
        shell.args([SECONDS, "sh", "-c", &format!("exec 2>&1\n{command}")]);
        shell.current_dir(self.folder.path()).stdin(Stdio::null());
        shell.env("PATH", &self.path).env("HOME", self.folder.path());
        // A card of this machine is none of ours.
        shell.env("ET_DEVICE", "sim:memory=private").env_remove("ET_LOG");
        shell
    }

    fn step(&self, command: &str, shown: &str) -> anyhow::Result<()> {
        let output = capture(&mut self.shell(command))?;
        let said = self.said(&output.stdout);
        let is_failure = output::is_failure(shown);
        if output.status.success() == is_failure {
            bail!("`{command}` ended with {}:\n{}", output.status, first(&said));
        }
        ensure!(
            shown.is_empty() || output::is_true(shown, &said),
            "`{command}` printed:\n{}and not:\n{shown}",
            first(&said)
        );
        Ok(())
    }

    /// Starts a command that goes on, and waits for what it is to print.
    fn start(&mut self, command: &str, shown: &str) -> anyhow::Result<()> {
        let mut shell = self.shell(&format!("exec {command}"));
        let mut child = shell.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("no output")?;
        self.background.push(child);
        let mut said = String::new();
        for line in BufReader::new(output).lines() {
            said += &format!("{}\n", self.said(line?.as_bytes()));
            if output::is_true(shown, &said) {
                return Ok(());
            }
        }
        bail!("`{command}` printed:\n{said}and not:\n{shown}")
    }

    /// Has `et` read the commands of a block that is not run: all but what they must not leave out.
    pub(super) fn read(&self, block: &Block) -> anyhow::Result<()> {
        for line in block.text.lines() {
            let command = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
            let command = command.and_then(|line| line.split(" #").next()).unwrap_or_default();
            let command = command.strip_prefix("sudo ").unwrap_or(command);
            let command = command.split([';', '|', '&']).next().unwrap_or_default();
            if command.starts_with("et ") {
                // What is wrong before it is an error.
                let output = capture(&mut self.shell(&format!("{command} --help")))?;
                let said = String::from_utf8_lossy(&output.stdout);
                ensure!(output.status.success(), "`{command}` is not understood:\n{said}");
            }
        }
        Ok(())
    }

    /// Builds a program for the host, and runs it.
    pub(super) fn program(
        &mut self,
        block: &Block,
        compiler: &str,
        standard: &str,
        extension: &str,
    ) -> anyhow::Result<Ended> {
        if !is_there(compiler) {
            return Ok(self.without(compiler));
        }
        let name = self.source(block, extension)?;
        self.step(
            &format!(
                "{compiler} {standard} {} -I et/include {name}.{extension} -L et/lib -let \
                 -Wl,-rpath,et/lib -o {name}",
                WARNINGS.join(" ")
            ),
            "",
        )?;
        self.step(&format!("./{name}"), "")?;
        Ok(Ended::Well)
    }

    /// Builds a kernel, and runs it if it takes no arguments.
    pub(super) fn kernel(&mut self, block: &Block) -> anyhow::Result<Ended> {
        if !is_there(DEVICE_COMPILER) {
            return Ok(self.without(DEVICE_COMPILER));
        }
        let name = self.source(block, "c")?;
        self.step(&format!("et cc --check -O2 -Wall -Wextra -Werror {name}.c -o {name}.elf"), "")?;
        if !block.text.contains("ET_ARGUMENTS") {
            self.step(&format!("et -d sim:shires=1 run {name}.elf"), "")?;
        }
        Ok(Ended::Well)
    }

    /// Writes a program whose mistakes are at the lines of the page; returns its name.
    fn source(&mut self, block: &Block, extension: &str) -> anyhow::Result<String> {
        self.programs += 1;
        let name = format!("block{}", self.programs);
        let text = format!("#line {} \"{}\"\n{}", block.line + 1, block.page, block.program());
        self.write(&format!("{name}.{extension}"), &text)?;
        Ok(name)
    }
}

/// What a reader of a log needs of an output.
fn first(said: &str) -> String {
    let lines = said.lines().map(|line| format!("    {line}\n"));
    lines.clone().take(20).chain(lines.skip(20).take(1).map(|_| "    …\n".to_owned())).collect()
}

/// The words of a command behind the variables that it sets.
fn words(command: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    command.split_whitespace().skip_while(move |word| {
        let is_set = is_quoted || word.split_once('=').is_some_and(|(name, _)| !name.contains('-'));
        is_quoted ^= word.matches('\'').count() % 2 == 1;
        is_set
    })
}

/// The program that a command needs and that is not here.
fn missing(command: &str) -> Option<String> {
    let mut words = words(command);
    let program = words.next()?;
    if program == "et" && words.next() == Some("cc") && !is_there(DEVICE_COMPILER) {
        return Some(DEVICE_COMPILER.to_owned());
    }
    // What cargo builds is there; so is what every system has.
    let others = ["cc", "c++", "cmake", "gdb-multiarch", DEVICE_COMPILER];
    (others.contains(&program) && !is_there(program)).then(|| program.to_owned())
}

/// A file of NumPy's with floats from 0 on, format 1.0.
fn array(count: u16) -> Vec<u8> {
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}");
    let header = [b"\x93NUMPY\x01\x00\x46\x00", format!("{shape:<69}\n").as_bytes()].concat();
    (0..count).map(f32::from).fold(header, |mut bytes, number| {
        bytes.extend(number.to_le_bytes());
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_stands_behind_the_variables_that_it_sets() {
        let first = |command| words(command).next().map(str::to_owned);
        assert_eq!(first("A='-C x=y -D' B=1 cargo build").as_deref(), Some("cargo"));
        assert_eq!(first("et --count=1 x").as_deref(), Some("et"));
        assert_eq!(first("A=1"), None);
    }

    #[test]
    fn arrays_have_headers_of_their_format() {
        let bytes = array(3);
        assert_eq!(bytes.len(), 80 + 3 * 4);
        assert_eq!((bytes[79], &bytes[84..88]), (b'\n', &1f32.to_le_bytes()[..]));
    }

    #[test]
    fn a_log_gets_the_first_lines() {
        assert_eq!(first("a\nb\n"), "    a\n    b\n");
        assert_eq!(first(&"a\n".repeat(22)).lines().count(), 21);
    }
}
