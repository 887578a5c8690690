//! `cargo xtask dist`: everything that others install, in one folder.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::python;
use crate::sdk;
use crate::shell::{capture, cargo, execute};
use crate::tools::{self, Done};

/// The system in which the package is tried.
const SUITE: &str = "bookworm";
/// What is done there: install, use, remove.
const TRIAL: &str = r#"
set -e
find / -xdev -path /var -prune -o -path /tmp -prune -o -print | sort > /tmp/before
dpkg --install /tmp/et.deb
et demo
et --json info > /dev/null
et-simd --version
bash -n /usr/share/bash-completion/completions/et
getent group et > /dev/null
et-simd --socket /tmp/card.sock --board shires=1 & card=$!
for i in $(seq 100); do [ -S /tmp/card.sock ] && break; sleep 0.1; done
et --device vfio-user:/tmp/card.sock info > /dev/null
kill $card && wait $card || true
dpkg --purge et-sdk
find / -xdev -path /var -prune -o -path /tmp -prune -o -print | sort > /tmp/after
# The group stays, and what keeps it.
diff /tmp/before /tmp/after | grep '^[<>]' | grep -vE '/etc/(group|gshadow|passwd|shadow|subgid|subuid|ld.so.cache)-?$' && exit 1
echo removed
"#;

/// Builds everything into a folder.
pub(crate) fn run(out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out)?;
    let built = sdk::build("release")?;
    debian(out, &built)?;
    let sbom = out.join(format!("et-{}.cdx.json", env!("CARGO_PKG_VERSION")));
    fs::copy(built.join("et-share/doc/et/sbom.cdx.json"), sbom)?;
    if let Done::Skipped(why) = python::wheel(out)? {
        println!("wheel: skipped, because {why}");
    }
    for file in crates()? {
        let name = file.file_name().context("a package without a name")?.to_owned();
        fs::copy(file, out.join(name))?;
    }
    let mut names = fs::read_dir(out)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<std::io::Result<Vec<_>>>()?;
    names.retain(|name| name != "SHA256SUMS");
    names.sort();
    let sums = capture(Command::new("sha256sum").args(names).current_dir(out))?;
    ensure!(sums.status.success(), "sha256sum ended with {}", sums.status);
    fs::write(out.join("SHA256SUMS"), sums.stdout)?;
    println!("{}", out.display());
    Ok(())
}

fn debian(out: &Path, built: &Path) -> anyhow::Result<PathBuf> {
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), sdk::architecture()?);
    let deb = out.join(format!("et-sdk_{version}_{architecture}.deb"));
    sdk::package(Path::new("/usr"), built, &deb)?;
    Ok(deb)
}

/// Packs the crates that are published, each built from what is packed, and returns the files.
fn crates() -> anyhow::Result<Vec<PathBuf>> {
    let output = capture(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let target = metadata["target_directory"].as_str().context("no target directory")?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let mut published = Vec::new();
    for package in packages.iter().filter(|package| package["publish"].is_null()) {
        let name = package["name"].as_str().context("a package without a name")?;
        for field in ["description", "license", "readme"] {
            ensure!(package[field].is_string(), "{name} has no {field}");
        }
        ensure!(package["metadata"]["docs"]["rs"].is_object(), "{name} says nothing to docs.rs");
        published.push(name);
    }
    // In a folder of their own: libraries for C have the same name wherever they are built from.
    let target = Path::new(target).join("published");
    let mut command = cargo(&["package", "--locked", "--allow-dirty", "--quiet", "--target-dir"]);
    command.arg(&target).env("SOURCE_DATE_EPOCH", sdk::epoch()?);
    // To learn that they build takes no more.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    for name in &published {
        command.args(["-p", name]);
    }
    let version = env!("CARGO_PKG_VERSION");
    forget_packed(&published, &target)?;
    execute(&mut command)?;
    let file = |name: &&str| {
        let file = format!("{name}-{version}.crate");
        target.join("package").join(file)
    };
    Ok(published.iter().map(file).collect())
}

