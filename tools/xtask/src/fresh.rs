//! The chapter "Building on a fresh system", carried out.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::copy::{read, sync};
use crate::dist;
use crate::shell::{capture, cargo, execute, root};
use crate::tools::Done;

const CHAPTER: &str = "docs/src/building.md";
/// Where things are in the system.
const SOURCES: &str = "/src/et-rust";
const TOOLCHAIN: &str = "/opt/rust";

/// Installs the packages that the chapter names in a system that has nothing else, takes the
/// network away, and runs the commands that it names, with the dependencies that `cargo vendor` put
/// beside the sources.
///
/// Two things are not those of the chapter: the toolchain is that of this machine, and the release
/// is not optimised, for time.
pub(crate) fn check() -> anyhow::Result<Done> {
    let chapter = read(&root().join(CHAPTER))?;
    let (packages, commands) = (packages(&chapter)?, commands(&chapter)?);
    let archive = match dist::archive(&packages)? {
        Ok(archive) => archive,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    let folder = tempfile::tempdir()?;
    let system = folder.path().join("root");
    fs::create_dir(&system)?;
    execute(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&system))?;
    let inside = |path: &str| system.join(path.trim_start_matches('/'));
    let sources = inside(SOURCES);
    copy_sources(&sources)?;
    let vendor = capture(cargo(&["vendor", "--locked"]).arg(sources.join("vendor")))?;
    let said = String::from_utf8_lossy(&vendor.stderr);
    ensure!(vendor.status.success(), "cargo vendor ended with {}:\n{said}", vendor.status);
    let printed = String::from_utf8(vendor.stdout)?;
    let config = printed.replace(&sources.display().to_string(), SOURCES);
    let settings = sources.join(".cargo/config.toml");
    let before = read(&settings).unwrap_or_default();
    fs::create_dir_all(sources.join(".cargo"))?;
    fs::write(settings, before + "\n" + &config)?;
    fs::create_dir_all(inside(TOOLCHAIN))?;

    let script = format!(
        "set -e; mount --bind \"$1\" \"$2{TOOLCHAIN}\"; mount -t proc proc \"$2/proc\"; \
         exec chroot \"$2\" /bin/bash -c \"$3\""
    );
    let trial = format!("set -ex; cd {SOURCES}\n{}\necho built\n", commands.join("\n"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--net", "/bin/bash", "-c", &script, "fresh"]);
    command.arg(sysroot()?).arg(&system).arg(&trial).env_clear();
    command.env("PATH", format!("{TOOLCHAIN}/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
    command.env("HOME", "/root").env("CARGO_NET_OFFLINE", "true").env("CARGO_INCREMENTAL", "0");
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    let output = capture(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let ended = output.status.success() && text.ends_with("built\n");
    ensure!(ended, "{CHAPTER} does not lead to a build:\n{text}{said}");
    Ok(Done::Checked)
}

/// What `apt-get install` is given first.
fn packages(chapter: &str) -> anyhow::Result<Vec<String>> {
    let prefix = "# apt-get install --no-install-recommends ";
    let line = chapter.lines().find_map(|line| line.strip_prefix(prefix));
    let packages = line.with_context(|| format!("{CHAPTER} names no packages"))?;
    Ok(packages.split_whitespace().map(str::to_owned).collect())
}

/// What is run in the sources.
fn commands(chapter: &str) -> anyhow::Result<Vec<&str>> {
    let all = chapter.split("```").find(|block| block.contains("$ git clone"));
    let all = all.with_context(|| format!("{CHAPTER} says nothing of the sources"))?;
    let lines = all.lines().filter_map(|line| line.strip_prefix("$ "));
    Ok(lines.filter(|line| !line.starts_with("git clone")).collect())
}

/// What is under version control, and what will be.
fn copy_sources(to: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = capture(command.current_dir(root()))?;
    ensure!(output.status.success(), "git ls-files ended with {}", output.status);
    for name in String::from_utf8(output.stdout)?.split_terminator('\0') {
        let from = root().join(name);
        if from.is_file() {
            sync(&from, &to.join(name))?;
        }
    }
    Ok(())
}

fn sysroot() -> anyhow::Result<String> {
    let output = capture(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chapter_says_what_to_install_and_to_run() {
        let chapter = read(&root().join(CHAPTER)).unwrap();
        assert!(packages(&chapter).unwrap().contains(&"gcc".to_owned()));
        let commands = commands(&chapter).unwrap();
        assert!(commands.len() == 2 && commands[0].starts_with("cargo build "), "{commands:?}");
    }
}
