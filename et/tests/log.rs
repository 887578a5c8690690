//! What the runtime logs.

mod common;

use common::{LONG, Lines, load, open};
use et::Launch;

/// The only test of its program: any thread of the device may log.
#[test]
fn a_failing_launch_is_in_the_log() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let device = open("shires=1,dram=256MiB");
    let launch = Launch::new(&load(&device, "trap_load")).u64(5);
    // No one asks what became of it.
    drop(device.default_stream().launch(&launch).unwrap());
    let _ = device.default_stream().synchronize(LONG);
    drop(device);
    let text = lines.text();
    let line = text.lines().find(|line| line.contains("launch failed")).unwrap_or_default();
    for part in [
        "DEBUG",
        "device=\"sim:shires=0x1,",
        "kernel=\"trap_load\"",
        "harts=1",
        "kernel trapped",
        "load_from_null",
    ] {
        assert!(line.contains(part), "{part} in {text}");
    }
    assert!(text.contains("INFO") && text.contains("device API"), "{text}");
    // What is heard by the program itself cannot be sent elsewhere.
    #[cfg(feature = "log")]
    assert!(matches!(et::log::forward("debug", |_| ()), Err(et::log::LogError::Taken)));
}
