//! `cargo xtask sdk`: what programs and kernels are built with, as a prefix.
//!
//! The prefix can be moved: programs, packages and wrappers find its parts from where they are.

mod check;
mod deb;
mod sbom;
mod system;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::shell::{build_programs, capture, cargo, execute, root, write_json};

pub(crate) use check::check;
pub(crate) use deb::{architecture, epoch, package};
pub(crate) use system::{check_rules, check_units};

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
    /// All files of a folder that was made with the programs, with its folders.
    Made,
    /// A symbolic link with this text.
    Link,
}
use Origin::{Built, File, Folder, Link, Made, Template};

/// Everything in a prefix. Packages are made from this list, too.
const FILES: [(&str, Origin, &str); 38] = [
    // Programs.
    ("bin/et", Built, "et"),
    ("bin/et-as", Built, "et-as"),
    ("bin/et-simd", Built, "et-simd"),
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
    ("include", Folder, "bindings/et-cpp/include"),
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
    // Completions and manual pages.
    ("share", Made, SHARE),
    ("share/man/man1/et-as.1", Template, "tools/packaging/et-as.1"),
    ("share/man/man1/et-gcc.1", Template, "tools/packaging/et-gcc.1"),
    ("share/man/man1/et-g++.1", Link, "et-gcc.1"),
    // What the system is told; of use with the prefix `/usr` only.
    ("lib/udev/rules.d/70-et-vfio.rules", File, "tools/packaging/70-et-vfio.rules"),
    ("lib/systemd/system/et-share@.service", File, "tools/packaging/et-share@.service"),
    ("lib/systemd/system/et-simd@.service", File, "tools/packaging/et-simd@.service"),
    ("share/doc/et-sdk/copyright", File, "tools/packaging/copyright"),
    ("share/doc/et/LICENSE-APACHE", File, "LICENSE-APACHE"),
    ("share/doc/et/LICENSE-MIT", File, "LICENSE-MIT"),
];

const PROGRAMS: [&str; 3] = ["et", "et-as", "et-simd"];

/// Where completions and manual pages are, beside the programs.
const SHARE: &str = "et-share";

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

    /// The same, as they are built soonest.
    pub(crate) fn unoptimised(prefix: PathBuf) -> Self {
        Self { profile: "dev".to_owned(), ..Self::to(prefix) }
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let prefix = options.prefix.as_deref().unwrap_or(Path::new("/usr"));
    let built = build(&options.profile)?;
    if let Some(deb) = &options.deb {
        return deb::package(prefix, &built, deb);
    }
    let to = destination(prefix, options.destdir.as_deref())?;
    let count = install(&to, &built)?;
    println!("{count} files in {}", to.display());
    Ok(())
}

/// Builds what is installed; returns the folder where it is.
pub(crate) fn build(profile: &str) -> anyhow::Result<PathBuf> {
    let mut command = build_programs(&PROGRAMS);
    command.args(["--profile", profile]);
    if profile == "dev" {
        // As the tests are, which share it then.
        execute(command.args(["--lib", "--tests"]))?;
    } else {
        execute(&mut command)?;
        c_library(profile)?;
    }
    let built = built(profile)?;
    compatibility(&built)?;
    share(&built)?;
    Ok(built)
}

/// Builds `libet`: without the library for Rust, beside which it would not be optimised as a whole.
fn c_library(profile: &str) -> anyhow::Result<()> {
    let call =
        ["rustc", "--locked", "--quiet", "--profile", profile, "--package", "et-capi", "--lib"];
    execute(cargo(&call).args(["--crate-type", "cdylib,staticlib"]))
}

/// Has the programs write completions and manual pages.
fn share(built: &Path) -> anyhow::Result<()> {
    let share = built.join(SHARE);
    if share.exists() {
        fs::remove_dir_all(&share)?;
    }
    let said = |program: &str, args: &[&str]| {
        let output = capture(Command::new(built.join(program)).args(args))?;
        ensure!(output.status.success(), "{program} {} failed", args.join(" "));
        anyhow::Ok(output.stdout)
    };
    for (shell, name) in [
        ("bash", "bash-completion/completions/et"),
        ("zsh", "zsh/vendor-completions/_et"),
        ("fish", "fish/vendor_completions.d/et.fish"),
    ] {
        let path = share.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&share))?;
        fs::write(path, said("et", &["completions", shell])?)?;
    }
    let pages = share.join("man/man1");
    said("et", &["man", pages.to_str().context("the path is no text")?])?;
    fs::write(pages.join("et-simd.1"), said("et-simd", &["--man-page"])?)?;
    let sbom = share.join("doc/et/sbom.cdx.json");
    fs::create_dir_all(sbom.parent().unwrap_or(&share))?;
    write_json(Some(&sbom), &sbom::document()?)
}

