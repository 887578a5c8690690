//! What the kernel lets this process do.

use std::path::Path;

use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit};
use rustix::thread::CapabilitySet;

use crate::Error;

/// Identity and limits of the process that is to use the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Effective user.
    pub uid: u32,
    /// Effective group and supplementary groups.
    pub gids: Vec<u32>,
    /// Effective capabilities.
    pub capabilities: Capabilities,
    /// Bytes the process may lock in memory; `None` is no limit.
    pub memlock: Option<u64>,
}

/// The capabilities that matter to VFIO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Locked memory is not limited.
    pub ipc_lock: bool,
    /// Modes of files do not matter.
    pub dac_override: bool,
    /// Nodes without IOMMU may be opened.
    pub sys_rawio: bool,
}

impl Facts {
    /// Returns the facts about this process.
    #[must_use]
    pub fn of_process() -> Self {
        let mut gids = vec![getegid().as_raw()];
        gids.extend(getgroups().unwrap_or_default().iter().map(|gid| gid.as_raw()));
        // A kernel that does not answer grants nothing.
        let effective = rustix::thread::capabilities(None)
            .map_or_else(|_| CapabilitySet::empty(), |sets| sets.effective);
        Self {
            uid: geteuid().as_raw(),
            gids,
            capabilities: Capabilities::of(effective),
            memlock: getrlimit(Resource::Memlock).current,
        }
    }

    /// Reads the facts from `status` and `limits` in a folder such as `/proc/self`.
    ///
    /// # Errors
    /// [`Error::Read`]; [`Error::Malformed`] when a line is missing or no number.
    pub fn from_proc(folder: &Path) -> Result<Self, Error> {
        let file = folder.join("status");
        let status = read(&file)?;
        let bad =
            |expected| Error::Malformed { file: file.clone(), text: status.clone(), expected };
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // Real, effective, saved, file system.
        let effective = |name| line(name)?.split_whitespace().nth(1)?.parse().ok();
        let uid = effective("Uid:").ok_or_else(|| bad("a status with Uid"))?;
        let mut gids = vec![effective("Gid:").ok_or_else(|| bad("a status with Gid"))?];
        let groups = line("Groups:").unwrap_or_default().split_whitespace();
        gids.extend(groups.filter_map(|gid| gid.parse::<u32>().ok()));
        let mask = line("CapEff:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let mask = mask.ok_or_else(|| bad("a status with CapEff"))?;
        Ok(Self {
            uid,
            gids,
            capabilities: Capabilities::of(CapabilitySet::from_bits_retain(mask)),
            memlock: memlock(&folder.join("limits"))?,
        })
    }
}

impl Capabilities {
    fn of(set: CapabilitySet) -> Self {
        Self {
            ipc_lock: set.contains(CapabilitySet::IPC_LOCK),
            dac_override: set.contains(CapabilitySet::DAC_OVERRIDE),
            sys_rawio: set.contains(CapabilitySet::SYS_RAWIO),
        }
    }
}

fn memlock(file: &Path) -> Result<Option<u64>, Error> {
    let limits = read(file)?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => Ok(None),
        soft => match soft.and_then(|soft| soft.parse().ok()) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(Error::Malformed {
                file: file.to_owned(),
                text: limits,
                expected: "a table with Max locked memory",
            }),
        },
    }
}

fn read(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|source| Error::Read { file: file.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sources_agree_about_this_process() {
        let mut files = Facts::from_proc(Path::new("/proc/self")).unwrap();
        let mut calls = Facts::of_process();
        for facts in [&mut files, &mut calls] {
            facts.gids.sort_unstable();
            facts.gids.dedup();
        }
        assert_eq!(files, calls);
    }

    #[test]
    fn a_table_without_the_limit_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let status =
            "Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10\nCapEff:\t0000000000004000\n";
        std::fs::write(folder.path().join("status"), status).unwrap();
        std::fs::write(folder.path().join("limits"), "Max files 1 2\n").unwrap();
        assert!(matches!(Facts::from_proc(folder.path()), Err(Error::Malformed { .. })));
        let limit = "Max locked memory         65536   unlimited bytes\n";
        std::fs::write(folder.path().join("limits"), limit).unwrap();
        let facts = Facts::from_proc(folder.path()).unwrap();
        assert_eq!((facts.uid, facts.gids), (2, vec![6, 9, 10]));
        assert!(facts.capabilities.ipc_lock && !facts.capabilities.sys_rawio);
        assert_eq!(facts.memlock, Some(65536));
    }
}
