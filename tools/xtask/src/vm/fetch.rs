//! Packages of Debian, unpacked beside the system.
//!
//! A package manager's state of our own names the suites, so neither the machine's sources nor what
//! is installed on it change. The mirror is the one the machine already uses.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use rustix::fs::{FlockOperation, flock};

use super::hindrance::Hindrance;
use super::program::run_within;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// How long the version of a package is taken for the newest.
const FRESH: Duration = Duration::from_secs(7 * 24 * 3600);
/// Limit of one call of the package manager.
const LIMIT: Duration = Duration::from_secs(300);

/// What is wanted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// A suite; one that ends in `-backports` stands on the suite it is named after.
    pub(crate) suite: &'static str,
    pub(crate) extent: Extent,
}

/// How much of a package's dependencies comes with it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Extent {
    /// The package alone.
    Alone,
    /// The package and these, in one folder.
    With(&'static [&'static str]),
    /// Everything it needs, down to the C library: it runs on any machine.
    Whole,
    /// Only the first package it depends on: what a package without files stands for.
    Meant,
}

/// A package on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Unpacked {
    /// What the package calls `/`.
    pub(crate) root: PathBuf,
    pub(crate) version: String,
}

/// Everything that outlives a run: packages and kernels.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    /// Held while this run lives: two runs would unpack into the same folders.
    _lock: File,
    seen: HashMap<Package, Result<Unpacked, Hindrance>>,
}

impl Cache {
    /// Opens the cache of this user, unless another run has it.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
            (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
            (_, Some(home)) => Path::new(&home).join(".cache"),
            _ => return Err(anyhow!("neither XDG_CACHE_HOME nor HOME is set")),
        };
        let root = base.join("et-vm");
        fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
        let lock = File::create(root.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("another run uses {}", root.display()))?;
        Ok(Self { root, _lock: lock, seen: HashMap::new() })
    }

    /// A place for something built from what was fetched.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The package, fetched if it is not there.
    pub(crate) fn package(&mut self, package: Package) -> Result<Unpacked, Hindrance> {
        if let Some(seen) = self.seen.get(&package) {
            return seen.clone();
        }
        let found = self.find(package).map_err(|error| Hindrance::absent(&error));
        self.seen.insert(package, found.clone());
        found
    }

    fn find(&self, package: Package) -> anyhow::Result<Unpacked> {
        let pointer = self.root.join(format!("{}@{}", package.name, package.suite));
        let known = fs::read_to_string(&pointer).ok();
        let age = fs::metadata(&pointer).and_then(|data| data.modified()).ok();
        let fresh = age.and_then(|at| at.elapsed().ok()).is_some_and(|age| age < FRESH);
        let known = known.map(|version| self.place(package, &version)).filter(Unpacked::is_whole);
        match known {
            Some(known) if fresh => Ok(known),
            // An old one is better than none.
            Some(known) => Ok(self.fetch(package, &pointer).unwrap_or(known)),
            None => self.fetch(package, &pointer),
        }
    }

    fn place(&self, package: Package, version: &str) -> Unpacked {
        // A colon separates the folders of a library path.
        let folder = format!("{}_{version}", package.name).replace(':', "_");
        Unpacked { root: self.root.join(folder), version: version.to_owned() }
    }

    fn fetch(&self, package: Package, pointer: &Path) -> anyhow::Result<Unpacked> {
        let state = self.root.join("apt");
        let fetched = self.fetch_with(&state, package);
        // The lists are larger than most packages.
        fs::remove_dir_all(&state).ok();
        let fetched = fetched
            .with_context(|| format!("fetching {} of {} failed", package.name, package.suite))?;
        let old = fs::read_to_string(pointer).unwrap_or_default();
        fs::write(pointer, &fetched.version)?;
        if !old.is_empty() && old != fetched.version {
            fs::remove_dir_all(self.place(package, &old).root).ok();
        }
        Ok(fetched)
    }

    fn fetch_with(&self, state: &Path, package: Package) -> anyhow::Result<Unpacked> {
        let apt = Apt::new(state, package.suite)?;
        apt.run("apt-get", &["update", "-qq"])?;
        let name = match package.extent {
            Extent::Meant => first_dependency(&apt.run("apt-cache", &["depends", package.name])?)
                .with_context(|| format!("{} stands for nothing", package.name))?,
            _ => package.name.to_owned(),
        };
        let version = candidate(&apt.run("apt-cache", &["policy", &name])?)
            .with_context(|| format!("{} has no {name}", package.suite))?;
        let place = self.place(package, &version);
        if place.is_whole() {
            return Ok(place);
        }
        println!("fetching {name} {version} of {}", package.suite);
        match package.extent {
            Extent::Whole => apt.run(
                "apt-get",
                &["install", "-qq", "-y", "--no-install-recommends", "--download-only", &name],
            )?,
            Extent::Alone | Extent::Meant => apt.run("apt-get", &["download", "-qq", &name])?,
            Extent::With(others) => {
                let mut args = vec!["download", "-qq", &name];
                args.extend(others);
                apt.run("apt-get", &args)?
            }
        };
        let part = place.root.with_extension("part");
        fs::remove_dir_all(&part).ok();
        fs::create_dir_all(&part)?;
        let mut count = 0;
        for entry in fs::read_dir(apt.archives())? {
            let archive = entry?.path();
            if archive.extension().is_some_and(|extension| extension == "deb") {
                run_within(LIMIT, Command::new("dpkg").arg("-x").arg(&archive).arg(&part))?;
                count += 1;
            }
        }
        ensure!(count != 0, "the package manager fetched nothing");
        fs::remove_dir_all(&place.root).ok();
        fs::rename(&part, &place.root)?;
        Ok(place)
    }
}

