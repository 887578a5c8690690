//! What sysfs says about a PCI function.

use std::path::PathBuf;

use crate::{Bdf, Error, Host};

/// Vendor id of the cards. Spec: §1
pub(crate) const VENDOR: u16 = 0x1e0a;
/// Device id of the silicon. Spec: §1
pub(crate) const SILICON: u16 = 0xeb01;
/// Device id of test and emulation devices. Spec: §1
pub(crate) const EMULATION: u16 = 0x9038;

/// A PCI function, as sysfs describes it. Nothing here was read from the card's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function {
    /// Its address.
    pub bdf: Bdf,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Base class, sub-class and programming interface: 24 bits.
    pub class: u32,
    /// The six BARs; the second of a 64-bit pair is empty.
    pub bars: [PciBar; 6],
    /// Driver that has it.
    pub driver: Option<String>,
    /// Driver that alone may take it.
    pub driver_override: Option<String>,
    /// Number of its IOMMU group.
    pub group: Option<u32>,
    /// NUMA node it is near to.
    pub numa_node: Option<u32>,
    /// `D0` to `D3cold`, or `unknown`; old kernels do not say.
    pub power_state: Option<String>,
    /// Ways of the kernel to reset it, best first; `None` when the kernel does not list them.
    pub reset_methods: Option<Vec<String>>,
    /// Whether the kernel can reset the function.
    pub resettable: bool,
    /// How often its memory decode was asked for; 0 is off.
    pub enabled: i64,
    /// What its configuration space answers.
    pub config: Config,
    /// Name of its own node below `/dev/vfio/devices`; exists while a VFIO driver has it.
    pub vfio_dev: Option<String>,
    /// Virtual functions enabled.
    pub virtual_functions: u32,
    /// Function that this is a virtual function of.
    pub physical_function: Option<Bdf>,
}

/// A base address register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciBar {
    /// First bus address.
    pub start: u64,
    /// Length in bytes; 0 when there is none.
    pub len_bytes: u64,
    /// The kernel's resource flags.
    pub flags: u64,
}

impl PciBar {
    /// Reports a range that has a size and no address.
    #[must_use]
    pub fn is_unassigned(&self) -> bool {
        const UNSET: u64 = 0x2000_0000;
        self.flags & UNSET != 0
    }
}

/// What configuration space answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Config {
    /// The ids that sysfs names.
    Answers,
    /// All ones: the function has left the bus, or has no power.
    AllOnes,
    /// Other ids than when the bus was scanned.
    Differs {
        /// Vendor id now.
        vendor: u16,
        /// Device id now.
        device: u16,
    },
    /// It cannot be read.
    Unreadable(String),
}

impl Function {
    /// Returns the folder of the function in sysfs.
    #[must_use]
    pub fn folder(bdf: Bdf) -> PathBuf {
        PathBuf::from(format!("/sys/bus/pci/devices/{bdf}"))
    }

    /// Reports whether the ids are those of a card or its emulation.
    #[must_use]
    pub fn is_card(&self) -> bool {
        self.vendor == VENDOR && matches!(self.device, SILICON | EMULATION)
    }

    /// Reports whether a driver of VFIO has the function.
    #[must_use]
    pub fn is_vfio(&self) -> bool {
        self.vfio_dev.is_some() || self.driver.as_deref().is_some_and(is_vfio_driver)
    }
}

/// Reports whether the name is that of `vfio-pci` or of one of its variants.
pub(crate) fn is_vfio_driver(name: &str) -> bool {
    name == "vfio-pci" || name.ends_with("-vfio-pci") || name.ends_with("_vfio_pci")
}

