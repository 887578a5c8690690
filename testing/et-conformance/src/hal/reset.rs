//! `Reset`.

use et_devapi::pci::{DRAM_BAR, MAILBOX_BAR};
use et_hal::{
    BarOffset, DeviceAccess, Dma, DmaBuffer, Error, ErrorKind, Generation, Hal, Mailbox, Mmio,
    Reset, ResetScope, ResetState, Width,
};

use super::{Ready, SQ0, discover, echo, ping};
use crate::check::{Random, check, check_eq, fails_as, same, until};
use crate::{Failure, Need, Rig};

crate::case::group! { Hal, "hal::reset":
    there_is_one_holder_at_a_time,
    scopes_without_a_loss_are_refused,
    every_handle_of_before_is_stale [Need::FunctionReset],
    the_device_works_again_afterwards [Need::FunctionReset],
    memory_is_kept_unless_the_loss_says_otherwise [Need::FunctionReset],
    a_second_reset_waits_for_the_end_of_the_first [Need::FunctionReset],
    who_waits_is_woken [Need::FunctionReset],
    resets_may_follow_each_other [Need::FunctionReset],
}

const SCOPES: [ResetScope; 4] =
    [ResetScope::Compute, ResetScope::Operations, ResetScope::Function, ResetScope::Slot];

fn finish<R: Reset>(reset: &mut R, ready: std::time::Duration) -> Result<Generation, Failure> {
    let mut done = None;
    until("the reset", ready, || {
        if let ResetState::Done(generation) = reset.poll()? {
            done = Some(generation);
        }
        Ok(done.is_some())
    })?;
    done.ok_or_else(|| Failure::new("the reset did not end"))
}

fn there_is_one_holder_at_a_time<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let reset = ready.hal.reset()?;
    fails_as("a second holder", ready.hal.reset().map(drop), ErrorKind::Busy)?;
    drop(reset);
    drop(ready.hal.reset()?);
    ping(&ready.mailbox()?, 1, ready.patience)
}

fn scopes_without_a_loss_are_refused<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mut reset = ready.hal.reset()?;
    let before = ready.hal.generation();
    for scope in SCOPES {
        match reset.loss(scope) {
            None => fails_as("a reset", reset.begin(scope), ErrorKind::Unsupported)?,
            Some(loss) => check!(loss.queues, "a {scope} reset keeps the queues: {loss:?}"),
        }
    }
    check_eq!(ready.hal.generation(), before, "the generation after refused resets");
    ping(&ready.mailbox()?, 1, ready.patience)
}

fn every_handle_of_before_is_stale<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let windows = [ready.hal.window(MAILBOX_BAR)?, ready.hal.window(DRAM_BAR)?];
    let (playground, _) = ready.playground()?;
    let mailbox = ready.mailbox()?;
    let message = echo(1)?;
    let mut reset = ready.hal.reset()?;
    let before = ready.hal.generation();
    let all_stale = |when: &str| -> Result<(), Failure> {
        for (window, at) in windows.iter().zip([BarOffset::new(0), playground]) {
            let stale = |what: &str, outcome: Result<(), H::Error>| {
                fails_as(&format!("{what} {when}"), outcome, ErrorKind::Stale)
            };
            let mut bytes = [0x55; 8];
            stale("a read", window.read(at, Width::W32).map(drop))?;
            stale("a write", window.write(at, Width::W32, 0))?;
            stale("a copy out", window.read_bytes(at, &mut bytes))?;
            stale("a copy in", window.write_bytes(at, &[0; 8]))?;
            stale("an acquire", window.load_acquire_u64(at).map(drop))?;
            stale("a release", window.store_release_u64(at, 0))?;
            stale("a flush", window.flush())?;
            check_eq!(bytes, [0x55; 8], "the target of a refused copy");
        }
        let stale = |what: &str, outcome: Result<(), H::Error>| {
            fails_as(&format!("{what} {when}"), outcome, ErrorKind::Stale)
        };
        stale("a push", mailbox.push(SQ0, &message).map(|_| ()))?;
        stale("a kick", mailbox.kick())?;
        stale("a pop", mailbox.pop(&mut [0; 512]).map(|_| ()))?;
        stale("a wait", mailbox.wait(mailbox.ticket(), ready.patience).map(|_| ()))
    };
    reset.begin(ResetScope::Function)?;
    all_stale("right after the beginning")?;
    let allocated = ready.hal.dma().alloc(4096, DeviceAccess::Read).map(drop);
    // Only if the reset is still on is it known that it was on during the allocation.
    if reset.poll()? == ResetState::InProgress {
        fails_as("an allocation during the reset", allocated, ErrorKind::Stale)?;
    }
    let generation = finish(&mut reset, ready.patience)?;
    check!(generation > before, "{generation:?} after {before:?}");
    check_eq!(ready.hal.generation(), generation, "the generation");
    all_stale("after the end")?;
    discover(&*ready.hal, ready.patience)?;
    all_stale("after the device has booted")
}

