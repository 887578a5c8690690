//! The address of a PCI function.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Address of a PCI function: domain, bus, device, function.
///
/// The text form is `0000:01:00.0`; `01:00.0` means domain 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl Bdf {
    /// Creates the address; `None` above 31 devices or 7 functions.
    #[must_use]
    pub const fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        if device < 32 && function < 8 {
            Some(Self { domain, bus, device, function })
        } else {
            None
        }
    }

    /// Returns the function number, 0 to 7.
    #[must_use]
    pub fn function(self) -> u8 {
        self.function
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for Bdf {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| Error::ParseBdf { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Bdf> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let device = u8::try_from(hex(device, 2)?).ok()?;
    let function = u8::try_from(hex(function, 1)?).ok()?;
    // Domains behind a VMD have five digits.
    let (domain, bus) = (hex(domain, 8)?, u8::try_from(hex(bus, 2)?).ok()?);
    Bdf::new(domain, bus, device, function)
}

/// At most `digits` hexadecimal digits and nothing else; the standard parser would take a sign.
fn hex(text: &str, digits: usize) -> Option<u32> {
    let plain = text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, canonical) in [
            ("0000:01:00.0", "0000:01:00.0"),
            ("01:00.0", "0000:01:00.0"),
            ("10000:E1:1f.7", "10000:e1:1f.7"),
        ] {
            assert_eq!(text.parse::<Bdf>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in
            ["", "1", "01:00", "01:00.8", "01:20.0", "0000:001:00.0", "0:+1:00.0", "a/b:0.0"]
        {
            assert!(matches!(text.parse::<Bdf>(), Err(Error::ParseBdf { .. })), "{text}");
        }
    }
}
