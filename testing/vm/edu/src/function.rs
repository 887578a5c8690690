//! What a driver needs of a PCI function.

use std::io::Result;

use crate::event::Event;
use crate::mapping::Mapping;
use crate::memory::Memory;

/// Numbers of regions and interrupts, as VFIO counts them.
pub mod index {
    /// The first of six BARs.
    pub const BAR0: u32 = 0;
    /// The configuration space.
    pub const CONFIG: u32 = 7;
    /// Message-signalled interrupts.
    pub const MSI: u32 = 1;
    /// An uncorrectable error was reported.
    pub const ERROR: u32 = 3;
    /// The kernel wants the device back.
    pub const REQUEST: u32 = 4;
}

/// A region of a function.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Region {
    /// In bytes; 0 if there is none.
    pub size: u64,
    /// Whether the processor can reach it by loads and stores.
    pub mappable: bool,
}

/// What the device may do with memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Only read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

/// One PCI function, opened.
pub trait Function {
    /// Size and kind of a region.
    ///
    /// # Errors
    /// What the kernel says; so in all methods.
    fn region(&self, index: u32) -> Result<Region>;

    /// Maps the first `len` bytes of a region, a multiple of the page size.
    ///
    /// # Errors
    /// If the region is not mappable or shorter.
    fn map(&self, index: u32, len: usize) -> Result<Mapping>;

    /// Reads from a region through the kernel.
    ///
    /// # Errors
    /// If it refuses, or gives fewer bytes.
    fn read(&self, index: u32, at: u64, into: &mut [u8]) -> Result<()>;

    /// Writes to a region through the kernel.
    ///
    /// # Errors
    /// If it refuses, or takes fewer bytes.
    fn write(&self, index: u32, at: u64, from: &[u8]) -> Result<()>;

    /// How many vectors an interrupt has.
    ///
    /// # Errors
    /// If there is none of that number.
    fn vectors(&self, index: u32) -> Result<u32>;

    /// Has the first vectors signalled through these events, all or none; returns how many can be
    /// had.
    ///
    /// # Errors
    /// If it is not for their number that they cannot be.
    fn arm(&self, index: u32, events: &[Event]) -> Result<u32>;

    /// Ends the signalling of an interrupt.
    ///
    /// # Errors
    /// If it was not signalled.
    fn disarm(&self, index: u32) -> Result<()>;

    /// Has the kernel signal a vector as if the device had.
    ///
    /// # Errors
    /// If the vector is not armed.
    fn trigger(&self, index: u32, vector: u32) -> Result<()>;

    /// Gives the device access to memory, at bus address `at` where it can be chosen; returns the
    /// bus address.
    ///
    /// # Errors
    /// If the address is taken or cannot be had.
    fn dma_map(&self, memory: &Memory, at: u64, access: Access) -> Result<u64>;

    /// Takes access away; returns how many bytes were accessible.
    ///
    /// # Errors
    /// If nothing was mapped there.
    fn dma_unmap(&self, at: u64, len: usize) -> Result<u64>;

    /// Resets the function.
    ///
    /// # Errors
    /// If it cannot be.
    fn reset(&self) -> Result<()>;
}
