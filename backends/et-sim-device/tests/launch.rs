//! The checks of a launch, in the order of firmware. Spec: §9.1, §9.2

mod common;

use common::{HOST_BASE, LaunchParams, Rig, kernel_abort, launch, null_config, params};
use et_devapi::msg::ops::{
    Body, Completion, KernelAbortStatus, LaunchError, LaunchStatus, MsgId, StackConfig, TraceConfig,
};
use et_devapi::msg::{CommandFlags, Header, Tag};
use et_hal::DeviceAddr;
use et_sim_device::Fault;
use zerocopy::IntoBytes;

fn rig() -> Rig {
    let mut config = null_config();
    config.shires = 1 << 32 | 0b1111;
    Rig::new(config)
}

fn status(rig: &mut Rig, message: &[u8]) -> LaunchStatus {
    rig.send(0, message);
    let bytes = rig.bytes();
    let Ok(Completion { body: Body::Launch { status, times, error, .. }, .. }) =
        Completion::parse(&bytes)
    else {
        panic!("no launch response");
    };
    // Spec §9.4: short if it completed, long with an empty error block if it was rejected.
    let completed = status == LaunchStatus::KernelCompleted;
    assert_eq!(bytes.len(), if completed { 40 } else { 64 });
    assert_eq!(error, (!completed).then_some(LaunchError::default()));
    if !completed {
        assert_eq!(times.execute, 0);
    }
    status
}

fn check(rig: &mut Rig, change: impl FnOnce(&mut LaunchParams<'_>)) -> LaunchStatus {
    let mut params = params();
    change(&mut params);
    let message = launch(1, &params);
    status(rig, &message)
}

fn trace(buffer: u64, buffer_size: u32, shire_mask: u64, thread_mask: u64) -> TraceConfig {
    TraceConfig {
        buffer: buffer.into(),
        buffer_size: buffer_size.into(),
        threshold: 0.into(),
        shire_mask: shire_mask.into(),
        thread_mask: thread_mask.into(),
        event_mask: u32::MAX.into(),
        filter_mask: u32::MAX.into(),
    }
}

fn stack(offset: u32, size: u32) -> StackConfig {
    StackConfig { stack_base_offset: offset.into(), stack_size: size.into() }
}

#[test]
fn each_wrong_field_has_its_status() {
    let mut rig = rig();
    let end = HOST_BASE + rig.layout.host_managed.len;
    let at = DeviceAddr::new;
    assert_eq!(check(&mut rig, |_| ()), LaunchStatus::KernelCompleted);
    assert_eq!(check(&mut rig, |p| p.shire_mask = 0), LaunchStatus::InvalidShireMask);
    for address in [0, HOST_BASE - 1, end, u64::MAX] {
        let entry = check(&mut rig, |p| p.entry = at(address));
        assert_eq!(entry, LaunchStatus::InvalidAddress, "{address:#x}");
        if address != 0 {
            let args = check(&mut rig, |p| p.args = Some(at(address)));
            assert_eq!(args, LaunchStatus::InvalidAddress, "{address:#x}");
            let buffer = check(&mut rig, |p| p.exception_buffer = Some(at(address)));
            assert_eq!(buffer, LaunchStatus::InvalidAddress, "{address:#x}");
        }
    }
    let last = check(&mut rig, |p| {
        p.entry = at(end - 1);
        p.args = Some(at(end - 1));
        p.exception_buffer = Some(at(end - 1));
    });
    assert_eq!(last, LaunchStatus::KernelCompleted);
    assert_eq!(check(&mut rig, |p| p.shire_mask = 1 << 4), LaunchStatus::ShiresNotReady);
    assert_eq!(check(&mut rig, |p| p.shire_mask = 1 << 33), LaunchStatus::ShiresNotReady);
    assert_eq!(check(&mut rig, |p| p.shire_mask = 1 << 32), LaunchStatus::KernelCompleted);
}

#[test]
fn checks_come_in_the_order_of_firmware() {
    let mut rig = rig();
    let bad_trace = Some(trace(1, 64, 1, 1));
    let bad_stack = Some(stack(0, 1));
    let everything = |p: &mut LaunchParams<'_>| {
        p.shire_mask = 0;
        p.entry = DeviceAddr::new(0);
        p.trace = bad_trace;
        p.stack = bad_stack;
    };
    assert_eq!(check(&mut rig, everything), LaunchStatus::InvalidShireMask);
    let mend_mask = |p: &mut LaunchParams<'_>| {
        everything(p);
        p.shire_mask = 1 << 10;
    };
    assert_eq!(check(&mut rig, mend_mask), LaunchStatus::InvalidAddress);
    let mend_entry = |p: &mut LaunchParams<'_>| {
        mend_mask(p);
        p.entry = DeviceAddr::new(HOST_BASE);
    };
    assert_eq!(check(&mut rig, mend_entry), LaunchStatus::Error);
    let mend_trace = |p: &mut LaunchParams<'_>| {
        mend_entry(p);
        p.trace = None;
    };
    assert_eq!(check(&mut rig, mend_trace), LaunchStatus::InvalidStackConfig);
    let mend_stack = |p: &mut LaunchParams<'_>| {
        mend_trace(p);
        p.stack = None;
    };
    assert_eq!(check(&mut rig, mend_stack), LaunchStatus::ShiresNotReady);
}

