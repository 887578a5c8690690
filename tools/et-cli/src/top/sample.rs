//! What `et top` asks a device and the host for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use et::host::{Bdf, Host};
use et::management::{
    CardEvent, ErrorSource, EventClass, ManagementCounters, ManagementEventKind, StatsKind,
    ThrottleState,
};
use et::{Activity, Config, Locator, Management};

use crate::info::command_line;
use crate::manage::PATIENCE;

/// What the service processor says at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) serial: String,
    pub(super) firmware: String,
    pub(super) uptime: Duration,
    /// How much of the time kernels ran, in percent: average, least, greatest.
    pub(super) compute: Option<[u64; 3]>,
    /// Averages in MB/s.
    pub(super) copies_in: u64,
    pub(super) copies_out: u64,
    /// Part of the memory in use, in percent: in buffers of the program, if that says so.
    pub(super) memory_percent: u32,
    pub(super) reads_per_s: u32,
    pub(super) writes_per_s: u32,
    pub(super) minions_c: i16,
    pub(super) io_shire_c: i16,
    pub(super) threshold_c: u8,
    pub(super) power_mw: u16,
    pub(super) tdp_watts: u8,
    pub(super) power_state: String,
    /// How long the clock was reduced, in all.
    pub(super) throttled: Duration,
    pub(super) minion_mhz: u32,
    pub(super) memory_mhz: u32,
    pub(super) errors: Errors,
    /// Messages of the management endpoint.
    pub(super) counters: Messages,
    /// What the process that has the card has it do, if that is another one.
    pub(super) activity: Option<Activity>,
    /// What the card has announced since the last look.
    pub(super) events: Vec<CardNews>,
}

/// Errors since the last reset of the chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Errors {
    /// Corrected and uncorrectable ones of each source.
    pub(super) dram: (u64, u64),
    pub(super) sram: (u64, u64),
    pub(super) pcie: (u64, u64),
    pub(super) hangs: u64,
    pub(super) exceptions: u64,
}

impl Errors {
    /// Names and counts: corrected ones, and the others.
    pub(super) fn rows(&self) -> [(&'static str, u64, u64); 4] {
        [
            ("DRAM", self.dram.0, self.dram.1),
            ("SRAM", self.sram.0, self.sram.1),
            ("PCIe", self.pcie.0, self.pcie.1),
            ("firmware", self.exceptions, self.hangs),
        ]
    }
}

/// What has come out of the queue of the management endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Messages {
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) full_queues: u64,
    pub(super) stray: u64,
}

impl From<ManagementCounters> for Messages {
    fn from(counters: ManagementCounters) -> Self {
        Self {
            events: counters.events,
            lost: counters.events_lost,
            full_queues: counters.full_queues,
            stray: counters.stray_responses + counters.malformed_messages,
        }
    }
}

/// An event of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CardNews {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

impl From<CardEvent> for CardNews {
    fn from(event: CardEvent) -> Self {
        let text = format!("{}, {}, {} ×", event.id, event.class, event.count);
        Self { text, is_bad: event.class != EventClass::Info }
    }
}

/// A process that has the card, as the kernel counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) command: String,
    /// Processor time so far.
    pub(super) cpu: Duration,
    pub(super) memory_bytes: u64,
    pub(super) threads: u64,
}

/// What the host knows of the card, whoever has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostView {
    pub(super) processes: Vec<Process>,
    /// Processes that may have the card and may not be looked at.
    pub(super) unseen: usize,
    /// Speed and width of the link, and the power state of the function.
    pub(super) link: Option<String>,
}

/// One look.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Look {
    /// What the device says, or why it says nothing.
    pub(super) sample: Result<Sample, String>,
    pub(super) host: HostView,
}

/// Where looks come from.
pub(super) trait Source {
    fn look(&mut self) -> Look;
}

/// A device of this machine.
pub(super) struct DeviceSource {
    locator: Locator,
    management: Option<Management>,
}

impl DeviceSource {
    pub(super) fn new(locator: &str) -> anyhow::Result<Self> {
        Ok(Self { locator: locator.parse()?, management: None })
    }

    fn ask(&mut self) -> Result<Sample, String> {
        let management = match self.management.take() {
            Some(management) => management,
            None => et::open_management(self.locator.clone(), Config::new())
                .map_err(|error| et::Report(&error).to_string())?
                .with_timeout(PATIENCE),
        };
        // After a failure the endpoint is opened anew, as others may have reset the card.
        let sample = sample(&management).map_err(|error| et::Report(&error).to_string())?;
        self.management = Some(management);
        Ok(sample)
    }
}

impl Source for DeviceSource {
    fn look(&mut self) -> Look {
        let sample = self.ask();
        let host = host_view(&Host::system(), &self.locator);
        Look { sample, host }
    }
}

