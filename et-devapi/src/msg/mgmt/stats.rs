//! The two blocks of statistics, byte for byte.

#![allow(missing_debug_implementations, reason = "types made by the derives, not by us")]

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::wire::wire;

wire! {
    /// Average, least and greatest value.
    Extremes = 6 {
        /// Average.
        avg: U16,
        /// Least.
        min: U16,
        /// Greatest.
        max: U16,
    }
    /// Average, least and greatest value.
    WideExtremes = 24 {
        /// Average.
        avg: U64,
        /// Least.
        min: U64,
        /// Greatest.
        max: U64,
    }
    /// What the service processor has measured. Powers in mW, temperatures in °C, voltages in mV,
    /// frequencies in MHz.
    SpStats = 84 {
        /// Power of the module.
        system_power: Extremes,
        /// Temperature of the module.
        system_temperature: Extremes,
        /// Power of the minions.
        minion_power: Extremes,
        /// Temperature of the minions.
        minion_temperature: Extremes,
        /// Voltage of the minions.
        minion_voltage: Extremes,
        /// Clock of the minions.
        minion_freq: Extremes,
        /// Power of the static memory.
        sram_power: Extremes,
        /// Temperature of the static memory.
        sram_temperature: Extremes,
        /// Voltage of the static memory.
        sram_voltage: Extremes,
        /// Clock of the static memory.
        sram_freq: Extremes,
        /// Power of the network on chip.
        noc_power: Extremes,
        /// Temperature of the network on chip.
        noc_temperature: Extremes,
        /// Voltage of the network on chip.
        noc_voltage: Extremes,
        /// Clock of the network on chip.
        noc_freq: Extremes,
    }
    /// What the master minion has measured. Utilisations in percent, bandwidths in MB/s.
    MmStats = 240 {
        /// Utilisation of the compute minions.
        cm_utilization: WideExtremes,
        /// Bandwidth of the compute minions.
        cm_bw: WideExtremes,
        /// Bandwidth of DMA towards the host.
        pcie_dma_read_bw: WideExtremes,
        /// Bandwidth of DMA towards the device.
        pcie_dma_write_bw: WideExtremes,
        /// Utilisation of the DMA channels towards the host.
        pcie_dma_read_utilization: WideExtremes,
        /// Utilisation of the DMA channels towards the device.
        pcie_dma_write_utilization: WideExtremes,
        /// Bandwidth of reads of the memory.
        ddr_read_bw: WideExtremes,
        /// Bandwidth of writes of the memory.
        ddr_write_bw: WideExtremes,
        /// Bandwidth of reads of the L2 and L3 caches.
        l2_l3_read_bw: WideExtremes,
        /// Bandwidth of writes of the L2 and L3 caches.
        l2_l3_write_bw: WideExtremes,
    }
}