#[test]
fn payloads_are_limited_to_128_bytes() {
    let mut rig = rig();
    let whole = launch(1, &LaunchParams { embedded_args: &[1; 128], ..params() });
    assert_eq!(status(&mut rig, &whole), LaunchStatus::KernelCompleted);
    let with_len = |len: usize| {
        let mut message = whole.clone();
        message.resize(len, 0);
        message[0..2].copy_from_slice(&u16::try_from(len).unwrap().to_le_bytes());
        message
    };
    let invalid = LaunchStatus::InvalidArgsPayloadSize;
    assert_eq!(status(&mut rig, &with_len(169)), invalid);
    assert_eq!(status(&mut rig, &with_len(500)), invalid);
    // Shorter than the fixed part: firmware's length wraps around.
    assert_eq!(status(&mut rig, &with_len(39)), invalid);
    assert_eq!(status(&mut rig, &with_len(8)), invalid);
    // A flag whose part is not there.
    let id = MsgId::KernelLaunchCmd.as_u16();
    for flag in [CommandFlags::KERNEL_TRACE, CommandFlags::USER_STACK] {
        let mut message = launch(1, &params());
        message[..8].copy_from_slice(Header::new(40, Tag::new(1), id, flag).as_bytes());
        assert_eq!(status(&mut rig, &message), invalid);
    }
}

#[test]
fn arguments_are_copied_when_checked() {
    let mut rig = rig();
    let args = HOST_BASE + 0x1000;
    let mut bytes = [0; 24];
    let with_args = |p: &mut LaunchParams<'_>| {
        p.args = Some(DeviceAddr::new(args));
        p.embedded_args = &[0x5a; 20];
    };
    // Even a launch that fails a later check has copied them.
    let late = check(&mut rig, |p| {
        with_args(p);
        p.shire_mask = 1 << 9;
    });
    assert_eq!(late, LaunchStatus::ShiresNotReady);
    rig.board.dram().read(args, &mut bytes).unwrap();
    assert_eq!((&bytes[..20], &bytes[20..]), (&[0x5a; 20][..], &[0; 4][..]));
    // Behind trace and stack configuration.
    let all = check(&mut rig, |p| {
        p.args = Some(DeviceAddr::new(args));
        p.embedded_args = &[0x77; 24];
        p.trace = Some(trace(HOST_BASE + 0x2000, 4096, 1, 1));
        p.stack = Some(stack(0x100, 64));
    });
    assert_eq!(all, LaunchStatus::KernelCompleted);
    rig.board.dram().read(args, &mut bytes).unwrap();
    assert_eq!(bytes, [0x77; 24]);
}

#[test]
fn stacks_follow_the_rules_of_firmware() {
    let mut rig = rig();
    let invalid = LaunchStatus::InvalidStackConfig;
    let fine = LaunchStatus::KernelCompleted;
    let units = u32::try_from(rig.layout.host_managed.len / 4096).unwrap();
    for (mask, offset, size, expected) in [
        (1, 0, 63, invalid),
        (1, 0, 64, fine),
        (0b11, 0, 127, invalid),
        (0b11, 0, 128, fine),
        (1 << 32, 0, 31, invalid),
        (1 << 32, 0, 32, fine),
        // Bytes per hart must be a multiple of 64: 65 × 4096 / 64 = 4160, 4096 × 97 / 96 is not.
        (1, 0, 65, fine),
        (1 << 32 | 1, 0, 97, invalid),
        (1 << 32 | 1, 0, 99, fine),
        // The end must lie before the end of memory.
        (1, units - 64, 64, invalid),
        (1, units - 65, 64, fine),
        (1, units, 64, invalid),
        // 32-bit arithmetic: 4 GiB of offset is none, and so is 4 GiB of stack.
        (1, 1 << 20, 64, fine),
        (1, (1 << 20) + 5, (1 << 20) + 64, fine),
        (1, u32::MAX, 64, invalid),
    ] {
        let found = check(&mut rig, |p| {
            p.shire_mask = mask;
            p.stack = Some(stack(offset, size));
        });
        assert_eq!(found, expected, "mask {mask:#x}, offset {offset}, size {size}");
    }
}

