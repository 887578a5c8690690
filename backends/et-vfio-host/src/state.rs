//! What a card was before it was bound, kept until it is given back.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::{Bdf, Error, Host};

/// Lost at reboot, as the binding is.
const FOLDER: &str = "/run/et/bind";

/// What a card was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) driver: Option<String>,
    pub(crate) driver_override: Option<String>,
}

impl Before {
    pub(crate) fn to_text(&self) -> String {
        let value = |name: &Option<String>| name.clone().unwrap_or_default();
        format!("driver={}\noverride={}\n", value(&self.driver), value(&self.driver_override))
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let name = |value: &str| Some(value.to_owned()).filter(|name| !name.is_empty());
        Some(Self { driver: name(value("driver=")?), driver_override: name(value("override=")?) })
    }
}

pub(crate) fn file(bdf: Bdf) -> PathBuf {
    Path::new(FOLDER).join(bdf.to_string())
}

/// Keeps other processes from binding until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Host {
    pub(crate) fn before(&self, bdf: Bdf) -> Result<Option<Before>, Error> {
        let file = file(bdf);
        let Some(text) = self.text(&file)? else { return Ok(None) };
        let before = Before::parse(&text);
        let expected = "what a card was before it was bound";
        before.map(Some).ok_or(Error::Malformed { file, text, expected })
    }

    /// Replaces the file at once, so that a crash leaves the old one or the new one.
    pub(crate) fn remember(&self, bdf: Bdf, text: &str) -> Result<(), Error> {
        let file = file(bdf);
        let target = self.path(&file);
        let draft = target.with_extension("new");
        let result = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &target));
        result.map_err(|source| Error::Write { file, text: text.to_owned(), source })
    }

    pub(crate) fn forget(&self, bdf: Bdf) -> Result<(), Error> {
        let file = file(bdf);
        match std::fs::remove_file(self.path(&file)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Write { file, text: String::new(), source })
            }
            _ => Ok(()),
        }
    }

    /// Makes the folder and takes its lock; the kernel lets go of it when the process ends.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        let folder = self.path(Path::new(FOLDER));
        let file = Path::new(FOLDER).join("lock");
        let failed = |source| Error::Write { file: file.clone(), text: String::new(), source };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let lock = File::create(self.path(&file)).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked { file }),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_is_read_back() {
        for before in [
            Before::default(),
            Before { driver: Some("et-soc1".to_owned()), driver_override: Some("x".to_owned()) },
        ] {
            assert_eq!(Before::parse(&before.to_text()), Some(before));
        }
        assert_eq!(Before::parse("driver=x"), None);
    }

    #[test]
    fn one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::at(folder.path());
        let lock = host.lock().unwrap();
        assert!(matches!(host.lock(), Err(Error::Locked { .. })));
        drop(lock);
        host.lock().unwrap();
    }
}
