//! What kernels print, as the trace of the launch has it. Spec: §16

use et::kernel::UserTrace;

use super::{LONG, Rig, has_compiler, has_picolibc};

const FLOATS: [f32; 18] = [
    0.0,
    -0.0,
    1.0,
    0.1,
    -2.5,
    0.000_012_345,
    9.999_999,
    999_999.5,
    1_234_567.0,
    3.402_823_5e38,
    1.175_494_4e-38,
    1e-45,
    16_777_216.0,
    0.000_999_999_5,
    123_456.79,
    5e-7,
    1e10,
    9.999_995,
];
/// Bytes of each hart's part.
const PART: usize = 4096;

/// `%e` of C.
fn scientific(value: f32, places: usize) -> String {
    let text = format!("{:.places$e}", f64::from(value));
    let (mantissa, exponent) = text.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `%g` of C.
fn general(value: f32) -> String {
    let text = scientific(value, 5);
    let (mantissa, exponent) = text.split_once('e').unwrap();
    let power: i32 = exponent.parse().unwrap();
    let strip = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&power) {
        let places = usize::try_from(5 - power).unwrap();
        strip(&format!("{:.places$}", f64::from(value)))
    } else {
        format!("{}e{exponent}", strip(mantissa))
    }
}

/// The texts in a part, of which the header says how much is used.
fn texts(part: &[u8], header: usize, hart: u16) -> Vec<String> {
    let number = |at: usize, bytes: usize| {
        part[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let used = if header == 64 { number(12, 4) } else { number(0, 4) };
    let mut at = header;
    let mut found = Vec::new();
    while at < used {
        let payload = number(at + 8, 4);
        assert_eq!((number(at + 12, 2), number(at + 14, 2)), (hart.into(), 0), "hart and type");
        assert_eq!(payload % 8, 0);
        let text = &part[at + 16..at + 16 + payload];
        let end = text.iter().position(|byte| *byte == 0).unwrap();
        // Where there is room the entry ends with a mark and the level of the text.
        let zeros = match &text[end..] {
            [zeros @ .., 0xe7, 0..=4] if !zeros.is_empty() => zeros,
            zeros => zeros,
        };
        assert!(zeros.iter().all(|byte| *byte == 0));
        found.push(String::from_utf8(text[..end].to_vec()).unwrap());
        at += 16 + payload;
    }
    assert_eq!(at, used);
    found
}

#[test]
fn texts_are_as_printf_makes_them() {
    let long = "a text that is longer than what one entry of a trace has room for, so that its end \
                is cut off somewhere around here, and this is never seen";
    let mut expected: Vec<String> = [
        "-5 7 4000000000 beef BEEF 10",
        "-9223372036854775808 18446744073709551615 123456789abc 1",
        "44 44 4464 4464 16",
        "[   42] [42   ] [00042] [+42] [ 42] [042] [  042]",
        "[     1] [2     ] [abc] [   ab] [ab   ] [ab]",
        "0xff 010 0 0x8005801000 ok text %",
        " 3.14|3.142e+04|0.0001|1E-05|+2|4.|-001.2",
        "inf -INF nan 0.000000e+00",
        &long[..127],
    ]
    .map(str::to_owned)
    .into();
    for value in FLOATS {
        let text = format!("{:.6} {} {}", f64::from(value), scientific(value, 6), general(value));
        expected.push(text[..text.len().min(127)].to_owned());
    }
    expected.push("23 something and s".to_owned());
    for options in [&["-O2", "-std=c11"][..], &["-O0", "-mno-fdiv"], &["--libc=picolibc", "-O1"]] {
        if options[0].starts_with("--libc") && has_compiler() && !has_picolibc() {
            continue;
        }
        for rig in Rig::each("") {
            if !options.iter().all(|option| rig.knows(option)) {
                continue;
            }
            let launch = match options {
                [libc, rest @ ..] if libc.starts_with("--") => {
                    rig.launch_with(&[libc], "print.c", rest)
                }
                _ => rig.launch("print.c", options),
            };
            let stream = rig.device.default_stream();
            let floats = rig.device.alloc(4 * FLOATS.len() as u64).unwrap();
            stream.copy_to_device(&FLOATS, &floats).unwrap().wait(LONG).unwrap();
            let buffer = rig.device.alloc_aligned(128 * PART as u64, 64).unwrap();
            let trace = UserTrace {
                buffer: (&buffer).into(),
                threshold: 0,
                shire_mask: 3,
                thread_mask: u64::MAX,
                event_mask: 1,
                filter_mask: 3,
            };
            rig.run(&launch.buffer(&floats).u64(FLOATS.len() as u64).trace(trace));
            let mut bytes = vec![0_u8; 128 * PART];
            stream.read(&buffer, &mut bytes, LONG).unwrap();
            for (hart, part) in (0_u16..).zip(bytes.chunks(PART)) {
                if hart == 0 {
                    assert_eq!(texts(part, 64, hart), expected, "{options:?}");
                } else {
                    assert_eq!(texts(part, 4, hart), [format!("hart {hart}")]);
                }
            }
        }
    }
}