#[test]
fn trace_buffers_are_checked_as_firmware_does() {
    let mut rig = rig();
    let buffer = HOST_BASE + 0x1f_f000 - 0xfc0;
    assert_eq!(buffer % 64, 0);
    let with = |trace| move |p: &mut LaunchParams<'_>| p.trace = Some(trace);
    for bad in [
        trace(buffer + 8, 4096, 1, 1),
        trace(buffer, 4096 + 8, 1, 1),
        trace(buffer, 64 * 63, 1, u64::MAX),
        trace(buffer, 4096, 0, 1),
        trace(buffer, 4096, 1, 0),
        trace(buffer, 4096, 1 << 32, 1),
    ] {
        assert_eq!(check(&mut rig, with(bad)), LaunchStatus::Error, "{bad:?}");
    }
    // Two shires of three harts, and one of the master shire: seven parts of 64 bytes.
    let good = trace(buffer, 511 & !63, 1 << 32 | 0b11, 1 << 40 | 0b11);
    assert_eq!(check(&mut rig, with(good)), LaunchStatus::KernelCompleted);
    // The address is not checked.
    let outside = check(&mut rig, with(trace(0, 4096, 1, 1)));
    assert_eq!(outside, LaunchStatus::KernelCompleted);
    let at_the_end = check(&mut rig, with(trace(!63, 4096, 1, u64::MAX)));
    assert_eq!(at_the_end, LaunchStatus::KernelCompleted);
}

#[test]
fn aborting_a_launch_that_is_over_names_no_launch() {
    let mut rig = rig();
    assert_eq!(check(&mut rig, |_| ()), LaunchStatus::KernelCompleted);
    rig.send(0, &kernel_abort(2, 1));
    let status = KernelAbortStatus::InvalidTagId;
    assert_eq!(rig.next(), Completion::new(Tag::new(2), Body::KernelAbort { status }));
}

#[test]
fn cores_that_do_not_acknowledge_need_a_compute_reset() {
    let mut config = null_config();
    config.faults = vec![Fault::ComputeHang { nth: 2 }];
    let mut rig = Rig::new(config);
    assert_eq!(check(&mut rig, |_| ()), LaunchStatus::KernelCompleted);
    rig.send(0, &launch(1, &params()));
    let error = et_devapi::msg::ops::FwErrorType::CmSmodeHang;
    assert_eq!(rig.next(), Completion::event(Body::FwError { error, payload: 1 }));
    let failed = rig.next();
    let expected = LaunchStatus::CmMulticastFailed;
    assert!(
        matches!(failed, Completion { body: Body::Launch { status, .. }, .. } if status == expected)
    );
    assert_eq!(check(&mut rig, |_| ()), expected);
    rig.send_high(0, &common::cm_reset(9));
    assert!(matches!(rig.next().body, Body::CmReset { .. }));
    assert_eq!(check(&mut rig, |_| ()), LaunchStatus::KernelCompleted);
}

#[test]
fn a_launch_under_which_the_firmware_of_a_hart_traps_is_lost() {
    let mut config = null_config();
    config.faults = vec![Fault::ComputeException { nth: 2, hart: 7 }];
    let mut rig = Rig::new(config);
    assert_eq!(check(&mut rig, |_| ()), LaunchStatus::KernelCompleted);
    rig.send(0, &launch(1, &params()));
    let error = et_devapi::msg::ops::FwErrorType::CmSmodeException;
    assert_eq!(rig.next(), Completion::event(Body::FwError { error, payload: 7 }));
    // It has no answer of its own; an abort does not reach the cores, and gives it one.
    rig.send_high(0, &common::abort(8));
    let lost = rig.next();
    let expected = LaunchStatus::CmMulticastFailed;
    assert!(
        matches!(lost, Completion { body: Body::Launch { status, .. }, .. } if status == expected)
    );
    assert!(matches!(rig.next().body, Body::Abort { .. }));
    assert_eq!(check(&mut rig, |_| ()), expected);
    rig.send_high(0, &common::cm_reset(9));
    assert!(matches!(rig.next().body, Body::CmReset { .. }));
    assert_eq!(check(&mut rig, |_| ()), LaunchStatus::KernelCompleted);
}
