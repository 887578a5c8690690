//! `et list` and `et info`.

use anyhow::Context;
use et::management::Asset;
use et::share::Shared;
use et::{FirmwareType, Properties};
use serde_json::{Value, json};

use crate::manage;
use crate::open;
use crate::output::{self, Format};

pub(crate) fn list(format: Format) -> anyhow::Result<()> {
    let devices = et::list();
    // Those of other processes, but for cards, which are listed already.
    let shared = et::share::shared().into_iter();
    let shared: Vec<Shared> = shared.filter(|it| !it.locator.starts_with("vfio:")).collect();
    if format == Format::Json {
        let own = devices.iter().map(|d| {
            let holder = d.holder.as_ref();
            let holder =
                holder.map(|h| json!({ "pid": h.pid, "user": h.user, "command": h.command }));
            json!({ "locator": d.locator, "description": d.description, "holder": holder })
        });
        let others = shared.iter().map(|it| {
            let holder = json!({ "pid": it.pid, "user": null, "command": command_line(it.pid) });
            json!({
                "locator": it.to_string(), "description": described(it), "holder": holder,
            })
        });
        return output::json(&own.chain(others).collect::<Vec<_>>());
    }
    for device in devices {
        println!("{}", line(&device));
    }
    for it in shared {
        println!("{it:<8} {}, {}", described(&it), command_line(it.pid));
    }
    Ok(())
}

fn described(Shared { pid, locator, .. }: &Shared) -> String {
    format!("{locator} of process {pid}, to be looked at")
}

/// The command line of a process, as far as the kernel tells.
pub(crate) fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).collect()
}

fn line(device: &et::DeviceInfo) -> String {
    let held =
        device.holder.as_ref().map_or_else(String::new, |holder| format!("; held by {holder}"));
    format!("{:<8} {}{held}", device.locator, device.description)
}

pub(crate) fn info(locator: &str, format: Format) -> anyhow::Result<()> {
    let device = open::open(locator).with_context(|| format!("opening {locator}"))?;
    let properties = device.properties();
    let firmware: Vec<(&str, Option<String>)> = [
        ("master_minion", FirmwareType::MasterMinion),
        ("machine_minion", FirmwareType::MachineMinion),
        ("worker_minion", FirmwareType::WorkerMinion),
    ]
    .into_iter()
    .map(|(name, kind)| (name, device.firmware_version(kind).ok().map(|v| v.to_string())))
    .collect();
    let memory = device.memory_stats();
    let module = module(&device);
    let value = |v: Option<Value>| v.unwrap_or(Value::Null);
    let Properties {
        shire_mask,
        shires,
        cores,
        harts,
        scalar_units,
        vector_units,
        unified_address_space,
        global_memory_bytes,
        constant_memory_bytes,
        local_memory_bytes,
        ..
    } = properties;
    let caches: Vec<_> = properties
        .caches
        .iter()
        .map(|c| {
            json!({
                "level": c.level, "kind": format!("{:?}", c.kind), "size_bytes": c.size_bytes, "line_bytes": c.line_bytes,
                "banks_per_shire": c.banks_per_shire,
            })
        })
        .collect();
    let document = json!({
        "locator": locator,
        "sharing": match properties.sharing {
            et::hal::Sharing::Exclusive => Some("exclusive"),
            et::hal::Sharing::OneEach => Some("one for each opening"),
            _ => None,
        },
        "pci": {
            "address": properties.pci_address,
            "vendor": properties.pci.map(|ids| format!("{:04x}", ids.vendor)),
            "device": properties.pci.map(|ids| format!("{:04x}", ids.device)),
            "subsystem_vendor": properties.pci.map(|ids| format!("{:04x}", ids.subsystem_vendor)),
            "subsystem": properties.pci.map(|ids| format!("{:04x}", ids.subsystem)),
            "revision": properties.pci.map(|ids| format!("{:02x}", ids.revision)),
        },
        "arch_revision": format!("{:?}", properties.arch_revision),
        "form_factor": format!("{:?}", properties.form_factor),
        "tdp_watts": properties.tdp_watts,
        "boot_frequency_mhz": properties.boot_frequency_mhz,
        "timestamp_hz": properties.timestamp_hz,
        "shire_mask": format!("{shire_mask:#x}"),
        "shires": shires,
        "master_shire": properties.master_shire,
        "cores": cores,
        "harts": harts,
        "scalar_units": scalar_units,
        "vector_units": vector_units,
        "submission_queues": properties.queues,
        "unified_address_space": unified_address_space,
        "cpu_access": properties.cpu_access,
        "global_memory_base": properties.global_memory_base.to_string(),
        "global_memory_bytes": global_memory_bytes,
        "global_memory_free_bytes": memory.free_bytes,
        "constant_memory_bytes": constant_memory_bytes,
        "local_memory_bytes": local_memory_bytes,
        "memory_bandwidth_mbps": properties.memory_bandwidth_mbps,
        "cache_levels": properties.caches.len(),
        "cache_line_bytes": properties.cache_line_bytes,
        "caches": caches,
        "address_map": properties.address_map.iter().map(|range| json!({
            "name": range.name, "base": range.base.to_string(), "length_bytes": range.len_bytes,
        })).collect::<Vec<_>>(),
        "dma": {
            "max_nodes": properties.dma_max_nodes,
            "max_node_bytes": properties.dma_max_node_bytes,
            "align_bytes": properties.dma_align_bytes,
            "peer_to_peer": properties.peer_to_peer,
        },
        "versions": {
            "device_api": properties.api_version.to_string(),
            "runtime": properties.runtime_version,
            "backend": format!("{} {}", properties.backend.name, properties.backend.version),
            "interface": properties.backend.interface,
            "driver": properties.backend.driver,
            "firmware": firmware.iter().map(|(name, version)| {
                ((*name).to_owned(), value(version.clone().map(Value::from)))
            }).collect::<serde_json::Map<_, _>>(),
        },
        "module": module,
    });
    match format {
        Format::Json => output::json(&document)?,
        Format::Text => print_tree(&document, 0),
    }
    device.close();
    Ok(())
}

