//! The kernels of the guests: Debian's own, and one built with every VFIO mode.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};

use super::fetch::{Cache, Extent, Package, Unpacked};
use super::hindrance::Hindrance;
use super::program::{is_on_path, limited, run_within};
use crate::shell::root;

/// Small, and all of its VFIO but `cdev` and no-IOMMU is built.
const CLOUD: Package =
    Package { name: "linux-image-cloud-amd64", suite: "bookworm", extent: Extent::Meant };
/// The oldest long-term kernel with `cdev` that Debian has the source of.
const SOURCE: Package =
    Package { name: "linux-source-6.12", suite: "bookworm-backports", extent: Extent::Alone };
/// Programs of the kernel's build, and what they come in where they are missing.
const TOOLS: [(&str, &str); 4] = [("flex", "flex"), ("bison", "bison"), ("m4", "m4"), ("bc", "bc")];
/// What the build's own objtool is linked with.
const LIBELF: Package =
    Package { name: "libelf-dev", suite: "bookworm", extent: Extent::With(&["libelf1"]) };
/// Limit of the build, several times what it takes on two cores.
const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);
/// Limit of unpacking the source.
const UNPACK_LIMIT: Duration = Duration::from_secs(300);
/// What a kernel without one of these could not test.
const NEEDED: [&str; 10] = [
    "IOMMUFD",
    "VFIO_GROUP",
    "VFIO_DEVICE_CDEV",
    "VFIO_NOIOMMU",
    "VFIO_PCI",
    "INTEL_IOMMU",
    "IRQ_REMAP",
    "PCI_MSI",
    "PCIEAER",
    "HUGETLBFS",
];
/// Modules in the order of their dependencies; kernels have not all of them.
const MODULES: [&str; 6] =
    ["irqbypass", "vfio_virqfd", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci"];

/// A kernel of a guest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kernel {
    /// Debian's for cloud machines: groups and containers only.
    Cloud,
    /// Built here: groups, `cdev` with iommufd, no-IOMMU; no modules.
    Own,
}

/// A kernel on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) image: PathBuf,
    /// Name and content of each module, in order.
    pub(crate) modules: Vec<(String, Vec<u8>)>,
    /// For the report.
    pub(crate) version: String,
}

impl Kernel {
    /// The kernel, fetched or built if it is not there.
    pub(crate) fn obtain(self, cache: &mut Cache, work: &Path) -> Result<Built, Hindrance> {
        match self {
            Self::Cloud => Ok(cloud(&cache.package(CLOUD)?)?),
            Self::Own => own(cache, work),
        }
    }
}

fn cloud(package: &Unpacked) -> anyhow::Result<Built> {
    let image = starting_with(&package.root.join("boot"), "vmlinuz-")?;
    let kernel = starting_with(&package.root.join("lib/modules"), "")?.join("kernel");
    let mut modules = Vec::new();
    for name in MODULES {
        if let Some(file) = find_module(&kernel, name)? {
            modules.push((format!("{name}.ko"), read_module(&file)?));
        }
    }
    ensure!(modules.iter().any(|(name, _)| name == "vfio-pci.ko"), "the kernel has no vfio-pci");
    Ok(Built { image, modules, version: format!("Debian cloud {}", package.version) })
}

/// The only entry of a folder whose name starts so.
fn starting_with(folder: &Path, start: &str) -> anyhow::Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(start) {
            return Ok(entry.path());
        }
    }
    Err(anyhow!("{} has no {start}…", folder.display()))
}

fn find_module(folder: &Path, name: &str) -> anyhow::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if let Some(found) = find_module(&path, name)? {
                return Ok(Some(found));
            }
        } else if path.file_name().and_then(|file| file.to_str()).is_some_and(|file| {
            file.strip_prefix(name).is_some_and(|rest| rest == ".ko" || rest == ".ko.xz")
        }) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn read_module(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file.extension().is_some_and(|extension| extension == "xz") {
        let output = Command::new("xz").arg("-dc").arg(file).output().context("starting xz")?;
        ensure!(output.status.success(), "xz cannot read {}", file.display());
        return Ok(output.stdout);
    }
    Ok(fs::read(file)?)
}

