//! Ready mocks: a healthy device, and the common failures.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use et_devapi::dir::{MgmtDir, OpsDir};
use et_devapi::msg::Header;
use et_devapi::msg::ops::{
    API_VERSION, AbortStatus, Body, CmResetStatus, Command, CompatibilityStatus, Completion,
    DmaStatus, EchoStatus, FirmwareVersionStatus, KernelAbortStatus, LaunchStatus, Times,
};
use et_devapi::pci::{BAR2_BYTES, DIR_BYTES, MGMT_DIR, OPS_DIR};
use et_hal::{ErrorKind, Pop, Push, Ticket, Wake};

use crate::{MockMailbox, MockMmio};

/// Device memory of the mocked card in bytes.
const DRAM_BYTES: u64 = 8 << 30;

/// The first 8 KiB of BAR 2 of a booted card with 32 compute shires, 600 MHz and 8 GiB.
#[must_use]
pub fn registers() -> Vec<u8> {
    registers_of(&OpsDir::firmware(et_devapi::abi::host_managed_len(DRAM_BYTES)))
}

/// The same, with operations registers of one's own.
#[must_use]
pub fn registers_of(ops: &OpsDir) -> Vec<u8> {
    let mut bar2 = vec![0; usize::try_from(BAR2_BYTES).unwrap_or(usize::MAX)];
    let mgmt = MgmtDir::firmware(u32::MAX, 600, 25, (81_920, 16_384, 32_768));
    let mut dir = [0; DIR_BYTES];
    for (at, len) in [
        (MGMT_DIR, mgmt.encode(&mut dir).map(|len| (dir, len))),
        (OPS_DIR, ops.encode(&mut dir).map(|len| (dir, len))),
    ] {
        if let (Ok(at), Some((dir, len))) = (usize::try_from(at.as_u64()), len) {
            bar2[at..at + len].copy_from_slice(&dir[..len]);
        }
    }
    bar2
}

/// A window that reads as `bytes`, and takes no writes.
#[must_use]
pub fn readable(bytes: Vec<u8>) -> MockMmio {
    let mut mmio = MockMmio::new();
    let len = bytes.len() as u64;
    mmio.expect_len_bytes().return_const(len);
    let bytes = Arc::new(bytes);
    let shared = Arc::clone(&bytes);
    mmio.expect_read().returning(move |at, width| {
        let start = usize::try_from(at.as_u64()).map_err(|_| ErrorKind::OutOfBounds)?;
        let size = usize::try_from(width.bytes()).unwrap_or(8);
        let bytes = shared.get(start..start + size).ok_or(ErrorKind::OutOfBounds)?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    });
    mmio.expect_read_bytes().returning(move |at, into| {
        let start = usize::try_from(at.as_u64()).map_err(|_| ErrorKind::OutOfBounds)?;
        into.copy_from_slice(bytes.get(start..start + into.len()).ok_or(ErrorKind::OutOfBounds)?);
        Ok(())
    });
    mmio
}

/// A window on [`registers`].
#[must_use]
pub fn booted_registers() -> MockMmio {
    readable(registers())
}

/// A device that never boots: its status stays 0.
#[must_use]
pub fn never_boots() -> MockMmio {
    readable(vec![0; usize::try_from(BAR2_BYTES).unwrap_or(usize::MAX)])
}

/// A link that is down: every read is all ones.
#[must_use]
pub fn link_down() -> MockMmio {
    readable(vec![0xff; usize::try_from(BAR2_BYTES).unwrap_or(usize::MAX)])
}

/// Registers whose CRC is wrong.
#[must_use]
pub fn corrupt_registers() -> MockMmio {
    let mut bytes = registers();
    // Inside the queue block of the management registers, behind the header.
    bytes[0x1000 + 80] ^= 1;
    readable(bytes)
}

/// What a healthy device answers; launches complete at once.
#[must_use]
pub fn success(header: Header, command: &Command<'_>) -> Vec<Completion> {
    let times = Times { start: 1, wait: 2, execute: 3 };
    let body = match *command {
        Command::CheckCompatibility => {
            Body::Compatibility { status: CompatibilityStatus::Success, version: API_VERSION }
        }
        Command::FirmwareVersion { firmware } => {
            let status = FirmwareVersionStatus::Success;
            Body::FirmwareVersion { status, version: API_VERSION, firmware }
        }
        Command::Echo => Body::Echo { start: 1, status: EchoStatus::Success },
        Command::Abort => Body::Abort { status: AbortStatus::Success },
        Command::KernelLaunch(_) => {
            Body::Launch { times, status: LaunchStatus::KernelCompleted, error: None }
        }
        Command::KernelAbort { .. } => Body::KernelAbort { status: KernelAbortStatus::Success },
        Command::DmaReadList { .. } => Body::DmaRead { times, status: DmaStatus::Complete },
        Command::DmaWriteList { .. } => Body::DmaWrite { times, status: DmaStatus::Complete },
        Command::CmReset { .. } => Body::CmReset { status: CmResetStatus::Success },
        _ => return vec![Completion::event(Body::Unknown { msg_id: header.msg_id.get() })],
    };
    vec![Completion::new(header.tag(), body)]
}

