//! Temperature, power and clock, and how they follow the work of the cores.
//!
//! One heat capacity: the temperature goes exponentially towards what the present power leads to.
//! Above the threshold the clock is halved, until it is 2 °C colder. Whoever looks moves the model
//! on to the present moment, so that it costs nothing in between.

use std::time::{Duration, Instant};

use et_devapi::msg::mgmt::{
    Event, EventClass, EventId, Extremes, Residency, StatsKind, WideExtremes,
};
use zerocopy::FromZeros;

use super::event;
use crate::BoardConfig;

/// °C for each watt above that of an idle card.
const DEGREES_PER_WATT: f64 = 1.5;
/// How much colder than the threshold it has to be.
const HYSTERESIS: f64 = 2.0;
/// Part of the power that a throttled card takes above that of an idle one.
const THROTTLED_POWER: f64 = 0.5;
/// Time over which a rate of copies is taken, at least.
const COPIES_OVER: Duration = Duration::from_millis(10);
/// The threshold of a card that no one has set.
const THRESHOLD_C: u8 = 80;

/// What the cores do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Idle,
    Busy,
}

/// Average, least and greatest of what was seen, and the seconds of each state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    sum: f64,
    seconds: f64,
    min: f64,
    max: f64,
    now: f64,
}

impl Track {
    fn new(value: f64) -> Self {
        Self { sum: 0.0, seconds: 0.0, min: value, max: value, now: value }
    }