impl Host {
    /// Describes a function.
    ///
    /// # Errors
    /// [`Error::NoDevice`]; [`Error::Read`] and [`Error::Malformed`] for its files.
    pub fn function(&self, bdf: Bdf) -> Result<Function, Error> {
        let folder = Function::folder(bdf);
        let file = |name: &str| folder.join(name);
        let text = |name: &str| self.text(file(name));
        if !self.exists(file("vendor")) {
            return Err(Error::NoDevice { bdf });
        }
        let (vendor, device) = (self.id(file("vendor"))?, self.id(file("device"))?);
        let node = self.number(file("numa_node"))?.unwrap_or(-1);
        let reset_methods = text("reset_method")?
            .map(|methods| methods.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        Ok(Function {
            bdf,
            vendor,
            device,
            class: self.hex(file("class"))?,
            bars: self.bars(file("resource"))?,
            driver: self.link_name(file("driver"))?,
            driver_override: text("driver_override")?
                .filter(|name| !name.is_empty() && name != "(null)"),
            group: self.group_number(bdf)?,
            numa_node: u32::try_from(node).ok(),
            power_state: text("power_state")?,
            // Before Linux 5.15 the file `reset` alone said that there is a way.
            resettable: match &reset_methods {
                Some(methods) => !methods.is_empty(),
                None => self.exists(file("reset")),
            },
            reset_methods,
            enabled: self.number(file("enable"))?.unwrap_or(0),
            config: self.config(file("config"), vendor, device),
            vfio_dev: self.names(file("vfio-dev"))?.into_iter().next(),
            virtual_functions: self
                .number(file("sriov_numvfs"))?
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(0),
            physical_function: self.link_name(file("physfn"))?.and_then(|name| name.parse().ok()),
        })
    }

    /// Lists the functions with the vendor id of the cards.
    ///
    /// # Errors
    /// [`Error::Read`] when the bus cannot be listed.
    pub fn cards(&self) -> Result<Vec<Bdf>, Error> {
        let names = self.names("/sys/bus/pci/devices")?;
        let functions = names.iter().filter_map(|name| name.parse::<Bdf>().ok());
        // A function that goes away meanwhile is no card.
        let is_ours =
            |bdf: &Bdf| self.id(Function::folder(*bdf).join("vendor")).ok() == Some(VENDOR);
        Ok(functions.filter(is_ours).collect())
    }

    fn group_number(&self, bdf: Bdf) -> Result<Option<u32>, Error> {
        let file = Function::folder(bdf).join("iommu_group");
        let Some(name) = self.link_name(&file)? else { return Ok(None) };
        match name.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::Malformed { file, text: name, expected: "the link of a group" }),
        }
    }

    fn id(&self, file: PathBuf) -> Result<u16, Error> {
        let value = self.hex(file.clone())?;
        u16::try_from(value).map_err(|_| Error::Malformed {
            file,
            text: format!("{value:#x}"),
            expected: "a 16-bit id",
        })
    }

    pub(crate) fn hex(&self, file: PathBuf) -> Result<u32, Error> {
        let text = self.text(&file)?.unwrap_or_default();
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        u32::from_str_radix(digits, 16).map_err(|_| Error::Malformed {
            file,
            text,
            expected: "a hexadecimal number",
        })
    }

    fn bars(&self, file: PathBuf) -> Result<[PciBar; 6], Error> {
        let text = self.text(&file)?.unwrap_or_default();
        let mut bars = [PciBar::default(); 6];
        for (bar, line) in bars.iter_mut().zip(text.lines()) {
            *bar = parse_bar(line).ok_or_else(|| Error::Malformed {
                file: file.clone(),
                text: line.to_owned(),
                expected: "first address, last address and flags",
            })?;
        }
        Ok(bars)
    }

    fn config(&self, file: PathBuf, vendor: u16, device: u16) -> Config {
        use std::io::Read as _;
        // The kernel lets everybody read the first 64 bytes.
        let mut bytes = [0; 4];
        let open = std::fs::File::open(self.path(&file));
        if let Err(error) = open.and_then(|mut config| config.read_exact(&mut bytes)) {
            return Config::Unreadable(format!("{}: {error}", file.display()));
        }
        let [a, b, c, d] = bytes;
        match (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])) {
            (0xffff, 0xffff) => Config::AllOnes,
            ids if ids == (vendor, device) => Config::Answers,
            (vendor, device) => Config::Differs { vendor, device },
        }
    }
}

fn parse_bar(line: &str) -> Option<PciBar> {
    let mut words = line
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok());
    let (start, end, flags) = (words.next()??, words.next()??, words.next()??);
    let empty = end == 0 && start == 0;
    let len_bytes = if empty { 0 } else { end.checked_sub(start)?.checked_add(1)? };
    Some(PciBar { start, len_bytes, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_lines_are_read() {
        let bar = parse_bar("0x0000000800000000 0x0000000fffffffff 0x000000000014220c").unwrap();
        assert_eq!((bar.start, bar.len_bytes), (0x8_0000_0000, 32 << 30));
        assert!(!bar.is_unassigned());
        assert_eq!(parse_bar("0x0 0x0 0x0").unwrap().len_bytes, 0);
        assert!(parse_bar("0x0 0x3fff 0x20000200").unwrap().is_unassigned());
        for line in ["", "0x1", "0x2 0x0 0x0", "x y z", "0x0 0xffffffffffffffff 0x0"] {
            assert_eq!(parse_bar(line), None, "{line}");
        }
    }

    #[test]
    fn variants_of_the_driver_are_recognised() {
        for name in ["vfio-pci", "mlx5_vfio_pci", "virtio-vfio-pci"] {
            assert!(is_vfio_driver(name), "{name}");
        }
        assert!(!is_vfio_driver("et-soc1") && !is_vfio_driver("pcieport"));
    }
}
