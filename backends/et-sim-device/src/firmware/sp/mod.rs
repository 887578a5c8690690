//! The service processor: the management endpoint.
//!
//! It takes its commands one by one, and answers each before it takes the next. It has nothing to
//! do with the operations firmware, so it answers whatever that does. Spec: §5.3, §5.5, §17

mod commands;
mod debug;
mod forward;
mod health;
mod image;
mod settings;
mod trace;

pub use image::{FirmwareImage, ImageError};
pub(crate) use settings::Flash;
pub(crate) use trace::format_at_boot;

use std::sync::Arc;
use std::time::{Duration, Instant};

use et_devapi::msg::mgmt::{
    Event, EventClass, EventId, MinionErrors, Quad, Response, calls, command_info, parse_command,
};
use et_devapi::msg::{Tag, command_bytes};
use et_devapi::pci::Vector;
use et_devapi::ring::{Consumer, Producer};
use et_hal::{Endpoint, Pop, Push};
use zerocopy::{FromZeros, IntoBytes};

use self::debug::Debugger;
use self::health::{Health, Load};
use self::settings::Settings;
use self::trace::{Level, Trace};
use super::mm::Failed;
use super::registers;
use crate::board::Slot;
use crate::faults::Noise;
use crate::{BoardError, Fault};

/// The firmware's command buffer; what is larger is dropped here. Erratum 6 (§21).
const COMMAND_BYTES: usize = 512;
/// The largest response.
const RESPONSE_BYTES: usize = 280;
/// Bytes that really come of the response whose header says more. Erratum 2 (§21).
const CUT_RESPONSE_BYTES: usize = 32;

/// What a command wants of the rest of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start the master minion anew, then answer the command with this tag.
    ResetOperations(Tag),
    /// Start everything anew.
    ResetChip,
}

/// The worker of the management queues.
#[derive(Debug)]
pub(crate) struct ServiceProcessor {
    slot: Arc<Slot>,
    submission: Consumer,
    completion: Producer,
    doorbells_seen: u32,
    /// There may be another command.
    look: bool,
    settings: Settings,
    health: Health,
    debugger: Debugger,
    trace: Trace,
    minion: MinionErrors,
    order: Option<Order>,
    /// Responses so far.
    responses: u64,
    noise: Noise,
    faults: Vec<Fault>,
}

impl ServiceProcessor {
    pub(crate) fn new(slot: &Arc<Slot>) -> Result<Self, BoardError> {
        let now = Instant::now();
        let mut sp = Self {
            slot: Arc::clone(slot),
            // Empty rings. What their control blocks say by now is the host's matter.
            submission: Consumer::resume(registers::management_submission()?, 0, 0, 0),
            completion: Producer::resume(registers::management_completion()?, 0, 0),
            doorbells_seen: 0,
            look: false,
            settings: Settings::new(&slot.config),
            health: Health::new(&slot.config, now),
            debugger: Debugger::default(),
            trace: Trace::new(slot.config.frequency_mhz, now),
            minion: MinionErrors::new_zeroed(),
            order: None,
            responses: 0,
            noise: Noise::new(slot.config.seed),
            faults: Vec::new(),
        };
        let release = slot.flash().release();
        sp.log(Level::Info, &format!("boot of release {release}"));
        for fault in &slot.config.faults {
            sp.add_fault(*fault);
        }
        Ok(sp)
    }

    /// Starts to do something wrong, if it is this endpoint's to do; counts start now.
    pub(crate) fn add_fault(&mut self, fault: Fault) {
        let past = self.responses;
        match fault {
            Fault::Ecc { source, corrected, uncorrectable } => {
                for event in self.settings.count_errors(source, corrected, uncorrectable) {
                    let level = match event.class {
                        EventClass::Fatal => Level::Error,
                        _ => Level::Warning,
                    };
                    self.log(level, &format!("{} errors: {}", event.count, event.id));
                    self.send(&event);
                }
            }
            Fault::SpGarbage { nth, size } => {
                self.faults.push(Fault::SpGarbage { nth: nth.saturating_add(past), size });
            }
            Fault::SpSilent { after } => {
                self.faults.push(Fault::SpSilent { after: after.saturating_add(past) });
            }
            Fault::Noise => self.faults.push(fault),
            _ => {}
        }
    }

    /// Looks after the card and takes one command, if there is one; returns `true` if there was.
    /// The DMA engine has `moved` so many bytes, towards the host and towards the device.
    pub(crate) fn step(&mut self, computes: bool, moved: [u64; 2]) -> bool {
        let load = if computes { Load::Busy } else { Load::Idle };
        let is_due = self.trace.next_sample().is_some_and(|due| Instant::now() >= due);
        if is_due || self.health.has_news(load) {
            self.observe(load, moved);
        }
        if is_due {
            self.take_sample();
        }
        let rung = self.slot.bell.rung(Endpoint::Management);
        if rung != self.doorbells_seen {
            self.doorbells_seen = rung;
            self.look = true;
        }
        if !self.look {
            return false;
        }
        let mut command = [0; COMMAND_BYTES];
        // A message that cannot be framed stops the task until the next doorbell. Spec: §5.5
        let popped = self.submission.pop_message(&self.slot.page, command_bytes, &mut command);
        let Ok(Pop::Message(bytes)) = popped else {
            self.look = false;
            return true;
        };
        self.slot.interrupts.raise(Vector::MgmtSubmission);
        self.observe(load, moved);
        self.execute(&command[..bytes]);
        true
    }

