//! What `et top` knows after some looks: histories, rates, events. Knows no terminal and no clock.

use std::collections::VecDeque;
use std::time::Duration;

use et::Activity;
use serde_json::{Value, json};

use super::sample::{CardNews, Errors, HostView, Look, Process, Sample};

/// Looks that histories go back.
const HISTORY: usize = 240;
/// Events that are kept.
const EVENTS: usize = 100;

/// A process and the share of one processor that it used since the look before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Usage {
    pub(super) process: Process,
    pub(super) cpu_percent: Option<f64>,
}

/// What the program has had the card do since the look before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) operations_per_s: f64,
    pub(super) launches_per_s: f64,
    pub(super) to_device_mb_per_s: f64,
    pub(super) to_host_mb_per_s: f64,
    /// Part of the time in which each shire that the card has ran kernels, with its number.
    pub(super) shires: Vec<(u32, u64)>,
}

impl Rates {
    /// `None` if the counters have begun again between the two, or there is no time between them.
    fn new(before: &Activity, sample: &Sample, since: Duration) -> Option<Self> {
        let now = sample.activity.as_ref()?;
        let seconds = since.as_secs_f64();
        if since.is_zero() {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
        let rate = |of: fn(&Activity) -> u64| -> Option<f64> {
            Some(of(now).checked_sub(of(before))? as f64 / seconds)
        };
        // A kernel that goes on is counted when it has ended, maybe as more than there was time
        // for, and until then it is there all the time.
        let share = |shire: usize| {
            let ran = now.busy_cycles[shire].saturating_sub(before.busy_cycles[shire]);
            if ran == 0 && now.launched_shires >> shire & 1 == 1 {
                return 100;
            }
            let cycles = since.as_micros() * u128::from(sample.minion_mhz);
            let percent = (u128::from(ran) * 100).checked_div(cycles).unwrap_or(0);
            u64::try_from(percent).unwrap_or(100).min(100)
        };
        let has = |shire: &u32| now.available_shires >> shire & 1 == 1;
        Some(Self {
            operations_per_s: rate(|a| a.accepted.saturating_sub(a.pending))?,
            launches_per_s: rate(|a| a.launches)?,
            to_device_mb_per_s: rate(|a| a.to_device_bytes)? / 1e6,
            to_host_mb_per_s: rate(|a| a.to_host_bytes)? / 1e6,
            shires: (0..32).filter(has).map(|shire| (shire, share(shire as usize))).collect(),
        })
    }

    /// Part of the time in which kernels ran, as if all shires were one.
    pub(super) fn compute_percent(&self) -> u64 {
        let all: u64 = self.shires.iter().map(|(_, percent)| percent).sum();
        all.checked_div(self.shires.len() as u64).unwrap_or(0)
    }
}

/// Values of the last looks, the latest at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) compute: VecDeque<u64>,
    pub(super) memory: VecDeque<u64>,
    /// mW.
    pub(super) power: VecDeque<u64>,
    /// °C.
    pub(super) temperature: VecDeque<u64>,
}

/// All that is shown.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) device: String,
    /// The latest answer of the device, and when it came.
    pub(super) sample: Option<(Duration, Sample)>,
    /// Why the device does not answer now.
    pub(super) trouble: Option<String>,
    pub(super) usage: Vec<Usage>,
    pub(super) host: HostView,
    pub(super) history: History,
    /// What has come, the latest at the end, and when.
    pub(super) events: VecDeque<(Duration, CardNews)>,
    /// Errors of all kinds in a minute, over the last looks.
    pub(super) errors_per_minute: Option<f64>,
    /// Part of the time in which the clock was reduced, since the look before.
    pub(super) throttled_percent: Option<f64>,
    /// What the program does, if it says so.
    pub(super) rates: Option<Rates>,
    pub(super) looks: u64,
    last: Option<Duration>,
    /// Errors at the looks that `errors_per_minute` is taken from.
    errors: VecDeque<(Duration, u64)>,
}

fn push<T>(list: &mut VecDeque<T>, value: T, limit: usize) {
    if list.len() == limit {
        list.pop_front();
    }
    list.push_back(value);
}

fn all(errors: &Errors) -> u64 {
    errors.rows().iter().map(|(_, minor, major)| minor.saturating_add(*major)).sum()
}

