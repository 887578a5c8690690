//! What each command does.

use std::time::{Duration, Instant};

use et_devapi::msg::Tag;
use et_devapi::msg::mgmt::{
    AsicVoltages, ByteArg, CacheSizes, DefaultRsp, DmStatus, EventClass, EventId, Frequencies,
    GprDump, HartControl, HartSelection, LinkSpeed, MemRead, MemWrite, MmStats, Module, Pll, Power,
    PublicKeys, Quad, ReadWrite, RegisterRead, RegisterWrite, Residency, SetFrequency, SetVoltage,
    SpStats, StatsRun, StatusWord, Temperatures, Text, TraceMasks, Uptime, WordArg, calls,
    command_info,
};
use et_devapi::pci::BAR0_DEVICE_ADDR;
use et_devapi::trace::PowerStatus;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::debug::{CONTROL, read_memory, write_memory};
use super::forward;
use super::health::{States, Track, whole16};
use super::settings::version;
use super::trace::{Level, Sample};
use super::{FirmwareImage, ImageError, NOTHING, Order, ServiceProcessor, event};
use crate::ErrorSource;

/// A status: the command did not succeed.
pub(super) const FAILED: i32 = -1;

/// The scratch region, where images are put. Spec: §3.6
const SCRATCH_BYTES: usize = 0x40_0000;
/// Bytes that a request to the memory is for.
const LINE_BYTES: f64 = 64.0;
/// The largest payload of a response.
const PAYLOAD_BYTES: usize = 256;

/// What a response says.
pub(super) struct Answer {
    pub(super) id: u16,
    pub(super) status: i32,
    payload: [u8; PAYLOAD_BYTES],
    len: usize,
}

impl Answer {
    /// An answer that another has given; none if it is larger than any.
    pub(super) fn of(id: u16, status: i32, payload: &[u8]) -> Option<Self> {
        let mut whole = [0; PAYLOAD_BYTES];
        whole.get_mut(..payload.len())?.copy_from_slice(payload);
        Some(Self { id, status, payload: whole, len: payload.len() })
    }

    fn new<P: IntoBytes + Immutable>(id: u16, status: i32, payload: &P) -> Self {
        let bytes = payload.as_bytes();
        let mut whole = [0; PAYLOAD_BYTES];
        whole[..bytes.len()].copy_from_slice(bytes);
        Self { id, status, payload: whole, len: bytes.len() }
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.payload[..self.len]
    }
}

/// Reads the payload of a command, which is never longer than the buffer.
fn read<Q: FromBytes + KnownLayout + Immutable + Unaligned + FromZeros>(payload: &[u8]) -> Q {
    Q::read_from_prefix(payload).map_or_else(|_| Q::new_zeroed(), |(command, _)| command)
}

fn text(of: &str) -> Text {
    let mut asset = [0; PAYLOAD_BYTES];
    let len = of.len().min(PAYLOAD_BYTES - 1);
    asset[..len].copy_from_slice(&of.as_bytes()[..len]);
    Text { asset }
}

fn byte(value: u8) -> ByteArg {
    ByteArg { value, pad: [0; 7] }
}

fn word(value: u32) -> WordArg {
    WordArg { value: value.into(), pad: 0.into() }
}

fn status_word(status: u32) -> StatusWord {
    StatusWord { status: status.into(), pad: [0; 4] }
}

fn celsius(value: f64) -> i16 {
    whole16(value).cast_signed()
}

impl ServiceProcessor {
    /// Executes a command; `None` if it is not answered, or not yet.
    pub(super) fn answer(&mut self, id: u16, tag: Tag, payload: &[u8]) -> Option<Answer> {
        if command_info(id)?.response_bytes.is_none() {
            self.order = (id == calls::RESET_ETSOC.id).then_some(Order::ResetChip);
            if self.order.is_some() {
                self.log(Level::Info, "chip reset");
            }
            return None;
        }
        if let Some(parent) = self.slot.parent.clone().filter(|_| !forward::is_own(id)) {
            return forward::answer(&*parent, id, payload);
        }
        match id {
            0..=12 | 70..=73 => Some(self.asset(id, payload)),
            13..=20 => Some(self.firmware(id)),
            21..=40 => self.thermal(id, payload),
            41..=52 => self.link(id, payload),
            53..=59 => self.performance(id),
            60..=63 | 65..=69 => self.control(id, payload),
            64 => {
                self.order = Some(Order::ResetOperations(tag));
                None
            }
            _ => self.debug(id, payload),
        }
    }

