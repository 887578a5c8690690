//! Golden vectors and test doubles shared by the tests.

pub mod golden;
mod window;

pub use window::{RegisterWrite, TestWindow};
