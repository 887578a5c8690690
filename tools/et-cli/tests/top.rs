//! `et top`: JSON lines, and the screen as tmux sees it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use assert_cmd::cargo::CommandCargoExt;
use et::{AnyHal, Device, Kernel, Launch};
use serde_json::{Value, json};

const DEVICE: &str =
    "sim:shires=1,dram=256MiB,serial=Z-9,temperature=44,power=6100,tdp=27,fault=ecc:dram:3:1";
/// Long enough for a busy machine; only a hang reaches it.
const LONG: Duration = Duration::from_secs(120);
/// Looks at the screen before a test gives up; each lasts as long as tmux takes to answer.
const LOOKS: usize = 5000;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn et(device: &str, args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("et").unwrap();
    command.args(["--device", device, "top"]).args(args).output().unwrap()
}

#[test]
fn json_has_a_line_for_each_look() {
    let output = et(DEVICE, &["--json", "--count", "3", "--interval", "0.02"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert_eq!(line["state"], "open");
        assert_eq!(line["serial_number"], "Z-9");
        assert_eq!(line["temperature_c"]["minions"], 44);
        assert_eq!(line["power"]["now_mw"], 6100);
        assert_eq!(line["errors"]["dram"]["corrected"], 3);
    }
    assert_eq!(lines[0]["errors"]["per_minute"], Value::Null);
    assert_eq!(lines[2]["errors"]["per_minute"], 0.0);
    let process = &lines[2]["processes"][0];
    assert!(process["pid"].is_u64() && process["memory_bytes"].as_u64().unwrap() > 0, "{process}");
    // What the card has announced is there once.
    let announced = lines.iter().flat_map(|line| line["events"].as_array().unwrap());
    let dram = announced.filter(|event| event.as_str().unwrap().starts_with("DRAM")).count();
    assert_eq!(dram, 2, "{lines:?}");
}

#[test]
fn a_card_that_cannot_be_opened_is_watched_all_the_same() {
    let device = "vfio-user:/nonexistent/et.sock";
    let output = et(device, &["--json", "--count", "2", "--interval", "0.01"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in text(&output.stdout).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["state"], "unavailable");
        assert!(line["why"].as_str().unwrap().contains("et.sock"), "{line}");
    }
    // A name that no device can have is a mistake.
    assert!(!et("nonsense", &["--json"]).status.success());
}

#[test]
fn the_card_of_another_process_is_watched_through_it() {
    let locator = "sim:shires=1,dram=256MiB,temperature=51,serial=T-1";
    let (Watched { device, name }, own) = (Watched::open(locator), std::process::id());
    let looks = |args: &[&str]| -> Vec<Value> {
        let output = et(&name, &[&["--json", "--interval", "0.01"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for line in looks(&["--count", "2"]) {
        assert_eq!((&line["state"], &line["serial_number"]), (&"open".into(), &"T-1".into()));
        assert_eq!(line["temperature_c"]["minions"], 51);
        assert_eq!(line["processes"][0]["pid"], own);
        assert!(line["processes"][0]["command"].as_str().unwrap().contains("top-"), "{line}");
        let program = &line["program"];
        assert_eq!((&program["pending"], &program["in_flight"]), (&0.into(), &0.into()), "{line}");
        assert_eq!(program["memory_used_bytes"], device.activity().memory_used_bytes);
    }
    let run = |words: &[&str]| {
        let mut command = Command::cargo_bin("et").unwrap();
        command.args(["--device", &name]).args(words).output().unwrap()
    };
    let stat = run(&["stat", "--watch", "--count", "2", "--interval", "0.01"]);
    assert!(stat.status.success(), "{}", text(&stat.stderr));
    assert_eq!(text(&stat.stdout).matches("51 °C").count(), 2, "{}", text(&stat.stdout));
    // It is listed, looked at, and nothing else.
    let listed = text(&Command::cargo_bin("et").unwrap().arg("list").output().unwrap().stdout);
    assert!(listed.lines().any(|line| line.starts_with(&name)), "{listed}");
    let refused = run(&["reset", "--operations"]);
    assert!(!refused.status.success());
    let opened = run(&["demo"]);
    assert_eq!(opened.status.code(), Some(5), "{}", text(&opened.stderr));
    assert!(text(&opened.stderr).contains("others can only look at it"));
    drop(device);
    assert_eq!(looks(&["--count", "1"])[0]["state"], "unavailable");
}

/// A program with a card, and another process that looks at it.
struct Watched {
    device: Device<AnyHal>,
    name: String,
}

impl Watched {
    fn open(locator: &str) -> Self {
        let device = et::open(locator).unwrap();
        let own = std::process::id();
        let serial = locator.rsplit_once("serial=").unwrap().1;
        let is_it = |name: &str| {
            let line = text(&et(name, &["--json", "--count", "1"]).stdout);
            line.contains(&format!("\"serial_number\":\"{serial}\""))
        };
        // The process has the devices of other tests, too.
        let mut names = et::share::shared().into_iter().filter(|it| it.pid == own);
        let name = names.find_map(|it| Some(it.to_string()).filter(|name| is_it(name))).unwrap();
        Self { device, name }
    }

    fn kernel(&self, name: &str) -> Kernel {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
        let file = std::fs::read(folder.join(name).with_extension("elf")).unwrap();
        self.device.load_kernel(name, &file).unwrap()
    }

    fn looks(&self, count: &str) -> Vec<Value> {
        let output = et(&self.name, &["--json", "--interval", "0.05", "--count", count]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn number(line: &Value, path: &str) -> f64 {
    line.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {line}"))
}

#[test]
fn queues_cores_and_memory_are_those_of_the_program() {
    const DEEP: u64 = 5;
    let card = Watched::open("sim:shires=2,dram=1GiB,tdp=27,power=6000,serial=Q-1");
    let stream = card.device.default_stream();
    let hang = card.kernel("hang");
    stream.synchronize(LONG).unwrap();
    let idle = card.looks("1").remove(0);
    let before = card.device.activity();
    assert_eq!(number(&idle, "/program/operations"), before.accepted as f64);
    assert_eq!(
        (number(&idle, "/program/pending"), number(&idle, "/memory/used_percent")),
        (0., 0.)
    );
    assert_eq!(
        (&idle["compute_percent"]["greatest"], number(&idle, "/power/now_mw")),
        (&0.into(), 6000.)
    );

    let half = card.device.alloc(before.memory_bytes / 2).unwrap();
    let running = stream.launch(&Launch::new(&hang).shires(0b10)).unwrap();
    let behind: Vec<_> =
        (0..DEEP).map(|_| stream.fill(half.slice(..64).unwrap(), 1).unwrap()).collect();
    let looks = card.looks("4");
    let now = card.device.activity();
    for line in &looks {
        assert_eq!(number(line, "/program/pending"), (1 + DEEP) as f64, "{line}");
        assert!(number(line, "/program/in_flight") >= 1.0, "{line}");
        assert_eq!(number(line, "/program/operations"), now.accepted as f64);
        assert_eq!(number(line, "/program/memory_used_bytes"), now.memory_used_bytes as f64);
        assert_eq!(number(line, "/program/buffers"), now.buffers as f64);
        assert_eq!(number(line, "/memory/used_percent"), 50.0);
        assert_eq!(number(line, "/compute_percent/greatest"), 100.0);
        assert_eq!(number(line, "/power/now_mw"), 27_000.0);
    }
    for line in &looks[1..] {
        let program = &line["program"];
        assert_eq!(program["shires_percent"], json!({ "0": 0, "1": 100 }), "a kernel goes on");
        assert_eq!(
            (&program["compute_percent"], &program["operations_per_s"]),
            (&50.into(), &0.0.into())
        );
    }
    let share = |line| number(line, "/compute_percent/average");
    assert!(share(&looks[0]) <= share(&looks[3]) && share(&looks[3]) > 0.0, "{looks:?}");

    card.device.abort(&running, LONG).unwrap();
    for event in behind {
        event.wait(LONG).unwrap();
    }
    drop(half);
    // The runtime has sent commands of its own after the abort.
    let (since, mut after) = (Instant::now(), card.looks("1").remove(0));
    while number(&after, "/program/in_flight") != 0.0 {
        assert!(since.elapsed() < LONG, "{after}");
        after = card.looks("1").remove(0);
    }
    let calm = ["/program/pending", "/memory/used_percent"];
    assert_eq!(calm.map(|path| number(&after, path)), [0.0; 2], "{after}");
    assert_eq!(number(&after, "/power/now_mw"), 6000.0);
}

#[test]
fn rates_are_those_of_the_copies_and_kernels_of_the_program() {
    const IN: usize = 4 << 20;
    const OUT: usize = 1 << 20;
    let opening = Instant::now();
    let card = Watched::open("sim:shires=2,dram=1GiB,serial=R-2");
    let opened = Instant::now();
    let saxpy = card.kernel("saxpy");
    let (rounds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (first, has_begun) = channel();
    let work = || {
        let stream = card.device.default_stream();
        let buffer = card.device.alloc(IN as u64).unwrap();
        let (full, mut back) = (vec![1.0f32; IN / 4], vec![0.0f32; OUT / 4]);
        let launch = Launch::new(&saxpy).buffer(&buffer).buffer(&buffer).f32(1.0).u64(1000);
        while !is_over.load(Ordering::Relaxed) {
            drop(stream.copy_to_device(&full, &buffer).unwrap());
            drop(stream.launch(&launch).unwrap());
            stream.read(buffer.slice(0..OUT as u64).unwrap(), &mut back, LONG).unwrap();
            assert_eq!((back[0], back[1000]), (2.0, 1.0));
            rounds.fetch_add(1, Ordering::Relaxed);
            let _ = first.send(());
        }
    };
    let megabytes = |bytes| rounds.load(Ordering::Relaxed) as f64 * bytes as f64 / 1e6;
    std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        for _ in 0..20 {
            has_begun.recv_timeout(LONG).unwrap();
        }
        let (operations, least) = (card.device.activity().accepted, megabytes(IN));
        let (start, looks) = (opened.elapsed().as_secs_f64(), card.looks("8"));
        let (end, most) = (opening.elapsed().as_secs_f64(), megabytes(IN) + 2.0 * IN as f64 / 1e6);
        let highest = card.device.activity().accepted;
        is_over.store(true, Ordering::Relaxed);
        worker.join().unwrap();

        let last = &looks[7];
        // Averages from the start of the card on; the firmware rounds.
        let (into, out) =
            (number(last, "/copies_mb_per_s/to_device"), number(last, "/copies_mb_per_s/to_host"));
        assert!(
            (least / end - 1.0..most / start + 1.0).contains(&into),
            "{into}: {least} {most} {start} {end}"
        );
        let part = into / out.max(1.0);
        assert!(into > 0.0 && (3.0..5.0).contains(&part), "{into} in, {out} out");
        assert!(number(last, "/compute_percent/greatest") == 100.0, "{last}");
        let (mut copied, mut launched) = ([0.0; 2], 0.0);
        for pair in looks.windows(2) {
            let ended =
                |line| number(line, "/program/operations") - number(line, "/program/pending");
            let seconds = number(&pair[1], "/seconds") - number(&pair[0], "/seconds");
            let rate = (ended(&pair[1]) - ended(&pair[0])) / seconds;
            let shown = number(&pair[1], "/program/operations_per_s");
            for (sum, side) in copied.iter_mut().zip(["to_device", "to_host"]) {
                *sum += number(&pair[1], &format!("/program/copies_mb_per_s/{side}")) * seconds;
            }
            launched += number(&pair[1], "/program/launches_per_s") * seconds;
            let busy = number(&pair[1], "/program/compute_percent");
            assert!((0.0..=100.0).contains(&busy), "{busy}");
            assert!((rate - shown).abs() <= 1e-3 * rate + 1e-3, "{rate} {shown}");
            let accepted = number(&pair[1], "/program/operations");
            assert!((operations as f64..=highest as f64).contains(&accepted), "{accepted}");
        }
        // What came between the first look and the last, a round more or less.
        for (sum, bytes) in copied.into_iter().zip([IN, OUT]) {
            let rounds = sum * 1e6 / bytes as f64;
            assert!(launched >= 1.0 && (launched - rounds).abs() <= 1.1, "{launched} {rounds}");
        }
        let busy = |line| number(line, "/program/compute_percent");
        assert!(looks[1..].iter().map(busy).sum::<f64>() > 0.0, "{looks:?}");
        let all = number(last, "/program/operations") - number(&looks[0], "/program/operations");
        assert!(all >= 3.0, "{looks:?}");
    });
}

#[test]
fn without_a_terminal_there_is_a_hint() {
    let output = et(DEVICE, &["--count", "1"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("--json"), "{}", text(&output.stderr));
}

/// A terminal of 80 × 24 of its own.
struct Tmux {
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Tmux {
    fn start() -> Option<Self> {
        if !Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped, because tmux is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let tmux = Self { socket: folder.path().join("tmux"), _folder: folder };
        let shell = "PS1='$ ' exec sh";
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", shell]);
        Some(tmux)
    }

    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output = command.arg("-S").arg(&self.socket).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        for _ in 0..LOOKS {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
        }
        panic!("no {what} on\n{}", self.screen());
    }

    /// The flags of the terminal that a program may have changed.
    fn modes(&self) -> String {
        let modes = "#{alternate_on} #{cursor_flag} #{keypad_cursor_flag} #{mouse_any_flag}";
        self.run(&["display-message", "-p", modes]).trim().to_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

fn command(more: &str) -> String {
    command_for(DEVICE, more)
}

fn command_for(device: &str, more: &str) -> String {
    let program = env!("CARGO_BIN_EXE_et");
    format!("{program} --device '{device}' top --interval 0.1 {more}; echo left with $?")
}

#[test]
fn the_screen_of_a_busy_card_shows_which_shires_are() {
    let Some(tmux) = Tmux::start() else { return };
    tmux.until("prompt", |screen| screen.starts_with('$'));
    let card = Watched::open("sim:shires=4,dram=1GiB,serial=B-3");
    let stream = card.device.default_stream();
    let hang = card.kernel("hang");
    let running = stream.launch(&Launch::new(&hang).shires(0b0110)).unwrap();
    tmux.keys(&["-l", &command_for(&card.name, "")]);
    tmux.keys(&["Enter"]);
    let parts = ["shires   ·██·  2 of 4 busy, 0 kernels/s", "0 ops/s, 1 queued, 1 sent", " 50 % "];
    let is_whole = |screen: &str| parts.iter().all(|part| screen.contains(part));
    let screen = tmux.until("busy shires", is_whole);
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("top");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("busy.txt"), &screen).unwrap();
    card.device.abort(&running, LONG).unwrap();
    tmux.until("idle shires", |screen| screen.contains("shires   ····  0 of 4 busy"));
    tmux.keys(&["q"]);
    tmux.until("end", |screen| screen.contains("left with 0"));
}

#[test]
fn the_screen_shows_the_card_and_leaves_the_terminal_as_it_was() {
    let Some(tmux) = Tmux::start() else { return };
    tmux.until("prompt", |screen| screen.starts_with('$'));
    let before = tmux.modes();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("top");
    std::fs::create_dir_all(&folder).unwrap();

    // A key, Ctrl-C as a key, and as signals from elsewhere.
    for leave in ["q", "C-c", "TERM", "INT"] {
        tmux.keys(&["-l", &command("")]);
        tmux.keys(&["Enter"]);
        // A look may come while the picture is half drawn.
        let parts = [
            "44 °C",
            "Z-9",
            "6.1 of 27 W",
            "3 corrected, 1 uncorrectable",
            "every 0.1 s",
            "q quit",
        ];
        let is_whole = |screen: &str| parts.iter().all(|part| screen.contains(part));
        let screen = tmux.until("card", is_whole);
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
        assert!(tmux.modes().starts_with('1'), "the alternate screen");
        std::fs::write(folder.join("screen.txt"), &screen).unwrap();
        tmux.keys(&["Space"]);
        tmux.until("pause", |screen| screen.contains("paused"));
        tmux.keys(&["Space", "+"]);
        tmux.until("slower pace", |screen| screen.contains("every 0.2 s"));
        match leave {
            "TERM" | "INT" => {
                let pid = tmux.run(&["display-message", "-p", "#{pane_pid}"]);
                let children = format!("/proc/{0}/task/{0}/children", pid.trim());
                let child = std::fs::read_to_string(children).unwrap();
                let signal = format!("-{leave}");
                let killed = Command::new("kill").args([&signal, child.trim()]).status().unwrap();
                assert!(killed.success(), "{child}");
            }
            key => tmux.keys(&[key]),
        }
        let screen = tmux.until("end", |screen| screen.contains("left with 0"));
        // What was on the screen before is there again, and typing is seen.
        assert!(!screen.contains("44 °C"), "{screen}");
        assert_eq!(tmux.modes(), before, "after {leave}");
        tmux.keys(&["-l", "clear; echo seen"]);
        tmux.until("typing", |screen| screen.contains("clear; echo seen"));
        tmux.keys(&["Enter"]);
        tmux.until("shell", |screen| screen.starts_with("seen"));
    }

    // Wider and smaller windows, while it runs.
    tmux.keys(&["-l", &command("--count 3")]);
    tmux.keys(&["Enter"]);
    tmux.until("end after three looks", |screen| screen.contains("left with 0"));
    tmux.keys(&["-l", &command("")]);
    tmux.keys(&["Enter"]);
    tmux.until("card", |screen| screen.contains("44 °C"));
    tmux.run(&["resize-window", "-x", "120", "-y", "40"]);
    tmux.until("wide screen", |screen| screen.lines().any(|line| line.chars().count() > 100));
    tmux.run(&["resize-window", "-x", "40", "-y", "10"]);
    tmux.until("small screen", |screen| screen.contains("┌ card") && screen.contains("q quit"));
    tmux.keys(&["q"]);
    tmux.until("end", |screen| screen.contains("left with 0"));
}
