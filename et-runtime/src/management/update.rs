//! Firmware updates.

use et_devapi::dir::MgmtRegion;
use et_devapi::msg::mgmt::{ImagePath, calls};
use et_hal::{Bar, BarOffset, Hal, Mmio};

use super::Management;
use crate::{Error, Result};

/// Bytes cleared or compared at a time.
const PIECE: usize = 64 << 10;
const OP: &str = "firmware update";

impl<H: Hal> Management<H> {
    /// Installs a firmware image. It runs from the next reset of the chip on.
    ///
    /// The image is written into the scratch region and read back; then the service processor
    /// verifies and installs it. `name` is what its log calls the image, up to 63 bytes of it.
    ///
    /// # Errors
    /// See [`Management`]; [`Error::LengthMismatch`] if the image is empty or larger than the
    /// region; [`Error::Malformed`] if something else was read back; [`Error::Refused`] if the
    /// service processor does not take it. The device is untouched then.
    ///
    /// Spec: §3.6, §17.2
    pub fn update_firmware(&self, image: &[u8], name: &str) -> Result<()> {
        let link = self.way.own(OP)?;
        let why = "its registers name no scratch region";
        let none = Error::Unsupported { op: OP, why };
        let region = *link.dir.region(MgmtRegion::Scratch).ok_or(none.clone())?;
        let (from, to) = (image.len() as u64, region.len_bytes);
        if image.is_empty() || from > to {
            return Err(Error::LengthMismatch { from, to });
        }
        if let Some(error) = link.refusal() {
            return Err(error);
        }
        let bar = Bar::new(region.bar).ok_or(none)?;
        let window = link.hal.window(bar).map_err(Error::hal(OP))?;
        let at = BarOffset::new(region.bar_offset);
        window.write_bytes(at, image).map_err(Error::hal(OP))?;
        // The rest of an earlier image would complete one that is cut off.
        let zeros = vec![0; PIECE];
        let mut done = from;
        while done < to {
            let len = PIECE.min(usize::try_from(to - done).unwrap_or(PIECE));
            let at = BarOffset::new(region.bar_offset + done);
            window.write_bytes(at, &zeros[..len]).map_err(Error::hal(OP))?;
            done += len as u64;
        }
        window.flush().map_err(Error::hal(OP))?;
        let mut back = vec![0; PIECE];
        for (number, piece) in (0u64..).zip(image.chunks(PIECE)) {
            let offset = number * PIECE as u64;
            let back = &mut back[..piece.len()];
            let at = BarOffset::new(region.bar_offset + offset);
            window.read_bytes(at, back).map_err(Error::hal(OP))?;
            if back != piece {
                let why = format!("the image reads back differently after {offset} bytes").into();
                return Err(Error::Malformed { op: OP, why });
            }
        }
        let mut path = [0; 64];
        let len = name.len().min(path.len() - 1);
        path[..len].copy_from_slice(&name.as_bytes()[..len]);
        self.call(calls::SET_FIRMWARE_UPDATE, &ImagePath { path }, OP).map(drop)
    }
}
