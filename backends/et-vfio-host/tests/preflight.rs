//! The preflight, on made-up hosts.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod tree;

use et_vfio_host::{Check, Finding, Host, Mode, Needs, Preflight, Verdict};
use tree::{CARD, DEVICE, Tree, card, facts};

fn finding(report: &Preflight, check: Check) -> Finding {
    report.finding(check).unwrap().clone()
}

/// The verdict of a check after a change, its text and its commands.
#[track_caller]
fn expect(change: impl Fn(&Tree), check: Check, verdict: &str, words: &str, command: &str) {
    let tree = Tree::bound();
    change(&tree);
    let finding = finding(&tree.host().preflight(card()), check);
    assert_eq!(finding.verdict.name(), verdict, "{finding}");
    assert!(finding.detail().contains(words), "{words}: {finding}");
    let remedy = finding.remedy.join("\n");
    assert!(remedy.contains(command), "{command}: {finding}");
    assert_eq!(remedy.is_empty(), command.is_empty(), "{finding}");
}

#[test]
fn a_perfect_host_has_only_good_findings() {
    let tree = Tree::bound();
    let report = tree.host().preflight(card());
    assert!(report.is_ok());
    for (finding, check) in report.findings.iter().zip(Check::ALL) {
        assert_eq!((finding.check, &finding.verdict), (check, &Verdict::Ok), "{finding}");
        assert!(!finding.evidence.is_empty() && finding.remedy.is_empty(), "{finding}");
    }
    assert_eq!(report.findings.len(), Check::ALL.len());
    let node = "/dev/vfio/devices/vfio0".into();
    assert_eq!(report.mode, Some(Mode::Cdev { node }));
    assert_eq!(report.to_string(), "0000:01:00.0: no problem found on this host");
}

#[test]
fn a_missing_card_is_one_problem_and_names_the_others() {
    let tree = Tree::bound();
    let report = tree.host().preflight("0000:05:00.0".parse().unwrap());
    assert_eq!(report.problems().count(), 1);
    let card = finding(&report, Check::Card);
    assert!(card.evidence.contains("cards are at 0000:01:00.0"), "{card}");
    assert_eq!(finding(&report, Check::Driver).verdict.name(), "skipped");
    assert_eq!(finding(&report, Check::Memlock).verdict, Verdict::Ok);
    tree.remove(DEVICE);
    let report = tree.host().preflight("0000:05:00.0".parse().unwrap());
    assert!(report.to_string().contains("none with vendor 1e0a"), "{report}");
}

#[test]
fn an_empty_root_is_a_report_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let report = Host::at(folder.path()).with_facts(facts()).preflight(card());
    assert!(!report.is_ok());
    assert_eq!(report.findings.len(), Check::ALL.len());
}

#[test]
fn unreadable_values_are_named_with_their_file() {
    let tree = Tree::bound();
    tree.write(&format!("{DEVICE}/vendor"), "garbage\n");
    let report = tree.host().preflight(card());
    assert!(report.to_string().contains("/sys/bus/pci/devices/0000:01:00.0/vendor"), "{report}");
    assert!(report.to_string().contains("garbage"), "{report}");
}

#[test]
fn the_identity_is_checked() {
    let id = |device: &'static str| {
        move |t: &Tree| {
            t.write(&format!("{DEVICE}/device"), device);
            let id = u16::from_str_radix(&device[2..], 16).unwrap().to_le_bytes();
            std::fs::write(t.at(&format!("{DEVICE}/config")), [0x0a, 0x1e, id[0], id[1]]).unwrap();
        }
    };
    expect(id("0x9038"), Check::Card, "ok", "test or emulation", "");
    expect(id("0xeb02"), Check::Card, "problem", "1e0a:eb02", "lspci");
    expect(id("0xeb02"), Check::Bars, "skipped", "not an ET-SoC-1", "");
    let bytes = |bytes: [u8; 4]| {
        move |t: &Tree| std::fs::write(t.at(&format!("{DEVICE}/config")), bytes).unwrap()
    };
    expect(bytes([0xff; 4]), Check::Card, "problem", "link is down", "/remove");
    expect(bytes([0x0a, 0x1e, 0x38, 0x90]), Check::Card, "problem", "answers 1e0a:9038", "rescan");
    expect(|t| t.remove(&format!("{DEVICE}/config")), Check::Card, "warning", "not read", "");
}