    /// The value went on a straight line, for some time, to `value`.
    fn pass(&mut self, seconds: f64, value: f64) {
        self.hold(seconds, f64::midpoint(self.now, value));
        self.now = value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// The value was `held` for some time.
    fn hold(&mut self, seconds: f64, held: f64) {
        self.sum += held * seconds;
        self.seconds += seconds;
    }

    /// The value stayed for some time, and then changed.
    fn step(&mut self, seconds: f64, value: f64) {
        self.hold(seconds, self.now);
        self.now = value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Returns the present value.
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// Returns the greatest value.
    pub(super) fn greatest(&self) -> f64 {
        self.max
    }

    fn average(&self) -> f64 {
        if self.seconds > 0.0 { self.sum / self.seconds } else { self.now }
    }

    pub(super) fn narrow(&self) -> Extremes {
        let number = |value: f64| whole16(value).into();
        Extremes { avg: number(self.average()), min: number(self.min), max: number(self.max) }
    }

    pub(super) fn wide(&self) -> WideExtremes {
        let number = |value: f64| u64::from(whole16(value)).into();
        WideExtremes { avg: number(self.average()), min: number(self.min), max: number(self.max) }
    }
}

/// Stays in one state.
#[derive(Clone, Copy, Debug, Default)]
struct Stays {
    all: Duration,
    longest: Duration,
    shortest: Option<Duration>,
    count: u32,
}

/// Bytes that were copied in one direction, in MB/s.
#[derive(Debug)]
struct Copies {
    rate: Track,
    /// Up to when the rate is known, and how many bytes there were by then.
    at: Instant,
    bytes: u64,
}

impl Copies {
    fn new(now: Instant) -> Self {
        Self { rate: Track::new(0.0), at: now, bytes: 0 }
    }

    /// So many bytes were copied until now.
    fn count(&mut self, now: Instant, bytes: u64) {
        let passed = now.saturating_duration_since(self.at);
        if passed < COPIES_OVER {
            return;
        }
        // The master minion counts from 0 after its reset.
        let new = bytes.checked_sub(self.bytes).unwrap_or(bytes);
        #[expect(clippy::cast_precision_loss, reason = "it is rounded to megabytes")]
        let rate = new as f64 / passed.as_secs_f64() / 1e6;
        // It was the average all the time.
        self.rate.step(0.0, rate);
        self.rate.hold(passed.as_secs_f64(), rate);
        (self.at, self.bytes) = (now, bytes);
    }
}

/// How long each of four states lasted.
#[derive(Debug)]
pub(super) struct States {
    stays: [Stays; 4],
    now: usize,
    since: Instant,
}

impl States {
    fn new(now: usize, since: Instant) -> Self {
        Self { stays: [Stays::default(); 4], now, since }
    }

    /// Goes over to another state; returns how long the one before lasted.
    fn enter(&mut self, next: usize, at: Instant) -> Duration {
        let stay = at.saturating_duration_since(self.since);
        let stays = &mut self.stays[self.now];
        stays.all += stay;
        stays.count += 1;
        stays.longest = stays.longest.max(stay);
        stays.shortest = Some(stays.shortest.map_or(stay, |shortest| shortest.min(stay)));
        (self.now, self.since) = (next, at);
        stay
    }

    pub(super) fn current(&self) -> usize {
        self.now
    }

    /// Returns what is known of a state, its present stay included; `None` if there is no such.
    pub(super) fn residency(&self, state: u8, at: Instant) -> Option<Residency> {
        let mut stays = *self.stays.get(usize::from(state))?;
        if usize::from(state) == self.now {
            let stay = at.saturating_duration_since(self.since);
            stays.all += stay;
            stays.count += 1;
            stays.longest = stays.longest.max(stay);
            stays.shortest = Some(stays.shortest.map_or(stay, |shortest| shortest.min(stay)));
        }
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX).into();
        let mut residency = Residency::new_zeroed();
        if stays.count != 0 {
            residency.cumulative = micros(stays.all);
            residency.average = micros(stays.all / stays.count);
            residency.maximum = micros(stays.longest);
            residency.minimum = micros(stays.shortest.unwrap_or_default());
        }
        Some(residency)
    }
}

/// Numbers of the states, as the messages have them. Spec: §17.3
pub(super) mod state {
    /// The clock is as it was set.
    pub(super) const THROTTLE_IDLE: usize = 0;
    /// The clock is halved.
    pub(super) const THROTTLE_DOWN: usize = 2;
    /// The cores work.
    pub(super) const MAX_POWER: usize = 0;
    /// They do, and power is managed.
    pub(super) const MANAGED_POWER: usize = 1;
    /// They do not.
    pub(super) const LOW_POWER: usize = 3;
}

/// The card's health.
#[derive(Debug)]
pub(super) struct Health {
    started: Instant,
    at: Instant,
    load: Load,
    idle_c: f64,
    idle_mw: f64,
    /// Time in which a difference of temperature falls to a third.
    heat: Duration,
    pub(super) tdp_mw: f64,
    pub(super) threshold_c: u8,
    /// Something was set.
    is_news: bool,
    /// Power is managed.
    is_managed: bool,
    temperature: Track,
    power: Track,
    utilization: Track,
    /// Towards the host, and towards the device.
    copies: [Copies; 2],
    pub(super) throttle: States,
    pub(super) power_states: States,
    throttles: u32,
    clock_mhz: Track,
    set_mhz: f64,
}

impl Health {
    pub(super) fn new(config: &BoardConfig, now: Instant) -> Self {
        let (idle_c, idle_mw) = (f64::from(config.temperature_c), f64::from(config.power_mw));
        let mhz = f64::from(config.frequency_mhz);
        Self {
            started: now,
            at: now,
            load: Load::Idle,
            idle_c,
            idle_mw,
            heat: config.heat,
            tdp_mw: f64::from(config.tdp_watts) * 1000.0,
            threshold_c: THRESHOLD_C.max(config.temperature_c.saturating_add(5)),
            is_news: false,
            is_managed: false,
            temperature: Track::new(idle_c),
            power: Track::new(idle_mw),
            utilization: Track::new(0.0),
            copies: [Copies::new(now), Copies::new(now)],
            throttle: States::new(state::THROTTLE_IDLE, now),
            power_states: States::new(state::LOW_POWER, now),
            throttles: 0,
            clock_mhz: Track::new(mhz),
            set_mhz: mhz,
        }
    }

    pub(super) fn uptime(&self) -> Duration {
        self.at.saturating_duration_since(self.started)
    }

    pub(super) fn temperature(&self) -> &Track {
        &self.temperature
    }

    pub(super) fn celsius(&self) -> f64 {
        self.temperature.now
    }

    pub(super) fn hottest(&self) -> f64 {
        self.temperature.max
    }

    pub(super) fn coldest(&self) -> f64 {
        self.temperature.min
    }

