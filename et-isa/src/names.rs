//! Names of registers, rounding modes and fences.

/// Names of x0 to x31 in the calling convention.
const INTEGER: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
];

/// Names of f0 to f31 in the calling convention.
const FLOAT: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2",
    "fa3", "fa4", "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9",
    "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];

const MASK: [&str; 8] = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"];

/// Rounding modes by number; empty if reserved.
const ROUNDING: [&str; 8] = ["rne", "rtz", "rdn", "rup", "rmm", "", "", "dyn"];

/// The rounding mode that is in a register.
pub(crate) const DYNAMIC: u32 = 7;

/// Number of registers of a class, and the letter that their numbers follow.
fn numbered(text: &str, letter: char, count: u32) -> Option<i64> {
    let digits = text.strip_prefix(letter)?;
    let is_canonical = matches!(digits.as_bytes(), [b'0'..=b'9'] | [b'1'..=b'9', b'0'..=b'9']);
    let number: u32 = is_canonical.then(|| digits.parse().ok())??;
    (number < count).then_some(number.into())
}

fn position(names: &[&str], text: &str) -> Option<i64> {
    let index = names.iter().position(|name| !name.is_empty() && *name == text)?;
    i64::try_from(index).ok()
}

fn name(names: &'static [&'static str], number: i64) -> Option<&'static str> {
    names.get(usize::try_from(number).ok()?).copied().filter(|name| !name.is_empty())
}

pub(crate) fn integer(text: &str) -> Option<i64> {
    match text {
        "fp" => Some(8),
        _ => numbered(text, 'x', 32).or_else(|| position(&INTEGER, text)),
    }
}

pub(crate) fn float(text: &str) -> Option<i64> {
    numbered(text, 'f', 32).or_else(|| position(&FLOAT, text))
}

pub(crate) fn mask(text: &str) -> Option<i64> {
    numbered(text, 'm', 8)
}

pub(crate) fn rounding_mode(text: &str) -> Option<i64> {
    position(&ROUNDING, text)
}

/// Reads a set of accesses, in the order of the assembler.
pub(crate) fn accesses(text: &str) -> Option<i64> {
    let mut set = 0;
    let mut rest = text;
    for (letter, bit) in [('i', 8), ('o', 4), ('r', 2), ('w', 1)] {
        if let Some(after) = rest.strip_prefix(letter) {
            (rest, set) = (after, set | bit);
        }
    }
    match text {
        "0" => Some(0),
        _ => (rest.is_empty() && set != 0).then_some(set),
    }
}

/// Returns the name of an integer register in the calling convention.
#[must_use]
pub fn integer_register(number: i64) -> Option<&'static str> {
    name(&INTEGER, number)
}

/// Returns the name of a float register in the calling convention.
#[must_use]
pub fn float_register(number: i64) -> Option<&'static str> {
    name(&FLOAT, number)
}

pub(crate) fn mask_register(number: i64) -> Option<&'static str> {
    name(&MASK, number)
}

pub(crate) fn rounding(number: i64) -> Option<&'static str> {
    name(&ROUNDING, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_two_names() {
        for number in 0..32 {
            let name = integer_register(number).unwrap();
            assert_eq!(integer(name), Some(number));
            let name = float_register(number).unwrap();
            assert_eq!(float(name), Some(number));
        }
        assert_eq!((integer("x31"), integer("x32"), integer("x03")), (Some(31), None, None));
        assert_eq!(
            (integer("fp"), float("f0"), mask("m7"), mask("m8")),
            (Some(8), Some(0), Some(7), None)
        );
    }

    #[test]
    fn fences_name_each_access_once() {
        assert_eq!((accesses("rw"), accesses("iorw"), accesses("w")), (Some(3), Some(15), Some(1)));
        assert_eq!((accesses("wr"), accesses(""), accesses("rr")), (None, None, None));
    }
}
