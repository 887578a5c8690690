//! Draws the model, from 80 × 24 on; what does not fit is cut from the end.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Sparkline, Wrap};

use super::model::{Model, Rates};
use super::sample::Sample;
use crate::output;

/// How things are drawn: with colours, unless the user wants none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) colours: bool,
}

impl Look {
    fn color(self, color: Color) -> Style {
        if self.colours { Style::new().fg(color) } else { Style::new() }
    }

    /// Bad things stand out without colours too.
    fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn soft(self) -> Style {
        self.color(Color::DarkGray)
    }

    /// For a value that should stay below all of its range.
    fn level(self, percent: u64) -> Style {
        match percent {
            0..70 => self.color(Color::Green),
            70..90 => self.color(Color::Yellow),
            _ => self.bad(),
        }
    }
}

/// What the user has set.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) look: Look,
    pub(super) interval: Duration,
    pub(super) is_paused: bool,
}

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, now: Duration, view: &View) {
    // Processes and events share what is left, the processes first.
    let program = model.sample.as_ref().is_some_and(|(_, sample)| sample.activity.is_some());
    let processes = u16::try_from(model.usage.len().clamp(1, 5)).unwrap_or(5) + 3;
    let processes = processes + u16::from(program);
    // The shires have a line of their own, if there is something to tell of them.
    let rows = [1, 6 + u16::from(model.rates.is_some()), 6, processes];
    let [head, meters, middle, holders, events, foot] = Layout::vertical([
        Constraint::Length(rows[0]),
        Constraint::Length(rows[1]),
        Constraint::Length(rows[2]),
        Constraint::Length(rows[3]),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, model, view);
    if model.sample.is_none() {
        let rest = Rect { height: meters.height + middle.height, ..meters };
        draw_nothing(frame, rest, model, view.look);
    } else {
        draw_meters(frame, meters, model, now, view.look);
    }
    let [errors, rates] =
        Layout::horizontal([Constraint::Length(38), Constraint::Min(30)]).areas(middle);
    if let Some((_, sample)) = &model.sample {
        draw_errors(frame, errors, model, sample, view.look);
        draw_rates(frame, rates, model, sample, view.look);
    }
    draw_processes(frame, holders, model, view.look);
    draw_events(frame, events, model, now, view.look);
    let keys = " q quit   space pause   + slower   - faster ";
    frame.render_widget(Paragraph::new(keys).style(view.look.soft()), foot);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &View) {
    let state = match (&model.trouble, view.is_paused, model.looks) {
        (_, true, _) => "paused".to_owned(),
        (_, _, 0) => "opening".to_owned(),
        (Some(_), ..) => "no answer".to_owned(),
        _ => format!("every {} s", view.interval.as_secs_f64()),
    };
    let sample = model.sample.as_ref().map(|(_, sample)| sample);
    let card = sample.map_or(String::new(), |sample| {
        let minutes = sample.uptime.as_secs() / 60;
        let up = format!("up {} h {:02} min", minutes / 60, minutes % 60);
        format!("  {}  firmware {}  {up}", sample.serial, sample.firmware)
    });
    let bar = Style::new().add_modifier(Modifier::REVERSED);
    // The card says more than the end of a long name.
    let room =
        usize::from(area.width).saturating_sub(card.chars().count() + state.chars().count() + 4);
    let device = match model.device.char_indices().nth(room.max(12)) {
        Some((end, _)) => format!("{}…", &model.device[..end]),
        None => model.device.clone(),
    };
    frame.render_widget(Paragraph::new(format!(" {device}{card}")).style(bar), area);
    let width = u16::try_from(state.chars().count() + 2).unwrap_or(area.width).min(area.width);
    let right = Rect { x: area.right() - width, width, ..area };
    frame.render_widget(Paragraph::new(format!(" {state} ")).style(bar), right);
}

/// The place of the values as long as there are none: why.
fn draw_nothing(frame: &mut Frame<'_>, area: Rect, model: &Model, look: Look) {
    let lines: Vec<_> = match &model.trouble {
        Some(why) => why.lines().map(|line| Line::styled(line, look.bad())).collect(),
        None => vec![Line::styled("waiting for the service processor", look.soft())],
    };
    let block = Block::bordered().title(" card ").border_style(look.soft());
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn draw_meters(frame: &mut Frame<'_>, area: Rect, model: &Model, now: Duration, look: Look) {
    let mut block = Block::bordered().title(" card ").border_style(look.soft());
    if let Some(age) = model.age(now) {
        let title = format!(" as of {} s ago ", age.as_secs());
        block = block.title(Line::styled(title, look.bad()).right_aligned());
    }
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let Some((_, sample)) = &model.sample else { return };
    let Sample { tdp_watts, power_mw, threshold_c, minions_c, .. } = *sample;
    let tdp = u64::from(tdp_watts) * 1000;
    let degrees = u64::try_from(minions_c).unwrap_or(0);
    let average = model.compute_percent(sample);
    let compute = match (sample.compute, &model.rates) {
        (Some([_, least, greatest]), None) => format!("{average} %  ({least} to {greatest})"),
        _ => format!("{average} %"),
    };
    let memory = match sample.activity.as_ref().map(|activity| activity.memory_bytes) {
        Some(all) if all != 0 => format!("{} % of {}", sample.memory_percent, output::bytes(all)),
        _ => format!("{} %", sample.memory_percent),
    };
    let history = &model.history;
    let rows: [(&str, u64, u64, String, &VecDeque<u64>); 4] = [
        ("compute", average, 100, compute, &history.compute),
        ("memory", sample.memory_percent.into(), 100, memory, &history.memory),
        (
            "power",
            power_mw.into(),
            tdp,
            format!("{:.1} of {tdp_watts} W", f64::from(power_mw) / 1000.0),
            &history.power,
        ),
        (
            "minions",
            degrees,
            threshold_c.into(),
            format!("{minions_c} °C, limit {threshold_c}"),
            &history.temperature,
        ),
    ];
    if let Some(rates) = &model.rates {
        let row = Rect { y: inner.bottom().saturating_sub(1), height: 1, ..inner };
        draw_shires(frame, row.intersection(inner), rates, look);
    }
    for ((name, value, most, text, history), y) in rows.into_iter().zip(inner.y..inner.bottom()) {
        let row = Rect { y, height: 1, ..inner };
        let [label, bar, words, past] = Layout::horizontal([
            Constraint::Length(9),
            Constraint::Length(22),
            Constraint::Length(20),
            Constraint::Min(10),
        ])
        .areas(row);
        // Compute and memory may be full; power and heat had better not be.
        let percent = value.saturating_mul(100).checked_div(most).unwrap_or(0);
        let style = match name {
            "compute" => look.color(Color::Cyan),
            _ => look.level(percent),
        };
        frame.render_widget(Paragraph::new(name), label);
        frame.render_widget(Paragraph::new(meter(percent, 20)).style(style), bar);
        frame.render_widget(Paragraph::new(text), words);
        let shown = history.iter().skip(history.len().saturating_sub(past.width.into()));
        let shown: Vec<u64> = shown.copied().collect();
        frame.render_widget(Sparkline::default().data(&shown).max(most.max(1)).style(style), past);
    }
}

/// A column for each shire, as high as it is busy.
fn draw_shires(frame: &mut Frame<'_>, area: Rect, rates: &Rates, look: Look) {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let columns = rates.shires.iter().map(|(_, percent)| match percent {
        0 => '·',
        busy => HEIGHTS[usize::try_from((busy * 8).div_ceil(100)).unwrap_or(8).clamp(1, 8) - 1],
    });
    let busy = rates.shires.iter().filter(|(_, percent)| *percent != 0).count();
    let line = Line::from(vec![
        Span::raw(format!("{:<9}", "shires")),
        Span::styled(columns.collect::<String>(), look.color(Color::Cyan)),
        Span::raw(format!(
            "  {busy} of {} busy, {:.0} kernels/s",
            rates.shires.len(),
            rates.launches_per_s
        )),
    ]);
    frame.render_widget(Paragraph::new(line), area);
}