#[test]
fn power_is_checked() {
    let state =
        |state: &'static str| move |t: &Tree| t.write(&format!("{DEVICE}/power_state"), state);
    expect(state("D3hot"), Check::Power, "ok", "woken", "");
    expect(state("D3cold"), Check::Power, "problem", "D3cold", "power/control");
    let untouched = |t: &Tree| {
        state("unknown")(t);
        t.driver(CARD, None);
    };
    expect(untouched, Check::Power, "skipped", "when a driver takes", "");
    expect(state("D1"), Check::Power, "warning", "D1", "power/control");
    expect(|t| t.remove(&format!("{DEVICE}/power_state")), Check::Power, "skipped", "not say", "");
}

#[test]
fn bars_are_checked() {
    let bars = |bar0: &'static str, bar2: &'static str| {
        move |t: &Tree| {
            let text = format!("{bar0}\n0x0 0x0 0x0\n{bar2}\n");
            t.write(&format!("{DEVICE}/resource"), &text);
        }
    };
    const GOOD0: &str = "0x4000000000 0x47ffffffff 0x14220c";
    const SMALL0: &str = "0x4000000000 0x400fffffff 0x14220c";
    const GOOD2: &str = "0xf0000000 0xf0003fff 0x140204";
    expect(bars(SMALL0, GOOD2), Check::Bars, "problem", "BAR0 256 MiB", "lspci -vv");
    let resizable = |t: &Tree| {
        bars(SMALL0, GOOD2)(t);
        t.write(&format!("{DEVICE}/resource0_resize"), "0000000000008000\n");
    };
    expect(resizable, Check::Bars, "problem", "wanted are 32 GiB", "echo 15 >");
    let small2 = "0xf0000000 0xf0000fff 0x140204";
    expect(bars(GOOD0, small2), Check::Bars, "problem", "BAR2 4 KiB", "lspci");
    let unset = "0x0 0x7ffffffff 0x2014220c";
    expect(bars(unset, GOOD2), Check::Bars, "problem", "not assigned", "pci=realloc");
    expect(bars("0x0 0x0 0x0", GOOD2), Check::Bars, "problem", "BAR0 0 bytes", "Above 4G");
    let emulated = |t: &Tree| {
        bars(SMALL0, GOOD2)(t);
        t.write(&format!("{DEVICE}/device"), "0x9038");
    };
    let tree = Tree::bound();
    emulated(&tree);
    assert_eq!(finding(&tree.host().preflight(card()), Check::Bars).verdict, Verdict::Warning);
    // Mailboxes do not fit, whatever the device is.
    let resource = format!("{GOOD0}\n0x0 0x0 0x0\n{small2}\n");
    tree.write(&format!("{DEVICE}/resource"), &resource);
    assert_eq!(finding(&tree.host().preflight(card()), Check::Bars).verdict, Verdict::Problem);
}

#[test]
fn virtual_functions_and_resets_are_checked() {
    let check = Check::VirtualFunctions;
    let count = |t: &Tree| t.write(&format!("{DEVICE}/sriov_numvfs"), "2\n");
    expect(
        count,
        check,
        "problem",
        "2 enabled",
        "echo 0 > /sys/bus/pci/devices/0000:01:00.0/sriov",
    );
    let parent = |t: &Tree| t.link(&format!("{DEVICE}/physfn"), "../0000:02:00.0");
    expect(parent, check, "warning", "of 0000:02:00.0", "");
    let method = format!("{DEVICE}/reset_method");
    expect(|t| t.write(&method, "\n"), Check::Reset, "warning", "cannot reset", "reset_method");
    expect(|t| t.remove(&method), Check::Reset, "warning", "cannot reset", "reset_method");
    let old = |t: &Tree| {
        t.remove(&method);
        t.write(&format!("{DEVICE}/reset"), "");
    };
    expect(old, Check::Reset, "ok", "kernel chooses", "");
}

/// No group and no IOMMU.
fn without_iommu(t: &Tree) {
    t.remove(&format!("{DEVICE}/iommu_group"));
    t.remove("sys/class/iommu");
    t.write("proc/cmdline", "quiet\n");
}