    fn asset(&mut self, id: u16, payload: &[u8]) -> Answer {
        let config = &self.slot.config;
        let mut flash = self.slot.flash();
        let answer = match id {
            0 => text("Esperanto"),
            1 => text(&format!("{:#x}", flash.part_number)),
            2 => text(&config.serial),
            3 => text("simulated"),
            // Dispatched, but without a body. Spec: §17.2
            4 | 5 => text(""),
            6 => match self.settings.link_speed {
                LinkSpeed::Gen4 => text("1 port, 16 GT/s"),
                _ => text("1 port, 8 GT/s"),
            },
            7 if self.slot.parent.is_some() => {
                let managed = self.slot.host_managed();
                text(&((managed.end - managed.start) >> 20).to_string())
            }
            7 => text(&(config.dram_bytes >> 20).to_string()),
            8 => text("1"),
            9 => text("PCIe"),
            10 => text("simulated"),
            11 => text("LPDDR4X"),
            12 => {
                flash.part_number = read::<WordArg>(payload).value.get();
                text("")
            }
            70 => {
                flash.replaceable_unit = read::<Text>(payload).asset;
                text("")
            }
            71 => Text { asset: flash.replaceable_unit },
            72 => {
                flash.voltage_table = read::<Text>(payload).asset;
                text("")
            }
            _ => Text { asset: flash.voltage_table },
        };
        Answer::new(id, 0, &answer)
    }

    fn firmware(&mut self, id: u16) -> Answer {
        match id {
            13 => Answer::new(id, 0, &PublicKeys { keys: [0; 32] }),
            14 => Answer::new(id, 0, &self.slot.flash().versions),
            15 => default(id, self.update()),
            // The root certificates are fused into nothing, and what counts versions reads its own
            // message: erratum 4 (§21).
            _ => default(id, 0),
        }
    }

    /// Installs the image in the scratch region, if it is one. Spec: §17.2
    fn update(&mut self) -> i32 {
        let mut bytes = vec![0; SCRATCH_BYTES];
        let read = self.slot.dram.read(BAR0_DEVICE_ADDR.as_u64(), &mut bytes);
        let image = match read.map_err(|_| ImageError::Truncated) {
            Ok(()) => FirmwareImage::verify(&bytes),
            Err(error) => Err(error),
        };
        match image {
            Ok(image) => {
                let [bl1, bl2, mm, wm, machine, release, pmic] = image.versions.map(Into::into);
                let mut flash = self.slot.flash();
                let installed = &mut flash.installed;
                installed.bl1_v = bl1;
                installed.bl2_v = bl2;
                installed.mm_v = mm;
                installed.wm_v = wm;
                installed.machm_v = machine;
                installed.fw_release_rev = release;
                installed.pmic_v = pmic;
                drop(flash);
                let release = version(release.get());
                self.log(Level::Info, &format!("release {release} installed"));
                0
            }
            Err(error) => {
                tracing::info!(%error, "firmware image refused");
                self.log(Level::Error, &format!("firmware image refused: {error}"));
                error as i32
            }
        }
    }

