//! How a device is named.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use et_vfio_host::Bdf;

/// The way to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mode {
    /// `Cdev` where the kernel has it, else `Group`.
    #[default]
    Auto,
    /// Group and container.
    Group,
    /// The device's own node and iommufd.
    Cdev,
    /// Group without IOMMU: the device can write to all memory.
    NoIommu,
    /// No kernel interface: a process that simulates the device. Not in addresses, see
    /// [`VfioHal::connect`].
    ///
    /// [`VfioHal::connect`]: crate::VfioHal::connect
    User,
}

impl Mode {
    const NAMES: [(&'static str, Self); 4] = [
        ("auto", Self::Auto),
        ("group", Self::Group),
        ("cdev", Self::Cdev),
        ("noiommu", Self::NoIommu),
    ];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, mode)| mode == self);
        f.write_str(name.map_or("vfio-user", |(name, _)| name))
    }
}

/// Which huge pages DMA memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum HugePages {
    /// Those that are free, else small pages.
    #[default]
    IfFree,
    /// Small pages only.
    Never,
}

/// Names a device and the way to it.
///
/// The text form is an address, then `key=value`, separated by commas; what is not named keeps its
/// default.
///
/// | Key | Value |
/// |---|---|
/// | `mode` | `auto`, `group`, `cdev`, or `noiommu`, which the options must allow too |
/// | `iova-bits` | highest address bits the device may use, 24 to 64 |
/// | `hugepages` | `auto`, or `never` |
/// | `reset-timeout` | longest that a reset may take, as `30s` or `1500ms` |
///
/// # Examples
///
/// ```
/// use et_hal_vfio::{Mode, VfioAddress};
///
/// let address: VfioAddress = "0000:01:00.0,mode=cdev".parse()?;
/// assert_eq!(address.mode, Mode::Cdev);
/// assert_eq!(address.to_string().parse(), Ok(address));
/// # Ok::<(), et_hal_vfio::AddressError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VfioAddress {
    /// The function.
    pub bdf: Bdf,
    /// The way to it.
    pub mode: Mode,
    /// Bus addresses end below 2 to the power of this, 24 to 64.
    pub iova_bits: u32,
    /// Pages of DMA memory.
    pub huge_pages: HugePages,
    /// Longest that a reset may take, if not what the options say.
    pub reset_timeout: Option<Duration>,
}

/// The keys of the text form of [`VfioAddress`].
pub const KEYS: &[&str] = &["mode", "iova-bits", "hugepages", "reset-timeout"];
/// The keys of the text form of [`UserAddress`].
pub const USER_KEYS: &[&str] = &["answer-timeout", "reset-timeout"];

/// Reads a length of time, `30s` or `1500ms`; not 0.
fn duration(text: &str) -> Option<Duration> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let millis = number.parse::<u64>().ok().filter(|&n| is_number && n > 0)?.checked_mul(scale)?;
    Some(Duration::from_millis(millis))
}

/// Writes `,key=` and a length of time, if there is one.
fn write_duration(f: &mut fmt::Formatter<'_>, key: &str, value: Option<Duration>) -> fmt::Result {
    match value {
        None => Ok(()),
        Some(value) if value.subsec_nanos() == 0 => write!(f, ",{key}={}s", value.as_secs()),
        Some(value) => write!(f, ",{key}={}ms", value.as_millis()),
    }
}

fn bad(key: &str, value: &str, expected: &'static str) -> AddressError {
    AddressError::BadValue { key: key.to_owned(), value: value.to_owned(), expected }
}

fn limit(key: &str, value: &str) -> Result<Option<Duration>, AddressError> {
    duration(value).map(Some).ok_or_else(|| bad(key, value, "a time such as 30s or 1500ms"))
}

fn key_and_value<'a>(
    item: &'a str,
    keys: &'static [&'static str],
) -> Result<(&'a str, &'a str), AddressError> {
    let (key, value) = item
        .split_once('=')
        .ok_or_else(|| AddressError::NoValue { item: item.to_owned(), keys })?;
    Ok((key.trim(), value.trim()))
}

