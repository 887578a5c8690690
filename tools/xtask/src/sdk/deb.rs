//! The prefix as a Debian package.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::{Built, destination, files, install};
use crate::shell::{capture, execute, root};

/// What dpkg runs when the package comes and goes.
const SCRIPTS: [&str; 2] = ["postinst", "postrm"];

/// Writes a Debian package: the same bytes for the same files and the same `SOURCE_DATE_EPOCH`.
pub(crate) fn package(prefix: &Path, built: &Path, deb: &Path) -> anyhow::Result<()> {
    package_of(&epoch()?, prefix, built, deb)
}

fn package_of(epoch: &str, prefix: &Path, built: &Path, deb: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let package = folder.path().join("root");
    let to = destination(prefix, Some(&package))?;
    install(&to, built)?;
    for (name, _, _) in files(built)?.iter().filter(|(_, origin, _)| *origin == Built) {
        // Lines of the source are of no use where it is not; a program from elsewhere stays.
        let mut strip = Command::new("strip");
        let _ = strip
            .args(["--strip-debug", "--enable-deterministic-archives"])
            .arg(to.join(name))
            .output();
    }
    let control = format!(
        "Package: et-sdk\nVersion: {}\nArchitecture: {}\nMaintainer: the authors of et\n\
         Section: devel\nPriority: optional\nDepends: libc6 (>= {}), libgcc-s1, passwd\n\
         Recommends: gcc-{RISCV}, binutils-{RISCV}, picolibc-{RISCV}\n\
         Description: host stack and device SDK for ET-SoC-1 accelerators\n \
         Programs, libraries and headers for the accelerator on PCIe and a simulated one:\n \
         et, et-simd, libet for C and C++, and what kernels are compiled with.\n",
        env!("CARGO_PKG_VERSION"),
        architecture()?,
        libc(&to, built)?,
    );
    let meta = package.join("DEBIAN");
    fs::create_dir(&meta)?;
    fs::write(meta.join("control"), control)?;
    fs::write(meta.join("triggers"), "activate-noawait ldconfig\n")?;
    for script in SCRIPTS {
        fs::copy(root().join("tools/packaging").join(script), meta.join(script))?;
    }
    modes(&package)?;
    // Times later than the epoch become the epoch in the package; by a clock that is behind, none
    // is.
    let mut touch = Command::new("find");
    touch.arg(&package).args(["-exec", "touch", "--no-dereference"]);
    execute(touch.arg(format!("--date=@{epoch}")).args(["{}", "+"]))?;
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "-Zgzip", "-z6", "--build"]).arg(&package).arg(deb);
    command.env("SOURCE_DATE_EPOCH", epoch);
    execute(&mut command)
}

const RISCV: &str = "riscv64-unknown-elf";

/// Name of the architecture, as Debian has it.
pub(crate) fn architecture() -> anyhow::Result<String> {
    let output = capture(Command::new("dpkg").arg("--print-architecture"))?;
    let text = String::from_utf8(output.stdout).context("the architecture is no text")?;
    Ok(text.trim().to_owned())
}

/// The time of everything in packages: that of the environment, else of the last commit.
pub(crate) fn epoch() -> anyhow::Result<String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let mut git = Command::new("git");
    let output = capture(git.args(["log", "-1", "--format=%ct"]).current_dir(root()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The oldest C library with everything that the programs ask for.
fn libc(to: &Path, built: &Path) -> anyhow::Result<String> {
    let mut least = (2, 17);
    for (name, _, _) in files(built)?.iter().filter(|(_, origin, _)| *origin == Built) {
        least = least.max(newest_symbols(&fs::read(to.join(name))?));
    }
    Ok(format!("{}.{}", least.0, least.1))
}

/// The greatest version of symbols of the C library that a file names.
fn newest_symbols(bytes: &[u8]) -> (u32, u32) {
    const PREFIX: &[u8] = b"GLIBC_";
    let starts = bytes.windows(PREFIX.len()).enumerate().filter(|(_, part)| *part == PREFIX);
    starts
        .filter_map(|(at, _)| {
            let rest = &bytes[at + PREFIX.len()..];
            let end = rest.iter().position(|b| !b.is_ascii_digit() && *b != b'.')?;
            let (major, minor) = std::str::from_utf8(&rest[..end]).ok()?.split_once('.')?;
            Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
        })
        .max()
        .unwrap_or_default()
}

/// Sets the modes of folders and scripts, whatever the mask of this process is.
fn modes(folder: &Path) -> anyhow::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_script = SCRIPTS.iter().any(|script| path.file_name() == Some(OsStr::new(script)));
        if path.is_dir() && !path.is_symlink() {
            modes(&path)?;
        } else if folder.ends_with("DEBIAN") {
            let mode = if is_script { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::sdk::tests::built;

    fn has_dpkg() -> bool {
        let is_there =
            Command::new("dpkg-deb").arg("--version").output().is_ok_and(|o| o.status.success());
        if !is_there {
            println!("skipped, because dpkg-deb is not installed");
        }
        is_there
    }

    #[test]
    fn a_package_has_the_same_files() {
        if !has_dpkg() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let built = built(folder.path());
        let deb = folder.path().join("et.deb");
        package(Path::new("/usr"), &built, &deb).unwrap();
        let output = capture(Command::new("dpkg-deb").arg("--contents").arg(&deb)).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let listed: BTreeSet<_> = text
            .lines()
            .filter(|line| !line.starts_with('d'))
            .filter_map(|line| line.split(" ./usr/").nth(1)?.split(" -> ").next())
            .map(PathBuf::from)
            .collect();
        let names: BTreeSet<_> =
            files(&built).unwrap().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(listed, names, "{text}");
        assert!(text.contains("-rwxr-xr-x root/root"), "{text}");
    }

    #[test]
    fn a_package_is_the_same_whenever_and_by_whomever_it_is_made() {
        if !has_dpkg() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let built = built(folder.path());
        let [first, second] = ["a.deb", "b.deb"].map(|name| folder.path().join(name));
        // The last commit, and one by a clock that is ahead of this one.
        for epoch in [epoch().unwrap(), "4102444800".to_owned()] {
            package_of(&epoch, Path::new("/usr"), &built, &first).unwrap();
            // Later, by someone whose files are for their eyes only.
            fs::set_permissions(built.join("et"), fs::Permissions::from_mode(0o600)).unwrap();
            let late = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400);
            fs::File::open(built.join("et")).unwrap().set_modified(late).unwrap();
            package_of(&epoch, Path::new("/usr"), &built, &second).unwrap();
            let bytes = fs::read(&first).unwrap();
            assert!(bytes == fs::read(&second).unwrap());
            // The time in the header of the archive's first part.
            assert_eq!(String::from_utf8_lossy(&bytes[24..36]).trim(), epoch);
            let listed = capture(Command::new("dpkg-deb").arg("--contents").arg(&second)).unwrap();
            let text = String::from_utf8(listed.stdout).unwrap();
            let mut date = Command::new("date");
            let date = capture(date.args(["+%F %H:%M", &format!("--date=@{epoch}")])).unwrap();
            let date = String::from_utf8(date.stdout).unwrap();
            assert!(text.lines().all(|line| line.contains(date.trim())), "{text}");
        }
    }

    #[test]
    fn the_newest_symbol_decides() {
        let file = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_PRIVATE\0GLIBC_2.2.5\0";
        assert_eq!(newest_symbols(file), (2, 34));
        assert_eq!(newest_symbols(b"GLIBC"), (0, 0));
    }
}
