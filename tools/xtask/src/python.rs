//! `cargo xtask wheel`: the Python package, and its tests.

use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::dist;
use crate::sdk;
use crate::shell::{build_programs, capture, execute, root};
use crate::tools::Done;

const PACKAGE: &str = "bindings/et-python";
/// What the tests need.
const TEST_PACKAGES: [&str; 5] = ["numpy", "pytest", "hypothesis", "mypy", "trio"];
/// The same for the interpreter that checks itself, where types are not asked for again.
const DEBUG_PACKAGES: [&str; 4] = ["numpy", "pytest", "hypothesis", "trio"];
/// Libraries with which memory is exchanged, by tests that skip what is not there.
const PEERS: [&str; 1] = ["jax"];
/// What exchanges memory with PyTorch.
const PYTORCH_TESTS: &str = "test_pytorch.py";
/// Tests of the examples for many hosts, which have an environment of their own: Ray is large.
const HOST_TESTS: &str = "test_hosts.py";
/// The oldest Python 3 that the wheel is for, as in `pyproject.toml`, and one that is yet to come.
const MINORS: Range<u32> = 11..30;
/// Checks types beside mypy.
const PYRIGHT: &str = "pyright@1.1.414";
/// Examples that check their own results.
const EXAMPLES: [&str; 4] = ["formula.py", "saxpy.py", "matmul.py", "softmax.py"];

/// The packages of the system in which the wheel is tried.
const SYSTEM_PACKAGES: [&str; 3] = ["gcc-riscv64-unknown-elf", "python3-numpy", "python3-venv"];
/// What is done there.
const TRIAL: &str = r#"
set -e
python3 -m venv --system-site-packages /opt/et
/opt/et/bin/pip install --quiet --no-index /tmp/et-*.whl
cd /tmp
/opt/et/bin/python formula.py
/opt/et/bin/pip uninstall --quiet --yes et
find /opt/et/bin /opt/et/lib -path '*site-packages/et*' -o -path '*bin/et*' | grep . && exit 1
echo removed
"#;

/// Builds the wheel into a folder.
pub(crate) fn wheel(out: &Path) -> anyhow::Result<Done> {
    match build("release", out)? {
        Ok(wheel) => {
            println!("{}", wheel.display());
            Ok(Done::Checked)
        }
        Err(why) => Ok(Done::Skipped(why)),
    }
}

/// Builds the wheel with a profile and returns its name, or why that cannot be done here.
fn build(profile: &str, out: &Path) -> anyhow::Result<Result<PathBuf, String>> {
    let maturin = match maturin()? {
        Ok(maturin) => maturin,
        Err(why) => return Ok(Err(why)),
    };
    execute(build_programs(&["et-as"]).args(["--profile", profile]))?;
    let built = sdk::built(profile)?;
    let stage = stage(&built)?;
    // Only this one is there afterwards.
    let fresh = stage.join("dist");
    let mut command = Command::new(maturin);
    command.args(["build", "--profile", profile, "--locked", "--out"]).arg(&fresh);
    execute(command.current_dir(&stage))?;
    let wheels = fs::read_dir(&fresh)?.collect::<std::io::Result<Vec<_>>>()?;
    let [wheel] = &wheels[..] else { bail!("{} wheels were built", wheels.len()) };
    fs::create_dir_all(out)?;
    let path = out.join(wheel.file_name());
    fs::copy(wheel.path(), &path)?;
    Ok(Ok(path))
}