fn the_device_works_again_afterwards<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let old = ready.mailbox()?;
    ping(&old, 1, ready.patience)?;
    let mut buffer = ready.hal.dma().alloc(4096, DeviceAccess::ReadWrite)?;
    buffer.fill(0, 4096, 0x21)?;
    let mut reset = ready.hal.reset()?;
    reset.begin(ResetScope::Function)?;
    finish(&mut reset, ready.patience)?;
    drop(reset);
    let layout = discover(&*ready.hal, ready.patience)?;
    check_eq!(layout, ready.layout, "the layout after the reset");
    let mailbox = ready.hal.open_mailbox(&layout.ops_mailbox)?;
    for tag in 0..100 {
        ping(&mailbox, tag, ready.patience)?;
    }
    // Memory of before belongs to the program still; it can be read and given back.
    let mut bytes = [0; 4096];
    buffer.copy_out(0, &mut bytes)?;
    same("a buffer of before", &bytes, &[0x21; 4096])?;
    drop(buffer);
    let new = ready.hal.dma().alloc(4096, DeviceAccess::ReadWrite)?;
    check!(new.bus_addr().as_u64() != 0, "a buffer at bus address 0");
    Ok(())
}

fn memory_is_kept_unless_the_loss_says_otherwise<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let (playground, _) = ready.playground()?;
    let data = Random::new(8).bytes(4096);
    ready.hal.window(DRAM_BAR)?.write_bytes(playground, &data)?;
    let mut reset = ready.hal.reset()?;
    let loss = reset.loss(ResetScope::Function);
    let loss = loss.ok_or_else(|| Failure::new("the function reset has gone"))?;
    check!(loss.queues && loss.compute, "a function reset keeps too much: {loss:?}");
    reset.begin(ResetScope::Function)?;
    finish(&mut reset, ready.patience)?;
    discover(&*ready.hal, ready.patience)?;
    let window = ready.hal.window(DRAM_BAR)?;
    let mut seen = vec![0; data.len()];
    window.read_bytes(playground, &mut seen)?;
    if !loss.memory {
        same("memory after the reset", &seen, &data)?;
    }
    window.write_bytes(playground, &data)?;
    window.read_bytes(playground, &mut seen)?;
    same("memory written after the reset", &seen, &data)
}

/// A generation counts the resets, so it tells how many there were.
fn a_second_reset_waits_for_the_end_of_the_first<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let before = ready.hal.generation();
    let mut reset = ready.hal.reset()?;
    reset.begin(ResetScope::Function)?;
    let mut begun = 1;
    // A first one that is over already makes room for another.
    match reset.begin(ResetScope::Function) {
        Ok(()) => begun += 1,
        Err(error) => check_eq!(error.kind(), ErrorKind::Busy, "a second reset"),
    }
    let after = finish(&mut reset, ready.patience)?;
    check_eq!(after, Generation(before.0 + begun), "the generation after {begun} resets");
    drop(reset);
    discover(&*ready.hal, ready.patience)?;
    ping(&ready.mailbox()?, 1, ready.patience)
}

fn who_waits_is_woken<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let endless = ready.patience * 1000;
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| mailbox.wait(mailbox.ticket(), endless).map(|_| ())))
            .collect();
        std::thread::yield_now();
        let mut reset = ready.hal.reset()?;
        reset.begin(ResetScope::Function)?;
        for waiter in waiters {
            let outcome = waiter.join().map_err(|_| Failure::new("a waiter panicked"))?;
            // A notification may come first; what counts is that the wait ends.
            if outcome.is_err() {
                fails_as("a wait during a reset", outcome, ErrorKind::Stale)?;
            }
        }
        finish(&mut reset, ready.patience).map(drop)
    })
}

fn resets_may_follow_each_other<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mut before = ready.hal.generation();
    for tag in 0..4 {
        let mut reset = ready.hal.reset()?;
        reset.begin(ResetScope::Function)?;
        let generation = finish(&mut reset, ready.patience)?;
        check!(generation > before, "{generation:?} after {before:?}");
        before = generation;
        drop(reset);
        // Every other one hits a device that is still booting.
        if tag % 2 == 1 {
            discover(&*ready.hal, ready.patience)?;
            ping(&ready.mailbox()?, tag, ready.patience)?;
        }
    }
    Ok(())
}