    /// Returns how long the firmware may sleep before the card has to be looked after.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        let now = Instant::now();
        let sample = self.trace.next_sample().map(|due| due.saturating_duration_since(now));
        self.health.next_look(now).into_iter().chain(sample).min()
    }

    /// Takes what has to be done outside of this worker.
    pub(crate) fn take_order(&mut self) -> Option<Order> {
        self.order.take()
    }

    /// The master minion is there again, or not; answers the command that asked for it.
    pub(crate) fn operations_reset(&mut self, tag: Tag, hung: bool, is_back: bool) {
        if hung {
            self.minion.hang_count += 1;
            let count = self.minion.hang_count.get();
            self.log(Level::Warning, "the operations firmware hangs");
            self.send(&event(EventId::MinionHangs, EventClass::Critical, count, [0, 0]));
        }
        let status = if is_back { 0 } else { commands::FAILED };
        if is_back {
            self.log(Level::Info, "operations reset");
        } else {
            self.log(Level::Error, "the operations firmware does not start");
        }
        let payload = self.minion;
        self.respond(calls::MM_RESET.id, tag, Duration::ZERO, status, payload.as_bytes());
    }

    /// The master minion reports a command that has failed. Spec: §10.4, §17.4
    pub(crate) fn command_failed(&mut self, failed: Failed) {
        self.minion.exception_count += 1;
        let count = self.minion.exception_count.get();
        let syndromes = [failed.source, failed.status.into()];
        self.send(&event(EventId::MinionExceptions, EventClass::Warning, count, syndromes));
    }

    fn observe(&mut self, load: Load, moved: [u64; 2]) {
        let now = Instant::now();
        self.health.copied(now, moved);
        for event in self.health.update(now, load) {
            let [syndrome, _] = event.syndromes;
            match event.id {
                EventId::ThermalLow => {
                    let limit = self.health.threshold_c;
                    let text = format!("{syndrome} C, the threshold is {limit} C: half the clock");
                    self.log(Level::Warning, &text);
                }
                _ => self.log(Level::Info, &format!("half the clock for {syndrome} us")),
            }
            self.send(&event);
        }
    }

    /// Logs a text into the trace.
    fn log(&mut self, level: Level, text: &str) {
        if let Some(event) = self.trace.log(&self.slot.dram, Instant::now(), level, text) {
            self.send(&event);
        }
    }

    /// Writes statistics into their traces, as they are at the last look.
    fn take_sample(&mut self) {
        let sample = self.sample();
        for event in self.trace.sample(&self.slot.dram, Instant::now(), &sample) {
            self.send(&event);
        }
    }

    fn execute(&mut self, message: &[u8]) {
        let Ok((header, payload)) = parse_command(message) else { return };
        let (id, tag) = (header.msg_id.get(), header.tag());
        let is_silent =
            |fault: &Fault| matches!(fault, Fault::SpSilent { after } if self.responses >= *after);
        if self.faults.iter().any(is_silent) {
            return;
        }
        let started = Instant::now();
        // A payload that is too short is followed by what the buffer held before: zeros here.
        let mut whole = [0; COMMAND_BYTES];
        whole[..payload.len()].copy_from_slice(payload);
        let answer = self.answer(id, tag, &whole);
        let latency = started.elapsed();
        self.log_command(id, answer.as_ref().map(|answer| answer.status), latency);
        let Some(answer) = answer else {
            tracing::debug!(id, "management command without an answer");
            return;
        };
        self.respond(answer.id, tag, latency, answer.status, answer.payload());
    }

    /// Logs a command that was refused, and any other if the host wants that.
    fn log_command(&mut self, id: u16, status: Option<i32>, latency: Duration) {
        let Some(info) = command_info(id) else {
            self.log(Level::Warning, &format!("command {id} is not known"));
            return;
        };
        match status {
            Some(status) if status != 0 => {
                self.log(Level::Warning, &format!("{} refused: {status}", info.name));
            }
            _ if self.trace.wants_commands() => {
                let micros = latency.as_micros();
                self.log(Level::Debug, &format!("{} took {micros} us", info.name));
            }
            _ => {}
        }
    }

    /// Publishes a response; a full queue loses it. Spec: §5.6
    fn respond(&mut self, id: u16, tag: Tag, latency: Duration, status: i32, payload: &[u8]) {
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let mut bytes = [0; RESPONSE_BYTES];
        let Some(mut len) = (Response { tag, id, latency_us, status, payload }).encode(&mut bytes)
        else {
            return;
        };
        if id == calls::MDI_DUMP_GPR.id {
            len = CUT_RESPONSE_BYTES;
        }
        self.responses += 1;
        for fault in &self.faults {
            match *fault {
                Fault::SpGarbage { nth, size } if nth == self.responses => {
                    self.noise.fill(&mut bytes);
                    bytes[..2].copy_from_slice(&size.to_le_bytes());
                    // Neither an event nor the id of any command.
                    bytes[4..6].copy_from_slice(&0x7fff_u16.to_le_bytes());
                }
                Fault::Noise => self.noise.fill(&mut bytes[6..8]),
                _ => {}
            }
        }
        self.push(&bytes[..len]);
    }

    fn send(&mut self, event: &Event) {
        self.push(&event.encode());
    }

    fn push(&mut self, message: &[u8]) {
        match self.completion.push(&self.slot.page, message) {
            Ok(Push::Accepted) => self.slot.interrupts.raise(Vector::MgmtCompletion),
            Ok(Push::Full) | Err(_) => tracing::debug!("management message lost"),
        }
    }
}

fn event(id: EventId, class: EventClass, count: u32, syndromes: [u64; 2]) -> Event {
    const MOST: u16 = (1 << 14) - 1;
    let count = u16::try_from(count).unwrap_or(MOST).min(MOST);
    Event { id, class, count, syndromes }
}

/// The payload of commands without parameters.
const NOTHING: Quad = Quad { value: zerocopy::little_endian::U64::ZERO };
