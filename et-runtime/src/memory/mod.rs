//! Device memory, and host memory that the device can reach.

mod access;
mod allocator;
mod array;
mod buffer;
mod host;
mod maps;
mod staging;
mod usage;
mod watched;

pub use access::Access;
pub use allocator::{AllocError, MemoryStats};
pub use et_hal::{Bounce, ImportError, Pages};

pub(crate) use allocator::Allocator;
pub(crate) use array::array_bytes;
pub use array::{ArraySlice, DeviceArray};
pub use buffer::{DeviceBuffer, DeviceSlice, MemorySample};
pub use host::HostBuffer;
pub use usage::{BufferOptions, TagStats, UsageError, User};

pub(crate) use buffer::DeviceMemory;
pub(crate) use host::Lease;
pub(crate) use maps::Claim;
pub(crate) use staging::{Chunk, Staging};
