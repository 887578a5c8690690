//! Firmware images.

use std::fmt;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"ETSIMFW1";

/// The header of an image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    arch_rev: U32,
    body_len: U32,
    /// Of the versions and the body.
    crc32: U32,
    versions: [U32; 7],
}

/// An image that the simulated service processor installs.
///
/// The format is the simulator's own: that of the card's flash is not documented. It has what an
/// update depends on: whom it is for, how long it is, a checksum, and versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareImage {
    /// Architecture revision that it is for, 0 for the ET-SoC-1. Spec: §3.3
    pub arch_rev: u32,
    /// Versions in the order of [`FirmwareVersions`](et_devapi::msg::mgmt::FirmwareVersions).
    pub versions: [u32; 7],
    /// The rest.
    pub body: Vec<u8>,
}

/// Why an image is not installed. The response has the negative number as its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ImageError {
    /// It does not begin as an image does.
    NoImage = -2,
    /// It is for another device.
    OtherDevice = -3,
    /// It is longer than what has been written, or than the region.
    Truncated = -4,
    /// Its checksum is wrong.
    Corrupt = -5,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoImage => "no firmware image",
            Self::OtherDevice => "an image for another device",
            Self::Truncated => "the image is cut off",
            Self::Corrupt => "the checksum is wrong",
        })
    }
}

impl FirmwareImage {
    /// Writes the image as a file has it.
    ///
    /// # Panics
    /// If the body has more than 4 GiB.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut header = Header {
            magic: MAGIC,
            arch_rev: self.arch_rev.into(),
            body_len: u32::try_from(self.body.len()).expect("images are small").into(),
            crc32: 0.into(),
            versions: self.versions.map(U32::new),
        };
        header.crc32 = checksum(&header, &self.body).into();
        [header.as_bytes(), &self.body].concat()
    }

    /// Checks the image at the start of `bytes`.
    pub(super) fn verify(bytes: &[u8]) -> Result<Self, ImageError> {
        let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| ImageError::NoImage)?;
        if header.magic != MAGIC {
            return Err(ImageError::NoImage);
        }
        if header.arch_rev.get() != 0 {
            return Err(ImageError::OtherDevice);
        }
        let len = usize::try_from(header.body_len.get()).unwrap_or(usize::MAX);
        let body = rest.get(..len).ok_or(ImageError::Truncated)?;
        if header.crc32.get() != checksum(header, body) {
            return Err(ImageError::Corrupt);
        }
        let versions = header.versions.map(U32::get);
        Ok(Self { arch_rev: 0, versions, body: body.to_vec() })
    }
}

fn checksum(header: &Header, body: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(header.versions.as_bytes());
    sum.update(body);
    sum.finalize()
}
