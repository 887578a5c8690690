//! How a device is named.

use std::fmt;
use std::str::FromStr;

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
    /// No kernel interface: a process that simulates the device. Not in addresses, see [`VfioHal::connect`].
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
/// The text form is an address, then `key=value`, separated by commas; what is not named keeps its default.
///
/// | Key | Value |
/// |---|---|
/// | `mode` | `auto`, `group`, `cdev`, or `noiommu` (which [`VfioOptions`](crate::VfioOptions) must allow too) |
/// | `iova-bits` | highest address bits the device may use, 24 to 64 |
/// | `hugepages` | `auto`, or `never` |
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
}

/// The keys of the text form.
pub const KEYS: &[&str] = &["mode", "iova-bits", "hugepages"];

impl VfioAddress {
    /// Names a function, everything else by default.
    #[must_use]
    pub const fn new(bdf: Bdf) -> Self {
        Self { bdf, mode: Mode::Auto, iova_bits: 64, huge_pages: HugePages::IfFree }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), AddressError> {
        let bad = |expected| AddressError::BadValue {
            key: key.to_owned(),
            value: value.to_owned(),
            expected,
        };
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
            _ => return Err(AddressError::UnknownKey { key: key.to_owned() }),
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
            let (key, value) = item
                .split_once('=')
                .ok_or_else(|| AddressError::NoValue { item: item.to_owned() })?;
            address.set(key.trim(), value.trim())?;
        }
        Ok(address)
    }
}

impl fmt::Display for VfioAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bdf, mode, iova_bits, huge_pages } = self;
        let pages = if *huge_pages == HugePages::IfFree { "auto" } else { "never" };
        write!(f, "{bdf},mode={mode},iova-bits={iova_bits},hugepages={pages}")
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
    /// There is no such key.
    #[error("unknown key \"{key}\"; keys are {}", KEYS.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// An item is not of the form `key=value`.
    #[error("\"{item}\" is not of the form key=value; keys are {}", KEYS.join(", "))]
    NoValue {
        /// The item.
        item: String,
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
            "10000:af:1f.7, mode=noiommu, iova-bits=39, hugepages=never".parse().unwrap();
        assert_eq!(address.bdf, Bdf::new(0x10000, 0xaf, 0x1f, 7).unwrap());
        assert_eq!(address.mode, Mode::NoIommu);
        assert_eq!((address.iova_bits, address.huge_pages), (39, HugePages::Never));
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
    }
}