/// A bar of so many columns, to an eighth of one.
fn meter(percent: u64, columns: u64) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = percent.min(100) * columns * 8 / 100;
    let mut text: String =
        std::iter::repeat_n('█', usize::try_from(eighths / 8).unwrap_or(0)).collect();
    if eighths < columns * 8 {
        text.push(PARTS[usize::try_from(eighths % 8).unwrap_or(0)]);
        let rest = columns - eighths / 8 - 1;
        text.extend(std::iter::repeat_n('·', usize::try_from(rest).unwrap_or(0)));
    }
    text
}

fn draw_errors(frame: &mut Frame<'_>, area: Rect, model: &Model, sample: &Sample, look: Look) {
    let rate = model.errors_per_minute.filter(|rate| *rate > 0.0);
    let mut block = Block::bordered().title(" errors ").border_style(look.soft());
    if let Some(rate) = rate {
        block =
            block.title(Line::styled(format!(" {rate:.1} a minute "), look.bad()).right_aligned());
    }
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let lines = sample.errors.rows().map(|(name, minor, major)| {
        let [less, more] = match name {
            "firmware" => ["exceptions", "hangs"],
            _ => ["corrected", "uncorrectable"],
        };
        let major_style = if major == 0 { Style::new() } else { look.bad() };
        let minor_style = if minor == 0 { Style::new() } else { look.color(Color::Yellow) };
        Line::from(vec![
            Span::raw(format!("{name} ")),
            Span::styled(format!("{minor} {less}"), minor_style),
            Span::raw(", "),
            Span::styled(format!("{major} {more}"), major_style),
        ])
    });
    frame.render_widget(Paragraph::new(lines.to_vec()), inner);
}