/// Puts the sources of the package together: with the device SDK, which is not copied in the source
/// tree.
fn stage(built: &Path) -> anyhow::Result<PathBuf> {
    let from = root().canonicalize()?.join(PACKAGE);
    let stage = built.join("et-python");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    copy(&from.join("python"), &stage.join("python"))?;
    sdk::install_device(&stage.join("python/et/_sdk"), built)?;
    fs::copy(from.join("README.md"), stage.join("README.md"))?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root().join(licence), stage.join(licence))?;
    }
    let project = fs::read_to_string(from.join("pyproject.toml"))?;
    let manifest = format!("manifest-path = {:?}\n", from.join("Cargo.toml"));
    let section = "[tool.maturin]\n";
    let project = project.replace(section, &(section.to_owned() + &manifest));
    fs::write(stage.join("pyproject.toml"), project)?;
    Ok(stage)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        match entry.file_type()?.is_dir() {
            true if name == "__pycache__" => {}
            true => copy(&entry.path(), &to.join(name))?,
            false => drop(fs::copy(entry.path(), to.join(name))?),
        }
    }
    Ok(())
}

/// Finds maturin, or installs it where nothing else is; else says why there is none.
fn maturin() -> anyhow::Result<Result<PathBuf, String>> {
    let installed = Command::new("maturin").arg("--version").output();
    if installed.is_ok_and(|output| output.status.success()) {
        return Ok(Ok("maturin".into()));
    }
    let folder = sdk::built("release")?.with_file_name("python-tools");
    if folder.join("bin/maturin").exists() {
        return Ok(Ok(folder.join("bin/maturin")));
    }
    let made = environment(&Interpreter::default(), &folder, &["maturin>=1.12,<2"])?;
    Ok(made.map(|()| folder.join("bin/maturin")))
}

/// What virtual environments are made of.
struct Interpreter {
    program: PathBuf,
    /// Whether its own packages are seen in them.
    shares_packages: bool,
    /// How the wheel for them is built.
    profile: &'static str,
}

impl Default for Interpreter {
    fn default() -> Self {
        let program = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        // For tests: it is there sooner, and arithmetic and assertions are checked.
        Self { program: program.into(), shares_packages: false, profile: "dev" }
    }
}

impl Interpreter {
    /// Finds one that has PyTorch: the usual one, or the distribution's. A virtual environment
    /// could not install it: without CUDA's libraries, which are gigabytes, the registry's package
    /// does not load.
    fn with_pytorch() -> Option<Self> {
        let known = [Self::default().program, "/usr/bin/python3".into()];
        let program = known.into_iter().find(|program| can(program, "import torch"))?;
        Some(Self { program, shares_packages: true, ..Self::default() })
    }

    /// Finds one that checks itself: references, and what is done without its lock.
    fn for_debugging() -> Option<Self> {
        let program = PathBuf::from("python3-dbg");
        let is_one = can(&program, "import sys; sys.gettotalrefcount()");
        is_one.then(|| Self { program, ..Self::default() })
    }
}

/// Finds an interpreter of a Python 3: the one of its name, or one that pyenv has installed. What
/// pyenv has in `PATH` works only for the versions that it was told to use.
fn of_minor(wanted: u32) -> Option<PathBuf> {
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(std::env::home_dir()?.join(".pyenv")));
    let installed = pyenv.map(|folder| installed(&folder, wanted)).unwrap_or_default();
    let mut known = std::iter::once(format!("python3.{wanted}").into()).chain(installed);
    known.find(|program| minor(program) == Some(wanted))
}

/// The interpreters of a Python 3 in the folder of pyenv, the newest first.
fn installed(pyenv: &Path, wanted: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(pyenv.join("versions")).into_iter().flatten().flatten();
    let mut found: Vec<(Option<u32>, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let patch = name.to_str()?.strip_prefix(&format!("3.{wanted}."))?.parse().ok();
            let program = entry.path().join(format!("bin/python3.{wanted}"));
            program.exists().then_some((patch, program))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, program)| program).collect()
}

/// Which Python 3 an interpreter is, if it is there.
fn minor(interpreter: &Path) -> Option<u32> {
    let program = "import sys; print(sys.version_info[1])";
    let output = Command::new(interpreter).args(["-c", program]).output().ok()?;
    std::str::from_utf8(&output.stdout).ok()?.trim().parse().ok()
}