/// The folder of what was built with a profile.
pub(crate) fn built(profile: &str) -> anyhow::Result<PathBuf> {
    let output = capture(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let target = metadata["target_directory"].as_str().context("no target directory")?;
    Ok(Path::new(target).join(if profile == "dev" { "debug" } else { profile }))
}

/// The compiler for C++: the one that the environment variable `CXX` names, if there is one.
fn compiler() -> OsString {
    std::env::var_os("CXX").unwrap_or_else(|| "c++".into())
}

/// Has the compiler find the headers of the original runtime's interface.
fn with_headers(command: &mut Command) -> &mut Command {
    for include in ["et-capi/include", "et-cpp/include", "et-cpp/compat/include"] {
        command.arg("-I").arg(root().join("bindings").join(include));
    }
    command
}

/// Builds the program that measures launches through the original runtime's interface; none without
/// a compiler for C++.
pub(crate) fn launcher() -> anyhow::Result<Option<PathBuf>> {
    if Command::new(compiler()).arg("--version").output().is_err() {
        return Ok(None);
    }
    c_library("release")?;
    let built = built("release")?;
    compatibility(&built)?;
    let program = built.join("compat-launch");
    let mut command = Command::new(compiler());
    with_headers(command.args(["-std=c++17", "-O2"]))
        .arg(root().join("tools/et-bench/compat/launch.cpp"))
        .args([built.join("libetrt.a"), built.join("libet_capi.a")])
        .args(["-pthread", "-ldl", "-lm", "-o"]);
    execute(command.arg(&program))?;
    Ok(Some(program))
}

/// Builds the original runtime's interface.
fn compatibility(built: &Path) -> anyhow::Result<()> {
    let sources = root().join("bindings/et-cpp/compat/src");
    let objects = tempfile::tempdir()?;
    let library = built.join("libetrt.a");
    let compiler = compiler();
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
        execute(with_headers(&mut command).arg(&source).arg("-o").arg(&object))?;
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
    let files = files(built)?;
    for (name, origin, from) in &files {
        let path = to.join(name);
        place(&path, *origin, from, built)
            .with_context(|| format!("installing {}", path.display()))?;
    }
    Ok(files.len())
}

/// Installs what is for the device, with the assembler, so that it stands alone.
pub(crate) fn install_device(to: &Path, built: &Path) -> anyhow::Result<()> {
    for (name, origin, from) in sources()? {
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
fn files(built: &Path) -> anyhow::Result<Vec<Single>> {
    let mut list = sources()?;
    for (name, _, from) in FILES.iter().filter(|(_, origin, _)| *origin == Made) {
        walk(Path::new(name), &built.join(from), &mut list)?;
    }
    Ok(list)
}

/// The same without what programs write.
fn sources() -> anyhow::Result<Vec<Single>> {
    let mut list = Vec::new();
    for (name, origin, from) in FILES {
        match origin {
            Made => {}
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
        Folder | Made => unreachable!("`files` has none"),
    }
    // Whatever the modes in the source tree are.
    let is_program = origin == Built && path.extension() != Some(OsStr::new("a"));
    let mode = if is_program { 0o755 } else { 0o644 };
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Stands for what was built.
    pub(crate) fn built(folder: &Path) -> PathBuf {
        let built = folder.join("built");
        fs::create_dir(&built).unwrap();
        for (_, _, name) in FILES.iter().filter(|(_, origin, _)| *origin == Built) {
            fs::write(built.join(name), name).unwrap();
        }
        fs::create_dir_all(built.join(SHARE).join("man/man1")).unwrap();
        for page in ["et.1", "et-simd.1"] {
            fs::write(built.join(SHARE).join("man/man1").join(page), "a page").unwrap();
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
        let names: BTreeSet<_> =
            files(&built).unwrap().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), count, "no name twice");
        for name in &names {
            assert!(to.join(name).exists(), "{}: a link leads nowhere", name.display());
            let text = fs::read(to.join(name)).unwrap();
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains("@VERSION@"), "{}", name.display());
            if let Ok(program) = name.strip_prefix("bin") {
                let page = format!("share/man/man1/{}.1", program.display());
                assert!(names.contains(Path::new(&page)), "{page}");
            }
        }
        let mode = |name| fs::metadata(to.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("bin/et"), mode("include/et.h")), (0o755, 0o644));
    }

    #[test]
    fn a_destination_needs_an_absolute_prefix() {
        let out = Path::new("/tmp/out");
        assert!(destination(Path::new("et"), Some(out)).is_err());
        assert_eq!(destination(Path::new("et"), None).unwrap(), Path::new("et"));
        assert_eq!(destination(Path::new("/et"), Some(Path::new(""))).unwrap(), Path::new("/et"));
    }
}
