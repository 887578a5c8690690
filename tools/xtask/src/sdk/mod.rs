//! `cargo xtask sdk`: what programs and kernels are built with, as a prefix.
//!
//! The prefix can be moved: programs, packages and wrappers find its parts from where they are.

mod check;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::shell::{capture, cargo, execute, root};

pub(crate) use check::check;

/// Where a file of the prefix comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A file of the source tree.
    File,
    /// The same, with the version in the place of `@VERSION@`.
    Template,
    /// All files of a folder of the source tree, with its folders.
    Folder,
    /// A program or library that was built.
    Built,
    /// A symbolic link with this text.
    Link,
}
use Origin::{Built, File, Folder, Link, Template};

/// Everything in a prefix. Packages are made from this list, too.
const FILES: [(&str, Origin, &str); 29] = [
    // Programs.
    ("bin/et", Built, "et"),
    ("bin/et-as", Built, "et-as"),
    ("bin/et-gcc", Link, "et"),
    ("bin/et-g++", Link, "et"),
    // The host.
    ("include/et.h", File, "bindings/et-capi/include/et.h"),
    ("lib/libet.so.0", Built, "libet_capi.so"),
    ("lib/libet.so", Link, "libet.so.0"),
    ("lib/libet.a", Built, "libet_capi.a"),
    ("lib/pkgconfig/et.pc", Template, "bindings/et-capi/et.pc.in"),
    ("lib/cmake/et/etConfig.cmake", File, "bindings/et-capi/cmake/etConfig.cmake"),
    (
        "lib/cmake/et/etConfigVersion.cmake",
        Template,
        "bindings/et-capi/cmake/etConfigVersion.cmake.in",
    ),
    // C++, and the original runtime's interface.
    ("include/et.hpp", File, "bindings/et-cpp/include/et.hpp"),
    ("include", Folder, "bindings/et-cpp/compat/include"),
    ("lib/libetrt.a", Built, "libetrt.a"),
    ("lib/cmake/runtime/runtimeConfig.cmake", File, "bindings/et-cpp/cmake/runtimeConfig.cmake"),
    (
        "lib/cmake/deviceLayer/deviceLayerConfig.cmake",
        File,
        "bindings/et-cpp/cmake/deviceLayerConfig.cmake",
    ),
    // The device.
    ("lib/et/device/README.md", File, "bindings/device/README.md"),
    ("lib/et/device/kernel.ld", File, "bindings/device/kernel.ld"),
    ("lib/et/device/include", Folder, "bindings/device/include"),
    ("lib/et/device/compat", Folder, "bindings/device/compat"),
    ("lib/et/device/src", Folder, "bindings/device/src"),
    ("lib/et/device/bin/as", Link, "../../../../bin/et-as"),
    // What builds of kernels for the vendor's platform look for.
    (
        "lib/cmake/riscv64-ec-toolchain.cmake",
        File,
        "bindings/device/cmake/riscv64-ec-toolchain.cmake",
    ),
    ("lib/cmake/cmake-modules/DeviceUtils.cmake", File, "bindings/device/cmake/DeviceUtils.cmake"),
    (
        "lib/cmake/et-common-libs/et-common-libsConfig.cmake",
        File,
        "bindings/device/cmake/et-common-libsConfig.cmake",
    ),
    (
        "lib/cmake/esperantoTrace/esperantoTraceConfig.cmake",
        File,
        "bindings/device/cmake/esperantoTraceConfig.cmake",
    ),
    (
        "lib/cmake/aifoundry-utils/ProjectFunctions.cmake",
        File,
        "bindings/device/cmake/ProjectFunctions.cmake",
    ),
    ("share/doc/et/LICENSE-APACHE", File, "LICENSE-APACHE"),
    ("share/doc/et/LICENSE-MIT", File, "LICENSE-MIT"),
];

/// Options of `sdk`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where to install: programs in `bin`, and so on; `/usr` in a package.
    #[arg(long, value_name = "DIR", required_unless_present = "deb")]
    prefix: Option<PathBuf>,
    /// What stands before the prefix while the files are written; the prefix is then absolute.
    #[arg(long, value_name = "DIR", env = "DESTDIR")]
    destdir: Option<PathBuf>,
    /// Writes a Debian package with the prefix instead.
    #[arg(long, value_name = "FILE")]
    deb: Option<PathBuf>,
    /// The profile with which programs and libraries are built.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
}

