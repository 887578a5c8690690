//! Elementary functions against those of the host, in twice the precision.

#![expect(clippy::cast_possible_truncation, reason = "floats are made from doubles")]

use std::f32::consts::{FRAC_PI_2, PI};

use super::{LONG, Rig};

/// Floats for each function, a share of which each hart computes.
const COUNT: usize = 128 * 512;

/// A function, what it shall be, and how many units in the last place it may be from that. Those
/// are fewer than the header promises: the simulator rounds the approximations of the hardware
/// rightly, which may be a unit off on the card.
struct Function {
    name: &'static str,
    exact: fn(f64, f64) -> f64,
    units: f64,
    /// Only arguments up to here have to be right.
    most: f64,
}

const FUNCTIONS: [Function; 9] = [
    function("sqrt", |x, _| x.sqrt(), 0.51),
    // Of -0 it is positive.
    function("rsqrt", |x, _| 1.0 / x.sqrt().abs(), 1.0),
    function("exp", |x, _| x.exp(), 1.0),
    function("log", |x, _| x.ln(), 1.5),
    Function { most: 1e5, ..function("sin", |x, _| x.sin(), 1.5) },
    Function { most: 1e5, ..function("cos", |x, _| x.cos(), 1.5) },
    function("tanh", |x, _| x.tanh(), 2.5),
    function("sigmoid", |x, _| 1.0 / (1.0 + (-x).exp()), 2.0),
    function("div", |x, y| x / y, 1.5),
];

const fn function(name: &'static str, exact: fn(f64, f64) -> f64, units: f64) -> Function {
    Function { name, exact, units, most: f64::INFINITY }
}

/// Subnormal numbers count as zero.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

impl Function {
    /// How far a result is from the right one, in units in its last place; 0 if it is as near as
    /// it has to be.
    fn distance(&self, found: f32, x: f32, y: f32) -> f64 {
        let (x, y) = (f64::from(flushed(x)), f64::from(flushed(y)));
        let exact = (self.exact)(x, y);
        if x.is_finite() && x.abs() > self.most || exact.is_nan() && found.is_nan() {
            return 0.0;
        }
        let (found, rounded) = (f64::from(found), f64::from(flushed(exact as f32)));
        // A result at the edge of the range may be on either side.
        let tiny = f64::from(f32::MIN_POSITIVE);
        let is_tiny = exact.abs() < tiny * 1.000_001 && (found == 0.0 || found.abs() == tiny);
        if found == rounded || is_tiny {
            return 0.0;
        }
        let unit = (exact.abs().log2().floor() - 23.0).exp2();
        (found - exact).abs() / unit
    }
}

/// Numbers of every size and sign, dense where functions change, and what is special.
fn arguments(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        -f32::MIN_POSITIVE,
        1e-40,
        0.5,
        88.7,
        88.73,
        -87.3,
        -87.4,
        -104.0,
        89.0,
        8.507_059e37,
        1.701_411_8e38,
        -1.701_411_8e38,
        5.421_011e-20,
        2.710_505_4e-20,
        1e5,
        -1e5,
        PI,
        FRAC_PI_2,
        2.0,
        4.0,
        0.499_999_97,
        9.0,
    ];
    let mut all = special.to_vec();
    while all.len() < COUNT {
        let unit = (f64::from(random()) / 2_f64.powi(31) - 1.0) as f32;
        all.push(match all.len() % 5 {
            0 => f32::from_bits(random()),
            1 => unit,
            2 => unit * 100.0,
            3 => unit * 1e5,
            _ => unit.abs() * 2.0,
        });
    }
    all
}

#[test]
fn functions_are_as_near_as_they_say() {
    Rig::each("").for_each(|rig| functions(&rig));
}

fn functions(rig: &Rig) {
    let (device, stream) = (&rig.device, rig.device.default_stream());
    let (x, mut y) = (arguments(1), arguments(2));
    // Specials meet all others.
    y.rotate_left(7);
    let bits: Vec<u32> = x.iter().chain(&y).map(|x| x.to_bits()).collect();
    let input = device.alloc_aligned(8 * COUNT as u64, 64).unwrap();
    stream.copy_to_device(&bits, &input).unwrap().wait(LONG).unwrap();
    let size = (4 * COUNT * FUNCTIONS.len()) as u64;
    let outputs = [(); 2].map(|()| device.alloc_aligned(size, 64).unwrap());
    for options in [&["-O2", "-std=c11"], &["-O0", "-std=gnu17"]] {
        let launch = rig.launch("math.c", options).buffer(&input).u64(COUNT as u64);
        rig.run(&outputs.iter().fold(launch, |launch, output| launch.buffer(output)));
        let mut results = outputs.each_ref().map(|_| vec![0_u32; COUNT * FUNCTIONS.len()]);
        for (output, result) in outputs.iter().zip(&mut results) {
            stream.read(output, result, LONG).unwrap();
        }
        for (number, function) in FUNCTIONS.iter().enumerate() {
            let mut worst = (0.0, 0);
            for at in 0..COUNT {
                let [single, packed] = results.each_ref().map(|all| all[COUNT * number + at]);
                assert_eq!(single, packed, "{} of {:e}", function.name, x[at]);
                let distance = function.distance(f32::from_bits(single), x[at], y[at]);
                if distance > worst.0 || distance.is_nan() {
                    worst = (distance, at);
                }
            }
            let (distance, at) = worst;
            let found = f32::from_bits(results[0][COUNT * number + at]);
            assert!(
                distance <= function.units,
                "{} of {:e} and {:e} is {found:e}, {distance} units away",
                function.name,
                x[at],
                y[at]
            );
        }
    }
}