/// What the service processor says; its failure, if it does not.
fn module(device: &et::Device) -> Value {
    let ask = || -> et::Result<Value> {
        let management = device.management()?.with_timeout(manage::PATIENCE);
        let text = |asset| management.asset(asset).map(Value::from);
        let versions = management.firmware_versions()?;
        Ok(json!({
            "manufacturer": text(Asset::Manufacturer)?,
            "part_number": text(Asset::PartNumber)?,
            "serial_number": text(Asset::SerialNumber)?,
            "revision": text(Asset::ModuleRevision)?,
            "chip_revision": text(Asset::ChipRevision)?,
            "form_factor": text(Asset::FormFactor)?,
            "memory_megabytes": text(Asset::MemorySize)?,
            "memory_type": text(Asset::MemoryType)?,
            "pcie": text(Asset::PciePorts)?,
            "firmware_release": versions.release.to_string(),
            "boot_loader_1": versions.boot_loader_1.to_string(),
            "boot_loader_2": versions.boot_loader_2.to_string(),
            "power_controller": versions.power_controller.to_string(),
            "frequency_mhz": management.frequencies()?.minion_mhz,
        }))
    };
    ask().unwrap_or_else(|error| json!({ "error": et::Report(&error).to_string() }))
}

/// Prints what has names, in its order; what there are several of, as a table.
pub(crate) fn print_tree(value: &Value, depth: usize) {
    let Value::Object(fields) = value else { return };
    for (name, field) in fields {
        let label = format!("{:indent$}{}", "", name.replace('_', " "), indent = 2 * depth);
        match field {
            Value::Object(_) => {
                println!("{label}");
                print_tree(field, depth + 1);
            }
            Value::Array(rows) => {
                println!("{label}");
                print_table(rows, 2 * (depth + 1));
            }
            _ => println!("{label:<28} {}", text(name, field)),
        }
    }
}

fn print_table(rows: &[Value], indent: usize) {
    let Some(Value::Object(first)) = rows.first() else { return };
    let heading = first.keys().map(|name| name.trim_end_matches("_bytes").replace('_', " "));
    let mut lines = vec![heading.collect::<Vec<_>>()];
    lines.extend(
        rows.iter()
            .filter_map(Value::as_object)
            .map(|row| row.iter().map(|(name, field)| text(name, field)).collect()),
    );
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
    };
    for line in &lines {
        let cells = line.iter().enumerate().map(|(at, cell)| format!("{cell:<w$}", w = width(at)));
        println!("{:indent$}{}", "", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn text(name: &str, field: &Value) -> String {
    match field {
        Value::Null => "not reported".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) if name.ends_with("_bytes") => {
            output::bytes(number.as_u64().unwrap_or(0))
        }
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}