impl VfioAddress {
    /// Names a function, everything else by default.
    #[must_use]
    pub const fn new(bdf: Bdf) -> Self {
        Self {
            bdf,
            mode: Mode::Auto,
            iova_bits: 64,
            huge_pages: HugePages::IfFree,
            reset_timeout: None,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), AddressError> {
        let bad = |expected| bad(key, value, expected);
        match key {
            "mode" => {
                let found = Mode::NAMES.iter().find(|(name, _)| *name == value);
                let (_, mode) = found.ok_or_else(|| bad("auto, group, cdev or noiommu"))?;
                self.mode = *mode;
            }
            "iova-bits" => {
                let bits = value.parse().ok().filter(|bits| (24..=64).contains(bits));
                self.iova_bits = bits.ok_or_else(|| bad("24 to 64"))?;
            }
            "hugepages" => {
                self.huge_pages = match value {
                    "auto" => HugePages::IfFree,
                    "never" => HugePages::Never,
                    _ => return Err(bad("auto or never")),
                };
            }
            "reset-timeout" => self.reset_timeout = limit(key, value)?,
            _ => return Err(AddressError::UnknownKey { key: key.to_owned(), keys: KEYS }),
        }
        Ok(())
    }
}

impl FromStr for VfioAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut items = text.split(',').map(str::trim);
        let first = items.next().unwrap_or_default();
        let bdf = first.parse();
        let bdf = bdf.map_err(|_| AddressError::NotAnAddress { text: first.to_owned() })?;
        let mut address = Self::new(bdf);
        for item in items {
            let (key, value) = key_and_value(item, KEYS)?;
            address.set(key, value)?;
        }
        Ok(address)
    }
}

impl fmt::Display for VfioAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bdf, mode, iova_bits, huge_pages, reset_timeout } = self;
        let pages = if *huge_pages == HugePages::IfFree { "auto" } else { "never" };
        write!(f, "{bdf},mode={mode},iova-bits={iova_bits},hugepages={pages}")?;
        write_duration(f, "reset-timeout", *reset_timeout)
    }
}

/// Names the socket of a card that another process simulates.
///
/// The text form is a path without commas, then `key=value`, separated by commas.
///
/// | Key | Value |
/// |---|---|
/// | `answer-timeout` | longest that the process may take for an answer, as `30s` or `1500ms` |
/// | `reset-timeout` | the same for a reset |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use et_hal_vfio::UserAddress;
///
/// let address: UserAddress = "/run/et.sock,answer-timeout=60s".parse()?;
/// assert_eq!(address.answer_timeout, Some(Duration::from_secs(60)));
/// assert_eq!(address.to_string().parse(), Ok(address));
/// # Ok::<(), et_hal_vfio::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserAddress {
    /// The socket.
    pub path: PathBuf,
    /// Longest that the process may take for an answer, if not what the options say.
    pub answer_timeout: Option<Duration>,
    /// The same for a reset.
    pub reset_timeout: Option<Duration>,
}

impl UserAddress {
    /// Names a socket, everything else by the options.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), answer_timeout: None, reset_timeout: None }
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for UserAddress {
    fn from(path: &P) -> Self {
        Self::new(path.as_ref())
    }
}

impl FromStr for UserAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut items = text.split(',');
        let path = items.next().unwrap_or_default();
        if path.is_empty() {
            return Err(AddressError::NoPath);
        }
        let mut address = Self::new(path);
        for item in items {
            let (key, value) = key_and_value(item, USER_KEYS)?;
            match key {
                "answer-timeout" => address.answer_timeout = limit(key, value)?,
                "reset-timeout" => address.reset_timeout = limit(key, value)?,
                _ => {
                    let key = key.to_owned();
                    return Err(AddressError::UnknownKey { key, keys: USER_KEYS });
                }
            }
        }
        Ok(address)
    }
}