/// Deletes what Cargo keeps of packed crates that were built before, sources and notes of what is
/// built: the name and version of one stand for its contents, and those of the next are others.
fn forget_packed(names: &[&str], target: &Path) -> anyhow::Result<()> {
    let sources = tools::cargo_home().context("no home of Cargo")?.join("registry/src");
    let entries = |folder: &Path| {
        // There is none where nothing was built, or where all sources are elsewhere.
        folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path())
    };
    // Registries of hosts begin with the name of the host.
    let packed = entries(&sources).filter(|path| starts_with(path, "-"));
    let kept = packed.chain([target.join("debug/.fingerprint")]);
    for path in kept.flat_map(|folder| entries(&folder)) {
        // A version, or a number, is behind the name.
        let name = path.file_name().and_then(OsStr::to_str).and_then(|name| name.rsplit_once('-'));
        if name.is_some_and(|(name, _)| names.contains(&name)) {
            fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn starts_with(path: &Path, text: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(text))
}

/// Packs everything twice, and tries the Debian package in a system that has nothing else.
pub(crate) fn check() -> anyhow::Result<Done> {
    let folder = tempfile::tempdir()?;
    // Programs of this profile are there already, and are packed in the same way.
    let built = sdk::build("dev")?;
    let packed = crates()?;
    ensure!(packed.iter().all(|file| file.exists()), "not all crates were packed");
    if !tools::is_there("dpkg-deb") {
        return Ok(Done::Skipped("dpkg-deb is not installed".to_owned()));
    }
    let deb = debian(folder.path(), &built)?;
    let again = folder.path().join("again");
    fs::create_dir(&again)?;
    ensure!(fs::read(&deb)? == fs::read(debian(&again, &built)?)?, "two packages are not the same");
    let archive = match archive(&[])? {
        Ok(archive) => archive,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    try_in(&archive, &[(&deb, "et.deb")], TRIAL)?;
    Ok(Done::Checked)
}

/// Puts files into the folder `/tmp` of a system, and runs a script there that says `removed` in
/// the end.
pub(crate) fn try_in(archive: &Path, files: &[(&Path, &str)], script: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let system = folder.path();
    execute(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(system))?;
    for (file, name) in files {
        fs::copy(file, system.join("tmp").join(name))?;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--net"]).arg("--mount-proc").arg("--root");
    command.arg(system).args(["/bin/bash", "-c", script]).env_clear();
    let output = capture(command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && text.ends_with("removed\n"), "the package failed a trial");
    Ok(())
}

/// A system with nothing but what every Debian has and `packages`, made once; else says why there
/// is none.
pub(crate) fn archive(packages: &[String]) -> anyhow::Result<Result<PathBuf, String>> {
    let is_root = capture(Command::new("id").arg("-u"))?.stdout == b"0\n";
    let may = ["--mount", "--pid", "--fork", "--net", "true"];
    if !is_root || !capture(Command::new("unshare").args(may))?.status.success() {
        return Ok(Err("only root can change to another root here".to_owned()));
    }
    let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let Some(home) = home else { bail!("neither XDG_CACHE_HOME nor HOME is set") };
    let names = [&[SUITE.to_owned()], packages].concat().join(",");
    let archive = home.join(format!("et-xtask/{names}.tar"));
    if archive.exists() {
        return Ok(Ok(archive));
    }
    if !tools::is_there("mmdebstrap") {
        return Ok(Err("mmdebstrap is not installed".to_owned()));
    }
    fs::create_dir_all(archive.parent().unwrap_or(&home))?;
    // Named as it is only when it is complete.
    let part = archive.with_extension("part.tar");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase"]);
    if !packages.is_empty() {
        command.arg(format!("--include={}", packages.join(",")));
    }
    command.arg(SUITE).arg(&part);
    if !capture(&mut command)?.status.success() {
        return Ok(Err(format!("mmdebstrap cannot make a system of {SUITE}")));
    }
    fs::rename(part, &archive)?;
    Ok(Ok(archive))
}