fn draw_rates(frame: &mut Frame<'_>, area: Rect, model: &Model, sample: &Sample, look: Look) {
    let block = Block::bordered().title(" traffic ").border_style(look.soft());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let throttled = match model.throttled_percent {
        Some(percent) if percent > 0.0 => {
            Span::styled(format!(", throttled {percent:.0} %"), look.bad())
        }
        _ => Span::raw(""),
    };
    let queue = sample.counters;
    let lost =
        if queue.lost + queue.full_queues + queue.stray == 0 { Style::new() } else { look.bad() };
    let copies = match &model.rates {
        Some(now) => {
            [now.to_device_mb_per_s, now.to_host_mb_per_s].map(|rate| format!("{rate:.0}"))
        }
        None => [sample.copies_in, sample.copies_out].map(|rate| rate.to_string()),
    };
    let lines = vec![
        Line::raw(format!("copies   {} MB/s in, {} MB/s out", copies[0], copies[1])),
        Line::raw(format!(
            "DRAM     {} reads/s, {} writes/s",
            sample.reads_per_s, sample.writes_per_s
        )),
        Line::from(vec![
            Span::raw(format!("clock    {} MHz, {}", sample.minion_mhz, sample.power_state)),
            throttled,
        ]),
        Line::from(vec![
            Span::raw(format!("events   {}, ", queue.events)),
            Span::styled(format!("{} lost, {} × full", queue.lost, queue.full_queues), lost),
        ]),
    ];
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_processes(frame: &mut Frame<'_>, area: Rect, model: &Model, look: Look) {
    let mut block = Block::bordered().title(" processes with the card ").border_style(look.soft());
    if let Some(link) = &model.host.link {
        block = block.title(Line::raw(format!(" {link} ")).right_aligned());
    }
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let head = format!("{:>8}  {:>6}  {:>10}  {:>7}  command", "pid", "cpu", "memory", "threads");
    let mut lines = vec![Line::styled(head, look.soft())];
    lines.extend(model.usage.iter().map(|usage| {
        let cpu = usage.cpu_percent.map_or("–".to_owned(), |percent| format!("{percent:.0} %"));
        let process = &usage.process;
        let memory = output::bytes(process.memory_bytes);
        Line::raw(format!(
            "{:>8}  {cpu:>6}  {memory:>10}  {:>7}  {}",
            process.pid, process.threads, process.command
        ))
    }));
    if let Some(activity) = model.sample.as_ref().and_then(|(_, sample)| sample.activity) {
        let rate = model.rates.as_ref().map(|rates| format!("{:.0}", rates.operations_per_s));
        lines.push(Line::raw(format!(
            "{:>8}  {} ops/s, {} queued, {} sent; {} in {} buffers",
            "program",
            rate.as_deref().unwrap_or("–"),
            activity.pending,
            activity.in_flight,
            output::bytes(activity.memory_used_bytes),
            activity.buffers,
        )));
    }
    if model.usage.is_empty() && model.looks != 0 {
        let text = match model.host.unseen {
            0 => "none that this host knows of".to_owned(),
            1 => "1 process may not be looked at; root sees it".to_owned(),
            count => format!("{count} processes may not be looked at; root sees them"),
        };
        lines.push(Line::styled(text, look.soft()));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, model: &Model, now: Duration, look: Look) {
    let block = Block::bordered().title(" events ").border_style(look.soft());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let mut lines = Vec::new();
    // With an old answer above, this is the place for why.
    if let (Some(why), true) = (&model.trouble, model.sample.is_some()) {
        lines.push(Line::styled(why.lines().next().unwrap_or_default(), look.bad()));
    }
    lines.extend(model.events.iter().rev().take(inner.height.into()).map(|(at, event)| {
        let style = if event.is_bad { look.color(Color::Yellow) } else { Style::new() };
        let ago = now.saturating_sub(*at).as_secs();
        Line::from(vec![
            Span::styled(format!("{ago:>5} s ago  "), look.soft()),
            Span::styled(event.text.clone(), style),
        ])
    }));
    if lines.is_empty() {
        lines.push(Line::styled("none", look.soft()));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

#[cfg(test)]
mod tests {
    use et::Activity;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::sample::{self, CardNews, Errors, HostView, Process};
    use super::*;

    fn screen(model: &Model, width: u16, height: u16) -> Vec<String> {
        let view = View {
            look: Look { colours: true },
            interval: Duration::from_secs(1),
            is_paused: false,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, Duration::from_secs(9), &view)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    fn model() -> Model {
        let mut model = Model::new("vfio:0000:01:00.0");
        let sample = Sample {
            serial: "A-7".into(),
            firmware: "1.5.0".into(),
            compute: Some([38, 2, 97]),
            memory_percent: 50,
            power_mw: 26_500,
            tdp_watts: 27,
            minions_c: 44,
            threshold_c: 90,
            errors: Errors { dram: (3, 1), ..Errors::default() },
            events: vec![CardNews { text: "DRAM, corrected".into(), is_bad: true }],
            ..Sample::default()
        };
        let process = Process {
            pid: 4242,
            command: "python train.py ".repeat(20),
            memory_bytes: 3 << 30,
            ..Process::default()
        };
        let host = HostView { processes: vec![process], ..HostView::default() };
        model.add(Duration::from_secs(9), sample::Look { sample: Ok(sample), host });
        model
    }

    #[test]
    fn all_that_matters_is_on_80_columns_and_24_lines() {
        let screen = screen(&model(), 80, 24);
        let all = screen.join("\n");
        for part in [
            "vfio:0000:01:00.0  A-7  firmware 1.5.0",
            "every 1 s",
            "38 %  (2 to 97)",
            "26.5 of 27 W",
            "44 °C, limit 90",
            "3 corrected, 1 uncorrectable",
            "0 MB/s in, 0 MB/s out",
            "4242",
            "3 GiB",
            "python train.py",
            "DRAM, corrected",
            "q quit",
        ] {
            assert!(all.contains(part), "{part} is not in\n{all}");
        }
        assert!(screen[23].starts_with(" q quit"), "{all}");
    }

    #[test]
    fn what_the_program_does_has_a_line_with_its_process() {
        let mut model = model();
        assert!(!screen(&model, 80, 24).join("\n").contains("program"));
        let mut activity = Activity::default();
        (activity.accepted, activity.pending, activity.in_flight) = (1000, 12, 5);
        (activity.memory_used_bytes, activity.buffers) = (3 << 29, 34);
        activity.memory_bytes = 32 << 30;
        (activity.available_shires, activity.launched_shires) = (0b11_0101, 0b100);
        for (second, accepted) in [(10, 0), (12, 2000)] {
            activity.accepted += accepted;
            activity.launches += accepted / 4;
            activity.to_device_bytes += 3000 * accepted;
            activity.busy_cycles[0] += 300_000 * accepted;
            let activity = Some(activity);
            let sample =
                Sample { activity, memory_percent: 5, minion_mhz: 600, ..Sample::default() };
            let host = model.host.clone();
            model.add(Duration::from_secs(second), sample::Look { sample: Ok(sample), host });
        }
        let screen = screen(&model, 80, 24);
        let line = "program  1000 ops/s, 12 queued, 5 sent; 1.50 GiB in 34 buffers";
        assert!(screen[16].contains("4242") && screen[17].contains(line), "{}", screen.join("\n"));
        assert!(screen[3].contains("5 % of 32 GiB"), "{}", screen.join("\n"));
        // One shire ran kernels for half of the time, and another has one that goes on.
        let compute = "compute  ███████▍";
        assert!(screen[2].contains(compute) && screen[2].contains("37 %"), "{}", screen.join("\n"));
        assert!(screen[6].contains("▄█··  2 of 4 busy, 250 kernels/s"), "{}", screen.join("\n"));
        assert!(screen[9].contains("3 MB/s in, 0 MB/s out"), "{}", screen.join("\n"));
        assert!(screen[23].starts_with(" q quit"), "{}", screen.join("\n"));
    }

    #[test]
    fn a_program_that_does_much_has_room_for_all_of_it() {
        let mut model = model();
        let mut activity = Activity::default();
        (activity.pending, activity.in_flight) = (4096, 4096);
        (activity.memory_used_bytes, activity.buffers) = (16_100 << 20, 12_345);
        activity.available_shires = u32::MAX.into();
        for second in 10..12 {
            activity.accepted += 1_600_000;
            activity.launches += 1_600_000;
            activity.busy_cycles = activity.busy_cycles.map(|cycles| cycles + 600_000_000);
            let activity = Some(activity);
            let sample = Sample { activity, minion_mhz: 600, ..Sample::default() };
            let host = HostView::default();
            model.add(Duration::from_secs(second), sample::Look { sample: Ok(sample), host });
        }
        let all = screen(&model, 80, 24).join("\n");
        let shires = format!("shires   {}  32 of 32 busy, 1600000 kernels/s", "█".repeat(32));
        let program = "program  1600000 ops/s, 4096 queued, 4096 sent; 15.72 GiB in 12345 buffers";
        assert!(all.contains(&shires) && all.contains(program), "{all}");
    }

    #[test]
    fn a_long_name_leaves_room_for_what_the_card_says() {
        let mut model = model();
        model.device = format!("sim:{}", "x".repeat(100));
        let head = &screen(&model, 80, 24)[0];
        assert!(head.contains("…  A-7  firmware 1.5.0  up 0 h 00 min"), "{head}");
        assert!(head.contains("every 1 s"), "{head}");
    }

    #[test]
    fn meters_are_as_long_as_their_values() {
        assert_eq!(meter(0, 4), " ···");
        assert_eq!(meter(50, 4), "██ ·");
        assert_eq!(meter(54, 4), "██▏·");
        assert_eq!(meter(100, 4), "████");
        assert_eq!(meter(900, 4), "████");
    }

    #[test]
    fn any_size_is_drawn_without_a_panic() {
        let mut gone = model();
        let look =
            sample::Look { sample: Err("in use by process 9".into()), host: HostView::default() };
        gone.add(Duration::from_secs(9), look);
        for (width, height) in [(1, 1), (10, 5), (40, 12), (80, 24), (300, 100)] {
            screen(&model(), width, height);
            screen(&Model::new("sim:"), width, height);
            screen(&gone, width, height);
        }
        assert!(screen(&gone, 80, 24).join("\n").contains("in use by process 9"));
        let mut never = Model::new("vfio:0000:01:00.0");
        let look = sample::Look {
            sample: Err("the card cannot be used:\nno function\nno driver".into()),
            host: HostView::default(),
        };
        never.add(Duration::from_secs(9), look);
        let screen = screen(&never, 80, 24);
        assert!(
            screen[2].contains("the card cannot") && screen[4].contains("no driver"),
            "{screen:?}"
        );
    }
}
