//! What is in the programs, as `CycloneDX`: from what cargo says about dependencies.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::shell::{capture, cargo, root};

/// The crates of which the shipped programs and libraries are made.
const SHIPPED: [&str; 5] = ["et-cli", "et-as", "et-simd", "et-capi", "et-python"];

/// Makes the list; it is the same for the same lock file.
pub(super) fn document() -> anyhow::Result<Value> {
    let call = ["metadata", "--format-version", "1", "--locked", "--filter-platform"];
    let output = capture(cargo(&call).arg(host()?))?;
    ensure!(output.status.success(), "cargo metadata ended with {}", output.status);
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).context("reading Cargo.lock")?;
    Ok(describe(&metadata, &checksums(&lock)))
}

fn host() -> anyhow::Result<String> {
    let output = capture(std::process::Command::new("rustc").arg("-vV"))?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

/// SHA-256 of packages, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            let value =
                package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            value.map(|value| value.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            all.insert((name, version), sum);
        }
    }
    all
}

fn describe(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let none = Vec::new();
    let array = |value: &Value| value.as_array().unwrap_or(&none).clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<_, _> =
        array(&metadata["packages"]).into_iter().map(|p| (text(&p["id"]), p)).collect();
    let edges: BTreeMap<_, _> = array(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| {
            // What tests and build scripts have is in no program.
            let normal = |dep: &Value| array(&dep["dep_kinds"]).iter().any(|k| k["kind"].is_null());
            let deps: BTreeSet<_> = array(&node["deps"])
                .iter()
                .filter(|dep| normal(dep))
                .map(|dep| text(&dep["pkg"]))
                .collect();
            (text(&node["id"]), deps)
        })
        .collect();
    let mut todo: Vec<_> = packages
        .iter()
        .filter(|(_, package)| SHIPPED.contains(&text(&package["name"]).as_str()))
        .map(|(id, _)| id.clone())
        .collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if reached.insert(id.clone()) {
            todo.extend(edges.get(&id).into_iter().flatten().cloned());
        }
    }
    // Names of files in a checkout are no part of what was built.
    let url = |id: &str| {
        let package = &packages[id];
        format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
    };
    let components: Vec<_> = reached
        .iter()
        .map(|id| {
            let package = &packages[id];
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let mut component = json!({
                "type": "library", "bom-ref": url(id), "name": name, "version": version,
                "purl": url(id),
                "licenses": [{ "expression": text(&package["license"]).replace('/', " OR ") }],
            });
            if let Some(sum) = checksums.get(&(name, version)) {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
            }
            component
        })
        .collect();
    let dependencies: Vec<_> = reached
        .iter()
        .map(|id| {
            let on: Vec<_> = edges.get(id).into_iter().flatten().map(|dep| url(dep)).collect();
            json!({ "ref": url(id), "dependsOn": on })
        })
        .collect();
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "bom-ref": "et", "name": "et",
            "version": env!("CARGO_PKG_VERSION"),
        }},
        "components": components, "dependencies": dependencies,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_shipped_is_listed_and_no_more() {
        let node = |id: &str, deps: Value| json!({ "id": id, "deps": deps });
        let dep = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let package = |id: &str, name: &str| json!({ "id": id, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let metadata = json!({
            "packages": [
                package("a", "et-cli"), package("b", "used"), package("c", "tested"),
                package("d", "deep"), package("e", "xtask"),
            ],
            "resolve": { "nodes": [
                node("a", json!([dep("b", Value::Null), dep("c", json!("dev"))])),
                node("b", json!([dep("d", Value::Null), dep("c", json!("build"))])),
                node("e", json!([dep("c", Value::Null)])),
            ]},
        });
        let lock = "[[package]]\nname = \"used\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n";
        let made = describe(&metadata, &checksums(lock));
        let names: Vec<_> = made["components"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|component| component["name"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(names, ["et-cli", "used", "deep"]);
        let used = &made["components"][1];
        assert_eq!(used["hashes"][0]["content"], "ab");
        assert_eq!(used["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(made["dependencies"][1]["dependsOn"], json!(["pkg:cargo/deep@1.0.0"]));
    }

    #[test]
    fn the_list_of_this_workspace_is_complete() {
        let made = document().unwrap();
        let components = made["components"].as_array().unwrap();
        for component in components {
            let name = component["name"].as_str().unwrap();
            assert_ne!(component["licenses"][0]["expression"], "", "{name} has no licence");
            let of_others = !name.starts_with("et");
            assert_eq!(component["hashes"].is_array(), of_others, "{name}");
        }
        assert!(components.len() > 50, "{}", components.len());
        assert!(!made.to_string().contains("proptest"), "what tests need is not shipped");
    }
}
