//! Opening and closing.

use et_hal::{Dma, DmaBuffer, Hal};

use super::{Ready, ping};
use crate::check::{check, check_eq};
use crate::{Failure, Rig};

crate::case::group! { Hal, "hal::open":
    a_device_can_be_opened_again_after_it_was_closed,
    handles_may_outlive_the_device,
    the_device_says_the_same_of_itself_each_time,
    the_backend_says_what_it_connects,
    what_is_shared_between_threads_can_be,
}

fn a_device_can_be_opened_again_after_it_was_closed<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    for tag in 0..3 {
        let ready = Ready::open(rig)?;
        let mailbox = ready.mailbox()?;
        ping(&mailbox, tag, ready.patience)?;
    }
    Ok(())
}

/// Windows, mailboxes and buffers are `'static`; they must stay sound, not useful.
fn handles_may_outlive_the_device<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let mailbox = ready.mailbox()?;
    let mut buffer = ready.hal.dma().alloc(4096, et_hal::DeviceAccess::ReadWrite)?;
    buffer.fill(0, 4096, 0x5a)?;
    drop(ready);
    let mut bytes = [0; 4096];
    buffer.copy_out(0, &mut bytes)?;
    check_eq!(bytes, [0x5a; 4096], "memory of a closed device");
    drop((mailbox, buffer));
    let again = Ready::open(rig)?;
    ping(&again.mailbox()?, 1, again.patience)
}

fn the_device_says_the_same_of_itself_each_time<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let first = Ready::open(rig)?;
    let layout = first.layout;
    check_eq!(super::discover(&*first.hal, first.patience)?, layout, "the layout, read again");
    drop(first);
    check_eq!(Ready::open(rig)?.layout, layout, "the layout, opened again");
    Ok(())
}

/// What a backend says of itself and of the function is the same each time; one that says nothing
/// passes.
fn the_backend_says_what_it_connects<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let first = ready.hal.identity();
    let named = !first.backend.is_empty();
    check_eq!(named, !first.backend_version.is_empty(), "a backend has a name and a version");
    if let Some(ids) = first.pci {
        check!(!matches!(ids.vendor, 0 | u16::MAX), "no one made it: {ids}");
    }
    if let Some(address) = first.pci_address {
        let is_address = address.len() >= "0000:00:00.0".len() && address.contains([':', '.']);
        check!(is_address, "no address on a bus: {address}");
    }
    // Nothing that lasts longer than the device is lent out.
    let texts = |identity: et_hal::Identity<'_>| format!("{identity:?}");
    let said = texts(first);
    check_eq!(texts(ready.hal.identity()), said, "the identity, asked again");
    drop(ready);
    check_eq!(texts(Ready::open(rig)?.hal.identity()), said, "the identity, opened again");
    Ok(())
}

/// Whatever implements `Hal` is used by several threads at once.
fn what_is_shared_between_threads_can_be<H: Hal>(rig: &Rig<H>) -> Result<(), Failure> {
    let ready = Ready::open(rig)?;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4usize)
            .map(|thread| {
                let hal = &*ready.hal;
                scope.spawn(move || -> Result<(), Failure> {
                    for round in 0..8usize {
                        let len = 100 + 1000 * round + thread;
                        let mut buffer = hal.dma().alloc(len, et_hal::DeviceAccess::ReadWrite)?;
                        let byte = u8::try_from(16 * thread + round).unwrap_or(u8::MAX);
                        buffer.fill(0, len, byte)?;
                        let mut bytes = vec![0; len];
                        buffer.copy_out(0, &mut bytes)?;
                        crate::check::same("a thread's buffer", &bytes, &vec![byte; len])?;
                        let window = hal.window(et_devapi::pci::MAILBOX_BAR)?;
                        et_devapi::discovery::ops_status(&window)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    for outcome in outcomes {
        outcome.map_err(|_| Failure::new("a thread panicked"))??;
    }
    Ok(())
}
