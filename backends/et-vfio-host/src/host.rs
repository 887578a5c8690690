//! The files of a host.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Bdf, Error, Facts, Finding, Needs, Preflight};

/// A host: a root below which `/sys`, `/proc`, `/dev` and `/run` are, and the process that asks.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    facts: Facts,
}

impl Host {
    /// Returns the host this process runs on.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/")
    }

    /// Returns the host whose files are below `root`, seen by this process.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), facts: Facts::of_process() }
    }

    /// Replaces the facts about the process.
    #[must_use]
    pub fn with_facts(self, facts: Facts) -> Self {
        Self { facts, ..self }
    }

    /// Returns the facts about the process.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Checks whether this process can use the function through VFIO, with the default [`Needs`].
    ///
    /// Changes nothing. A backend calls this when an open failed, to say why.
    pub fn preflight(&self, bdf: Bdf) -> Preflight {
        self.preflight_with(bdf, &Needs::default())
    }

    /// As [`Host::preflight`], for given needs.
    pub fn preflight_with(&self, bdf: Bdf, needs: &Needs) -> Preflight {
        crate::preflight::run(self, bdf, needs)
    }

    /// Checks what a card will need of this host, for a host that has none.
    #[must_use]
    pub fn findings(&self, needs: &Needs) -> Vec<Finding> {
        crate::preflight::of_host(self, needs)
    }

    /// Returns where a file of the host is: absolute paths of the host, below the root.
    #[must_use]
    pub fn path(&self, file: &Path) -> PathBuf {
        self.root.join(file.strip_prefix("/").unwrap_or(file))
    }

    /// Reads a file without the white space around its text; `None` when it does not exist.
    pub(crate) fn text(&self, file: impl AsRef<Path>) -> Result<Option<String>, Error> {
        let file = file.as_ref();
        let bytes = self.present(file, std::fs::read(self.path(file)))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Reads a number; `None` when the file does not exist.
    pub(crate) fn number(&self, file: impl AsRef<Path>) -> Result<Option<i64>, Error> {
        let file = file.as_ref();
        let Some(text) = self.text(file)? else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                Err(Error::Malformed { file: file.to_owned(), text, expected: "a decimal number" })
            }
        }
    }

    /// Returns the last part of a link's target; `None` when there is no such link.
    pub(crate) fn link_name(&self, file: impl AsRef<Path>) -> Result<Option<String>, Error> {
        let file = file.as_ref();
        let target = self.present(file, std::fs::read_link(self.path(file)))?;
        let name = target.as_deref().and_then(Path::file_name);
        Ok(name.map(|name| name.to_string_lossy().into_owned()))
    }

    /// Returns the sorted names in a folder; none when it does not exist.
    pub(crate) fn names(&self, folder: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        let folder = folder.as_ref();
        let Some(entries) = self.present(folder, std::fs::read_dir(self.path(folder)))? else {
            return Ok(Vec::new());
        };
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Reports whether the file exists, as far as this process may know.
    pub(crate) fn exists(&self, file: impl AsRef<Path>) -> bool {
        self.path(file.as_ref()).symlink_metadata().is_ok()
    }

    /// Makes absence a value and keeps other failures.
    fn present<T>(&self, file: &Path, result: io::Result<T>) -> Result<Option<T>, Error> {
        match result {
            Ok(value) => Ok(Some(value)),
            // ENOTDIR: a parent is a file, which is absence as well.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(source) => Err(Error::Read { file: file.to_owned(), source }),
        }
    }
}
