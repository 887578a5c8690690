//! A layer in guests: image, simulator and QEMU of each boot.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;

use super::boot::{Ended, Run, tail};
use super::builds::{Builds, libraries, stripped};
use super::fetch::{Cache, Extent, Package};
use super::hindrance::Hindrance;
use super::image::Archive;
use super::kernel::{Built, Kernel};
use super::layers::Boot;
use super::qemu::{Device, Files, Machine, Qemu, Release};
use super::report::Report;
use super::simulator::Simulator;
use super::tally::Tally;
use crate::shell::root;

/// The guest's commands of everyday use, in one program.
const BUSYBOX: Package =
    Package { name: "busybox-static", suite: "bookworm", extent: Extent::Alone };
/// How many lines of a log a failure shows.
const TAIL: usize = 25;

/// What the layers share.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) cache: Cache,
    pub(crate) builds: Builds,
    /// A simulator instead of the workspace's.
    pub(crate) simulator: Option<PathBuf>,
    /// For what need not outlive the run.
    pub(crate) work: PathBuf,
    pub(crate) report: Report,
}

impl Bench {
    /// The simulator's program.
    pub(crate) fn simulator(&mut self) -> Result<PathBuf, Hindrance> {
        match &self.simulator {
            Some(program) => Ok(program.clone()),
            None => self.builds.program("et-simd"),
        }
    }
}

/// What all boots of a layer have.
struct Parts<'a> {
    qemu: Qemu,
    kernel: Built,
    busybox: Vec<u8>,
    simulator: Option<PathBuf>,
    machine: &'a Machine,
}

pub(crate) fn run(
    bench: &mut Bench,
    release: Release,
    kernel: Kernel,
    machine: &Machine,
    boots: &[Boot],
    folder: &Path,
) -> Result<Tally, Hindrance> {
    // What costs least comes first.
    let simulator = match machine.device {
        Device::Card => Some(bench.simulator()?),
        Device::Edu => None,
    };
    let qemu = release.obtain(&mut bench.cache, machine.device.model())?;
    let busybox = bench.cache.package(BUSYBOX)?.root.join("bin/busybox");
    let busybox = fs::read(&busybox).with_context(|| format!("reading {}", busybox.display()))?;
    let kernel = kernel.obtain(&mut bench.cache, &bench.work)?;
    bench.report.ran_in(&qemu.version, &kernel.version);
    let parts = Parts { qemu, kernel, busybox, simulator, machine };
    let mut tally = Tally::default();
    for boot in boots {
        let started = Instant::now();
        match parts.boot(&mut bench.builds, boot, folder) {
            Ok(result) => {
                println!(
                    "  {}: {} passed, {} failed, {} skipped in {:.1?}",
                    boot.name,
                    result.passed,
                    result.failed,
                    result.skipped,
                    started.elapsed()
                );
                tally.add(result);
            }
            Err(hindrance) => tally.hinder(boot.name, &hindrance),
        }
    }
    Ok(tally)
}

impl Parts<'_> {
    fn boot(&self, builds: &mut Builds, boot: &Boot, folder: &Path) -> Result<Tally, Hindrance> {
        let commands: Vec<String> = boot.commands.iter().map(|line| (*line).to_owned()).collect();
        let image = folder.join(format!("{}.cpio", boot.name));
        self.write_image(builds, boot, &image)?;
        let log = folder.join(format!("{}.log", boot.name));
        let ended = self.once(boot, &commands, &image, &log)?;
        // An emulated machine on a loaded host may fail to start; what fails after its start
        // counts.
        let ended = match ended.userspace {
            true => ended,
            false => {
                println!("  {}: no userspace, once more", boot.name);
                self.once(boot, &commands, &image, &log)?
            }
        };
        let mut tally = ended.tally;
        let counted = tally.passed + tally.failed + tally.skipped;
        if counted < boot.at_least {
            let least = boot.at_least;
            tally.fail(format!("{}: {counted} checks, at least {least} are there", boot.name));
        }
        if tally.failed != 0 {
            for ending in ["log", "console", "qemu", "out", "err"] {
                let text = tail(&log.with_extension(ending), TAIL);
                if !text.is_empty() {
                    println!("  end of {}.{ending}:\n{text}", boot.name);
                }
            }
        }
        Ok(tally)
    }

    fn once(
        &self,
        boot: &Boot,
        commands: &[String],
        image: &Path,
        log: &Path,
    ) -> anyhow::Result<Ended> {
        // The name of a socket may have a hundred bytes, so it is not in the working folder.
        let sockets = tempfile::tempdir()?;
        let card = sockets.path().join("card");
        let monitor = sockets.path().join("monitor");
        let console = log.with_extension("console");
        let simulator = match &self.simulator {
            Some(program) => Some(Simulator::start(program, boot.simulator, &card, log)?),
            None => None,
        };
        let files = Files {
            kernel: &self.kernel.image,
            image,
            console: &console,
            monitor: &monitor,
            card: simulator.as_ref().map(|simulator| simulator.socket.as_path()),
        };
        let command = self.machine.command(&self.qemu, files)?;
        let (reactions, limit) = (boot.reactions, boot.limit);
        Run { commands, reactions, limit, monitor: &monitor, log }.run(command, simulator)
    }

    fn write_image(&self, builds: &mut Builds, boot: &Boot, path: &Path) -> Result<(), Hindrance> {
        let mut archive = Archive::new(BufWriter::new(File::create(path)?));
        archive.file("init", &fs::read(root().join("testing/vm/init"))?)?;
        archive.file("bin/busybox", &self.busybox)?;
        archive.link("bin/sh", "busybox")?;
        let mut order = String::new();
        for (name, content) in &self.kernel.modules {
            archive.file(&format!("lib/{name}"), content)?;
            order += &format!("{name}\n");
        }
        archive.file("etc/modules", order.as_bytes())?;
        archive.file("etc/devices", format!("{}\n", self.machine.device.id()).as_bytes())?;
        let lines =
            |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        archive.file("etc/environment", lines(boot.environment).as_bytes())?;
        archive.file("etc/commands", lines(boot.commands).as_bytes())?;
        let mut programs: Vec<_> =
            boot.commands.iter().filter_map(|command| command.split(' ').next()).collect();
        programs.dedup();
        let work = path.parent().context("an image lies in a folder")?;
        let mut needed = BTreeSet::new();
        for name in programs {
            let program = builds.program(name)?;
            archive.file(&format!("bin/{name}"), &stripped(&program, work)?)?;
            needed.extend(libraries(&program)?);
        }
        for library in needed {
            let name = library.strip_prefix("/").unwrap_or(&library).to_string_lossy();
            archive.file(&name, &fs::read(&library)?)?;
        }
        if self.machine.device == Device::Card {
            for entry in fs::read_dir(root().join("testing/kernels/elf"))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                archive.file(&format!("kernels/{name}"), &fs::read(entry.path())?)?;
            }
        }
        archive.finish()?;
        Ok(())
    }
}
