//! What the kernel's files say about a function.

use std::fs;
use std::io::{Error, Result};
use std::path::PathBuf;

/// A function, by its address such as `0000:01:00.0`.
#[derive(Clone, Debug)]
pub struct Sysfs {
    /// Its address.
    pub name: String,
    path: PathBuf,
}

impl Sysfs {
    /// The function at this address.
    ///
    /// # Errors
    /// If there is none.
    pub fn new(name: &str) -> Result<Self> {
        let path = PathBuf::from("/sys/bus/pci/devices").join(name);
        fs::metadata(&path)?;
        Ok(Self { name: name.to_owned(), path })
    }

    /// Whether the kernel still knows it.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// A hexadecimal number: `vendor`, `device`, `class`.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn number(&self, file: &str) -> Result<u32> {
        let text = fs::read_to_string(self.path.join(file))?;
        let digits = text.trim().trim_start_matches("0x");
        u32::from_str_radix(digits, 16).map_err(Error::other)
    }

    /// The number of its IOMMU group.
    ///
    /// # Errors
    /// If it is in none.
    pub fn group(&self) -> Result<String> {
        let link = fs::read_link(self.path.join("iommu_group"))?;
        let name = link.file_name().ok_or_else(|| Error::other("the link names no group"))?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// The name of its own device file, below `/dev/vfio/devices`.
    ///
    /// # Errors
    /// If it has none.
    pub fn cdev(&self) -> Result<String> {
        let entry = fs::read_dir(self.path.join("vfio-dev"))?.next();
        let entry = entry.ok_or_else(|| Error::other("vfio-dev is empty"))??;
        Ok(entry.file_name().to_string_lossy().into_owned())
    }

    /// The size of a BAR in bytes; 0 if there is none.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn bar_size(&self, index: usize) -> Result<u64> {
        let text = fs::read_to_string(self.path.join("resource"))?;
        resource_size(&text, index).ok_or_else(|| Error::other("resource has an unknown form"))
    }

    /// Takes the function away, as if it had been pulled out; blocks until it is not in use.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(&self) -> Result<()> {
        fs::write(self.path.join("remove"), "1")
    }
}

fn resource_size(text: &str, index: usize) -> Option<u64> {
    let mut words = text
        .lines()
        .nth(index)?
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let (first, last) = (words.next()??, words.next()??);
    Some(if last == 0 { 0 } else { last.checked_sub(first)?.checked_add(1)? })
}

#[cfg(test)]
mod tests {
    use super::resource_size;

    #[test]
    fn sizes_come_from_first_and_last_byte() {
        let text = "0x0000000800000000 0x0000000fffffffff 0x000000000014220c\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        assert_eq!(resource_size(text, 0), Some(32 << 30));
        assert_eq!(resource_size(text, 1), Some(0));
        assert_eq!(resource_size(text, 2), None);
    }
}
