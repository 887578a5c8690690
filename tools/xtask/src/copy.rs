//! Copies of the sources, into which bugs are seeded.

use std::path::Path;

use anyhow::{Context, ensure};

/// Copies a file or folder where it differs, so that builds stay incremental.
pub(crate) fn sync(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_dir() {
        std::fs::create_dir_all(to)?;
        for entry in std::fs::read_dir(from)? {
            let name = entry?.file_name();
            sync(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let bytes = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    if std::fs::read(to).ok().as_ref() != Some(&bytes) {
        // With its permissions: some are programs.
        std::fs::copy(from, to).with_context(|| format!("writing {}", to.display()))?;
    }
    Ok(())
}

/// Puts `replace` where `find` is in a file, which must be one place.
pub(crate) fn seed(file: &Path, find: &str, replace: &str) -> anyhow::Result<()> {
    let original = read(file)?;
    let places = original.matches(find).count();
    ensure!(places == 1, "its text is {places} times in {}", file.display());
    Ok(std::fs::write(file, original.replacen(find, replace, 1))?)
}

pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}
