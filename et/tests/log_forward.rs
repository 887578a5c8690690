//! Messages for programs that do not subscribe to `tracing` themselves.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use std::sync::{Arc, Mutex};

use common::{LONG, load, open};
use et::Launch;
use et::log::{Level, LogError};

type Seen = Arc<Mutex<Vec<(Level, String, String)>>>;

fn collect(filter: &str) -> Seen {
    let seen = Seen::default();
    let its = Arc::clone(&seen);
    et::log::forward(filter, move |message| {
        let (target, text) = (message.target.to_owned(), message.text.to_owned());
        its.lock().unwrap().push((message.level, target, text));
    })
    .unwrap();
    seen
}

/// A kernel traps, and no one asks what became of it.
fn fail() {
    let device = open("shires=1,dram=256MiB");
    let launch = Launch::new(&load(&device, "trap_load")).u64(5);
    drop(device.default_stream().launch(&launch).unwrap());
    let _ = device.default_stream().synchronize(LONG);
}

/// The only test of its program: there is one subscriber in a process.
#[test]
fn messages_go_where_they_were_last_sent_to_as_far_as_the_filter_says() {
    let refused = et::log::forward("et_runtime=loud", |_| ());
    let Err(LogError::Filter { filter, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(filter, "et_runtime=loud");

    let debug = collect("debug");
    fail();
    {
        let debug = debug.lock().unwrap();
        let failed = debug.iter().find(|(.., text)| text.starts_with("launch failed"));
        let (level, target, text) = failed.unwrap_or_else(|| panic!("{debug:?}"));
        assert_eq!(*level, Level::Debug);
        assert!(target.starts_with("et_runtime::"), "{target}");
        for part in ["kernel=trap_load", "harts=1", "kernel trapped"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(debug.iter().any(|(level, ..)| *level == Level::Info), "{debug:?}");
    }
    let before = debug.lock().unwrap().len();
    let info = collect("info,et_runtime=warn");
    fail();
    assert_eq!(debug.lock().unwrap().len(), before, "sent to where they went before");
    let info = info.lock().unwrap();
    let quiet = |(level, target, _): &(Level, String, String)| {
        *level <= Level::Info && (*level <= Level::Warn || !target.starts_with("et_runtime"))
    };
    assert!(info.iter().all(quiet), "{info:?}");
}