impl Options {
    /// A prefix of optimised programs and libraries.
    pub(crate) fn to(prefix: PathBuf) -> Self {
        Self { prefix: Some(prefix), destdir: None, deb: None, profile: "release".to_owned() }
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let prefix = options.prefix.as_deref().unwrap_or(Path::new("/usr"));
    let built = build(&options.profile)?;
    if let Some(deb) = &options.deb {
        return package(prefix, &built, deb);
    }
    let to = destination(prefix, options.destdir.as_deref())?;
    let count = install(&to, &built)?;
    println!("{count} files in {}", to.display());
    Ok(())
}

/// Writes a Debian package.
fn package(prefix: &Path, built: &Path, deb: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    install(&destination(prefix, Some(&root))?, built)?;
    let output = capture(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = String::from_utf8(output.stdout).context("the architecture is no text")?;
    let compiler = "riscv64-unknown-elf";
    let control = format!(
        "Package: et-sdk\nVersion: {}\nArchitecture: {}\nMaintainer: the authors of et\n\
         Section: devel\nPriority: optional\nDepends: libc6, libgcc-s1\n\
         Recommends: gcc-{compiler}, binutils-{compiler}, picolibc-{compiler}\n\
         Description: host stack and device SDK for ET-SoC-1 accelerators\n",
        env!("CARGO_PKG_VERSION"),
        architecture.trim(),
    );
    fs::create_dir(root.join("DEBIAN"))?;
    fs::write(root.join("DEBIAN/control"), control)?;
    let mut command = Command::new("dpkg-deb");
    execute(command.args(["--root-owner-group", "--build"]).arg(&root).arg(deb))
}

/// Builds what is installed; returns the folder where it is.
fn build(profile: &str) -> anyhow::Result<PathBuf> {
    let packages = ["-p", "et-capi", "-p", "et-cli", "-p", "et-as"];
    let call = [&["build", "--locked", "--profile", profile], &packages[..]].concat();
    execute(&mut cargo(&call))?;
    let built = built(profile)?;
    compatibility(&built)?;
    Ok(built)
}

/// The folder of what was built with a profile.
pub(crate) fn built(profile: &str) -> anyhow::Result<PathBuf> {
    let output = capture(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let target = metadata["target_directory"].as_str().context("no target directory")?;
    Ok(Path::new(target).join(if profile == "dev" { "debug" } else { profile }))
}

/// Builds the original runtime's interface, with the compiler that the environment variable `CXX`
/// names.
fn compatibility(built: &Path) -> anyhow::Result<()> {
    let sources = root().join("bindings/et-cpp/compat/src");
    let objects = tempfile::tempdir()?;
    let library = built.join("libetrt.a");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut archive = Command::new("ar");
    archive.arg("crsD").arg(&library);
    let mut names = Vec::new();
    walk(Path::new(""), &sources, &mut names)?;
    for (name, _, source) in names {
        if source.extension() != Some(OsStr::new("cpp")) {
            continue;
        }
        let object = objects.path().join(name).with_extension("o");
        let mut command = Command::new(&compiler);
        command.args(["-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-c"]);
        for include in ["et-capi/include", "et-cpp/include", "et-cpp/compat/include"] {
            command.arg("-I").arg(root().join("bindings").join(include));
        }
        execute(command.arg(&source).arg("-o").arg(&object))?;
        archive.arg(object);
    }
    if library.exists() {
        // An archive keeps what it has.
        fs::remove_file(&library)?;
    }
    execute(&mut archive)
}

/// Where files are written.
fn destination(prefix: &Path, destdir: Option<&Path>) -> anyhow::Result<PathBuf> {
    match destdir.filter(|destdir| !destdir.as_os_str().is_empty()) {
        None => Ok(prefix.to_owned()),
        Some(destdir) => {
            ensure!(prefix.is_absolute(), "with DESTDIR, the prefix must be an absolute path");
            let inner = prefix.components().filter(|part| matches!(part, Component::Normal(_)));
            Ok(destdir.join(inner.collect::<PathBuf>()))
        }
    }
}

/// Writes all files; returns their number.
fn install(to: &Path, built: &Path) -> anyhow::Result<usize> {
    let files = files()?;
    for (name, origin, from) in &files {
        let path = to.join(name);
        place(&path, *origin, from, built)
            .with_context(|| format!("installing {}", path.display()))?;
    }
    Ok(files.len())
}

/// Installs what is for the device, with the assembler, so that it stands alone.
pub(crate) fn install_device(to: &Path, built: &Path) -> anyhow::Result<()> {
    for (name, origin, from) in files()? {
        let Ok(name) = name.strip_prefix("lib/et/device") else { continue };
        let (origin, from) = match origin {
            Link => (Built, PathBuf::from("et-as")),
            origin => (origin, from),
        };
        place(&to.join(name), origin, &from, built)
            .with_context(|| format!("installing {}", to.join(name).display()))?;
    }
    Ok(())
}

/// A file to install: its name in the prefix, and where it comes from, which is no folder.
type Single = (PathBuf, Origin, PathBuf);

/// The list with the files of folders in the place of the folders.
fn files() -> anyhow::Result<Vec<Single>> {
    let mut list = Vec::new();
    for (name, origin, from) in FILES {
        match origin {
            File | Template => list.push((name.into(), origin, root().join(from))),
            Built | Link => list.push((name.into(), origin, from.into())),
            Folder => walk(Path::new(name), &root().join(from), &mut list)?,
        }
    }
    Ok(list)
}

fn walk(name: &Path, folder: &Path, list: &mut Vec<Single>) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = name.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => walk(&name, &path, list)?,
            false => list.push((name, File, path)),
        }
    }
    Ok(())
}

