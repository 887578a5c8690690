//! `et completions` and `et man`: what packages have besides the program.

use std::path::PathBuf;

use anyhow::Context;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Where the pages are written.
    folder: PathBuf,
}

pub(crate) fn completions(args: &CompletionArgs, mut command: clap::Command) -> anyhow::Result<()> {
    clap_complete::generate(args.shell, &mut command, "et", &mut std::io::stdout());
    Ok(())
}

/// Writes a page for the command, and one for each of its parts.
pub(crate) fn man(args: &ManArgs, command: clap::Command) -> anyhow::Result<()> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .with_context(|| format!("writing to {}", folder.display()))
}
