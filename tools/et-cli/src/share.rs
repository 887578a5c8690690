//! `et share`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use et::Config;
use et_broker::{Broker, BrokerOptions, CardState, MemberStatus, Status};
use serde_json::{Value, json};

use crate::interrupt::{Interrupt, STEP};
use crate::open;
use crate::output::Format;

/// How long clients may take to let their functions go when the program is told to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Each client sees a PCIe function of its own over vfio-user, which others open as
/// `vfio-user:DIR/0` and so on. Any number of clients may use a slot, one after the other.
///
/// Every address in a command is checked against the client's part of the memory, and the memory is
/// cleared between two clients. Kernels are not checked: on the card they reach all memory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to make the sockets, named by the numbers of the slots; made if it is not there.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Number of slots.
    #[arg(long, default_value_t = 2, value_name = "N")]
    clients: usize,
    /// Memory of each client, as `2GiB`, `512MiB` or bytes; all there is, in equal parts, by
    /// default.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
    /// Do not clear the memory between two clients.
    #[arg(long)]
    keep_memory: bool,
    /// End kernels that run longer.
    #[arg(long, value_name = "SECONDS", value_parser = open::seconds)]
    kernel_limit: Option<Duration>,
    /// Also print what is going on every so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = open::seconds)]
    every: Option<Duration>,
}

pub(crate) fn run(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    let interrupt = Interrupt::catch()?;
    // How copies are aligned is for clients to say.
    let device = open::open_with(locator, Config::new().byte_copies(true))
        .with_context(|| format!("opening {locator}"))?;
    std::fs::create_dir_all(&args.dir).with_context(|| format!("making {}", args.dir.display()))?;
    let mut options = BrokerOptions::new(args.clients).keeps_memory(args.keep_memory);
    options.memory_bytes = args.memory;
    options.kernel_limit = args.kernel_limit;
    let broker = Broker::start(device, &args.dir, &options)?;
    let sockets: Vec<_> = broker.sockets().iter().map(|path| path.display().to_string()).collect();
    // Whoever starts the program waits for this.
    match format {
        Format::Text => sockets.iter().for_each(|socket| println!("listening on {socket}")),
        Format::Json => println!("{}", json!({ "event": "listening", "sockets": sockets })),
    }
    let mut shown = Shown { status: broker.status(), printed: Instant::now() };
    while !interrupt.is_set() {
        std::thread::park_timeout(STEP);
        shown.look(broker.status(), args.every, format);
    }
    if !broker.ask_to_leave(FAREWELL) {
        eprintln!("clients that stayed lose the card");
    }
    Ok(())
}

/// What was printed last.
struct Shown {
    status: Status,
    printed: Instant,
}

impl Shown {
    fn look(&mut self, now: Status, every: Option<Duration>, format: Format) {
        let slots = self.status.members.iter().zip(&now.members).enumerate();
        for (slot, (before, now)) in slots {
            if let Some(event) = event_of(before, now) {
                print_event(event, slot, now, format);
            }
        }
        if self.status.card != now.card {
            let event = if now.card == CardState::Up { "card up" } else { "card down" };
            match format {
                Format::Text => println!("{event}"),
                Format::Json => println!("{}", json!({ "event": event })),
            }
        }
        if every.is_some_and(|every| self.printed.elapsed() >= every) {
            self.printed = Instant::now();
            print_status(&now, format);
        }
        self.status = now;
    }
}

/// Returns what has happened to a slot.
fn event_of(before: &MemberStatus, now: &MemberStatus) -> Option<&'static str> {
    if before.overdue != now.overdue {
        return Some("kernel ended");
    }
    match (before.client, now.client) {
        (_, Some(_)) if before.clients != now.clients => Some("client came"),
        (Some(_), None) => Some("client left"),
        _ => None,
    }
}

fn print_event(event: &str, slot: usize, status: &MemberStatus, format: Format) {
    let pid = status.client.map(|client| client.pid);
    match format {
        Format::Json => println!("{}", json!({ "event": event, "slot": slot, "pid": pid })),
        Format::Text => match pid {
            Some(pid) => println!("slot {slot}: {event}, process {pid}"),
            None => println!("slot {slot}: {event}"),
        },
    }
}

fn print_status(status: &Status, format: Format) {
    let is_up = status.card == CardState::Up;
    if format == Format::Json {
        let members: Vec<Value> = status.members.iter().enumerate().map(member).collect();
        let document = json!({
            "event": "status",
            "card": if is_up { "up" } else { "down" },
            "failures": status.failures,
            "recoveries": status.recoveries,
            "free_bytes": status.free_bytes,
            "slots": members,
        });
        println!("{document}");
        return;
    }
    for (slot, member) in status.members.iter().enumerate() {
        let who = match member.client {
            Some(client) => format!("process {}", client.pid),
            None if member.is_ready => "free".to_owned(),
            None => "being cleared".to_owned(),
        };
        let mib = (member.partition.end - member.partition.start) >> 20;
        println!(
            "slot {slot}: {who}, {mib} MiB, {} waiting, {} launches in {:.3} s, {} MiB copied",
            member.waiting,
            member.launches,
            member.kernel_time.as_secs_f64(),
            member.copied_bytes >> 20,
        );
    }
}

fn member((slot, status): (usize, &MemberStatus)) -> Value {
    json!({
        "slot": slot,
        "pid": status.client.map(|client| client.pid),
        "uid": status.client.map(|client| client.uid),
        "clients": status.clients,
        "memory_base": status.partition.start,
        "memory_bytes": status.partition.end - status.partition.start,
        "ready": status.is_ready,
        "running": status.is_running,
        "waiting": status.waiting,
        "launches": status.launches,
        "kernel_seconds": status.kernel_time.as_secs_f64(),
        "copied_bytes": status.copied_bytes,
        "overdue": status.overdue,
    })
}

/// Reads a size.
fn bytes(text: &str) -> anyhow::Result<u64> {
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => bail!("not a size: must be as 2GiB, 512MiB or bytes"),
    };
    let number: u64 = number.parse().context("not a size")?;
    number.checked_mul(1 << shift).context("too large")
}
