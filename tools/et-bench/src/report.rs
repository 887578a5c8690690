//! What it takes to look at a profile of 100 000 tasks.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use et::executor::{CpuPool, RunOptions};
use et::graph::{GraphBuilder, Resource, Task};
use serde::de::IgnoredAny;

use crate::figure::{Figure, Unit, median, repeat};

const WAIT: Duration = Duration::from_secs(100);
const TASKS: u64 = 100_000;
/// Each task follows the one that was so many before.
const CHAINS: u64 = 32;
const RUNS: usize = 9;
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const DATA: &str = "<script id=\"data\" type=\"application/json\">";

/// Hands the figures to `take`. The command `et` is beside this program.
pub(crate) fn figures(take: &mut impl FnMut(Figure)) -> anyhow::Result<()> {
    let program = std::env::current_exe()?.with_file_name("et");
    let folder = tempfile::tempdir()?;
    let [profile, page, bare] =
        ["profile.json", "report.html", "bare.html"].map(|name| folder.path().join(name));
    std::fs::write(&profile, recorded()?)?;

    let (mut written, mut parsed) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        written.push(time(|| write(&program, &profile, &page))?);
        parsed.push(time(|| {
            let _: IgnoredAny = serde_json::from_slice(&std::fs::read(&profile)?)?;
            Ok(())
        })?);
    }
    let floor = ("the profile looked through as JSON", median(&parsed));
    take(Figure::new("report_write_ms", Unit::Less("ms"), &written, floor));

    let Some(browser) = Browser::find(folder.path())? else {
        eprintln!("report_load_ms: not measured, because no Chromium is installed that works here");
        return Ok(());
    };
    std::fs::write(&bare, only_parses(&std::fs::read_to_string(&page)?)?)?;
    let mut parsed = Vec::new();
    let drawn = repeat(RUNS, || {
        parsed.push(browser.ready(&bare)?);
        browser.ready(&page)
    })?;
    let floor = ("the browser parses the same data", median(&parsed));
    take(Figure::new("report_load_ms", Unit::Less("ms"), &drawn, floor));
    Ok(())
}

/// Runs a graph of host functions, and returns its profile.
fn recorded() -> anyhow::Result<Vec<u8>> {
    let mut builder = GraphBuilder::new();
    let functions = [(); 3].map(|()| {
        builder.function(|task| {
            std::hint::black_box(
                (0..task.args()[0]).fold(1_u64, |sum, next| sum.rotate_left(5) ^ next),
            );
            Ok(())
        })
    });
    let chains = Resource::new(CHAINS);
    for task in 0..TASKS {
        let (function, name) = match task % 3 {
            0 => (functions[0], "matmul"),
            1 => (functions[1], "softmax"),
            _ => (functions[2], "copy"),
        };
        let chain = task % CHAINS;
        let task = Task::new(function).name(name).u64(500).writes(chains.range(chain..chain + 1));
        builder.add(task)?;
    }
    let pool = CpuPool::new(4)?;
    let run = pool.launch_with(&builder.build()?, RunOptions::new().traced())?;
    let mut profile = Vec::new();
    run.finish(WAIT)?.write_chrome_json(&mut profile)?;
    Ok(profile)
}

fn write(program: &Path, profile: &Path, page: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.arg("report").arg(profile).arg("-o").arg(page).stdout(Stdio::null());
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// A page with the data of another one, that says how long it takes to parse.
fn only_parses(page: &str) -> anyhow::Result<String> {
    let (_, data) = page.split_once(DATA).context("a page without data")?;
    let (data, _) = data.split_once("</script>").context("data without an end")?;
    Ok(format!(
        "<!DOCTYPE html><html><body>{DATA}{data}</script><script>\
         const begun = performance.now();\
         JSON.parse(document.getElementById('data').textContent);\
         document.documentElement.dataset.ready = performance.now() - begun;\
         </script></body></html>"
    ))
}

/// A headless browser, and where it keeps what it keeps.
struct Browser<'a>(&'static str, &'a Path);

impl<'a> Browser<'a> {
    fn find(home: &'a Path) -> anyhow::Result<Option<Self>> {
        let empty = home.join("empty.html");
        std::fs::write(&empty, "<!DOCTYPE html><html data-ready='0'></html>")?;
        let mut known = BROWSERS.into_iter().map(|name| Self(name, home));
        Ok(known.find(|browser| browser.ready(&empty).is_ok()))
    }

    /// Milliseconds from when the script of a page began to when it was ready.
    fn ready(&self, page: &Path) -> anyhow::Result<f64> {
        let Self(name, home) = self;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120", name]);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--window-size=1400,1000", "--virtual-time-budget=500", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", home.join("browser").display()));
        command.arg(format!("file://{}", page.display())).stderr(Stdio::null());
        let output = command.output().with_context(|| format!("starting {name}"))?;
        ensure!(output.status.success(), "{name} ended with {}", output.status);
        let page = String::from_utf8_lossy(&output.stdout);
        let (_, ready) = page.split_once("data-ready=\"").context("the page is never ready")?;
        let (ready, _) = ready.split_once('"').context("an attribute without an end")?;
        ready.parse().context("how long it took")
    }
}

/// Milliseconds that something takes.
fn time(what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    what()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