    pub(super) fn power(&self) -> &Track {
        &self.power
    }

    pub(super) fn milliwatts(&self) -> f64 {
        self.power.now
    }

    pub(super) fn utilization(&self) -> &Track {
        &self.utilization
    }

    /// Returns the rates of copies in MB/s, towards the host and towards the device.
    pub(super) fn copies(&self) -> [&Track; 2] {
        self.copies.each_ref().map(|copies| &copies.rate)
    }

    pub(super) fn clock(&self) -> &Track {
        &self.clock_mhz
    }

    /// Returns the present clock of the minions in MHz.
    pub(super) fn mhz(&self) -> f64 {
        self.clock_mhz.now
    }

    pub(super) fn set_clock(&mut self, mhz: u16) {
        self.set_mhz = f64::from(mhz);
        self.is_news = true;
    }

    pub(super) fn set_threshold(&mut self, celsius: u8) {
        self.threshold_c = celsius;
        self.is_news = true;
    }

    /// Switches power management: the state of a card that works says so.
    pub(super) fn set_managed(&mut self, is_managed: bool) {
        self.is_managed = is_managed;
        self.is_news = true;
    }

    /// Statistics of a processor begin anew.
    pub(super) fn forget(&mut self, of: StatsKind) {
        let Self { temperature, power, clock_mhz, utilization, copies, .. } = self;
        let [to_host, to_device] = copies;
        let tracks: &mut [&mut Track] = match of {
            StatsKind::Sp => &mut [temperature, power, clock_mhz],
            _ => &mut [utilization, &mut to_host.rate, &mut to_device.rate],
        };
        for track in tracks {
            **track = Track::new(track.now);
        }
    }

    /// Returns `true` if something has changed since the last look.
    pub(super) fn has_news(&self, load: Load) -> bool {
        load != self.load || self.is_news || self.is_due()
    }

    /// Returns `true` if the model may be about to cross a threshold. A clock is read only then.
    fn is_due(&self) -> bool {
        self.crossing().is_some_and(|after| self.at.elapsed() >= after)
    }

    /// Returns how long nothing happens by itself.
    pub(super) fn next_look(&self, now: Instant) -> Option<Duration> {
        let after = self.crossing()?;
        Some(after.saturating_sub(now.saturating_duration_since(self.at)))
    }

    fn is_throttled(&self) -> bool {
        self.throttle.current() == state::THROTTLE_DOWN
    }

    fn target_mw(&self) -> f64 {
        let above = (self.tdp_mw - self.idle_mw).max(0.0);
        match self.load {
            Load::Idle => self.idle_mw,
            Load::Busy if self.is_throttled() => self.idle_mw + above * THROTTLED_POWER,
            Load::Busy => self.idle_mw + above,
        }
    }

    fn target_c(&self) -> f64 {
        self.idle_c + (self.target_mw() - self.idle_mw) / 1000.0 * DEGREES_PER_WATT
    }

    /// The temperature at which the throttle changes.
    fn limit_c(&self) -> f64 {
        let threshold = f64::from(self.threshold_c);
        if self.is_throttled() { threshold - HYSTERESIS } else { threshold }
    }

    /// Time from the last look until the limit is reached, if it ever is.
    fn crossing(&self) -> Option<Duration> {
        let (now, target, limit) = (self.celsius(), self.target_c(), self.limit_c());
        let crosses = if self.is_throttled() { target < limit } else { target > limit };
        if !crosses {
            return None;
        }
        let part = (target - now) / (target - limit);
        if part <= 1.0 {
            return Some(Duration::ZERO);
        }
        Some(self.heat.mul_f64(part.ln()))
    }

    /// So many bytes were copied until now, towards the host and towards the device.
    pub(super) fn copied(&mut self, now: Instant, bytes: [u64; 2]) {
        for (copies, bytes) in self.copies.iter_mut().zip(bytes) {
            copies.count(now, bytes);
        }
    }