/// Returns `true` if an interpreter is there and runs a program.
fn can(interpreter: &Path, program: &str) -> bool {
    let output = Command::new(interpreter).args(["-c", program]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Makes a virtual environment with packages; else says why it cannot be made.
fn environment(
    of: &Interpreter,
    folder: &Path,
    packages: &[&str],
) -> anyhow::Result<Result<(), String>> {
    let python = &of.program;
    match minor(python) {
        None => return Ok(Err(format!("{} is not installed", python.display()))),
        Some(minor) if minor < MINORS.start => {
            return Ok(Err(format!("{} is older than 3.{}", python.display(), MINORS.start)));
        }
        Some(_) => {}
    }
    let mut venv = Command::new(python);
    venv.args(["-m", "venv"]).args(of.shares_packages.then_some("--system-site-packages"));
    if !capture(venv.arg(folder))?.status.success() {
        return Ok(Err(format!("{} has no module venv", python.display())));
    }
    let mut pip = Command::new(folder.join("bin/pip"));
    let pip = pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
    println!("$ {pip:?}");
    let output = capture(pip)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rfind(|line| line.starts_with("ERROR")).unwrap_or_default();
        return Ok(Err(format!("pip cannot install {}: {last}", packages.join(" "))));
    }
    Ok(Ok(()))
}

/// Builds the wheel, installs it into an environment of its own, and runs tests and examples.
pub(crate) fn check() -> anyhow::Result<Done> {
    let folder = tempfile::tempdir()?;
    let (own, python) = (Interpreter::default(), folder.path().join("python"));
    let environment = match Environment::make(&own, folder.path(), &python, &TEST_PACKAGES)? {
        Ok(environment) => environment,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    if let Err(why) = self::environment(&own, &python, &PEERS)? {
        println!("exchange with {}: skipped, because {why}", PEERS.join(", "));
    }
    environment.test(&[])?;
    for example in EXAMPLES {
        execute(environment.python()?.arg(format!("../examples/{example}")))?;
    }
    // What is measured now and then should run always.
    let side = root().join("tools/et-bench/src/python.py");
    let kernel = root().join("testing/kernels/elf/add.elf");
    execute(environment.python()?.arg(side).arg(kernel).args(["1", "10"]))?;
    Ok(Done::Checked)
}

/// Runs an example with every other interpreter that the wheel is for: it is one for all of them.
pub(crate) fn check_others() -> anyhow::Result<Done> {
    let own = minor(&Interpreter::default().program);
    let (mut tried, mut skipped) = (Vec::new(), Vec::new());
    for other in MINORS.filter(|other| Some(*other) != own) {
        let Some(program) = of_minor(other) else { continue };
        let of = Interpreter { program, ..Interpreter::default() };
        let folder = tempfile::tempdir()?;
        let python = folder.path().join("python");
        match Environment::make(&of, folder.path(), &python, &["numpy"])? {
            Ok(environment) => {
                execute(environment.python()?.arg("../examples/formula.py"))?;
                tried.push(format!("3.{other}"));
            }
            Err(why) => skipped.push(format!("3.{other}: {why}")),
        }
    }
    if tried.is_empty() {
        skipped.push("no other Python that the wheel is for could be tried".to_owned());
    } else {
        println!("the wheel works with Python {}", tried.join(", "));
    }
    Ok(if skipped.is_empty() { Done::Checked } else { Done::Skipped(skipped.join("; ")) })
}

/// Runs the tests with an interpreter that checks itself, and memory that is checked at its ends.
pub(crate) fn check_debug() -> anyhow::Result<Done> {
    let Some(of) = Interpreter::for_debugging() else {
        return Ok(Done::Skipped("python3-dbg is not installed".to_owned()));
    };
    let folder = tempfile::tempdir()?;
    let python = folder.path().join("python");
    let environment = match Environment::make(&of, folder.path(), &python, &DEBUG_PACKAGES)? {
        Ok(environment) => environment,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    environment.test(&["-X", "dev"])?;
    Ok(Done::Checked)
}

/// Installs the wheel in a system that has Python, NumPy and the compiler for kernels, without a
/// network; runs the example, and removes it.
pub(crate) fn check_install() -> anyhow::Result<Done> {
    let archive = match dist::archive(&SYSTEM_PACKAGES.map(str::to_owned))? {
        Ok(archive) => archive,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    let folder = tempfile::tempdir()?;
    let wheel = match build(Interpreter::default().profile, folder.path())? {
        Ok(wheel) => wheel,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    let name = wheel.file_name().and_then(OsStr::to_str).context("a wheel without a name")?;
    let example = root().join(PACKAGE).join("examples/formula.py");
    dist::try_in(&archive, &[(&wheel, name), (&example, "formula.py")], TRIAL)?;
    Ok(Done::Checked)
}

/// Exchanges memory with PyTorch, where an interpreter has it.
pub(crate) fn check_pytorch() -> anyhow::Result<Done> {
    let Some(of) = Interpreter::with_pytorch() else {
        return Ok(Done::Skipped("no Python has PyTorch".to_owned()));
    };
    let folder = tempfile::tempdir()?;
    let made = Environment::make(&of, folder.path(), &folder.path().join("python"), &["pytest"])?;
    let environment = match made {
        Ok(environment) => environment,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    execute(environment.python()?.args(PYTEST).arg(PYTORCH_TESTS))?;
    Ok(Done::Checked)
}

/// Runs the examples for many hosts, in an environment that is kept.
pub(crate) fn check_hosts() -> anyhow::Result<Done> {
    let folder = tempfile::tempdir()?;
    let environment = match kept(&Interpreter::default(), &FOR_HOSTS, folder.path())? {
        Ok(environment) => environment,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    let output = capture(environment.python()?.args(PYTEST).args(["-rs", HOST_TESTS]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{HOST_TESTS} failed");
    Ok(all_skipped(&text).map_or(Done::Checked, Done::Skipped))
}

/// An environment that is kept from run to run, by its name, and what is in it beside the wheel.
pub(crate) type Kept = (&'static str, &'static [&'static str]);
/// For what the calls of the package cost.
pub(crate) const FOR_BENCH: Kept = ("python-bench", &["numpy"]);
/// For the examples for many hosts.
pub(crate) const FOR_HOSTS: Kept = ("python-hosts", &["numpy", "pytest", "ray", "mpi4py", "mpich"]);

/// Returns an interpreter with the wheel of this tree as it is released; else says why there is
/// none.
pub(crate) fn interpreter(of: &Kept) -> anyhow::Result<Result<PathBuf, String>> {
    let folder = tempfile::tempdir()?;
    let own = Interpreter { profile: "release", ..Interpreter::default() };
    Ok(kept(&own, of, folder.path())?.map(|environment| environment.python))
}

fn kept(
    of: &Interpreter,
    (name, packages): &Kept,
    scratch: &Path,
) -> anyhow::Result<Result<Environment, String>> {
    let folder = sdk::built("release")?.with_file_name(name);
    Environment::make(of, scratch, &folder, packages)
}

/// Checks the stubs by pyright, which reads them otherwise than mypy.
pub(crate) fn check_types() -> anyhow::Result<Done> {
    let folder = tempfile::tempdir()?;
    let kept = sdk::built("release")?.with_file_name("python-types");
    let own = Interpreter::default();
    let environment = match Environment::make(&own, folder.path(), &kept, &["typing_extensions"])? {
        Ok(environment) => environment,
        Err(why) => return Ok(Done::Skipped(why)),
    };
    let pyright = kept.join("node_modules/.bin/pyright");
    if !pyright.exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
        match npm.arg(&kept).arg(PYRIGHT).output() {
            Err(_) => return Ok(Done::Skipped("npm is not installed".to_owned())),
            Ok(output) if !output.status.success() => {
                return Ok(Done::Skipped(format!("npm cannot install {PYRIGHT}")));
            }
            Ok(_) => {}
        }
    }
    // It looks for packages from where the program is.
    let source = root().join(PACKAGE).join("tests/typed.py");
    fs::copy(source, folder.path().join("typed.py"))?;
    let config = r#"{"include": ["typed.py"], "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error"}"#;
    fs::write(folder.path().join("pyrightconfig.json"), config)?;
    let mut command = Command::new(pyright);
    command.arg("--pythonpath").arg(&environment.python).current_dir(folder.path());
    execute(&mut command)?;
    Ok(Done::Checked)
}

/// Returns why, if a run of pytest that reports skips with `-rs` has skipped all.
fn all_skipped(text: &str) -> Option<String> {
    if text.lines().last()?.contains(" passed") {
        return None;
    }
    let (_, why) = text.lines().find(|line| line.starts_with("SKIPPED"))?.rsplit_once(": ")?;
    Some(why.to_owned())
}

/// Runs tests; the folder is the sources', which get no caches.
const PYTEST: [&str; 5] = ["-m", "pytest", "-q", "-p", "no:cacheprovider"];

/// An interpreter with the wheel of this tree, and packages.
struct Environment {
    python: PathBuf,
    /// Where kernels are kept.
    cache: PathBuf,
}

impl Environment {
    /// Builds the wheel and installs it into a virtual environment with packages; else says why
    /// that cannot be done.
    fn make(
        of: &Interpreter,
        scratch: &Path,
        folder: &Path,
        packages: &[&str],
    ) -> anyhow::Result<Result<Self, String>> {
        let wheel = match build(of.profile, &scratch.join("wheel"))? {
            Ok(wheel) => wheel,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = environment(of, folder, packages)? {
            return Ok(Err(why));
        }
        let mut pip = Command::new(folder.join("bin/pip"));
        // The wheel needs nothing else: an error here is one of the wheel.
        pip.args(["install", "--quiet", "--no-index", "--no-deps", "--force-reinstall"]);
        execute(pip.arg(&wheel))?;
        Ok(Ok(Self { python: folder.join("bin/python"), cache: scratch.join("kernels") }))
    }

    /// Runs the tests that need nothing else, with options of the interpreter.
    fn test(&self, options: &[&str]) -> anyhow::Result<()> {
        let ignored = [HOST_TESTS, PYTORCH_TESTS].map(|tests| format!("--ignore={tests}"));
        execute(self.python()?.args(options).args(PYTEST).args(ignored).arg("."))
    }

    /// A call in the folder of the tests: not in that of the package, whose sources have no native
    /// part.
    fn python(&self) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.python);
        let folder = root().canonicalize()?.join(PACKAGE).join("tests");
        command.env("ET_CACHE_DIR", &self.cache).current_dir(folder);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pyenv_has_installed_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["3.12.9/bin/python3.12", "3.12.10/bin/python3.12", "3.13.0/bin/python3.13"];
        let others = ["3.12-dev/bin/python3.12", "3.12.11/bin/pip", "3.1.2/bin/python3.1"];
        for name in names.iter().chain(&others) {
            let program = folder.path().join("versions").join(name);
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            fs::write(program, "").unwrap();
        }
        let versions = folder.path().join("versions");
        assert_eq!(
            installed(folder.path(), 12),
            [names[1], names[0]].map(|name| versions.join(name))
        );
        assert_eq!(installed(folder.path(), 13), [versions.join(names[2])]);
        assert!(installed(folder.path(), 14).is_empty() && installed(&versions, 12).is_empty());
    }

    #[test]
    fn a_run_that_has_skipped_all_is_no_success() {
        let skipped = "ss\nSKIPPED [2] test_hosts.py:41: Ray is not installed\n2 skipped in 0.1s\n";
        assert_eq!(all_skipped(skipped).as_deref(), Some("Ray is not installed"));
        let mixed = skipped.replace("2 skipped", "1 passed, 1 skipped");
        assert_eq!(all_skipped(&mixed), None);
    }
}