    fn thermal(&mut self, id: u16, payload: &[u8]) -> Option<Answer> {
        let health = &mut self.health;
        let now = Instant::now();
        let argument = read::<ByteArg>(payload).value;
        Some(match id {
            21 => Answer::new(id, 0, &byte(health.threshold_c)),
            22 => {
                health.set_threshold(argument);
                default(id, 0)
            }
            23 => {
                let state = u8::try_from(health.power_states.current()).unwrap_or_default();
                Answer::new(id, 0, &byte(state))
            }
            24 => {
                let is_known = argument < 2;
                if is_known {
                    health.set_managed(argument == 1);
                }
                default(id, if is_known { 0 } else { FAILED })
            }
            25 => Answer::new(id, 0, &byte(self.settings.tdp_watts)),
            26 => {
                self.settings.tdp_watts = argument;
                health.tdp_mw = f64::from(argument) * 1000.0;
                default(id, 0)
            }
            27 => {
                let (now, low, high) = (health.celsius(), health.coldest(), health.hottest());
                let temperatures = Temperatures {
                    ioshire_current: celsius(now).into(),
                    ioshire_low: celsius(low).into(),
                    ioshire_high: celsius(high).into(),
                    minshire_avg: celsius(now).into(),
                    minshire_low: celsius(low).into(),
                    minshire_high: celsius(high).into(),
                    pmic_sys: u8::try_from(whole16(now)).unwrap_or(u8::MAX),
                    pad: [0; 3],
                };
                Answer::new(id, 0, &temperatures)
            }
            29 => residency(id, health.throttle.residency(argument, now)),
            30 => Answer::new(id, 0, &uptime(health.uptime())),
            31 => Answer::new(id, 0, &self.settings.voltages),
            // Answered under another id: erratum 3 (§21).
            32 => Answer::new(calls::GET_MODULE_VOLTAGE.id, 0, &self.asic_voltages()),
            33 => {
                let power = Power { power: whole16(health.milliwatts()).into(), pad: [0; 6] };
                Answer::new(id, 0, &power)
            }
            34 => residency(id, health.power_states.residency(argument, now)),
            35 => {
                let command: SetVoltage = read(payload);
                let status = if self.set_voltage(&command) { 0 } else { FAILED };
                Answer::new(id, status, &NOTHING)
            }
            36 => Answer::new(id, 0, &status_word(0)),
            37 => {
                let command: SetFrequency = read(payload);
                let mhz = command.pll_freq.get();
                // No clock stands still, and there are two ways to change one.
                if mhz == 0 || command.use_step_clock > 1 {
                    return Some(Answer::new(id, FAILED, &NOTHING));
                }
                let known = match Pll::from(u32::from(command.pll_id)) {
                    Pll::Noc => &mut self.settings.noc_mhz,
                    Pll::Minion => {
                        health.set_clock(mhz);
                        &mut self.settings.minion_mhz
                    }
                    _ => return Some(Answer::new(id, FAILED, &NOTHING)),
                };
                *known = mhz;
                Answer::new(id, 0, &NOTHING)
            }
            38 => {
                let hottest = u8::try_from(whole16(health.hottest())).unwrap_or(u8::MAX);
                Answer::new(id, 0, &byte(hottest))
            }
            39 => Answer::new(id, 0, &requests(health.copies().map(Track::greatest))),
            40 => Answer::new(id, 0, &word(self.settings.most_errors())),
            _ => return None,
        })
    }

