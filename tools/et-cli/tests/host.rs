//! `et doctor`, `et bind` and `et unbind`, as users call them, on made-up hosts.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "../../../backends/et-vfio-host/tests/tree/mod.rs"]
mod tree;

use std::process::Output;

use assert_cmd::Command;
use serde_json::{Value, json};
use tree::{CARD, DEVICE, Tree};

fn et(tree: &Tree, args: &[&str]) -> Output {
    // The folder comes last: it belongs to the subcommand.
    let root = tree.root().to_str().unwrap();
    Command::cargo_bin("et").unwrap().args(args).args(["--root", root]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

/// The one problem of a host, by check, and its finding.
#[track_caller]
fn problem(change: impl Fn(&Tree), check: &str, evidence: &str, command: &str) {
    let tree = Tree::bound();
    change(&tree);
    let output = et(&tree, &["doctor", CARD, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = document(&output);
    assert_eq!(document["ok"], false);
    let findings = document["devices"][0]["findings"].as_array().unwrap();
    let problems: Vec<_> = findings.iter().filter(|f| f["verdict"] == "problem").collect();
    let finding = problems.iter().find(|f| f["check"] == check);
    let finding = finding.unwrap_or_else(|| panic!("{problems:#?}"));
    assert!(finding["evidence"].as_str().unwrap().contains(evidence), "{finding}");
    let commands = finding["remedy"].as_array().unwrap();
    let found = commands.iter().any(|c| c.as_str().unwrap().contains(command));
    assert!(found, "{finding}");
    let stdout = text(&et(&tree, &["doctor", CARD]).stdout);
    assert!(stdout.contains(evidence) && stdout.contains(command), "{stdout}");
    assert!(stdout.contains("The card cannot be used"), "{stdout}");
}

#[test]
fn doctor_is_content_with_a_perfect_host() {
    let tree = Tree::bound();
    let output = et(&tree, &["doctor", CARD]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    assert!(stdout.ends_with("The card can be used in mode cdev.\n"), "{stdout}");
    assert!(!stdout.contains("As root"), "{stdout}");
    assert!(stdout.contains("  memlock            ok       256 MiB to be pinned"), "{stdout}");
    // Without an address it finds the card.
    assert_eq!(text(&et(&tree, &["doctor"]).stdout), stdout);
}

#[test]
fn doctor_without_a_card_says_what_one_will_need() {
    let tree = Tree::bound();
    tree.remove(&format!("sys/bus/pci/devices/{CARD}"));
    let output = et(&tree, &["doctor"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}{}", text(&output.stderr));
    for part in ["no function with vendor 1e0a", "256 MiB to be pinned", "There is no card"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    tree.remove("sys/bus/pci/drivers/vfio-pci");
    let document = document(&et(&tree, &["doctor", "--json"]));
    assert_eq!((&document["ok"], &document["devices"]), (&json!(false), &json!([])));
    let findings = document["host"].as_array().unwrap();
    let verdicts: Vec<_> = findings
        .iter()
        .map(|f| (f["check"].as_str().unwrap(), f["verdict"].as_str().unwrap()))
        .collect();
    let expected = [
        ("card", "problem"),
        ("iommu", "ok"),
        ("module", "problem"),
        ("lockdown", "ok"),
        ("memlock", "ok"),
    ];
    assert_eq!(verdicts, expected);
}

/// Programs read this; a change of its shape needs a line in the changelog.
#[test]
fn doctor_has_a_stable_document() {
    let tree = Tree::bound();
    tree.write(&format!("{DEVICE}/sriov_numvfs"), "2\n");
    let mut document = document(&et(&tree, &["doctor", CARD, "--json"]));
    let findings = document["devices"][0]["findings"].take();
    assert_eq!(
        document,
        json!({
            "ok": false,
            "devices": [{
                "bdf": CARD,
                "ok": false,
                "mode": {
                    "name": "cdev",
                    "node": "/dev/vfio/devices/vfio0",
                    "companion": "/dev/iommu",
                },
                "findings": null,
            }],
        })
    );
    let findings = findings.as_array().unwrap();
    let checks: Vec<_> = findings.iter().map(|f| f["check"].as_str().unwrap()).collect();
    assert_eq!(
        checks,
        [
            "card",
            "power",
            "bars",
            "virtual-functions",
            "reset",
            "iommu",
            "group",
            "interrupts",
            "module",
            "lockdown",
            "sysfs",
            "driver",
            "mode",
            "permission",
            "holder",
            "memlock",
            "huge-pages",
        ]
    );
    assert_eq!(
        findings[3],
        json!({
            "check": "virtual-functions",
            "verdict": "problem",
            "evidence": "2 enabled",
            "remedy": ["echo 0 > /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs"],
        })
    );
}

#[test]
fn doctor_sees_a_host_without_iommu() {
    let change = |t: &Tree| {
        t.remove(&format!("{DEVICE}/iommu_group"));
        t.remove("sys/class/iommu");
        t.write("proc/cmdline", "quiet\n");
    };
    problem(change, "iommu", "no IOMMU is on", "intel_iommu=on");
}

#[test]
fn doctor_sees_a_missing_module() {
    let change = |t: &Tree| t.remove("sys/bus/pci/drivers/vfio-pci");
    problem(change, "module", "does not exist", "modprobe vfio-pci");
}

#[test]
fn doctor_sees_wrong_permissions() {
    let change = |t: &Tree| {
        t.without_cdev();
        t.mode("dev/vfio/12", 0o600);
    };
    problem(change, "permission", "/dev/vfio/12 is 600", "chown 54321:54321 /dev/vfio/12");
}

#[test]
fn doctor_sees_a_group_that_is_not_viable() {
    let change = |t: &Tree| {
        t.function("0000:01:00.1", "0x040300", "0x8086", "0x0001");
        t.driver("0000:01:00.1", Some("snd_hda_intel"));
        t.write("sys/kernel/iommu_groups/12/devices/0000:01:00.1", "");
    };
    problem(change, "group", "0000:01:00.1 has driver snd_hda_intel", "0000:01:00.1/driver/unbind");
}

#[test]
fn doctor_names_who_has_the_card() {
    let change = |t: &Tree| t.holder(9_999_999, "et run x.elf", "/dev/vfio/12");
    problem(change, "holder", "process 9999999 (et run x.elf)", "kill 9999999");
}

#[test]
fn doctor_sees_another_device() {
    let change = |t: &Tree| {
        t.function(CARD, "0x020000", "0x8086", "0x10d3");
    };
    problem(change, "card", "8086:10d3, class 020000, not an ET-SoC-1", "lspci");
}

#[test]
fn doctor_sees_a_small_bar() {
    let change = |t: &Tree| {
        let small =
            "0x4000000000 0x400fffffff 0x14220c\n0x0 0x0 0x0\n0xf0000000 0xf0003fff 0x140204";
        t.write(&format!("{DEVICE}/resource"), small);
        t.write(&format!("{DEVICE}/resource0_resize"), "8000\n");
    };
    problem(
        change,
        "bars",
        "BAR0 256 MiB",
        "echo 15 > /sys/bus/pci/devices/0000:01:00.0/resource0",
    );
}

#[test]
fn doctor_compares_the_limit_of_locked_memory() {
    let change = |t: &Tree| t.process(54321, "8388608");
    problem(change, "memlock", "256 MiB to be pinned, limit 8 MiB", "LimitMEMLOCK=268435456");
    let tree = Tree::bound();
    tree.process(54321, "8388608");
    assert!(et(&tree, &["doctor", CARD, "--pin", "8MiB"]).status.success());
    assert!(!et(&tree, &["doctor", CARD, "--pin", "9MiB"]).status.success());
}

#[test]
fn doctor_sees_a_container() {
    let change = |t: &Tree| {
        t.driver(CARD, Some("et-soc1"));
        t.remove(&format!("{DEVICE}/vfio-dev"));
        t.write(".dockerenv", "");
        t.write("proc/self/mounts", "sysfs /sys sysfs ro,nosuid 0 0\n");
    };
    problem(change, "sysfs", "read-only in a container", "et bind 0000:01:00.0 # on the host");
}

#[test]
fn bad_arguments_are_explained() {
    let tree = Tree::bound();
    let output = et(&tree, &["doctor", "card0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("such as 0000:01:00.0"), "{}", text(&output.stderr));
    tree.remove(DEVICE);
    let output = et(&tree, &["bind", CARD, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        document(&output),
        json!({
            "error": "no PCI function 0000:01:00.0 on this host",
            "causes": [],
            "kind": "failure",
            "remedy": ["lspci -D -d 1e0a:"],
        })
    );
}

#[test]
fn a_dry_run_prints_the_writes_and_makes_none() {
    let tree = Tree::unbound();
    let output = et(&tree, &["bind", CARD, "--dry-run", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plan = document(&output);
    let writes: Vec<_> = plan["steps"].as_array().unwrap().iter().map(|s| &s["write"]).collect();
    assert_eq!(writes, ["driver=et-soc1\noverride=\n", "vfio-pci", CARD, CARD]);
    assert_eq!((&plan["from"], &plan["to"]), (&json!("et-soc1"), &json!("vfio-pci")));
    let stdout = text(&et(&tree, &["bind", CARD, "--dry-run"]).stdout);
    let line = "printf '0000:01:00.0' > /sys/bus/pci/drivers_probe  # gives the card to vfio-pci";
    assert!(stdout.contains(line), "{stdout}");
    assert_eq!(tree.read("sys/bus/pci/drivers_probe"), "");
    assert!(!tree.at("run").exists());
    let output = et(&tree, &["unbind", CARD, "--dry-run"]);
    assert_eq!(text(&output.stdout), "nothing to do\n");
}

/// Pipes stand for the files of sysfs that act, with a made-up kernel at their other end.
#[test]
fn bind_and_unbind_change_the_driver() {
    let tree = Tree::unbound();
    tree.answer(&["sys/bus/pci/drivers/et-soc1/unbind", "sys/bus/pci/drivers_probe"]);
    let own = rustix::process::geteuid().as_raw().to_string();
    let output = et(&tree, &["bind", CARD, "--json", "--owner", &own]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let report = document(&output);
    assert_eq!((&report["from"], &report["driver"]), (&json!("et-soc1"), &json!("vfio-pci")));
    assert_eq!(report["mode"]["node"], "/dev/vfio/devices/vfio0");
    assert_eq!(report["given"], json!(["/dev/vfio/devices/vfio0", "/dev/vfio/12"]));
    assert!(
        report["udev_rules"]
            .as_str()
            .unwrap()
            .contains(&format!("KERNEL==\"12\", OWNER=\"{own}\""))
    );
    assert_eq!(tree.driver_of(CARD).as_deref(), Some("vfio-pci"));

    let again = et(&tree, &["bind", CARD]);
    assert!(text(&again.stdout).starts_with("0000:01:00.0: vfio-pci has it already\n"));

    tree.answer(&["sys/bus/pci/drivers/vfio-pci/unbind", "sys/bus/pci/drivers_probe"]);
    let output = et(&tree, &["unbind", CARD]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    assert_eq!(stdout, "0000:01:00.0: vfio-pci -> et-soc1\n");
    assert_eq!(tree.driver_of(CARD).as_deref(), Some("et-soc1"));
}

#[test]
fn bind_explains_what_it_refuses() {
    let tree = Tree::unbound();
    tree.write(&format!("{DEVICE}/misc/et0_ops/uevent"), "DEVNAME=et0_ops\n");
    tree.holder(9_999_999, "worker", "/dev/et0_ops");
    let output = et(&tree, &["bind", CARD]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("in use by process 9999999 (worker)"), "{stderr}");
    assert!(stderr.contains("  try: kill 9999999"), "{stderr}");
    let output = et(&tree, &["bind", CARD, "--owner", "eve"]);
    assert!(text(&output.stderr).contains("no user named \"eve\" in /etc/passwd"));
}

/// No kernel answers: the driver does not change, which is an error that leaves everything as
/// before.
#[test]
fn bind_checks_what_came_of_it() {
    let tree = Tree::unbound();
    let output = et(&tree, &["bind", CARD]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("has driver et-soc1 now, wanted was driver vfio-pci"), "{stderr}");
    assert_eq!(tree.read(&format!("{DEVICE}/driver_override")), "\n");
    assert!(!tree.at("run/et/bind/0000:01:00.0").exists());
}
