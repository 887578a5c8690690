//! Programs of the workspace, built for the guest and for the host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use super::hindrance::Hindrance;
use super::program::limited;
use crate::shell::{build_programs, capture, root};

const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";
const LIMIT: Duration = Duration::from_secs(1200);

/// Where a program is to run.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Place {
    Host,
    /// Linked with its C library: the guest has none.
    Guest,
}

/// The programs built in this run.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    done: HashMap<(Place, String), Result<PathBuf, Hindrance>>,
}

impl Builds {
    /// The program of that name.
    pub(crate) fn program(&mut self, place: Place, name: &str) -> Result<PathBuf, Hindrance> {
        let key = (place, name.to_owned());
        if let Some(done) = self.done.get(&key) {
            return done.clone();
        }
        let built = Self::build(place, name);
        self.done.insert(key, built.clone());
        built
    }

    fn build(place: Place, name: &str) -> Result<PathBuf, Hindrance> {
        let mut command = build_programs(&[name]);
        command.args(["--release", "--message-format=json"]);
        if place == Place::Guest {
            command.args(["--target", GUEST_TARGET, "--target-dir"]).arg(root().join("target-vm"));
            command
                .env("RUSTFLAGS", "-C target-feature=+crt-static")
                .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
                .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
                // The work is done by the simulator, on the host.
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        }
        let output = capture(&mut limited(LIMIT, &command))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(anyhow::anyhow!("building {name}: {}: {errors}", output.status).into());
        }
        Ok(executable(&String::from_utf8_lossy(&output.stdout), name)?)
    }
}

/// The program among cargo's messages.
fn executable(messages: &str, name: &str) -> anyhow::Result<PathBuf> {
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(path) = message["executable"].as_str()
            && Path::new(path).file_name().is_some_and(|file| file == name)
        {
            return Ok(path.into());
        }
    }
    bail!("cargo built no {name}")
}

#[cfg(test)]
mod tests {
    use super::executable;

    #[test]
    fn the_program_is_found_among_the_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/release/et\"}\n";
        assert_eq!(executable(messages, "et").unwrap().to_str(), Some("/t/release/et"));
        executable(messages, "t").unwrap_err();
    }
}
