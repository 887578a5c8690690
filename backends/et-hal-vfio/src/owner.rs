//! Who has a device: in this process for certain, in others as far as they say.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use et_vfio_user::Home;

use crate::sync::lock;
use crate::sys::{Handle, Linux, Sys};
use crate::{Bdf, VfioOptions};

/// Devices that this process has open. The kernel refuses a second opener too, but cannot say that
/// it is ourselves.
static CLAIMS: Mutex<BTreeSet<(usize, Bdf)>> = Mutex::new(BTreeSet::new());

/// First word of an owner file.
const OPEN: &str = "open";
const CLEAN: &str = "clean";
/// Longest command line that is told; the rest of it is no help.
const MAX_COMMAND: usize = 200;

/// Who has a device, by its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Start time of the process, in the kernel's ticks since boot; tells a process from a later
    /// one with the same id.
    pub started: u64,
    /// Number of the user that the process acts for; files of old versions do not say.
    pub user: Option<u32>,
    /// Command line.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)?;
        self.user.map_or(Ok(()), |user| write!(f, " of user {user}"))
    }
}

impl Holder {
    fn of_this_process(sys: &dyn Sys) -> Self {
        let pid = std::process::id();
        let started = started(sys, "self").unwrap_or(0);
        let status = sys.read_text(Path::new("/proc/self/status")).unwrap_or_default();
        // Real, effective, saved, and that for files.
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let user = users.and_then(|users| users.split_whitespace().nth(1)?.parse().ok());
        let command = sys.read_text(Path::new("/proc/self/cmdline")).unwrap_or_default();
        Self { pid, started, user, command: printable(&command) }
    }

    /// Looks who has a device now; `None` if no process does, or none that left an owner file and
    /// is seen from here. The answer may be old when it arrives: only opening makes an owner.
    #[must_use]
    pub fn of(device: Bdf, options: &VfioOptions) -> Option<Self> {
        Self::of_with(&Linux, device, options)
    }

    pub(crate) fn of_with(sys: &dyn Sys, device: Bdf, options: &VfioOptions) -> Option<Self> {
        let path = file_of(options.owner_dir.as_deref()?, device);
        // Not locked for the look: an opener would find it so.
        let text = sys.read_text(&path).ok().filter(|text| text.starts_with(OPEN))?;
        let holder = Self::parse(&text)?;
        (started(sys, &holder.pid.to_string())? == holder.started).then_some(holder)
    }

    /// Reads an owner file; its author may be any user.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut words = lines.next()?.split_whitespace().skip(1);
        let pid = words.next()?.parse().ok()?;
        let started = words.next()?.parse().ok()?;
        let user = words.next().and_then(|word| word.parse().ok());
        Some(Self { pid, started, user, command: printable(lines.next().unwrap_or_default()) })
    }
}

fn file_of(directory: &Path, device: Bdf) -> PathBuf {
    directory.join(format!("et-hal-vfio-{device}.owner"))
}

/// Start time of a process that is there.
fn started(sys: &dyn Sys, process: &str) -> Option<u64> {
    let stat = sys.read_text(&Path::new("/proc").join(process).join("stat")).ok()?;
    // The second field is in parentheses and may contain anything; start time is the 20th after it.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19)?.parse().ok()
}

fn printable(text: &str) -> String {
    let text = text.trim_end_matches('\0').replace('\0', " ");
    text.chars().filter(|c| !c.is_control()).take(MAX_COMMAND).collect()
}

/// The claim of this process on a device.
#[derive(Debug)]
pub(crate) struct Claim {
    key: (usize, Bdf),
    home: Home,
}

impl Claim {
    /// Claims a device; `None` if this process has it already.
    pub(crate) fn new(sys: &Arc<dyn Sys>, bdf: Bdf) -> Option<Self> {
        // All users of the kernel share one entry for each device; each fake kernel of the tests
        // has its own.
        let key = (sys.identity(), bdf);
        // Made only when it counts: dropping one gives the device up.
        let free = lock(&CLAIMS).insert(key);
        free.then(|| Self { key, home: Home::new() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // In a child the device is still the parent's.
        if !self.home.is_here() {
            return;
        }
        lock(&CLAIMS).remove(&self.key);
    }
}

/// The owner file of a device: for messages, and to see whether its last owner closed it. Without
/// it everything works, only less well explained.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Locked by us.
    file: Option<Handle>,
    /// Who has it, if not we.
    pub(crate) holder: Option<Holder>,
    /// The last owner did not close the device.
    pub(crate) unclean: bool,
}

impl Owner {
    /// For a device that has no owner file.
    pub(crate) fn unknown() -> Self {
        Self { file: None, holder: None, unclean: false }
    }

    /// Looks at the owner file, and locks it if it is not locked.
    pub(crate) fn look(sys: &Arc<dyn Sys>, directory: Option<&Path>, bdf: Bdf) -> Self {
        let unknown = Self::unknown();
        let Some(directory) = directory else { return unknown };
        let path = file_of(directory, bdf);
        let found = match sys.owner_file(&path) {
            Ok(found) => found,
            Err(errno) => {
                tracing::debug!(path = %path.display(), %errno, "no owner file");
                return unknown;
            }
        };
        let file = Handle::new(sys, found.fd);
        let holder = Holder::parse(&found.text);
        if !found.locked {
            return Self { holder, ..unknown };
        }
        let unclean = found.text.starts_with(OPEN);
        Self { file: Some(file), holder: None, unclean }
    }

    fn write(&self, sys: &dyn Sys, word: &str) {
        let Some(file) = &self.file else { return };
        let Holder { pid, started, user, command } = Holder::of_this_process(sys);
        let user = user.map_or_else(String::new, |user| format!(" {user}"));
        let text = format!("{word} {pid} {started}{user}\n{command}\n");
        if let Err(errno) = sys.write_text(file.fd(), &text) {
            tracing::debug!(%errno, "owner file not written");
        }
    }

    /// Says that we have the device; from now on an end without [`mark_clean`](Self::mark_clean) is
    /// one.
    pub(crate) fn mark_open(&self, sys: &dyn Sys) {
        self.write(sys, OPEN);
    }

    /// Says that the device was closed in order.
    pub(crate) fn mark_clean(&self, sys: &dyn Sys) {
        self.write(sys, CLEAN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_files_of_any_author_are_read_with_care() {
        let holder = Holder::parse("open 17 99\nprogram --flag\u{1b}[2J\n").unwrap();
        assert_eq!((holder.pid, holder.started, holder.user), (17, 99, None));
        assert_eq!(holder.command, "program --flag[2J");
        for text in ["", "open", "open x 1", "open 1", "open -1 1"] {
            assert_eq!(Holder::parse(text), None, "{text}");
        }
        let long = format!("open 1 1\n{}", "x".repeat(100_000));
        assert_eq!(Holder::parse(&long).unwrap().command.len(), MAX_COMMAND);
    }

    #[test]
    fn this_process_knows_itself() {
        let holder = Holder::of_this_process(&crate::sys::Linux);
        assert_eq!(holder.pid, std::process::id());
        assert!(holder.started > 0 && !holder.command.is_empty());
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(holder.user, Some(user));
        assert!(holder.to_string().ends_with(&format!(" of user {user}")), "{holder}");
    }
}