impl fmt::Display for UserAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        write_duration(f, "answer-timeout", self.answer_timeout)?;
        write_duration(f, "reset-timeout", self.reset_timeout)
    }
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is no address of a PCI function.
    #[error("\"{text}\" is no PCI address: must be as 0000:01:00.0 (lspci -D lists them)")]
    NotAnAddress {
        /// The text.
        text: String,
    },
    /// There is no path to a socket.
    #[error("needs the path of a socket, as in /run/et.sock")]
    NoPath,
    /// There is no such key.
    #[error("unknown key \"{key}\"; keys are {}", keys.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
        /// Those that there are.
        keys: &'static [&'static str],
    },
    /// An item is not of the form `key=value`.
    #[error("\"{item}\" is not of the form key=value; keys are {}", keys.join(", "))]
    NoValue {
        /// The item.
        item: String,
        /// The keys that there are.
        keys: &'static [&'static str],
    },
    /// The value does not suit the key.
    #[error("\"{value}\" is no value for {key}: must be {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_understood() {
        let address: VfioAddress =
            "10000:af:1f.7, mode=noiommu, iova-bits=39, hugepages=never, reset-timeout=2500ms"
                .parse()
                .unwrap();
        assert_eq!(address.bdf, Bdf::new(0x10000, 0xaf, 0x1f, 7).unwrap());
        assert_eq!(address.mode, Mode::NoIommu);
        assert_eq!((address.iova_bits, address.huge_pages), (39, HugePages::Never));
        assert_eq!(address.reset_timeout, Some(Duration::from_millis(2500)));
        assert_eq!(address.to_string().parse(), Ok(address));
        assert!(KEYS.iter().all(|key| address.to_string().contains(&format!("{key}="))));
    }

    #[test]
    fn the_domain_may_be_left_out() {
        let address: VfioAddress = "01:00.0".parse().unwrap();
        assert_eq!(address, VfioAddress::new(Bdf::new(0, 1, 0, 0).unwrap()));
        assert_eq!(address.bdf.to_string(), "0000:01:00.0");
    }

    #[test]
    fn errors_say_what_is_possible() {
        let error = |text: &str| text.parse::<VfioAddress>().unwrap_err().to_string();
        for text in
            ["", "1", "01:20.0", "01:00.8", "001:00.0", "0000:+1:00.0", "zz:00.0", "0:0:0:0.0"]
        {
            assert!(error(text).contains("0000:01:00.0"), "{text}");
        }
        assert!(error("01:00.0,mod=x").contains("keys are mode"));
        assert!(error("01:00.0,mode").contains("key=value"));
        assert!(error("01:00.0,mode=uio").contains("auto, group, cdev or noiommu"));
        assert!(error("01:00.0,iova-bits=23").contains("24 to 64"));
        assert!(error("01:00.0,hugepages=1").contains("auto or never"));
        for time in ["", "s", "0s", "30", "-1s", "+1s", "1h", "1.5s", "99999999999999999999s"] {
            assert!(error(&format!("01:00.0,reset-timeout={time}")).contains("30s"), "{time}");
        }
    }

    #[test]
    fn sockets_have_time_limits() {
        let text = "/run/et.sock,answer-timeout=1s,reset-timeout=1500ms";
        let address: UserAddress = text.parse().unwrap();
        assert_eq!(address.path, Path::new("/run/et.sock"));
        assert_eq!(address.answer_timeout, Some(Duration::from_secs(1)));
        assert_eq!(address.reset_timeout, Some(Duration::from_millis(1500)));
        assert_eq!(address.to_string(), text);
        assert!(USER_KEYS.iter().all(|key| text.contains(&format!(",{key}="))));
        assert_eq!("a b".parse(), Ok(UserAddress::from("a b")));
        let error = |text: &str| text.parse::<UserAddress>().unwrap_err().to_string();
        assert!(error("").contains("path of a socket"));
        assert!(error(",reset-timeout=1s").contains("path of a socket"));
        assert!(error("/s,mode=cdev").contains("keys are answer-timeout, reset-timeout"));
        assert!(error("/s,x").contains("key=value"));
        assert!(error("/s,answer-timeout=soon").contains("30s"));
    }
}
