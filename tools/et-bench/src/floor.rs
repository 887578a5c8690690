//! Floors: what the machine itself costs.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;

/// Microseconds for a cache line to go to another core and back.
pub(crate) fn round_trip_us() -> f64 {
    const TRIPS: u64 = 200_000;
    let (ping, pong) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for trip in 1..=TRIPS {
                while ping.load(Ordering::Acquire) != trip {
                    std::hint::spin_loop();
                }
                pong.store(trip, Ordering::Release);
            }
        });
        let start = Instant::now();
        for trip in 1..=TRIPS {
            ping.store(trip, Ordering::Release);
            while pong.load(Ordering::Acquire) != trip {
                std::hint::spin_loop();
            }
        }
        start.elapsed().as_secs_f64() * 1e6 / TRIPS as f64
    })
}

/// Messages of 40 bytes that two threads pass through a bounded queue in a second.
pub(crate) fn queue_per_s() -> f64 {
    const MESSAGES: u64 = 1_000_000;
    let queue = ArrayQueue::<[u64; 5]>::new(64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while seen < MESSAGES {
                match queue.pop() {
                    Some(message) => seen += black_box(message[0]),
                    None => std::hint::spin_loop(),
                }
            }
        });
        let start = Instant::now();
        for _ in 0..MESSAGES {
            let mut message = [1; 5];
            while let Err(back) = queue.push(message) {
                message = back;
                std::hint::spin_loop();
            }
        }
        while !queue.is_empty() {
            std::hint::spin_loop();
        }
        MESSAGES as f64 / start.elapsed().as_secs_f64()
    })
}

/// Bytes per second of a copy of `from` to `to`, once.
pub(crate) fn memcpy(from: &[u8], to: &mut [u8]) -> f64 {
    let start = Instant::now();
    black_box(&mut *to).copy_from_slice(black_box(from));
    from.len() as f64 / start.elapsed().as_secs_f64()
}

/// The operations of the integer kernel, by the host itself: million per second.
pub(crate) fn native_int_mips() -> f64 {
    const ROUNDS: u64 = 50_000_000;
    let start = Instant::now();
    let (mut a, mut b, mut c) = (1u64, 2u64, 3u64);
    let mut left = black_box(ROUNDS);
    while left != 0 {
        a = black_box(a.wrapping_add(b));
        b ^= a;
        c = c.wrapping_sub(b) | 1;
        a = a << 1 & c;
        left -= 1;
    }
    black_box((a, b, c));
    // Six operations, the decrement and the branch, as in the kernel.
    8.0 * ROUNDS as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// The same with single-precision operations.
pub(crate) fn native_fp_mips() -> f64 {
    const ROUNDS: u64 = 20_000_000;
    let start = Instant::now();
    let (mut a, mut b, mut c) = (1.0f32, 0.5f32, 0.25f32);
    let mut left = black_box(ROUNDS);
    while left != 0 {
        a = black_box(a * b + c);
        b = b * 0.999 + a;
        c = (c + b) * 0.25;
        left -= 1;
    }
    black_box((a, b, c));
    8.0 * ROUNDS as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// How much two host threads do of what one does.
pub(crate) fn native_scaling() -> f64 {
    let alone = native_int_mips();
    let both: f64 = std::thread::scope(|scope| {
        let other = scope.spawn(native_int_mips);
        native_int_mips() + other.join().unwrap_or(0.0)
    });
    both / alone
}

/// Milliseconds to start and join three threads one after another, the least an open device needs.
pub(crate) fn threads_ms() -> f64 {
    let start = Instant::now();
    for _ in 0..3 {
        std::thread::spawn(|| black_box(0)).join().unwrap_or(0);
    }
    start.elapsed().as_secs_f64() * 1e3
}