impl Unpacked {
    fn is_whole(&self) -> bool {
        // It gets its name only after everything is in it.
        self.root.is_dir()
    }
}

/// The package manager with a state of its own.
struct Apt {
    state: PathBuf,
}

impl Apt {
    fn new(state: &Path, suite: &str) -> anyhow::Result<Self> {
        ensure!(Path::new(KEYRING).exists(), "the machine has no keyring of Debian");
        fs::remove_dir_all(state).ok();
        for folder in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(state.join(folder))?;
        }
        let mirror = mirror().context("no source of the package manager is a mirror of Debian")?;
        let base = suite.strip_suffix("-backports");
        let sources: String = [base, Some(suite)]
            .into_iter()
            .flatten()
            .map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"))
            .collect();
        fs::write(state.join("sources.list"), sources)?;
        // Nothing counts as installed, so what a program needs comes with it.
        fs::write(state.join("status"), "")?;
        let at = state.display();
        fs::write(
            state.join("apt.conf"),
            format!(
                r#"Dir::State "{at}";
Dir::State::status "{at}/status";
Dir::State::lists "{at}/lists";
Dir::Cache "{at}";
Dir::Cache::archives "{at}/archives";
Dir::Etc::sourcelist "{at}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Default-Release "{suite}";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
APT::Architecture "amd64";
APT::Architectures "amd64";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
"#
            ),
        )?;
        Ok(Self { state: state.to_owned() })
    }

    fn archives(&self) -> PathBuf {
        self.state.join("archives")
    }

    fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(program);
        command.args(args).env("APT_CONFIG", self.state.join("apt.conf")).env("LC_ALL", "C");
        run_within(LIMIT, command.current_dir(self.archives()))
    }
}

/// The mirror of Debian in the machine's own sources, of either format.
fn mirror() -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    for entry in fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
        files.push(entry.path());
    }
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| mirror_in(&text))
}

fn mirror_in(sources: &str) -> Option<String> {
    sources
        .lines()
        .filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"))
        .flat_map(str::split_whitespace)
        .find(|word| {
            let scheme = word.starts_with("http://") || word.starts_with("https://");
            scheme && word.trim_end_matches('/').ends_with("/debian")
        })
        .map(str::to_owned)
}

/// The version that `apt-cache policy` would install.
fn candidate(policy: &str) -> Option<String> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate:"))?.trim();
    (version != "(none)").then(|| version.to_owned())
}

/// The first package that `apt-cache depends` names.
fn first_dependency(depends: &str) -> Option<String> {
    depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{candidate, first_dependency, mirror_in};

    #[test]
    fn the_mirror_is_found_in_both_formats() {
        let one_line = "# deb http://old/debian x\ndeb [arch=amd64] http://a/ubuntu x\n\
                        deb [arch=amd64] https://b/debian/ x main\n";
        assert_eq!(mirror_in(one_line).as_deref(), Some("https://b/debian/"));
        let fields = "Types: deb\n# http://snapshot/debian\nURIs: http://c/debian\nSuites: x\n";
        assert_eq!(mirror_in(fields).as_deref(), Some("http://c/debian"));
        assert_eq!(mirror_in("URIs: http://c/debian-security\n"), None);
    }

    #[test]
    fn a_package_without_candidate_is_absent() {
        assert_eq!(candidate("x:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        let policy = "x:\n  Installed: (none)\n  Candidate: 1:7.2+dfsg-7\n  Version table:\n";
        assert_eq!(candidate(policy).as_deref(), Some("1:7.2+dfsg-7"));
    }

    #[test]
    fn a_meta_package_stands_for_its_first_dependency() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-1-cloud-amd64\n";
        assert_eq!(first_dependency(depends).as_deref(), Some("linux-image-6.1.0-1-cloud-amd64"));
        assert_eq!(first_dependency("x\n  Recommends: y\n"), None);
    }
}
