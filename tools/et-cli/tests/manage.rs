//! `et stat`, `et query`, `et set`, `et update`, `et reset`, `et recover`, what `et info` knows of
//! the module, and the traces of the service processor.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::process::Output;

use assert_cmd::Command;
use et::sim::FirmwareImage;
use serde_json::{Value, json};

const BOARD: &str = "shires=1,dram=256MiB,serial=Z-9,part=0x21,temperature=44,power=6100,tdp=27";

fn et_on(options: &str, args: &[&str]) -> Output {
    let device = format!("sim:{BOARD}{options}");
    Command::cargo_bin("et").unwrap().args(["--device", &device]).args(args).output().unwrap()
}

fn et(args: &[&str]) -> Output {
    et_on("", args)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

#[test]
fn info_shows_what_the_service_processor_says() {
    let info = json(&et(&["info", "--json"]));
    assert_eq!(info["module"]["serial_number"], "Z-9");
    assert_eq!(info["module"]["part_number"], "0x21");
    assert_eq!(info["module"]["firmware_release"], "1.5.0");
    assert_eq!(info["module"]["frequency_mhz"], info["boot_frequency_mhz"]);
    assert_eq!(info["master_shire"], 32);
    assert_eq!(info["caches"][0]["kind"], "ReadWrite");
    let map = info["address_map"].as_array().unwrap();
    assert_eq!(map.last().unwrap()["base"], info["global_memory_base"]);
    let output = text(&et(&["info"]).stdout);
    assert!(output.contains("serial number") && output.contains("Z-9"), "{output}");
    // A service processor that does not talk is no reason to show nothing.
    let info = json(&et_on(",fault=sp-garbage:1:0", &["info", "--json"]));
    assert_eq!(info["shires"], 1);
    assert!(info["module"]["error"].as_str().unwrap().contains("management"), "{info}");
}

#[test]
fn stat_shows_what_the_card_measures() {
    let stat = json(&et_on(",fault=ecc:dram:3:1", &["stat", "--json", "--all"]));
    assert_eq!(stat["temperature_c"]["minions"], 44);
    assert_eq!(stat["power"]["now_mw"], 6100);
    assert_eq!(stat["power"]["tdp_watts"], 27);
    assert_eq!(stat["frequency_mhz"]["minions"], 600);
    assert_eq!(stat["errors"]["dram"]["corrected"], 3);
    assert_eq!(stat["errors"]["dram"]["uncorrectable"], 1);
    assert_eq!(stat["service_processor"]["system_power"]["greatest"], 6100);
    let output = text(&et(&["stat"]).stdout);
    assert!(output.contains("temperature c") && output.contains("6100"), "{output}");
}

#[test]
fn watch_prints_a_line_for_each_look_and_event() {
    let args = ["stat", "--watch", "--interval", "0.02", "--count", "3"];
    let output = et_on(",fault=ecc:sram:2:0", &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().filter(|line| line.contains("44 °C  6100 mW")).count(), 3);
    assert!(stdout.contains("event: SRAM, corrected, warning, 2 ×"), "{stdout}");
    let output = et(&[&args[..], &["--json"]].concat());
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert!(!et(&["stat", "--watch", "--interval", "0"]).status.success());
}

#[test]
fn a_silent_service_processor_is_named() {
    let output = et_on(",fault=sp-garbage:1:0", &["stat"]);
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("management queue") && stderr.contains("because"), "{stderr}");
}

#[test]
fn update_installs_an_image_and_refuses_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.img");
    let image =
        FirmwareImage { arch_rev: 0, versions: [0x0201_0300; 7], body: vec![7; 10_000] }.encode();
    std::fs::write(&path, &image).unwrap();
    let path = path.display().to_string();
    let output = et(&["update", &path, "--reset"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("1.5.0 is 2.1.3 now"), "{stdout}");
    let report = json(&et(&["update", "--json", &path]));
    assert_eq!((&report["before"], &report["after"]), (&"1.5.0".into(), &Value::Null));

    std::fs::write(&path, &image[..5000]).unwrap();
    let output = et(&["update", &path, "--reset"]);
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("new.img") && stderr.contains("firmware error -5"), "{stderr}");
    let output = et(&["update", "/nowhere/at.all"]);
    assert!(text(&output.stderr).contains("/nowhere/at.all"));
}