impl Model {
    pub(super) fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            sample: None,
            trouble: None,
            usage: Vec::new(),
            host: HostView::default(),
            history: History::default(),
            events: VecDeque::new(),
            errors_per_minute: None,
            throttled_percent: None,
            rates: None,
            looks: 0,
            last: None,
            errors: VecDeque::new(),
        }
    }

    /// Takes in what was found at a time.
    pub(super) fn add(&mut self, now: Duration, look: Look) {
        let since = self.last.replace(now).map(|last| now.saturating_sub(last));
        self.looks += 1;
        self.usage = self.usages(&look.host.processes, since);
        self.host = look.host;
        match look.sample {
            Ok(sample) => {
                self.trouble = None;
                self.take(now, sample, since);
            }
            Err(why) => {
                self.trouble = Some(why);
                // Counters may have begun again when the device is back.
                self.errors.clear();
                (self.errors_per_minute, self.throttled_percent) = (None, None);
                self.rates = None;
            }
        }
    }

    fn usages(&self, processes: &[Process], since: Option<Duration>) -> Vec<Usage> {
        let before = |pid| self.host.processes.iter().find(|process| process.pid == pid);
        let usage = |process: &Process| {
            let used = before(process.pid).and_then(|old| process.cpu.checked_sub(old.cpu));
            let cpu_percent = used.zip(since).and_then(|(used, since)| percent(used, since));
            Usage { process: process.clone(), cpu_percent }
        };
        processes.iter().map(usage).collect()
    }

    fn take(&mut self, now: Duration, mut sample: Sample, since: Option<Duration>) {
        let history = &mut self.history;
        push(&mut history.memory, sample.memory_percent.into(), HISTORY);
        push(&mut history.power, sample.power_mw.into(), HISTORY);
        let degrees = u64::try_from(sample.minions_c).unwrap_or(0);
        push(&mut history.temperature, degrees, HISTORY);
        for event in sample.events.drain(..) {
            push(&mut self.events, (now, event), EVENTS);
        }
        let errors = all(&sample.errors);
        // After a reset of the chip they count from 0.
        if self.errors.back().is_some_and(|(_, before)| *before > errors) {
            self.errors.clear();
        }
        push(&mut self.errors, (now, errors), HISTORY);
        self.errors_per_minute = self.errors.front().and_then(|(first, before)| {
            let seconds = now.saturating_sub(*first).as_secs_f64();
            #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
            let new = (errors - before) as f64;
            (seconds > 0.0).then(|| new * 60.0 / seconds)
        });
        let before = self.sample.as_ref().map(|(_, sample)| sample.throttled);
        self.throttled_percent = before
            .and_then(|before| sample.throttled.checked_sub(before))
            .zip(since)
            .and_then(|(throttled, since)| percent(throttled, since));
        let before = self.sample.as_ref().and_then(|(_, sample)| sample.activity.as_ref());
        self.rates =
            before.zip(since).and_then(|(before, since)| Rates::new(before, &sample, since));
        // Of a program that says what it does, an average since the start is no value of now.
        if self.rates.is_some() || sample.activity.is_none() {
            let compute = self.compute_percent(&sample);
            push(&mut self.history.compute, compute, HISTORY);
        }
        self.sample = Some((now, sample));
    }

    /// Part of the time in which kernels ran: since the look before if the program says so, else on
    /// average since the start of the firmware.
    pub(super) fn compute_percent(&self, sample: &Sample) -> u64 {
        let since_start = || sample.compute.map_or(0, |[average, ..]| average);
        self.rates.as_ref().map_or_else(since_start, Rates::compute_percent)
    }

    /// How old what is shown is, if the device does not answer now.
    pub(super) fn age(&self, now: Duration) -> Option<Duration> {
        let (at, _) = self.sample.as_ref()?;
        self.trouble.as_ref().map(|_| now.saturating_sub(*at))
    }

    /// One look for machines.
    pub(super) fn document(&self, now: Duration) -> Value {
        let processes = self.usage.iter().map(|usage| {
            let Process { pid, command, memory_bytes, threads, .. } = &usage.process;
            json!({
                "pid": pid, "command": command, "memory_bytes": memory_bytes, "threads": threads,
                "cpu_percent": usage.cpu_percent,
            })
        });
        let mut document = json!({
            "device": self.device,
            "seconds": now.as_secs_f64(),
            "state": if self.trouble.is_some() { "unavailable" } else { "open" },
            "why": self.trouble,
            "processes": processes.collect::<Vec<_>>(),
            "processes_unseen": self.host.unseen,
            "link": self.host.link,
        });
        let Some((at, sample)) = &self.sample else { return document };
        if *at != now {
            return document;
        }
        let [dram, sram, pcie, _] = sample.errors.rows().map(|(_, corrected, uncorrectable)| {
            json!({ "corrected": corrected, "uncorrectable": uncorrectable })
        });
        let events = self.events.iter().filter(|(at, _)| *at == now);
        let rates = self.rates.as_ref();
        let more = json!({
            "serial_number": sample.serial,
            "firmware": sample.firmware,
            "uptime_s": sample.uptime.as_secs(),
            "compute_percent": sample.compute.map(|[average, least, greatest]| json!({
                "average": average, "least": least, "greatest": greatest,
            })),
            "copies_mb_per_s": { "to_device": sample.copies_in, "to_host": sample.copies_out },
            "memory": {
                "used_percent": sample.memory_percent,
                "reads_per_s": sample.reads_per_s, "writes_per_s": sample.writes_per_s,
            },
            "temperature_c": {
                "minions": sample.minions_c, "io_shire": sample.io_shire_c,
                "threshold": sample.threshold_c,
            },
            "power": {
                "now_mw": sample.power_mw, "tdp_watts": sample.tdp_watts,
                "state": sample.power_state, "throttled_percent": self.throttled_percent,
            },
            "frequency_mhz": { "minions": sample.minion_mhz, "memory": sample.memory_mhz },
            "errors": {
                "dram": dram, "sram": sram, "pcie": pcie,
                "hangs": sample.errors.hangs, "exceptions": sample.errors.exceptions,
                "per_minute": self.errors_per_minute,
            },
            "queue": {
                "events": sample.counters.events, "lost": sample.counters.lost,
                "full": sample.counters.full_queues, "stray": sample.counters.stray,
            },
            "events": events.map(|(_, event)| &event.text).collect::<Vec<_>>(),
            "program": sample.activity.map(|activity| json!({
                "streams": activity.streams, "operations": activity.accepted,
                "operations_per_s": rates.map(|r| r.operations_per_s),
                "launches_per_s": rates.map(|r| r.launches_per_s),
                "compute_percent": rates.map(Rates::compute_percent),
                "shires_percent": rates.map(|r| {
                    r.shires.iter().map(|(shire, percent)| (shire.to_string(), (*percent).into()))
                        .collect::<serde_json::Map<_, _>>()
                }),
                "copies_mb_per_s": rates.map(|r| json!({
                    "to_device": r.to_device_mb_per_s, "to_host": r.to_host_mb_per_s,
                })),
                "pending": activity.pending, "in_flight": activity.in_flight,
                "memory_bytes": activity.memory_bytes,
                "memory_used_bytes": activity.memory_used_bytes, "buffers": activity.buffers,
            })),
        });
        if let (Some(document), Value::Object(more)) = (document.as_object_mut(), more) {
            document.extend(more);
        }
        document
    }
}

