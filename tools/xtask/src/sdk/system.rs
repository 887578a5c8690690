//! What the system is told, as the tools of the system judge it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use crate::shell::{capture, root};
use crate::tools::Done;

const PACKAGING: &str = "tools/packaging";

/// Units, and the programs that they start.
const UNITS: [(&str, &str); 2] =
    [("et-share@.service", "/usr/bin/et "), ("et-simd@.service", "/usr/bin/et-simd ")];

/// Checks the units of shared and simulated cards.
pub(crate) fn check_units() -> anyhow::Result<Done> {
    // Without it, mistakes that are only warned of would be a success.
    let strict = "--recursive-errors";
    if !knows("systemd-analyze", &["--help"], strict) {
        return Ok(Done::Skipped(format!("no systemd-analyze knows {strict}")));
    }
    let folder = tempfile::tempdir()?;
    for (name, program) in UNITS {
        let unit = fs::read_to_string(root().join(PACKAGING).join(name))?;
        ensure!(unit.contains(program), "{name} does not start {program}");
        let path = folder.path().join(name);
        // Neither the program nor its page is installed here.
        fs::write(&path, unit.replace(program, "/bin/true "))?;
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no", &format!("{strict}=no")]);
        judge(&mut command, &path)?;
    }
    Ok(Done::Checked)
}

/// Checks the rules for nodes of cards.
pub(crate) fn check_rules() -> anyhow::Result<Done> {
    if !knows("udevadm", &["verify", "--help"], "--resolve-names") {
        return Ok(Done::Skipped("no udevadm knows verify".to_owned()));
    }
    let mut command = Command::new("udevadm");
    // The group is made by the package.
    command.args(["verify", "--resolve-names=never"]);
    judge(&mut command, &root().join(PACKAGING).join("70-et-vfio.rules"))?;
    Ok(Done::Checked)
}

fn knows(program: &str, help: &[&str], word: &str) -> bool {
    let output = Command::new(program).args(help).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(word))
}

fn judge(command: &mut Command, file: &Path) -> anyhow::Result<()> {
    let output = capture(command.arg(file))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(())
}
