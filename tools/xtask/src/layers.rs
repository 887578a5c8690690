//! No crate depends upwards.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::shell::{capture, cargo};

/// The layer of each crate; a crate may depend on those with smaller numbers only.
const LAYERS: &[(&str, u32)] = &[
    ("et-hal", 0),
    ("et-isa", 0),
    ("et-devapi", 1),
    ("et-sim-cores", 1),
    ("et-sim-device", 2),
    ("et-vfio-host", 0),
    ("et-vfio-user", 0),
    ("et-sim-server", 3),
    ("et-hal-mock", 3),
    ("et-hal-sim", 3),
    ("et-hal-vfio", 3),
    ("et-runtime", 3),
    ("et", 4),
    ("et-broker", 4),
    ("et-as", 4),
    ("et-cc", 5),
    ("et-capi", 5),
    ("et-python", 6),
    ("et-cli", 6),
    ("et-simd", 5),
    ("et-vm-edu", 5),
    ("et-bench", 6),
    ("xtask", 5),
    ("et-testkit", 1),
    ("et-conformance", 5),
    ("et-campaign", 5),
    ("et-loom", 4),
    ("et-shuttle", 4),
];

/// Checks the dependency graph of the workspace; tests may depend on anything.
pub(crate) fn check() -> anyhow::Result<()> {
    let layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let output = capture(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(layer) = layers.get(name) else { bail!("crate {name} has no layer") };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            if dependency["kind"] == "dev" || !layers.contains_key(on) {
                continue;
            }
            if layers[on] >= *layer {
                bail!("{name} (layer {layer}) depends on {on} (layer {})", layers[on]);
            }
        }
    }
    Ok(())
}