    /// Moves the model on; returns the events of it.
    pub(super) fn update(&mut self, now: Instant, load: Load) -> Vec<Event> {
        self.is_news = false;
        let passed = now.saturating_duration_since(self.at);
        let seconds = passed.as_secs_f64();
        // Until now it was as before.
        let rest =
            if self.heat.is_zero() { 0.0 } else { (-seconds / self.heat.as_secs_f64()).exp() };
        let target = self.target_c();
        let celsius = target + (self.celsius() - target) * rest;
        self.temperature.pass(seconds, celsius);
        self.at = now;
        self.load = load;
        let state = match load {
            Load::Idle => state::LOW_POWER,
            Load::Busy if self.is_managed => state::MANAGED_POWER,
            Load::Busy => state::MAX_POWER,
        };
        if state != self.power_states.current() {
            self.power_states.enter(state, now);
        }
        let events = self.judge(now);
        let busy = if load == Load::Busy { 100.0 } else { 0.0 };
        let factor = if self.is_throttled() { 0.5 } else { 1.0 };
        self.power.step(seconds, self.target_mw());
        self.utilization.step(seconds, busy);
        self.clock_mhz.step(seconds, self.set_mhz * factor);
        events
    }

    /// Throttles, or stops to.
    fn judge(&mut self, now: Instant) -> Vec<Event> {
        // The model stops at the limit to the last digit.
        const NEAR: f64 = 1e-6;
        let (celsius, limit) = (self.celsius(), self.limit_c());
        if !self.is_throttled() && celsius > limit - NEAR {
            self.throttle.enter(state::THROTTLE_DOWN, now);
            self.throttles += 1;
            let syndromes = [u64::from(whole16(celsius)), 0];
            return vec![event(
                EventId::ThermalLow,
                EventClass::Warning,
                self.throttles,
                syndromes,
            )];
        }
        if self.is_throttled() && celsius < limit + NEAR {
            let stay = self.throttle.enter(state::THROTTLE_IDLE, now);
            let micros = u64::try_from(stay.as_micros()).unwrap_or(u64::MAX).min(0xffff_ffff);
            return vec![event(
                EventId::ThrottleTime,
                EventClass::Warning,
                self.throttles,
                [micros, 0],
            )];
        }
        Vec::new()
    }
}

/// Rounds to a number of the wire.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(super) fn whole16(value: f64) -> u16 {
    value.round() as u16
}

#[cfg(test)]
mod tests {
    use et_devapi::msg::mgmt::EventDetail;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn health() -> (Health, Instant) {
        let now = Instant::now();
        let config = BoardConfig { temperature_c: 40, heat: SECOND, ..BoardConfig::default() };
        (Health::new(&config, now), now)
    }

    #[test]
    fn temperature_and_power_follow_the_load() {
        let (mut health, start) = health();
        assert!(!health.has_news(Load::Idle));
        assert!(health.has_news(Load::Busy));
        health.update(start, Load::Busy);
        assert!((health.milliwatts() - 25_000.0).abs() < 1.0);
        // 17 W above an idle card lead to 25.5 °C more; after a second it is two thirds of that.
        health.update(start + SECOND, Load::Busy);
        let expected = 40.0 + 25.5 * (1.0 - (-1.0_f64).exp());
        assert!((health.celsius() - expected).abs() < 1e-6, "{}", health.celsius());
        health.update(start + 30 * SECOND, Load::Idle);
        assert!((health.celsius() - 65.5).abs() < 1e-3);
        health.update(start + 60 * SECOND, Load::Idle);
        assert!((health.celsius() - 40.0).abs() < 1e-3, "it is cold again");
        assert!((health.hottest() - 65.5).abs() < 1e-3, "and remembers");
        assert_eq!(health.power().narrow().max.get(), 25_000);
        let utilization = health.utilization().wide();
        assert_eq!((utilization.avg.get(), utilization.max.get()), (50, 100));
        health.forget(StatsKind::Sp);
        assert!(health.hottest() < 41.0);
        assert_eq!(health.utilization().wide().max.get(), 100, "that is of the other processor");
        health.forget(StatsKind::Mm);
        assert_eq!(health.utilization().wide().max.get(), 0);
    }