#[test]
fn the_iommu_is_checked() {
    let check = Check::Iommu;
    expect(without_iommu, check, "problem", "no IOMMU is on", "intel_iommu=on");
    let fedora = |t: &Tree| {
        without_iommu(t);
        t.write("usr/sbin/grubby", "");
    };
    expect(
        fedora,
        check,
        "problem",
        "no IOMMU",
        "grubby --update-kernel=ALL --args=intel_iommu=on",
    );
    let amd = |t: &Tree| {
        without_iommu(t);
        t.write("proc/cpuinfo", "vendor_id : AuthenticAMD\n");
    };
    expect(amd, check, "problem", "no IOMMU", "AMD-Vi");
    let off = |t: &Tree| {
        without_iommu(t);
        t.write("proc/cmdline", "amd_iommu=off\n");
    };
    expect(off, check, "problem", "says amd_iommu=off", "s/\\bamd_iommu=off\\b//");
    let elsewhere = |t: &Tree| t.remove(&format!("{DEVICE}/iommu_group"));
    expect(elsewhere, check, "problem", "dmar0, but the card is in no group", "firmware-setup");
    let kind =
        |kind: &'static str| move |t: &Tree| t.write("sys/kernel/iommu_groups/12/type", kind);
    expect(kind("identity\n"), check, "ok", "identity", "");
    expect(kind("blocked\n"), check, "warning", "blocked", "");
}

#[test]
fn groups_that_are_not_viable_name_each_driver() {
    let neighbour = |t: &Tree| {
        t.function("0000:01:00.1", "0x040300", "0x8086", "0x0001");
        t.driver("0000:01:00.1", Some("snd_hda_intel"));
        t.write("sys/kernel/iommu_groups/12/devices/0000:01:00.1", "");
    };
    let command = "echo 0000:01:00.1 > /sys/bus/pci/devices/0000:01:00.1/driver/unbind";
    let words = "0000:01:00.1 has driver snd_hda_intel";
    expect(neighbour, Check::Group, "problem", words, command);
}

#[test]
fn interrupt_remapping_is_checked() {
    let check = Check::Interrupts;
    let plain =
        |t: &Tree| t.write("proc/interrupts", " 24: 1 0 PCI-MSI-0000:00:1f.2 0-edge ahci\n");
    let iommufd = "/sys/module/iommufd/parameters/allow_unsafe_interrupts";
    expect(plain, check, "problem", "not remapped", iommufd);
    let old = |t: &Tree| {
        plain(t);
        t.without_cdev();
    };
    expect(old, check, "problem", "not remapped", "vfio_iommu_type1");
    let allowed = |t: &Tree| {
        old(t);
        t.write("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y\n");
    };
    expect(allowed, check, "warning", "allowed by", "");
    let off = |t: &Tree| {
        plain(t);
        t.write("proc/cmdline", "intremap=off\n");
    };
    expect(off, check, "problem", "not remapped", "s/\\bintremap=off\\b//");
    expect(|t| t.write("proc/cpuinfo", "hart: 0\n"), check, "skipped", "not an x86", "");
}

#[test]
fn modules_and_lockdown_are_checked() {
    let check = Check::Module;
    let missing = |t: &Tree| t.remove("sys/bus/pci/drivers/vfio-pci");
    expect(missing, check, "problem", "does not exist", "modprobe vfio-pci");
    let absent = |t: &Tree| {
        missing(t);
        t.write("lib/modules/6.8.0-45-generic/modules.dep", "kernel/drivers/net/tun.ko:\n");
    };
    expect(
        absent,
        check,
        "problem",
        "not exist",
        "apt install linux-modules-extra-6.8.0-45-generic",
    );
    let nodes = |t: &Tree| {
        t.remove("dev/vfio/vfio");
        t.remove("dev/iommu");
    };
    expect(nodes, check, "problem", "neither", "docker run --device");
    let unsafe_mode =
        |t: &Tree| t.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
    expect(unsafe_mode, check, "warning", "without IOMMU is on", "echo N >");
    let locked = |t: &Tree| t.write("sys/kernel/security/lockdown", "none [integrity] conf\n");
    expect(locked, Check::Lockdown, "ok", "integrity", "");
    let both = |t: &Tree| {
        locked(t);
        missing(t);
    };
    expect(both, Check::Lockdown, "warning", "signed modules", "modinfo");
}

#[test]
fn the_driver_is_checked() {
    let other = |t: &Tree| t.driver(CARD, Some("et-soc1"));
    let words = "et-soc1 has the card, driver_override is vfio-pci";
    let unbound = |t: &Tree| {
        other(t);
        t.remove(&format!("{DEVICE}/vfio-dev"));
    };
    expect(unbound, Check::Driver, "problem", words, "et bind 0000:01:00.0");
    expect(unbound, Check::Mode, "skipped", "no driver of VFIO", "");
    let none = |t: &Tree| {
        t.driver(CARD, None);
        t.remove(&format!("{DEVICE}/vfio-dev"));
    };
    expect(none, Check::Driver, "problem", "no driver has the card", "et bind");
}

