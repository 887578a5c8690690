//! QEMU, fetched, and how it is called.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::fetch::{Cache, Extent, Package};
use super::hindrance::Hindrance;
use super::program::run_within;

/// Where Debian's libraries of this architecture lie; older releases have some beside `usr`.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
const LOADER: &str = "ld-linux-x86-64.so.2";
const LIMIT: Duration = Duration::from_secs(30);

/// Which QEMU a layer runs in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Release {
    /// Of the oldest Debian we run on.
    Stable,
    /// New enough (10.1) to have other processes as its devices.
    Backports,
}

impl Release {
    fn package(self) -> Package {
        let suite = match self {
            Self::Stable => "bookworm",
            Self::Backports => "trixie-backports",
        };
        Package { name: "qemu-system-x86", suite, extent: Extent::Whole }
    }

    /// The program, fetched if it is not there, with the device that the layer needs.
    pub(crate) fn obtain(self, cache: &mut Cache, device: &str) -> Result<Qemu, Hindrance> {
        let package = cache.package(self.package())?;
        let qemu = Qemu { root: package.root, version: package.version };
        let mut probe = qemu.command();
        let help = run_within(LIMIT, probe.args(["-device", &format!("{device},help")]))?;
        ensure_device(&help, device, &qemu.version)?;
        Ok(qemu)
    }
}

fn ensure_device(help: &str, device: &str, version: &str) -> anyhow::Result<()> {
    ensure!(help.contains(device), "QEMU {version} has no device {device}");
    Ok(())
}

/// QEMU in a folder of its own.
#[derive(Clone, Debug)]
pub(crate) struct Qemu {
    root: PathBuf,
    pub(crate) version: String,
}

impl Qemu {
    /// A call of it, by its own loader, with its own libraries, modules and firmware.
    pub(crate) fn command(&self) -> Command {
        let libraries = LIBRARIES.map(|folder| self.root.join(folder));
        let share = self.root.join("usr/share");
        let [first, second] = libraries.each_ref().map(|folder| folder.join(LOADER));
        let mut command = Command::new(if first.exists() { first } else { second });
        command.arg("--library-path");
        command.arg(format!("{}:{}", libraries[0].display(), libraries[1].display()));
        command.arg(self.root.join("usr/bin/qemu-system-x86_64"));
        command.arg("-L").arg(share.join("qemu")).arg("-L").arg(share.join("seabios"));
        command.env("QEMU_MODULE_DIR", libraries[0].join("qemu"));
        command
    }
}

/// What the guest's machine has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) device: Device,
    pub(crate) iommu: Iommu,
    /// QEMU's name of the processor.
    pub(crate) cpu: &'static str,
    /// Appended to the kernel's command line.
    pub(crate) cmdline: &'static str,
}

/// The device under test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Device {
    /// The simulated card, in its own process.
    Card,
    /// QEMU's own device for teaching: neither it nor its driver is ours.
    Edu,
}

/// What is between the device and the memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Iommu {
    Translating,
    Missing,
}

impl Device {
    /// QEMU's name of it.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Card => "vfio-user-pci",
            Self::Edu => "edu",
        }
    }

    /// Vendor and device, as sysfs spells them.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Card => "1e0a:eb01",
            Self::Edu => "1234:11e8",
        }
    }
}

/// The files of one start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) image: &'a Path,
    /// Receives the kernel's messages.
    pub(crate) console: &'a Path,
    /// QEMU's control socket, to be made.
    pub(crate) monitor: &'a Path,
    /// The simulator's socket.
    pub(crate) card: Option<&'a Path>,
}

impl Machine {
    /// The call that runs this machine; the guest's second serial line is its output.
    pub(crate) fn command(&self, qemu: &Qemu, files: Files<'_>) -> anyhow::Result<Command> {
        let mut command = qemu.command();
        // Emulation only: where KVM can be opened it need not work.
        command.args(["-accel", "tcg", "-cpu", self.cpu, "-smp", "1", "-m", "512"]);
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        // The simulator gets the memory as a file descriptor, so it must be one.
        command.args(["-machine", "q35,kernel-irqchip=split,memory-backend=ram"]);
        command.args(["-object", "memory-backend-memfd,id=ram,size=512M,share=on"]);
        command.args(["-serial", &format!("file:{}", text(files.console)?), "-serial", "stdio"]);
        let monitor = text(files.monitor)?;
        command.args(["-chardev", &format!("socket,id=mon,path={monitor},server=on,wait=off")]);
        command.args(["-mon", "chardev=mon,mode=control"]);
        if self.iommu == Iommu::Translating {
            // With caching, QEMU hears of every mapping and passes it on to the simulator.
            let caching = if self.device == Device::Card { ",caching-mode=on" } else { "" };
            command.args(["-device", &format!("intel-iommu,intremap=on{caching}")]);
        }
        // Below a root port the device has a group of its own, and a bus to be reset.
        command.args(["-device", "pcie-root-port,id=rp0,slot=1"]);
        command.arg("-device");
        match self.device {
            Device::Edu => command.arg("edu,id=d0,bus=rp0"),
            Device::Card => {
                let socket = text(files.card.context("the card has a socket")?)?;
                let device = serde_json::json!({
                    "driver": "vfio-user-pci", "id": "d0", "bus": "rp0",
                    "socket": {"type": "unix", "path": socket},
                });
                command.arg(device.to_string())
            }
        };
        command.arg("-kernel").arg(files.kernel).arg("-initrd").arg(files.image);
        // Without no_timer_check a kernel on a loaded host may find that its timer does not work.
        let mut line = "console=ttyS0 quiet panic=-1 no_timer_check".to_owned();
        if self.iommu == Iommu::Translating {
            line += " intel_iommu=on";
        }
        command.args(["-append", &format!("{line} {}", self.cmdline)]);
        Ok(command)
    }
}

/// A path within an option: a comma would end it.
fn text(path: &Path) -> anyhow::Result<&str> {
    let text = path.to_str().context("the working folder's name is not text")?;
    ensure!(!text.contains(','), "{text} has a comma, which QEMU's options cannot have");
    Ok(text)
}