    #[test]
    fn a_hot_card_halves_its_clock_and_counts_the_time() {
        let (mut health, start) = health();
        health.set_threshold(60);
        assert_eq!(health.update(start, Load::Busy), []);
        let after = health.next_look(start).unwrap();
        let crossing = start + after;
        assert_eq!(health.update(crossing - SECOND / 1000, Load::Busy), []);
        let events = health.update(crossing, Load::Busy);
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].id, events[0].syndromes[0]), (EventId::ThermalLow, 60));
        assert!((health.mhz() - 300.0).abs() < 1e-9);
        // Half of the power leads to 52.75 °C, which is below the threshold.
        let cool = health.next_look(crossing).unwrap();
        let events = health.update(crossing + cool, Load::Busy);
        let micros = u32::try_from(cool.as_micros()).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].detail(), EventDetail::Throttled { time_us: micros });
        assert!((health.mhz() - 600.0).abs() < 1e-9);
        let now = crossing + cool;
        let down = health.throttle.residency(2, now).unwrap();
        assert_eq!((down.cumulative.get(), down.maximum.get()), (micros.into(), micros.into()));
        let idle = health.throttle.residency(0, now).unwrap();
        assert_eq!(idle.maximum.get(), u64::try_from(after.as_micros()).unwrap());
        assert_eq!(health.throttle.residency(4, now), None);
    }

    #[test]
    fn an_idle_card_needs_no_look() {
        let (mut health, start) = health();
        assert_eq!(health.next_look(start), None);
        health.set_threshold(30);
        assert!(health.has_news(Load::Idle));
        assert_eq!(health.update(start, Load::Idle)[0].id, EventId::ThermalLow);
        assert_eq!(health.next_look(start), None, "it never gets colder than 28 °C");
    }

    #[test]
    fn power_states_are_timed() {
        let (mut health, start) = health();
        health.update(start + SECOND, Load::Busy);
        health.update(start + 3 * SECOND, Load::Idle);
        health.update(start + 4 * SECOND, Load::Busy);
        health.update(start + 8 * SECOND, Load::Idle);
        let busy = health.power_states.residency(0, start + 9 * SECOND).unwrap();
        let micros = [busy.cumulative, busy.average, busy.maximum, busy.minimum].map(|x| x.get());
        assert_eq!(micros, [6_000_000, 3_000_000, 4_000_000, 2_000_000]);
        let idle = health.power_states.residency(3, start + 9 * SECOND).unwrap();
        assert_eq!(idle.cumulative.get(), 3_000_000, "the present stay counts");
        // Managed, and while it works no longer.
        health.set_managed(true);
        assert!(health.has_news(Load::Idle));
        health.update(start + 9 * SECOND, Load::Idle);
        assert_eq!(health.power_states.current(), state::LOW_POWER);
        health.update(start + 10 * SECOND, Load::Busy);
        assert_eq!(health.power_states.current(), state::MANAGED_POWER);
        health.set_managed(false);
        health.update(start + 12 * SECOND, Load::Busy);
        assert_eq!(health.power_states.current(), state::MAX_POWER);
        let managed = health.power_states.residency(1, start + 13 * SECOND).unwrap();
        assert_eq!(managed.cumulative.get(), 2_000_000);
    }

    #[test]
    fn copies_have_the_rate_of_all_the_time_and_the_highest_between_two_looks() {
        let (mut health, start) = health();
        let after = |millis| start + Duration::from_millis(millis);
        health.copied(after(500), [1_000_000, 50_000_000]);
        // Too soon for a rate; it is part of the next one.
        health.copied(after(501), [2_000_000, 50_000_000]);
        health.copied(after(1000), [4_000_000, 50_000_000]);
        let rates = |health: &Health| {
            health.copies().map(|track| {
                let rates = track.wide();
                (rates.avg.get(), rates.min.get(), rates.max.get())
            })
        };
        assert_eq!(rates(&health), [(4, 0, 6), (50, 0, 100)]);
        // The master minion was reset.
        health.copied(after(2000), [2_000_000, 0]);
        assert_eq!(rates(&health), [(3, 0, 6), (25, 0, 100)]);
        health.forget(StatsKind::Mm);
        health.copied(after(3000), [9_000_000, 0]);
        assert_eq!(rates(&health), [(7, 2, 7), (0, 0, 0)]);
    }
}
