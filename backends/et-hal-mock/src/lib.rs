#![doc = include_str!("../README.md")]

mod buffer;
mod hal;
mod mocks;
pub mod presets;

pub use buffer::{VecBuffer, VecDma};
pub use hal::MockHal;
pub use mocks::{MockMailbox, MockMmio, MockReset};

/// The error of all mocks: a kind is all there is to say.
pub type MockError = et_hal::ErrorKind;
