//! `et top`: what a card does now, on a terminal or as JSON lines.

mod draw;
mod model;
mod sample;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};

use self::draw::View;
use self::model::Model;
use self::sample::{DeviceSource, Look, Source};
use crate::manage::seconds;
use crate::output::{self, Format};

/// How long a key may wait at most.
const STEP: Duration = Duration::from_millis(50);
/// Between two pictures if nothing has happened: ages count on.
const REDRAW: Duration = Duration::from_secs(1);
/// Shortest and longest time between two looks that keys lead to.
const INTERVALS: [f64; 2] = [0.1, 60.0];

/// Options of `top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Looks; for ever if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

pub(crate) fn run(locator: &str, args: &Args, format: Format) -> anyhow::Result<()> {
    let source = DeviceSource::new(locator).with_context(|| format!("opening {locator}"))?;
    let interval = Duration::from_secs_f64(args.interval);
    let model = Model::new(locator);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle signals")?;
    }
    if format == Format::Json {
        return lines(source, model, interval, args.count, &stop);
    }
    ensure!(
        std::io::stdout().is_terminal(),
        "et top draws on a terminal; et top --json writes a line for each look"
    );
    let looks = Looks::start(source)?;
    // From here on the terminal is restored by whatever ends this: return, error or panic.
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let mut screen = Screen {
        model,
        looks,
        started: Instant::now(),
        view: View {
            look: draw::Look { colours: std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) },
            interval,
            is_paused: false,
        },
        left: args.count,
    };
    let outcome = screen.run(&mut terminal, &stop);
    ratatui::restore();
    outcome
}

/// Writes one object for each look.
fn lines(
    mut source: impl Source,
    mut model: Model,
    interval: Duration,
    count: Option<u64>,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut left = count;
    while left != Some(0) && !stop.load(Ordering::Relaxed) {
        let next = Instant::now() + interval;
        let look = source.look();
        let now = started.elapsed();
        model.add(now, look);
        println!("{}", model.document(now));
        if output::has_ended() {
            break;
        }
        left = left.map(|left| left - 1);
        while left != Some(0) && !stop.load(Ordering::Relaxed) && Instant::now() < next {
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()).min(STEP));
        }
    }
    Ok(())
}

/// Looks, made by a thread of their own: a device that does not answer must not hold up the keys.
struct Looks {
    wanted: Sender<()>,
    made: Receiver<Look>,
    is_wanted: bool,
}

impl Looks {
    fn start(mut source: impl Source + Send + 'static) -> anyhow::Result<Self> {
        let (wanted, orders) = channel();
        let (results, made) = channel();
        let work = move || {
            while orders.recv().is_ok() && results.send(source.look()).is_ok() {}
        };
        std::thread::Builder::new().name("looks".into()).spawn(work)?;
        Ok(Self { wanted, made, is_wanted: false })
    }

    /// Asks for one, unless one is being made.
    fn ask(&mut self) -> bool {
        let asked = !self.is_wanted && self.wanted.send(()).is_ok();
        self.is_wanted |= asked;
        asked
    }

    fn take(&mut self) -> anyhow::Result<Option<Look>> {
        match self.made.recv_timeout(Duration::ZERO) {
            Ok(look) => {
                self.is_wanted = false;
                Ok(Some(look))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the thread that looks has ended"),
        }
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Pause,
    Slower,
    Faster,
    Redraw,
}

fn wish(event: &Event) -> Option<Wish> {
    let key = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        Event::Resize(..) => return Some(Wish::Redraw),
        _ => return None,
    };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if is_control => Some(Wish::Quit),
        KeyCode::Char('l') if is_control => Some(Wish::Redraw),
        _ if is_control => None,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char(' ' | 'p') => Some(Wish::Pause),
        KeyCode::Char('+') => Some(Wish::Slower),
        KeyCode::Char('-') => Some(Wish::Faster),
        _ => None,
    }
}

struct Screen {
    model: Model,
    looks: Looks,
    started: Instant,
    view: View,
    left: Option<u64>,
}

impl Screen {
    fn run(&mut self, terminal: &mut DefaultTerminal, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut next_look = Instant::now();
        let mut next_picture = next_look;
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= next_look && !self.view.is_paused && self.looks.ask() {
                next_look = now + self.view.interval;
            }
            if let Some(look) = self.looks.take()? {
                self.model.add(self.started.elapsed(), look);
                next_picture = now;
                self.left = self.left.map(|left| left.saturating_sub(1));
            }
            if now >= next_picture {
                terminal.draw(|frame| self.draw(frame)).context("cannot draw")?;
                next_picture = now + REDRAW;
            }
            if self.left == Some(0) {
                return Ok(());
            }
            if !event::poll(STEP).context("cannot read keys")? {
                continue;
            }
            next_picture = Instant::now();
            match wish(&event::read().context("cannot read keys")?) {
                Some(Wish::Quit) => return Ok(()),
                Some(Wish::Pause) => self.view.is_paused = !self.view.is_paused,
                Some(Wish::Slower) => self.pace(2.0),
                Some(Wish::Faster) => self.pace(0.5),
                Some(Wish::Redraw) => terminal.clear().context("cannot draw")?,
                None => {}
            }
        }
        Ok(())
    }

    fn pace(&mut self, factor: f64) {
        let [least, most] = INTERVALS;
        let seconds = (self.view.interval.as_secs_f64() * factor).clamp(least, most);
        self.view.interval = Duration::from_secs_f64(seconds);
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        draw::draw(frame, &self.model, self.started.elapsed(), &self.view);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys_that_people_press_to_leave_do() {
        let key = |code, modifiers| wish(&Event::Key(KeyEvent::new(code, modifiers)));
        for (code, modifiers) in [
            (KeyCode::Char('q'), KeyModifiers::NONE),
            (KeyCode::Esc, KeyModifiers::NONE),
            (KeyCode::Char('c'), KeyModifiers::CONTROL),
        ] {
            assert_eq!(key(code, modifiers), Some(Wish::Quit), "{code:?}");
        }
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Char(' '), KeyModifiers::NONE), Some(Wish::Pause));
    }
}