fn own(cache: &mut Cache, work: &Path) -> Result<Built, Hindrance> {
    let fragment = root().join("testing/vm/kernel.config");
    let text = fs::read(&fragment).context("reading testing/vm/kernel.config")?;
    let source = cache.package(SOURCE)?;
    let key = format!("kernel_{}_{:016x}", source.version, fingerprint(&text));
    let image = cache.path(&key).join("bzImage");
    let version = format!("own {}", source.version);
    if !image.exists() {
        for program in ["gcc", "make", "tar", "xz"] {
            if !is_on_path(program) {
                return Err(Hindrance::Absent(format!("{program} is not installed")));
            }
        }
        let tools = tools(cache)?;
        build(&source, &fragment, &image, &tools, work)?;
    }
    Ok(Built { image, modules: Vec::new(), version })
}

/// A number that differs for different texts (FNV-1a); names what was built from them.
fn fingerprint(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The programs and the library that the machine lacks, unpacked beside it.
fn tools(cache: &mut Cache) -> Result<Vec<Unpacked>, Hindrance> {
    let mut unpacked = Vec::new();
    for (program, name) in TOOLS {
        if !is_on_path(program) {
            unpacked.push(cache.package(Package {
                name,
                suite: "bookworm",
                extent: Extent::Alone,
            })?);
        }
    }
    if !Path::new("/usr/include/libelf.h").exists() {
        unpacked.push(cache.package(LIBELF)?);
    }
    Ok(unpacked)
}

fn build(
    source: &Unpacked,
    fragment: &Path,
    image: &Path,
    tools: &[Unpacked],
    work: &Path,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let tree = work.join("kernel");
    println!("building the kernel from {} (some minutes, once)", source.version);
    fs::remove_dir_all(&tree).ok();
    fs::create_dir_all(&tree)?;
    let archive = starting_with(&source.root.join("usr/src"), "linux-source-")?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xJf").arg(&archive).arg("--strip-components=1").arg("-C").arg(&tree);
    run_within(UNPACK_LIMIT, &mut unpack)?;

    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = tools.iter().map(|tool| tool.root.join("usr/bin"));
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path)))?;
    let call = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(&tree).env("PATH", &path);
        // What bison reads lies beside it, and it calls m4.
        for tool in tools {
            if tool.root.join("usr/share/bison").is_dir() {
                command.env("BISON_PKGDATADIR", tool.root.join("usr/share/bison"));
            }
            if tool.root.join("usr/bin/m4").is_file() {
                command.env("M4", tool.root.join("usr/bin/m4"));
            }
            if tool.root.join("usr/include/libelf.h").is_file() {
                let libraries = tool.root.join("usr/lib/x86_64-linux-gnu");
                command.env("C_INCLUDE_PATH", tool.root.join("usr/include"));
                command.env("LIBRARY_PATH", &libraries).env("LD_LIBRARY_PATH", &libraries);
            }
        }
        command
    };
    run_within(BUILD_LIMIT, &mut call("make", &["-s", "tinyconfig"]))?;
    let mut merge = call("scripts/kconfig/merge_config.sh", &["-m", ".config"]);
    run_within(BUILD_LIMIT, merge.arg(fragment))?;
    run_within(BUILD_LIMIT, &mut call("make", &["-s", "olddefconfig"]))?;
    let config = fs::read_to_string(tree.join(".config"))?;
    for option in NEEDED {
        let line = format!("CONFIG_{option}=y");
        ensure!(config.lines().any(|has| has == line), "the kernel cannot have {option}");
    }
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    // The time and the machine would make each build another.
    let make = call("make", &["-s", &format!("-j{jobs}"), "KBUILD_BUILD_TIMESTAMP=@0", "bzImage"]);
    let log = work.join("kernel.log");
    let mut make = limited(BUILD_LIMIT, &make);
    make.stdout(fs::File::create(&log)?).stderr(fs::OpenOptions::new().append(true).open(&log)?);
    let status = make.status()?;
    ensure!(status.success(), "the build ended with {status}, see {}", log.display());

    let folder = image.parent().context("an image lies in a folder")?;
    let part = folder.with_extension("part");
    fs::create_dir_all(&part)?;
    fs::copy(tree.join("arch/x86/boot/bzImage"), part.join("bzImage"))?;
    fs::write(part.join("config"), config)?;
    fs::remove_dir_all(folder).ok();
    fs::rename(&part, folder)?;
    fs::remove_dir_all(&tree)?;
    println!("built the kernel in {:.0?}", started.elapsed());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn fingerprints_are_those_of_fnv_1a() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