#[test]
fn every_reset_can_be_asked_for() {
    for (flag, what) in [
        ("--compute", "compute"),
        ("--operations", "operations"),
        ("--function", "function"),
        ("--soc", "soc"),
    ] {
        let output = et(&["reset", "--json", flag]);
        assert!(output.status.success(), "{flag}: {}", text(&output.stderr));
        assert_eq!(json(&output)["reset"], what);
    }
    assert!(!et(&["reset"]).status.success(), "what is not said is not reset");
    assert!(!et(&["reset", "--soc", "--function"]).status.success());
}

/// The names of the steps of a recovery that did not help.
fn steps(document: &Value) -> Vec<&str> {
    let steps = document["steps"].as_array().unwrap();
    for step in steps {
        assert!(step["error"].is_string() && step["seconds"].is_number(), "{document}");
    }
    steps.iter().map(|step| step["remedy"].as_str().unwrap()).collect()
}

#[test]
fn a_card_that_works_is_left_alone() {
    let document = json(&et(&["recover", "--json"]));
    let lost = json!({ "queues": false, "compute": false, "memory": false });
    assert_eq!(document, json!({ "ill": null, "steps": [], "lost": lost }));
    let output = et(&["recover", "--up-to", "soc"]);
    assert!(output.status.success() && text(&output.stdout).contains("nothing was done"));
    for wrong in [&["--up-to", "abort"], &["--up-to", "everything"], &["--timeout", "-1"]] {
        assert_eq!(et(&[&["recover"], &wrong[..]].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

/// Its firmware hangs after the third command since a boot, which is the last one of opening it.
#[test]
fn a_card_that_stays_ill_had_all_remedies_that_were_allowed() {
    let recover = |more: &[&str]| {
        let output = et_on(",fault=hang:3", &[&["recover", "--timeout", "0.1"], more].concat());
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        output
    };
    let document = json(&recover(&["--up-to", "compute", "--json"]));
    assert_eq!(steps(&document), ["abort", "compute reset"]);
    let lost = json!({ "queues": false, "compute": true, "memory": false });
    assert_eq!((&document["lost"], &document["kind"]), (&lost, &"device".into()));
    let error = document["error"].as_str().unwrap();
    assert!(error.contains("after abort, compute reset"), "{document}");
    assert!(document["ill"].as_str().unwrap().contains("did not finish within 100ms"));

    let output = recover(&["--up-to", "chip"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let remedies: Vec<_> =
        stdout.lines().filter_map(|line| line.split_once(", ")).map(|(name, _)| name).collect();
    let all = ["abort", "compute reset", "operations reset", "function reset", "slot reset"];
    assert!(remedies.starts_with(&all) && remedies.contains(&"chip reset"), "{stdout}");
    assert!(stdout.contains("lost: all handles, state of the cores, contents of device memory"));
    assert!(stderr.contains("does not work again") && stderr.contains("because"), "{stderr}");
}

/// Its firmware hangs after what opening it takes.
#[test]
fn what_a_device_does_not_answer_is_given_up_when_the_user_says() {
    for command in [&["demo"][..], &["trace"], &["bench", "--size", "4KiB"]] {
        let output = et_on(",fault=hang:3", &[command, &["--device-timeout", "0.1"]].concat());
        let stderr = text(&output.stderr);
        // A program that gets no processor may find the device given up by its watchdog first.
        let is_late = stderr.contains("did not finish within 100ms");
        let code = if is_late { 1 } else { 5 };
        assert_eq!(output.status.code(), Some(code), "{command:?}: {stderr}");
        assert!(is_late || stderr.contains("has not answered for"), "{command:?}: {stderr}");
    }
    assert_eq!(et(&["--device-timeout", "soon", "demo"]).status.code(), Some(2));
}

/// What a device has to do for its opening is too much for the firmware.
#[test]
fn a_card_that_does_not_open_is_reset_by_the_service_processor() {
    let recover = |more: &[&str]| {
        let output =
            et_on(",fault=hang:0", &[&["recover", "--json", "--timeout", "0.1"], more].concat());
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        json(&output)
    };
    let document = recover(&[]);
    assert_eq!(steps(&document), ["operations reset"]);
    assert_eq!(document["lost"]["memory"], false);
    let document = recover(&["--up-to", "chip"]);
    assert_eq!(steps(&document), ["operations reset", "chip reset"]);
    assert_eq!((&document["lost"]["memory"], &document["kind"]), (&true.into(), &"device".into()));
    let document = recover(&["--up-to", "compute"]);
    assert!(document["steps"].is_null() && document["error"].is_string(), "{document}");
}

#[test]
fn the_log_of_the_service_processor_is_shown_with_levels() {
    let output = et_on(",fault=ecc:dram:3:1", &["trace", "--sp"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let lines: Vec<_> = stdout.lines().map(|line| line.split_once("] ").unwrap().1).collect();
    let expected = [
        "sp info: boot of release 1.5.0",
        "sp warning: 3 errors: DRAM, corrected",
        "sp error: 1 errors: DRAM, uncorrectable",
    ];
    assert_eq!(lines, expected, "{stdout}");
    assert!(stdout.lines().all(|line| line.contains(" us] ")), "{stdout}");

    let trace = json(&et_on(",fault=ecc:dram:3:1", &["trace", "--sp", "--all", "--json"]));
    let entries = trace["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 4, "{trace}");
    for (name, value) in
        [("source", "sp"), ("kind", "text"), ("level", "error"), ("text", expected[2])]
    {
        let value = value.strip_prefix("sp error: ").unwrap_or(value);
        assert_eq!(entries[2][name], value, "{trace}");
    }
    assert!(entries[0]["us"].as_f64().unwrap() <= entries[2]["us"].as_f64().unwrap());
    // Commands, once that is asked for: the one that asks is the first.
    assert_eq!(entries[3]["level"], "debug");
    assert!(entries[3]["text"].as_str().unwrap().starts_with("SET_DM_TRACE_CONFIG took "));
    assert_eq!(
        trace["losses"],
        serde_json::json!({"harts": 0, "entries": 0, "bytes": 0, "headers": 0})
    );
    // Operations firmware that does not start has no say in it.
    let output = et_on(",fault=boot-error:ops", &["trace", "--sp"]);
    assert!(text(&output.stdout).contains("boot of release"), "{}", text(&output.stderr));
    assert!(!et(&["trace", "--sp", "--file", "x"]).status.success());
}

#[test]
fn samples_of_statistics_are_shown_with_their_values() {
    let none = et(&["trace", "--stats"]);
    assert!(none.status.success() && none.stdout.is_empty(), "{}", text(&none.stdout));
    let trace = json(&et(&["trace", "--stats", "--all", "--json"]));
    let entries = trace["entries"].as_array().unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert!(kinds.starts_with(&["power", "statistics"]), "{kinds:?}");
    assert_eq!(entries[0]["values"]["power"], 6100);
    assert_eq!(entries[0]["values"]["temperature_c"], 44);
    let power = &entries[1]["values"]["system_power"];
    assert_eq!((&power["greatest"], &power["unit"]), (&6100.into(), &"mW".into()));
    let of_mm = entries.iter().find(|entry| entry["source"] == "mm").unwrap();
    assert_eq!(of_mm["values"]["cm_utilization"]["unit"], "%");
    let output = et(&["trace", "--stats", "--sp", "--all"]);
    let stdout = text(&output.stdout);
    for part in [
        "sp info: boot of release",
        "sp: power 6100, 44 °C, 600 MHz",
        "sp: statistics: power 6100 (6100 to 6100) mW, 44 (44 to 44) °C, 600 (600 to 600) MHz",
        "mm hart 0: statistics: minions busy 0 % (0 to 0)",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

#[test]
fn any_question_can_be_asked_by_the_name_of_its_command() {
    let power = json(&et(&["query", "module-power", "--json"]));
    assert_eq!(power, serde_json::json!({"power": 6100}));
    let serial = text(&et(&["query", "GET_MODULE_SERIAL_NUMBER"]).stdout);
    assert!(serial.contains("Z-9"), "{serial}");
    let idle = et(&["query", "module-residency-power-states", "--argument", "3", "--json"]);
    assert!(json(&idle)["cumulative"].as_u64().unwrap() > 0);
    let all = text(&et(&["query"]).stdout);
    assert!(all.contains("GET_ASIC_FREQUENCIES\n") && !all.contains("SET_"), "{all}");
    let none = et(&["query", "set-part-number"]);
    assert!(!none.status.success() && text(&none.stderr).contains("`et query` lists"));
}

#[test]
fn what_is_set_is_shown_as_it_was_and_as_it_is() {
    let all = [
        "--threshold",
        "91",
        "--tdp",
        "17",
        "--power-management",
        "on",
        "--minion-clock",
        "300",
        "--network-clock",
        "400",
        "--step-clock",
        "--errors",
        "dram=10",
        "--errors",
        "pcie=3",
    ];
    let output = et(&[&["set"][..], &all].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = "\
        threshold c: 80 is 91 now\n\
        tdp watts: 27 is 17 now\n\
        power management: on\n\
        minion mhz: 600 is 300 now\n\
        network mhz: 500 is 400 now\n\
        dram errors: 10\n\
        pcie errors: 3\n";
    assert_eq!(text(&output.stdout), expected);
    let set = json(&et(&[&["set", "--json"][..], &all].concat()));
    assert_eq!(set["tdp_watts"], json!({"before": 27, "wanted": 17, "after": 17}));
    assert_eq!(set["power_management"], json!({"wanted": "on"}));
    assert_eq!(set["dram_errors"], json!({"wanted": 10}));
    // A card that is too hot has half the clock that was asked for, and that is said.
    let hot = text(&et(&["set", "--threshold", "20", "--minion-clock", "500"]).stdout);
    assert!(hot.contains("minion mhz: 300 is 250 now, though 500 was asked for"), "{hot}");
}

#[test]
fn settings_that_make_no_sense_say_why() {
    for (args, why) in [
        (&[][..], "--threshold <CELSIUS>"),
        (&["--tdp", "0"], "0 is not in 1..=255"),
        (&["--threshold", "300"], "300 is not in 1..=255"),
        (&["--power-management", "maybe"], "[possible values: on, off]"),
        (&["--minion-clock", "0"], "0 is not in 1..=65535"),
        (&["--step-clock"], "--minion-clock <MHZ>"),
        (&["--errors", "flash=1"], "`flash` is none of dram, sram and pcie"),
        (&["--errors", "dram=1000"], "`1000` is no number up to 255"),
        (&["--errors", "dram"], "must be SOURCE=COUNT"),
    ] {
        let output = et(&[&["set"][..], args].concat());
        let stderr = text(&output.stderr);
        assert!(stderr.contains(why), "{why} in {stderr}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    let silent = et_on(",fault=sp-garbage:1:0", &["set", "--tdp", "20"]);
    assert!(!silent.status.success());
    let stderr = text(&silent.stderr);
    assert!(stderr.contains("asking for tdp watts"), "{stderr}");
}