#[test]
fn the_best_mode_is_chosen() {
    expect(|t| t.remove("dev/iommu"), Check::Mode, "ok", "group: /dev/vfio/12 with", "");
    let old = |t: &Tree| t.without_cdev();
    expect(old, Check::Mode, "ok", "group: /dev/vfio/12 with /dev/vfio/vfio", "");
    // The first mode is not allowed and the second is.
    expect(|t| t.mode("dev/iommu", 0o600), Check::Mode, "ok", "group: /dev/vfio/12", "");
    let nothing = |t: &Tree| {
        t.without_cdev();
        t.remove("dev/vfio/12");
    };
    expect(nothing, Check::Mode, "problem", "missing below /dev: /dev/vfio/12", "udevadm");
}

#[test]
fn mode_without_iommu_is_a_warning_and_needs_a_capability() {
    let change = |t: &Tree| {
        t.without_cdev();
        t.remove("sys/class/iommu");
        t.write("sys/kernel/iommu_groups/12/name", "vfio-noiommu\n");
        t.write("dev/vfio/noiommu-12", "");
    };
    expect(change, Check::Iommu, "warning", "no isolation", "firmware-setup");
    expect(change, Check::Mode, "warning", "any memory", "");
    expect(change, Check::Interrupts, "skipped", "no IOMMU", "");
    expect(change, Check::Permission, "problem", "CAP_SYS_RAWIO", "setcap");
    let before = |t: &Tree| {
        without_iommu(t);
        t.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
    };
    expect(before, Check::Iommu, "warning", "mode without IOMMU is on", "intel_iommu=on");
    let tree = Tree::bound();
    change(&tree);
    let mut facts = facts();
    facts.capabilities.sys_rawio = true;
    let report = tree.host().with_facts(facts).preflight(card());
    assert_eq!(report.mode, Some(Mode::NoIommu { node: "/dev/vfio/noiommu-12".into() }));
    assert!(report.is_ok(), "{report}");
}

#[test]
fn permissions_follow_owner_group_and_mode() {
    let check = Check::Permission;
    let closed = |t: &Tree| {
        t.without_cdev();
        t.mode("dev/vfio/12", 0o600);
    };
    let container = |t: &Tree| {
        t.without_cdev();
        t.mode("dev/vfio/vfio", 0o600);
    };
    let tree = Tree::bound();
    closed(&tree);
    let report = |uid: u32, gid: u32, dac_override: bool| {
        let mut facts = facts();
        (facts.uid, facts.gids) = (uid, vec![gid]);
        facts.capabilities.dac_override = dac_override;
        let report = tree.host().with_facts(facts).preflight(card());
        finding(&report, check)
    };
    use std::os::unix::fs::MetadataExt;
    let node = tree.at("dev/vfio/12").metadata().unwrap();
    let (uid, gid) = (node.uid(), node.gid());
    assert_eq!(report(uid, gid, false).verdict, Verdict::Ok);
    assert_eq!(report(uid + 1, gid, true).verdict, Verdict::Ok);
    let refused = report(uid + 1, gid, false);
    assert_eq!(refused.verdict, Verdict::Problem);
    assert!(refused.remedy[0].starts_with(&format!("chown {}:{gid} /dev/vfio/12", uid + 1)));
    assert!(refused.remedy[1].contains("SUBSYSTEM==\"vfio-dev\", KERNELS==\"0000:01:00.0\""));
    tree.mode("dev/vfio/12", 0o060);
    assert_eq!(report(uid + 1, gid, false).verdict, Verdict::Ok);
    // Reading is not enough.
    tree.mode("dev/vfio/12", 0o444);
    assert_eq!(report(uid + 1, gid, false).verdict, Verdict::Problem);
    tree.mode("dev/vfio/12", 0o060);
    // The owner's bits decide for the owner, also when they allow less.
    assert_eq!(report(uid, gid, false).verdict, Verdict::Problem);
    let tree = Tree::bound();
    container(&tree);
    let facts = et_vfio_host::Facts { uid: uid + 1, gids: vec![gid + 1], ..facts() };
    let refused = finding(&tree.host().with_facts(facts).preflight(card()), check);
    assert_eq!(refused.remedy, ["chmod 0666 /dev/vfio/vfio"]);
}