    fn set_voltage(&mut self, command: &SetVoltage) -> bool {
        let voltages = &mut self.settings.voltages;
        let place = match Module::from(u32::from(command.r#type)) {
            Module::Ddr => &mut voltages.ddr,
            Module::L2Cache => &mut voltages.l2_cache,
            Module::Maxion => &mut voltages.maxion,
            Module::Minion => &mut voltages.minion,
            Module::Pcie => &mut voltages.pcie,
            Module::Noc => &mut voltages.noc,
            Module::PcieLogic => &mut voltages.pcie_logic,
            Module::Vddqlp => &mut voltages.vddqlp,
            Module::Vddq => &mut voltages.vddq,
            _ => return false,
        };
        *place = command.value;
        true
    }

    /// What the regulators give, in mV.
    fn asic_voltages(&self) -> AsicVoltages {
        let mv = |code: u8| (250 + 5 * u16::from(code)).into();
        let pcie = |code: u8| (600 + 25 * u16::from(code) / 4).into();
        let v = &self.settings.voltages;
        AsicVoltages {
            ddr: mv(v.ddr),
            l2_cache: mv(v.l2_cache),
            maxion: mv(v.maxion),
            minion: mv(v.minion),
            pshire_0p75: pcie(v.pcie_logic),
            noc: mv(v.noc),
            ioshire_0p75: 750.into(),
            vddqlp: mv(v.vddqlp),
            vddq: mv(v.vddq),
            pad: [0; 6],
        }
    }

    /// The present requests to the memory: those of copies. What kernels ask for is not counted.
    fn bandwidth(&self) -> ReadWrite {
        requests(self.health.copies().map(Track::now))
    }

    fn link(&mut self, id: u16, payload: &[u8]) -> Option<Answer> {
        Some(match id {
            // The dispatcher does not pass the payload on. Spec: §17.2
            41..=43 => default(id, 0),
            44 => {
                // Only the hot reset does anything. Spec: §18
                if read::<WordArg>(payload).value.get() == 1 {
                    self.order = Some(Order::ResetChip);
                    return None;
                }
                default(id, 0)
            }
            45 => Answer::new(id, 0, &self.settings.errors(ErrorSource::Pcie)),
            46 => Answer::new(id, 0, &self.bandwidth()),
            47 => Answer::new(id, 0, &self.settings.errors(ErrorSource::Dram)),
            48 => Answer::new(id, 0, &self.settings.errors(ErrorSource::Sram)),
            49 | 50 if read::<WordArg>(payload).value.get() > 1 => default(id, FAILED),
            49 => {
                self.settings.link_speed = read::<WordArg>(payload).value.get().into();
                default(id, 0)
            }
            _ => default(id, 0),
        })
    }

    fn performance(&self, id: u16) -> Option<Answer> {
        Some(match id {
            53 => {
                let frequencies = Frequencies {
                    minion_shire_mhz: u32::from(whole16(self.health.mhz())).into(),
                    noc_mhz: u32::from(self.settings.noc_mhz).into(),
                    mem_shire_mhz: 1067.into(),
                    ddr_mhz: 2133.into(),
                    pcie_shire_mhz: 1010.into(),
                    io_shire_mhz: 500.into(),
                };
                Answer::new(id, 0, &frequencies)
            }
            54 => Answer::new(id, 0, &self.bandwidth()),
            55 => Answer::new(id, 0, &word(0)),
            _ => Answer::new(id, 0, &NOTHING),
        })
    }

    fn control(&mut self, id: u16, payload: &[u8]) -> Option<Answer> {
        Some(match id {
            60 => Answer::new(id, 0, &self.sp_stats()),
            61 => Answer::new(id, 0, &self.mm_stats()),
            62 => {
                let command: StatsRun = read(payload);
                let (of, control) = (command.r#type.get().into(), command.control.get());
                let (dram, now) = (&self.slot.dram, Instant::now());
                let done = self.trace.control_statistics(dram, now, of, control);
                if done == Some(true) {
                    self.health.forget(of);
                }
                if self.trace.next_sample().is_some_and(|due| due <= now) {
                    self.take_sample();
                }
                default(id, if done.is_some() { 0 } else { FAILED })
            }
            63 => Answer::new(id, 0, &self.minion),
            65 => {
                // As a test build does: one of each.
                for number in 256..=272 {
                    let id = EventId::from(number);
                    if id == EventId::SpException {
                        self.trap();
                    }
                    self.send(&event(id, EventClass::Info, 1, [0, 0]));
                }
                default(id, 0)
            }
            66 => {
                let control = read::<StatusWord>(payload).status.get();
                let is_done = self.trace.control(&self.slot.dram, control);
                default(id, if is_done { 0 } else { FAILED })
            }
            67 => {
                let masks: TraceMasks = read(payload);
                let (events, filter) = (masks.event_mask.get(), masks.filter_mask.get());
                let is_done = self.trace.configure(events, filter);
                let outcome = if is_done { DmStatus::Success } else { DmStatus::Error };
                let status = if is_done { 0 } else { FAILED };
                Answer::new(id, status, &status_word(outcome.into()))
            }
            68 => {
                let fits = self.settings.set_caches(read::<CacheSizes>(payload));
                Answer::new(id, if fits { 0 } else { FAILED }, &NOTHING)
            }
            69 => Answer::new(id, 0, &self.settings.caches),
            _ => return None,
        })
    }

    /// What a trap leaves in the traces. This firmware has one for tests only, a breakpoint at 0:
    /// it is not code, and has no addresses.
    fn trap(&mut self) {
        const BREAKPOINT: u64 = 3;
        self.log(Level::Critical, &format!("exception: cause {BREAKPOINT}, pc 0x0"));
        let state = (0, BREAKPOINT, 0);
        if let Some(event) = self.trace.exception(&self.slot.dram, Instant::now(), state) {
            self.send(&event);
        }
    }

    /// What a sample of the statistics is taken from.
    pub(super) fn sample(&self) -> Sample {
        let health = &self.health;
        let state = |states: &States| u8::try_from(states.current()).unwrap_or(u8::MAX);
        let mut power = PowerStatus::new_zeroed();
        power.current_power = whole16(health.milliwatts()).into();
        power.throttle_state = state(&health.throttle);
        power.power_state = state(&health.power_states);
        power.current_temp = u8::try_from(whole16(health.celsius())).unwrap_or(u8::MAX);
        power.tgt_freq = whole16(health.mhz()).into();
        power.tgt_voltage = self.asic_voltages().minion;
        Sample { power, sp: self.sp_stats(), mm: self.mm_stats() }
    }

    fn mm_stats(&self) -> MmStats {
        let mut stats = MmStats::new_zeroed();
        stats.cm_utilization = self.health.utilization().wide();
        let [to_host, to_device] = self.health.copies();
        stats.pcie_dma_read_bw = to_host.wide();
        stats.pcie_dma_write_bw = to_device.wide();
        // What kernels read and write is not counted.
        stats.ddr_read_bw = to_host.wide();
        stats.ddr_write_bw = to_device.wide();
        stats
    }

    fn sp_stats(&self) -> SpStats {
        let mut stats = SpStats::new_zeroed();
        let (power, temperature) = (self.health.power().narrow(), self.health.temperature());
        stats.system_power = power;
        stats.minion_power = power;
        stats.minion_freq = self.health.clock().narrow();
        let temperature = temperature.narrow();
        stats.system_temperature = temperature;
        stats.minion_temperature = temperature;
        stats.sram_temperature = temperature;
        stats.noc_temperature = temperature;
        let volts = self.asic_voltages();
        let constant =
            |value| et_devapi::msg::mgmt::Extremes { avg: value, min: value, max: value };
        stats.minion_voltage = constant(volts.minion);
        stats.sram_voltage = constant(volts.l2_cache);
        stats.noc_voltage = constant(volts.noc);
        stats.noc_freq = constant(self.settings.noc_mhz.into());
        stats.sram_freq = stats.minion_freq;
        stats
    }

    fn debug(&mut self, id: u16, payload: &[u8]) -> Option<Answer> {
        let quad = |value: u64| Answer::new(id, 0, &Quad { value: value.into() });
        let done = |is_done: bool| {
            let status = if is_done { 0 } else { FAILED };
            Answer::new(id, status, &status_word(u32::from(!is_done)))
        };
        let debugger = &mut self.debugger;
        Some(match id {
            128 | 129 => done(read::<HartSelection>(payload).shire_id.get() <= 33),
            130 | 132 => done(debugger.control(&read::<HartControl>(payload), false)),
            131 => done(debugger.control(&read::<HartControl>(payload), true)),
            133 => {
                let status = debugger.status(&read::<HartControl>(payload));
                Answer::new(id, 0, &status_word(status.into()))
            }
            134..=137 => done(true),
            138 => quad(debugger.read(&read::<RegisterRead>(payload), 0)),
            139 => {
                let dump: GprDump = debugger.dump(read::<Quad>(payload).value.get());
                Answer::new(id, 0, &dump)
            }
            140 => {
                debugger.write(&read::<RegisterWrite>(payload), 0);
                default(id, 0)
            }
            141 => quad(debugger.read(&read::<RegisterRead>(payload), CONTROL)),
            142 => {
                debugger.write(&read::<RegisterWrite>(payload), CONTROL);
                default(id, 0)
            }
            143 => match read_memory(&self.slot.dram, &read::<MemRead>(payload)) {
                Some(value) => quad(value),
                None => Answer::new(id, FAILED, &NOTHING),
            },
            144 => done(write_memory(&self.slot.dram, &read::<MemWrite>(payload)).is_some()),
            _ => return None,
        })
    }
}

/// Turns MB/s that were read and written into requests a second, one for each line.
fn requests(rates: [f64; 2]) -> ReadWrite {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let [read, write] = rates.map(|rate| (rate * 1e6 / LINE_BYTES).round() as u32);
    ReadWrite { read: read.into(), write: write.into() }
}

fn residency(id: u16, of: Option<Residency>) -> Answer {
    let status = if of.is_some() { 0 } else { FAILED };
    Answer::new(id, status, &of.unwrap_or_else(Residency::new_zeroed))
}

/// A response that says nothing more than a status.
fn default(id: u16, status: i32) -> Answer {
    Answer::new(id, status, &DefaultRsp { payload: status.into(), pad: 0.into() })
}

fn uptime(time: Duration) -> Uptime {
    let minutes = time.as_secs() / 60;
    Uptime {
        day: u16::try_from(minutes / (24 * 60)).unwrap_or(u16::MAX).into(),
        hours: u8::try_from(minutes / 60 % 24).unwrap_or_default(),
        mins: u8::try_from(minutes % 60).unwrap_or_default(),
        pad: [0; 4],
    }
}