fn place(path: &Path, origin: Origin, from: &Path, built: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    // What is there may be in use, or a link.
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    match origin {
        Link => return Ok(symlink(from, path)?),
        Template => {
            let text = fs::read_to_string(from)?;
            fs::write(path, text.replace("@VERSION@", env!("CARGO_PKG_VERSION")))?;
        }
        File => drop(fs::copy(from, path)?),
        Built => drop(fs::copy(built.join(from), path)?),
        Folder => unreachable!("`files` has none"),
    }
    // Whatever the modes in the source tree are.
    let is_program = origin == Built && path.extension() != Some(OsStr::new("a"));
    let mode = if is_program { 0o755 } else { 0o644 };
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Stands for what was built.
    fn built(folder: &Path) -> PathBuf {
        let built = folder.join("built");
        fs::create_dir(&built).unwrap();
        for (_, _, name) in FILES.iter().filter(|(_, origin, _)| *origin == Built) {
            fs::write(built.join(name), name).unwrap();
        }
        built
    }

    #[test]
    fn all_files_are_placed_behind_the_destination() {
        let folder = tempfile::tempdir().unwrap();
        let built = built(folder.path());
        let to = destination(Path::new("/opt/et"), Some(&folder.path().join("root"))).unwrap();
        assert_eq!(to, folder.path().join("root/opt/et"));
        let count = install(&to, &built).unwrap();
        // Over an earlier one.
        assert_eq!(install(&to, &built).unwrap(), count);
        let names: BTreeSet<_> = files().unwrap().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), count, "no name twice");
        for name in &names {
            assert!(to.join(name).exists(), "{}: a link leads nowhere", name.display());
            let text = fs::read(to.join(name)).unwrap();
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains("@VERSION@"), "{}", name.display());
        }
        let mode = |name| fs::metadata(to.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("bin/et"), mode("include/et.h")), (0o755, 0o644));
    }

    #[test]
    fn a_package_has_the_same_files() {
        if !Command::new("dpkg-deb").arg("--version").output().is_ok_and(|o| o.status.success()) {
            println!("skipped, because dpkg-deb is not installed");
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
        let names: BTreeSet<_> = files().unwrap().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(listed, names, "{text}");
        assert!(text.contains("-rwxr-xr-x root/root"), "{text}");
    }

    #[test]
    fn a_destination_needs_an_absolute_prefix() {
        let out = Path::new("/tmp/out");
        assert!(destination(Path::new("et"), Some(out)).is_err());
        assert_eq!(destination(Path::new("et"), None).unwrap(), Path::new("et"));
        assert_eq!(destination(Path::new("/et"), Some(Path::new(""))).unwrap(), Path::new("/et"));
    }
}
