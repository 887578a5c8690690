//! `et report`: what the page says, and what a browser makes of it.
//!
//! Screenshots of the last run are left in `target/tmp/report`, for people.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

const DEVICE: &str = "sim:shires=2,dram=1GiB,cpu-access=yes";
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

fn et(args: &[&str]) -> Output {
    let mut command = assert_cmd::Command::cargo_bin("et").unwrap();
    command.args(["--device", DEVICE]).args(args).output().unwrap()
}

fn kernel(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/kernels/elf");
    folder.join(format!("{name}.elf")).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes the page of a profile and returns it.
fn report(profile: &Path, more: &[&str]) -> String {
    let (from, to) = (profile.display().to_string(), profile.with_extension("html"));
    let output = et(&[&["report", &from, "-o", &to.display().to_string()], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::read_to_string(to).unwrap()
}

/// The data in a page.
fn data(page: &str) -> Value {
    let (_, data) = page.split_once("application/json\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_graph_has_its_tasks_and_its_critical_path() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("demo.json");
    assert!(et(&["demo", "--profile", &profile.display().to_string()]).status.success());
    let page = report(&profile, &["--kernel", &kernel("add")]);
    for part in
        ["f = p * q", "add_scalar", "all 4", "3 tasks one after the other", "branch and jump"]
    {
        assert!(page.contains(part), "{part}");
    }
    let data = data(&page);
    // Both sums need the first one, and the product both: from there the path has two ways.
    assert_eq!(data["edges"].as_array().unwrap().len(), 8);
    assert_eq!(data["path"].as_array().unwrap().len(), 3);
    // Six buffers and the kernels are there before the launch, and are still there after it.
    let [times, used] = [0, 1].map(|part| data["memory"][part].as_array().unwrap().clone());
    assert_eq!(times[0], 0);
    assert!(
        !used.is_empty() && used.iter().all(|bytes| bytes.as_u64() > Some(6 * 4096)),
        "{used:?}"
    );
}

#[test]
fn a_launch_has_memory_harts_and_its_failure() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trap.json", "trap.jsonl"] {
        let profile = folder.path().join(name);
        let path = profile.display().to_string();
        let run =
            et(&["run", &kernel("trap_load"), "--arg", "u64:70", "--log", "--profile", &path]);
        assert!(!run.status.success());
        let page = report(&profile, &[]);
        assert!(page.contains("load access fault at 0x0"), "{name}: no failure");
        let data = data(&page);
        let [times, used] = [0, 1].map(|part| data["memory"][part].as_array().unwrap().clone());
        // Nothing is in use before the kernel is loaded.
        assert_eq!((times.len(), &used[0]), (used.len(), &json!(0)), "{name}");
        assert!(used.iter().any(|bytes| bytes.as_u64().unwrap() >= 4096), "{name}: {used:?}");
        let groups = data["groups"].as_array().unwrap();
        let titles: Vec<_> = groups.iter().map(|group| group["title"].as_str().unwrap()).collect();
        let starts = ["Calls", "Host", "Device", "Harts"];
        assert!(
            titles.iter().zip(starts).all(|(title, start)| title.starts_with(start)),
            "{titles:?}"
        );
        let texts = &data["names"].as_array().unwrap();
        assert!(texts.iter().any(|text| text.as_str().unwrap().contains("cause 5")), "{texts:?}");
    }
}

#[test]
fn executed_instructions_are_shown_by_kind_and_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["executed.json", "executed.jsonl"] {
        let profile = folder.path().join(name);
        let path = profile.display().to_string();
        let out = format!("out:{}:u64[2112]", folder.path().join("done.npy").display());
        let kernel_args = ["--arg", "u64:10", "--arg", &out, "--arg", "u64:0"];
        let file = kernel("spin_packed");
        let run = [&["run", &file, "--profile", &path][..], &kernel_args].concat();
        et(&run);
        assert!(report(&profile, &[]).contains("is not in this profile"), "{name}");
        et(&[&run[..], &["--instructions"]].concat());
        let page = report(&profile, &["--kernel", &file]);
        for part in
            ["instructions executed", "instructions in the code", "packed vector", "fmadd.ps"]
        {
            assert!(page.contains(part), "{name}: {part}");
        }
        assert!(!page.contains("is not in this profile"), "{name}");
    }
    let profile = folder.path().join("graph.json");
    let (path, graph) = (profile.display().to_string(), folder.path().join("tasks.json"));
    let tasks = r#"{"kernels": {"nop": "task_nop.elf"}, "buffers": {}, "tasks": [{"kernel": "nop", "args": []}], "outputs": {}}"#;
    std::fs::copy(kernel("task_nop"), folder.path().join("task_nop.elf")).unwrap();
    std::fs::write(&graph, tasks).unwrap();
    let run = ["graph", &graph.display().to_string(), "--profile", &path];
    et(&run);
    assert!(report(&profile, &[]).contains("is not in this profile"));
    et(&[&run[..], &["--instructions"]].concat());
    let page = report(&profile, &[]);
    assert!(page.contains("instructions executed") && page.contains("all tasks"));
}

#[test]
fn what_is_no_profile_is_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, page) = (folder.path().join("a.csv"), folder.path().join("page.html"));
    std::fs::write(&csv, "id,name\n1,a\n").unwrap();
    let page_name = page.display().to_string();
    let output = et(&["report", &csv.display().to_string(), "-o", &page_name, "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!output.status.success() && !page.exists());
    assert!(answer["error"].as_str().unwrap().contains("a.csv"), "{answer}");
    assert!(answer["causes"][0].as_str().unwrap().contains("CSV"), "{answer}");
}

/// A graph of `tasks` tasks on 32 workers, each depending on one before.
fn large(path: &Path, tasks: u64) {
    let mut text = String::from(
        "{\"traceEvents\":[{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"task graph\"}}",
    );
    for task in 0..tasks {
        let (worker, name) = (task % 32, ["matmul", "softmax", "copy"][(task % 3) as usize]);
        let start = task / 32 * 10 + worker / 8;
        write!(
            text,
            ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{worker},\"name\":\"{name} {task}\",\"ts\":{start},\
             \"dur\":{},\"args\":{{\"task\":{task},\"function\":\"{name}\"}}}}",
            4 + task % 4
        )
        .unwrap();
        if let Some(before) = task.checked_sub(33) {
            write!(
                text,
                ",\n{{\"ph\":\"s\",\"pid\":1,\"ts\":0,\"args\":{{\"from\":{before},\"to\":{task}}}}}"
            )
            .unwrap();
        }
    }
    write!(text, "],\"otherData\":{{\"tasks\":{tasks},\"place\":\"cores\"}}}}").unwrap();
    std::fs::write(path, text).unwrap();
}

/// A headless browser, if there is one.
struct Browser(&'static str);

impl Browser {
    fn find() -> Option<Self> {
        let works = |name: &Self| {
            name.start(&["--dump-dom", "about:blank"]).is_ok_and(|output| output.status.success())
        };
        let found = BROWSERS.into_iter().map(Self).find(works);
        if found.is_none() {
            eprintln!("skipped, because no Chromium is installed that works here");
        }
        found
    }

    fn run(&self, args: &[&str]) -> String {
        let output = self.start(args).unwrap();
        assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs it to its end, two minutes at most.
    fn start(&self, args: &[&str]) -> std::io::Result<Output> {
        let home = tempfile::tempdir()?;
        Command::new("timeout")
            .args(["--kill-after=5", "120", self.0])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg("--hide-scrollbars")
            .args(args)
            .output()
    }

    /// What the script says of a page, in attributes of its root.
    fn attributes(&self, address: &str) -> impl Fn(&str) -> String + use<> {
        let page = self.run(&[
            "--window-size=1400,1000",
            "--virtual-time-budget=500",
            "--dump-dom",
            address,
        ]);
        let root = page.split_once("<html").unwrap().1.split_once('>').unwrap().0.to_owned();
        move |name| {
            let (_, rest) = root
                .split_once(&format!("data-{name}=\""))
                .unwrap_or_else(|| panic!("{name} in {root}"));
            rest.split_once('"').unwrap().0.to_owned()
        }
    }
}

/// Adds a script to a page, which then draws at once whatever it has to, so that all is done when
/// it is loaded.
fn with_script(page: &str, to: &Path, script: &str) -> String {
    let at_once = "<script>window.requestAnimationFrame = (draw) => draw();</script><style>";
    let page = page.replacen("<style>", at_once, 1);
    let page = page.replace("</body>", &format!("<script>{script}</script></body>"));
    std::fs::write(to, page).unwrap();
    format!("file://{}", to.display())
}

#[test]
fn a_browser_draws_100_000_spans_searches_and_zooms() {
    let Some(browser) = Browser::find() else { return };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&folder).unwrap();
    let profile = folder.join("large.json");
    large(&profile, 100_000);
    let page = report(&profile, &[]);
    let address = format!("file://{}", profile.with_extension("html").display());
    // As a person does it: keys, wheel, a click on a table.
    let script = include_str!("report.js");
    let driven = with_script(&page, &folder.join("driven.html"), script);
    let driven = browser.attributes(&format!("{driven}#q=softmax&from=1000000&to=1100000"));
    eprintln!("100000 spans are drawn {} ms after the script began", driven("ready"));
    assert_eq!(driven("spans"), "100000");
    assert_eq!(
        driven("told"),
        "asked:1000000 1100000:33333 drawn:true zoomed:2 all:true focus:true found:3707 at:2 of 3,707 detail:copy 50 near:true \
         cleared:0 wheel:true selected:true dragged:true pinched:true fitted:true theme:dark colourful:true red:0 legend:3:true"
    );

    // Nothing is wider than a telephone; the outer page has no smaller window than 500 pixels.
    let script = "addEventListener('load', () => parent.postMessage([innerWidth, document.documentElement.scrollWidth], '*'));";
    let small = folder.join("small.json");
    large(&small, 300);
    let inner = with_script(&report(&small, &[]), &folder.join("inner.html"), script);
    let outer = folder.join("outer.html");
    let frame = format!(
        "<!DOCTYPE html><html><body style='margin:0'><script>addEventListener('message', (event) => \
         {{ document.documentElement.dataset.widths = event.data.join(' '); }});</script>\
         <iframe src='{inner}' width=360 height=1900 style='border:0'></iframe></body></html>"
    );
    std::fs::write(&outer, frame).unwrap();
    let outer = format!("file://{}", outer.display());
    assert_eq!(browser.attributes(&outer)("widths"), "360 360");

    let shots = [
        ("light.png", format!("{address}#theme=light"), "1400,1300"),
        ("dark.png", format!("{address}#theme=dark&path&from=1000000&to=1050000"), "1400,1300"),
        ("narrow.png", outer, "500,1900"),
    ];
    for (name, address, size) in &shots {
        let to = folder.join(name);
        let _ = std::fs::remove_file(&to);
        let (shot, size) =
            (format!("--screenshot={}", to.display()), format!("--window-size={size}"));
        browser.run(&[&size, &shot, address]);
        assert!(std::fs::read(&to).unwrap().starts_with(b"\x89PNG"), "{name}");
    }
}