#[test]
fn holders_are_named() {
    let check = Check::Holder;
    let words = "process 9999999 (et run x.elf) has /dev/vfio/12 open";
    let held = |t: &Tree| t.holder(9_999_999, "et run x.elf", "/dev/vfio/12");
    expect(held, check, "problem", words, "kill 9999999");
    let own = |t: &Tree| t.holder(std::process::id(), "test", "/dev/vfio/devices/vfio0");
    expect(own, check, "problem", "this process has /dev/vfio/devices/vfio0 open", "");
    let other = |t: &Tree| t.holder(9_999_999, "et", "/dev/vfio/13");
    expect(other, check, "ok", "no process", "");
}

#[test]
fn locked_memory_is_compared_with_the_plan() {
    let tree = Tree::bound();
    let report = |memlock: Option<u64>, ipc_lock: bool, need: u64| {
        let mut facts = facts();
        facts.memlock = memlock;
        facts.capabilities.ipc_lock = ipc_lock;
        let host = tree.host().with_facts(facts);
        finding(&host.preflight_with(card(), &Needs::pinning(need)), Check::Memlock)
    };
    assert_eq!(report(Some(8 << 20), false, 8 << 20).verdict, Verdict::Ok);
    assert_eq!(report(Some(8 << 20), true, 9 << 20).verdict, Verdict::Ok);
    assert_eq!(report(None, false, 1 << 40).verdict, Verdict::Ok);
    let low = report(Some(8 << 20), false, 1 << 30);
    assert_eq!(low.verdict, Verdict::Problem);
    assert_eq!(low.evidence, "1 GiB to be pinned, limit 8 MiB");
    assert!(low.remedy[0].contains("--memlock=1073741824"), "{low}");
    assert!(low.remedy[1].contains("'ann - memlock 1048576'"), "{low}");
    assert!(low.remedy[2].contains("LimitMEMLOCK=1073741824"), "{low}");
}

#[test]
fn huge_pages_are_counted_at_the_cards_node() {
    let check = Check::HugePages;
    let far = |t: &Tree| {
        let pool = "sys/devices/system/node/node1/hugepages/hugepages-2048kB";
        t.write(&format!("{pool}/free_hugepages"), "3\n");
        t.write(&format!("{pool}/nr_hugepages"), "5\n");
        t.write(&format!("{DEVICE}/numa_node"), "1\n");
    };
    let command =
        "echo 130 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages";
    expect(far, check, "warning", "node 0 has 512 free, node 1 has 3 free", command);
    let anywhere = |t: &Tree| {
        far(t);
        t.write(&format!("{DEVICE}/numa_node"), "-1\n");
    };
    expect(anywhere, check, "ok", "no particular node", "");
    let none = |t: &Tree| t.remove("sys/devices/system/node");
    expect(none, check, "skipped", "no huge pages", "");
    let uniform = |t: &Tree| {
        none(t);
        t.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8\n");
        t.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n");
    };
    let command = "echo 128 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    expect(uniform, check, "warning", "8 free", command);
}

#[test]
fn read_only_sysfs_matters_only_while_the_card_is_unbound() {
    let read_only = |t: &Tree| {
        t.write(".dockerenv", "");
        t.write("proc/self/mounts", "sysfs /sys sysfs rw 0 0\nsysfs /sys sysfs ro,nosuid 0 0\n");
    };
    expect(read_only, Check::Sysfs, "ok", "nothing must be written", "");
    let tree = Tree::unbound();
    read_only(&tree);
    let finding = finding(&tree.host().preflight(card()), Check::Sysfs);
    assert_eq!(finding.verdict, Verdict::Problem);
    assert!(finding.evidence.contains("in a container (/.dockerenv)"), "{finding}");
    assert_eq!(finding.remedy[0], "et bind 0000:01:00.0 # on the host");
    expect(|t| t.remove("proc/self/mounts"), Check::Sysfs, "skipped", "does not exist", "");
}

#[test]
fn cards_are_listed_by_vendor() {
    let tree = Tree::bound();
    tree.function("0000:41:00.0", "0x120000", "0x1e0a", "0x9038");
    let cards: Vec<_> = tree.host().cards().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(cards, ["0000:01:00.0", "0000:41:00.0"]);
}

/// Whatever host the tests run on, the report is complete.
#[test]
fn this_host_can_be_examined() {
    let report = Host::system().preflight(card());
    assert_eq!(report.findings.len(), Check::ALL.len());
}
