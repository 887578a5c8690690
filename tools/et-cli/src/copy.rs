//! Copies of whole arrays, in pieces, with a progress bar.

use std::time::Duration;

use et::{DeviceBuffer, Stream};
use indicatif::ProgressBar;

/// Copies are cut into pieces of this size, so that the progress bar moves.
const PIECE: usize = 64 << 20;

/// Copies `bytes` to the start of `buffer` and waits.
pub(crate) fn to_device(
    stream: &Stream,
    bytes: &[u8],
    buffer: &DeviceBuffer,
    bar: &ProgressBar,
    timeout: Duration,
) -> anyhow::Result<()> {
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        let start = (index * PIECE) as u64;
        let part = buffer.slice(start..start + piece.len() as u64)?;
        stream.copy_to_device(piece, part)?.wait(timeout)?;
        bar.inc(piece.len() as u64);
    }
    Ok(())
}

/// Copies the start of `buffer` to `bytes`.
pub(crate) fn from_device(
    stream: &Stream,
    buffer: &DeviceBuffer,
    bytes: &mut [u8],
    bar: &ProgressBar,
    timeout: Duration,
) -> anyhow::Result<()> {
    for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
        let start = (index * PIECE) as u64;
        let part = buffer.slice(start..start + piece.len() as u64)?;
        stream.read(part, piece, timeout)?;
        bar.inc(piece.len() as u64);
    }
    Ok(())
}
