//! Who has a node open.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{Error, Host};

/// A process with a node open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its command line, or its short name.
    pub command: String,
    /// The node it has open.
    pub node: PathBuf,
}

/// What a look at all processes found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holders {
    /// Processes with one of the nodes open.
    pub found: Vec<Holder>,
    /// Processes whose open files this one may not see.
    pub unseen: usize,
}

impl Host {
    /// Looks for processes that have one of `nodes` open.
    ///
    /// # Errors
    /// [`Error::Read`] when processes cannot be listed.
    pub fn holders(&self, nodes: &[PathBuf]) -> Result<Holders, Error> {
        let nodes: BTreeSet<&Path> = nodes.iter().map(PathBuf::as_path).collect();
        let mut holders = Holders::default();
        for pid in self.names("/proc")?.iter().filter_map(|name| name.parse::<u32>().ok()) {
            match std::fs::read_dir(self.path(Path::new(&format!("/proc/{pid}/fd")))) {
                Ok(entries) => {
                    let targets =
                        entries.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
                    let mut held = targets.filter(|target| nodes.contains(target.as_path()));
                    if let Some(node) = held.next() {
                        holders.found.push(Holder { pid, command: self.command(pid), node });
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    holders.unseen += 1;
                }
                // The process has ended meanwhile.
                Err(_) => {}
            }
        }
        Ok(holders)
    }

    fn command(&self, pid: u32) -> String {
        let read = |name: &str| self.text(format!("/proc/{pid}/{name}")).ok().flatten();
        let line = read("cmdline").map(|line| line.trim_matches('\0').replace('\0', " "));
        let line = line.filter(|line| !line.is_empty()).or_else(|| read("comm"));
        line.unwrap_or_else(|| "unknown".to_owned())
    }
}