/// A mailbox behind which `device` answers each command at once, with any number of messages.
///
/// Its queues are never full, and waiting for it always times out: what is to come is there.
pub fn answering_mailbox(
    mut device: impl FnMut(Header, &Command<'_>) -> Vec<Completion> + Send + 'static,
) -> MockMailbox {
    raw_mailbox(move |message| {
        let Ok((header, command)) = Command::parse(message) else { return Vec::new() };
        device(header, &command)
            .iter()
            .filter_map(|completion| {
                let mut bytes = vec![0; 128];
                let len = completion.encode(&mut bytes).ok()?;
                bytes.truncate(len);
                Some(bytes)
            })
            .collect()
    })
}

/// As [`answering_mailbox`], with raw bytes: for answers that no healthy device gives.
pub fn raw_mailbox(mut device: impl FnMut(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> MockMailbox {
    let answers = Arc::new(Mutex::new(VecDeque::new()));
    let mut mailbox = MockMailbox::new();
    let queue = Arc::clone(&answers);
    mailbox.expect_push().returning(move |_, message| {
        queue.lock().unwrap_or_else(PoisonError::into_inner).extend(device(message));
        Ok(Push::Accepted)
    });
    mailbox.expect_pop().returning(move |into| {
        let next: Option<Vec<u8>> =
            answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(message) = next else { return Ok(Pop::Empty) };
        into.get_mut(..message.len()).ok_or(ErrorKind::TooLarge)?.copy_from_slice(&message);
        Ok(Pop::Message(message.len()))
    });
    idle(&mut mailbox);
    mailbox
}

/// A mailbox whose queues are always full.
#[must_use]
pub fn full_mailbox() -> MockMailbox {
    let mut mailbox = MockMailbox::new();
    mailbox.expect_push().returning(|_, _| Ok(Push::Full));
    mailbox.expect_pop().returning(|_| Ok(Pop::Empty));
    idle(&mut mailbox);
    mailbox
}

/// A mailbox that takes every command and never answers.
#[must_use]
pub fn silent_mailbox() -> MockMailbox {
    raw_mailbox(|_| Vec::new())
}

/// A mailbox that answers the first `healthy` commands, and whose completion queue is corrupt then.
#[must_use]
pub fn corrupt_after(healthy: usize) -> MockMailbox {
    let answers = Arc::new(Mutex::new((0, VecDeque::new())));
    let mut mailbox = MockMailbox::new();
    let state = Arc::clone(&answers);
    mailbox.expect_push().returning(move |_, message| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        if let (true, Ok((header, command))) = (state.0 <= healthy, Command::parse(message)) {
            state.1.extend(success(header, &command));
        }
        Ok(Push::Accepted)
    });
    mailbox.expect_pop().returning(move |into| {
        let mut state = answers.lock().unwrap_or_else(PoisonError::into_inner);
        match state.1.pop_front() {
            Some(completion) => {
                completion.encode(into).map(Pop::Message).map_err(|_| ErrorKind::TooLarge)
            }
            None if state.0 > healthy => Err(ErrorKind::Protocol),
            None => Ok(Pop::Empty),
        }
    });
    idle(&mut mailbox);
    mailbox
}

/// A mailbox that answers the first `healthy` commands; for each later one, `push` returns what
/// `then` does.
#[must_use]
pub fn pushes_after(
    healthy: usize,
    then: impl Fn() -> Result<Push, ErrorKind> + Send + 'static,
) -> MockMailbox {
    let answers = Arc::new(Mutex::new((0, VecDeque::new())));
    let mut mailbox = MockMailbox::new();
    let state = Arc::clone(&answers);
    mailbox.expect_push().returning(move |_, message| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 == healthy {
            return then();
        }
        state.0 += 1;
        let (header, command) = Command::parse(message).map_err(|_| ErrorKind::Protocol)?;
        state.1.extend(success(header, &command));
        Ok(Push::Accepted)
    });
    mailbox.expect_pop().returning(move |into| {
        let mut state = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(completion) = state.1.pop_front() else { return Ok(Pop::Empty) };
        completion.encode(into).map(Pop::Message).map_err(|_| ErrorKind::TooLarge)
    });
    idle(&mut mailbox);
    mailbox
}

/// Adds what every mailbox here does: doorbells are heard, waits time out.
pub fn idle(mailbox: &mut MockMailbox) {
    mailbox.expect_kick().returning(|| Ok(()));
    mailbox.expect_ticket().returning(|| Ticket(0));
    mailbox.expect_wait().returning(|_, _| Ok(Wake::TimedOut));
    mailbox.expect_wake().return_const(());
    mailbox.expect_max_message_bytes().returning(|_| Ok(1055));
}