fn percent(part: Duration, whole: Duration) -> Option<f64> {
    (!whole.is_zero()).then(|| 100.0 * part.as_secs_f64() / whole.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(errors: u64, cpu: u64, throttled: u64) -> Look {
        let process = Process { pid: 7, cpu: Duration::from_millis(cpu), ..Process::default() };
        let sample = Sample {
            errors: Errors { dram: (errors, 0), ..Errors::default() },
            throttled: Duration::from_millis(throttled),
            ..Sample::default()
        };
        let host = HostView { processes: vec![process], ..HostView::default() };
        Look { sample: Ok(sample), host }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rates_are_what_changed_over_the_time_that_passed() {
        let mut model = Model::new("sim:");
        model.add(at(10), look(4, 500, 100));
        assert_eq!((model.errors_per_minute, model.usage[0].cpu_percent), (None, None));
        model.add(at(12), look(5, 1500, 600));
        assert_eq!(model.errors_per_minute, Some(30.0));
        assert_eq!(model.usage[0].cpu_percent, Some(50.0));
        assert_eq!(model.throttled_percent, Some(25.0));
        // A pause of the monitor is no burst.
        model.add(at(30), look(5, 1500, 600));
        assert_eq!((model.errors_per_minute, model.throttled_percent), (Some(3.0), Some(0.0)));
        // Two looks at one time have no rate.
        model.add(at(30), look(6, 1500, 600));
        assert_eq!(model.usage[0].cpu_percent, None);
    }

    #[test]
    fn operations_are_counted_when_they_end() {
        let mut model = Model::new("process:7");
        let mut add = |second, accepted, pending| {
            let mut look = look(0, 0, 0);
            let mut activity = Activity::default();
            (activity.accepted, activity.pending) = (accepted, pending);
            if let Ok(sample) = &mut look.sample {
                sample.activity = Some(activity);
            }
            model.add(at(second), look);
            model.rates.as_ref().map(|rates| rates.operations_per_s)
        };
        assert_eq!(add(1, 100, 10), None);
        assert_eq!(add(3, 160, 50), Some(10.0));
        // A reset of the device.
        assert_eq!(add(4, 20, 0), None);
        assert_eq!(add(5, 25, 0), Some(5.0));
        assert_eq!(model.document(at(5))["program"]["operations_per_s"], 5.0);
        model.add(at(6), look(0, 0, 0));
        assert_eq!(model.rates, None);
    }

    #[test]
    fn a_shire_is_busy_while_its_kernel_goes_on_and_never_more_than_all_the_time() {
        let mut model = Model::new("process:7");
        let mut add = |second, launched_shires, cycles| {
            let mut look = look(0, 0, 0);
            let mut activity = Activity::default();
            (activity.available_shires, activity.launched_shires) = (0b101, launched_shires);
            activity.busy_cycles[2] = cycles;
            if let Ok(sample) = &mut look.sample {
                (sample.activity, sample.minion_mhz) = (Some(activity), 1);
                sample.compute = Some([99, 99, 99]);
            }
            model.add(at(second), look);
            let rates = model.rates.as_ref();
            rates.map(|rates| (rates.shires.clone(), rates.compute_percent()))
        };
        let busy = |percent| Some((vec![(0, 0), (2, percent)], percent / 2));
        assert_eq!(add(1, 0, 0), None);
        assert_eq!(add(2, 0, 250_000), busy(25));
        assert_eq!(add(3, 0b100, 250_000), busy(100), "it goes on");
        assert_eq!(add(4, 0, 2_250_000), busy(100), "what it ran for before is no more");
        assert_eq!(add(5, 0, 2_250_000), busy(0));
        // The first look has only an average since the start.
        assert_eq!(model.history.compute, [12, 50, 50, 0]);
    }

    #[test]
    fn counters_that_begin_again_give_no_rate_below_zero() {
        let mut model = Model::new("sim:");
        model.add(at(0), look(1000, 900, 900));
        model.add(at(1), look(2, 1, 1));
        assert_eq!((model.errors_per_minute, model.throttled_percent), (None, None));
        assert_eq!(model.usage[0].cpu_percent, None);
        model.add(at(2), look(3, 1, 1));
        assert_eq!(model.errors_per_minute, Some(60.0));
    }

    #[test]
    fn a_device_that_does_not_answer_keeps_what_it_said_and_gets_old() {
        let mut model = Model::new("sim:");
        model.add(at(1), look(1, 0, 0));
        let gone = Look { sample: Err("in use by process 9".into()), host: HostView::default() };
        model.add(at(5), gone);
        assert_eq!(model.age(at(8)), Some(at(7)));
        assert!(model.sample.is_some() && model.usage.is_empty());
        let document = model.document(at(5));
        assert_eq!((&document["state"], &document["power"]), (&"unavailable".into(), &Value::Null));
        assert_eq!(document["why"], "in use by process 9");
        model.add(at(9), look(1, 0, 0));
        assert_eq!((model.age(at(9)), model.trouble.clone()), (None, None));
        assert_eq!(model.document(at(9))["state"], "open");
    }

    #[test]
    fn histories_and_events_are_bounded() {
        let mut model = Model::new("sim:");
        for second in 0..1000 {
            let mut look = look(0, 0, 0);
            if let Ok(sample) = &mut look.sample {
                sample.power_mw = u16::try_from(second).unwrap();
                sample.events = vec![CardNews { text: second.to_string(), is_bad: false }];
            }
            model.add(at(second), look);
        }
        assert_eq!((model.history.power.len(), model.events.len()), (HISTORY, EVENTS));
        assert_eq!(model.history.power.back(), Some(&999));
        assert_eq!(model.document(at(999))["events"], json!(["999"]));
    }
}