fn sample(management: &Management) -> et::Result<Sample> {
    let temperatures = management.temperatures()?;
    let frequencies = management.frequencies()?;
    let rate = management.memory_rate()?;
    let minion = management.minion_errors()?;
    let statistics = management.statistics(StatsKind::Mm)?;
    let of = |name: &str| statistics.iter().find(|statistic| statistic.name == name);
    let errors = |source| -> et::Result<(u64, u64)> {
        let counts = management.error_counts(source)?;
        Ok((counts.corrected.into(), counts.uncorrectable.into()))
    };
    let mut events = Vec::new();
    // Of a card in another process they are for that process.
    let is_own = !management.is_relayed();
    while is_own && let Some(event) = management.event(Duration::ZERO)? {
        events.push(match event.kind {
            ManagementEventKind::Card(event) => event.into(),
            other => CardNews { text: format!("{other:?}"), is_bad: false },
        });
    }
    // The program may be of a version that does not say; if it is gone, the rest has failed.
    let activity = management.activity().unwrap_or(None);
    let memory_percent = match activity.as_ref().and_then(in_buffers_percent) {
        Some(percent) => percent,
        None => management.memory_used_percent()?,
    };
    Ok(Sample {
        serial: management.serial_number()?,
        firmware: management.firmware_versions()?.release.to_string(),
        uptime: management.uptime()?,
        compute: of("cm_utilization").map(|s| [s.average, s.least, s.greatest]),
        // The names are the host's: it writes to the device, and reads from it.
        copies_in: of("pcie_dma_write_bw").map_or(0, |s| s.average),
        copies_out: of("pcie_dma_read_bw").map_or(0, |s| s.average),
        memory_percent,
        reads_per_s: rate.reads_per_s,
        writes_per_s: rate.writes_per_s,
        minions_c: temperatures.minion_average_c,
        io_shire_c: temperatures.io_shire_c,
        threshold_c: management.temperature_threshold_c()?,
        power_mw: management.power_mw()?,
        tdp_watts: management.tdp_watts()?,
        power_state: management.power_state()?.to_string(),
        throttled: management.throttle_residency(ThrottleState::Down)?.total,
        minion_mhz: frequencies.minion_mhz,
        memory_mhz: frequencies.ddr_mhz,
        errors: Errors {
            dram: errors(ErrorSource::Dram)?,
            sram: errors(ErrorSource::Sram)?,
            pcie: errors(ErrorSource::Pcie)?,
            hangs: minion.hangs.into(),
            exceptions: minion.exceptions.into(),
        },
        counters: management.counters().into(),
        activity,
        events,
    })
}

/// The service processor does not know what of the memory is in use: the host manages it.
fn in_buffers_percent(activity: &Activity) -> Option<u32> {
    let used = u128::from(activity.memory_used_bytes) * 100;
    let percent = used.checked_div(activity.memory_bytes.into())?;
    u32::try_from(percent).ok()
}

fn host_view(host: &Host, locator: &Locator) -> HostView {
    match locator {
        Locator::Sim(_) => {
            let own = process(host, std::process::id(), "et top (the card is in this process)");
            HostView { processes: vec![own], ..HostView::default() }
        }
        Locator::Vfio(address) => card_view(host, address.bdf),
        Locator::Process { pid, .. } => {
            let command = command_line(*pid);
            HostView { processes: vec![process(host, *pid, &command)], ..HostView::default() }
        }
        _ => HostView::default(),
    }
}

/// What the kernel says of a card and of those who have its nodes open.
fn card_view(host: &Host, bdf: Bdf) -> HostView {
    let mode = host.preflight(bdf).mode;
    let nodes: Vec<PathBuf> = mode.iter().map(|mode| mode.node().to_owned()).collect();
    let holders = host.holders(&nodes).unwrap_or_default();
    let processes = holders.found.iter().map(|h| process(host, h.pid, &h.command)).collect();
    HostView { processes, unseen: holders.unseen, link: link(host, bdf) }
}

fn link(host: &Host, bdf: Bdf) -> Option<String> {
    let read = |name: &str| {
        let path = format!("/sys/bus/pci/devices/{bdf}/{name}");
        std::fs::read_to_string(host.path(Path::new(&path))).ok().map(|t| t.trim().to_owned())
    };
    let speed = read("current_link_speed")?;
    let width = read("current_link_width").unwrap_or_default();
    let power = read("power_state").unwrap_or_else(|| "unknown".into());
    Some(format!("{speed} ×{width}, function in {power}"))
}

/// What the kernel counts of a process; nothing of one that has ended.
fn process(host: &Host, pid: u32, command: &str) -> Process {
    /// The kernel's ticks in a second, for programs.
    const TICKS: u64 = 100;
    let path = host.path(Path::new(&format!("/proc/{pid}/stat")));
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    // The second field is in parentheses and may contain anything.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let field = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
    let ticks = field(11).unwrap_or(0).saturating_add(field(12).unwrap_or(0));
    let page = rustix::param::page_size() as u64;
    Process {
        pid,
        command: command.chars().filter(|c| !c.is_control()).collect(),
        cpu: Duration::from_millis(ticks.saturating_mul(1000 / TICKS)),
        memory_bytes: field(21).unwrap_or(0).saturating_mul(page),
        threads: field(17).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_has_a_card_and_how_much_they_use() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let fields = "S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 7 0 99 1000 3";
        write("proc/42/stat", &format!("42 (a) b) {fields} 0"));
        write("sys/bus/pci/devices/0000:01:00.0/current_link_speed", "16.0 GT/s PCIe\n");
        write("sys/bus/pci/devices/0000:01:00.0/current_link_width", "8\n");
        write("sys/bus/pci/devices/0000:01:00.0/power_state", "D0\n");
        let host = Host::at(root.path());
        let found = process(&host, 42, "train\u{1b}[2J --all");
        assert_eq!((found.cpu, found.threads), (Duration::from_secs(2), 7));
        assert_eq!(found.memory_bytes, 3 * rustix::param::page_size() as u64);
        assert_eq!(found.command, "train[2J --all");
        let link = link(&host, "0000:01:00.0".parse().unwrap());
        assert_eq!(link.unwrap(), "16.0 GT/s PCIe ×8, function in D0");
        assert_eq!(process(&host, 43, "gone").memory_bytes, 0);
    }
}
