//! The payloads of the management interface: which Rust type each structure and message has.

use et_devapi::msg::Header;
use et_devapi::msg::mgmt::{
    AsicVoltages, Breakpoint, ByteArg, CacheSizes, CertificateHash, DefaultRsp, ErrorCounts,
    FirmwareVersions, Frequencies, GprDump, HartControl, HartSelection, ImagePath, MemRead,
    MemWrite, MinionErrors, MmStats, ModuleVoltages, Power, PublicKeys, Quad, ReadWrite,
    RegisterRead, RegisterWrite, Residency, ResponseExt, SetFrequency, SetVoltage, SingleStep,
    SpStats, StatsRun, StatusWord, Temperatures, Text, TraceMasks, Uptime, WordArg,
};
use et_testkit::golden::Value;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::layout::{Field, Layout, layouts};

pub(crate) fn structures() -> Vec<Layout> {
    layouts! {
        "cmn_header_t" => Header { size, tag_id, msg_id, flags }
        "dev_mgmt_rsp_hdr_extn_t" => ResponseExt { device_latency_usec, status, pad }
        "asset_info_t" => Text { asset }
        "fused_public_keys_t" => PublicKeys { keys }
        "firmware_version_t" => FirmwareVersions {
            bl1_v, bl2_v, mm_v, wm_v, machm_v, fw_release_rev, pmic_v, pad,
        }
        "fw_image_path_t" => ImagePath { path }
        "certificate_hash_t" => CertificateHash { key_blob, associated_data }
        "temperature_threshold_t" => ByteArg { value = "sw_temperature_c", pad }
        "current_temperature_t" => Temperatures {
            ioshire_current, ioshire_low, ioshire_high, minshire_avg, minshire_low, minshire_high,
            pmic_sys, pad,
        }
        "residency_t" => Residency { cumulative, average, maximum, minimum }
        "module_power_t" => Power { power, pad }
        "module_uptime_t" => Uptime { day, hours, mins, pad }
        "max_temperature_t" => ByteArg { value = "max_temperature_c", pad }
        "max_ecc_count_t" => WordArg { value = "count", pad }
        "max_dram_bw_t" => ReadWrite { read = "max_bw_rd_req_sec", write = "max_bw_wr_req_sec" }
        "max_throttle_time_t" => Quad { value = "time_usec" }
        "ecc_error_count_t" => ByteArg { value = "count", pad }
        "errors_count_t" => ErrorCounts { ecc, uecc }
        "dram_bw_counter_t" => ReadWrite { read = "bw_rd_req_sec", write = "bw_wr_req_sec" }
        "asic_frequencies_t" => Frequencies {
            minion_shire_mhz, noc_mhz, mem_shire_mhz, ddr_mhz, pcie_shire_mhz, io_shire_mhz,
        }
        "dram_bw_t" => ReadWrite { read = "read_req_sec", write = "write_req_sec" }
        "percentage_cap_t" => WordArg { value = "pct_cap", pad }
        "mm_error_count_t" => MinionErrors { hang_count, exception_count }
        "asic_voltage_t" => AsicVoltages {
            ddr, l2_cache, maxion, minion, pshire_0p75, noc, ioshire_0p75, vddqlp, vddq, pad,
        }
        "module_voltage_t" => ModuleVoltages {
            ddr, l2_cache, maxion, minion, pcie, noc, pcie_logic, vddqlp, vddq, pad,
        }
        "mdi_hart_selection_t" => HartSelection { shire_id, thread_mask, flags }
        "mdi_hart_control_t" => HartControl { hart_id, flags }
        "mdi_bp_control_t" => Breakpoint { hart_id, bp_address, mode, bp_event_wait_timeout, flags }
        "mdi_ss_control_t" => SingleStep { shire_mask, thread_mask, flags }
        "mdi_gpr_read_t" => RegisterRead { hart_id, register = "gpr_index", pad }
        "mdi_dump_gpr_t" => GprDump { gpr }
        "mdi_gpr_write_t" => RegisterWrite { hart_id, data, register = "gpr_index", pad }
        "mdi_csr_read_t" => RegisterRead { hart_id, register = "csr_name", pad }
        "mdi_csr_write_t" => RegisterWrite { hart_id, data, register = "csr_name", pad }
        "mdi_mem_read_t" => MemRead { address, hart_id, size, access_type, pad }
        "mdi_mem_write_t" => MemWrite { address, data, size, pad }
        "get_sp_stats_t" => SpStats {
            system_power.avg = "system_power_avg", system_power.min = "system_power_min",
            system_power.max = "system_power_max",
            system_temperature.avg = "system_temperature_avg",
            system_temperature.min = "system_temperature_min",
            system_temperature.max = "system_temperature_max",
            minion_power.avg = "minion_power_avg", minion_power.min = "minion_power_min",
            minion_power.max = "minion_power_max",
            minion_temperature.avg = "minion_temperature_avg",
            minion_temperature.min = "minion_temperature_min",
            minion_temperature.max = "minion_temperature_max",
            minion_voltage.avg = "minion_voltage_avg", minion_voltage.min = "minion_voltage_min",
            minion_voltage.max = "minion_voltage_max", minion_freq.avg = "minion_freq_avg",
            minion_freq.min = "minion_freq_min", minion_freq.max = "minion_freq_max",
            sram_power.avg = "sram_power_avg", sram_power.min = "sram_power_min",
            sram_power.max = "sram_power_max", sram_temperature.avg = "sram_temperature_avg",
            sram_temperature.min = "sram_temperature_min",
            sram_temperature.max = "sram_temperature_max", sram_voltage.avg = "sram_voltage_avg",
            sram_voltage.min = "sram_voltage_min", sram_voltage.max = "sram_voltage_max",
            sram_freq.avg = "sram_freq_avg", sram_freq.min = "sram_freq_min",
            sram_freq.max = "sram_freq_max", noc_power.avg = "noc_power_avg",
            noc_power.min = "noc_power_min", noc_power.max = "noc_power_max",
            noc_temperature.avg = "noc_temperature_avg",
            noc_temperature.min = "noc_temperature_min",
            noc_temperature.max = "noc_temperature_max", noc_voltage.avg = "noc_voltage_avg",
            noc_voltage.min = "noc_voltage_min", noc_voltage.max = "noc_voltage_max",
            noc_freq.avg = "noc_freq_avg", noc_freq.min = "noc_freq_min",
            noc_freq.max = "noc_freq_max",
        }
        "get_mm_stats_t" => MmStats {
            cm_utilization.avg = "cm_utilization_avg", cm_utilization.min = "cm_utilization_min",
            cm_utilization.max = "cm_utilization_max", cm_bw.avg = "cm_bw_avg",
            cm_bw.min = "cm_bw_min", cm_bw.max = "cm_bw_max",
            pcie_dma_read_bw.avg = "pcie_dma_read_bw_avg",
            pcie_dma_read_bw.min = "pcie_dma_read_bw_min",
            pcie_dma_read_bw.max = "pcie_dma_read_bw_max",
            pcie_dma_write_bw.avg = "pcie_dma_write_bw_avg",
            pcie_dma_write_bw.min = "pcie_dma_write_bw_min",
            pcie_dma_write_bw.max = "pcie_dma_write_bw_max",
            pcie_dma_read_utilization.avg = "pcie_dma_read_utilization_avg",
            pcie_dma_read_utilization.min = "pcie_dma_read_utilization_min",
            pcie_dma_read_utilization.max = "pcie_dma_read_utilization_max",
            pcie_dma_write_utilization.avg = "pcie_dma_write_utilization_avg",
            pcie_dma_write_utilization.min = "pcie_dma_write_utilization_min",
            pcie_dma_write_utilization.max = "pcie_dma_write_utilization_max",
            ddr_read_bw.avg = "ddr_read_bw_avg", ddr_read_bw.min = "ddr_read_bw_min",
            ddr_read_bw.max = "ddr_read_bw_max", ddr_write_bw.avg = "ddr_write_bw_avg",
            ddr_write_bw.min = "ddr_write_bw_min", ddr_write_bw.max = "ddr_write_bw_max",
            l2_l3_read_bw.avg = "l2_l3_read_bw_avg", l2_l3_read_bw.min = "l2_l3_read_bw_min",
            l2_l3_read_bw.max = "l2_l3_read_bw_max", l2_l3_write_bw.avg = "l2_l3_write_bw_avg",
            l2_l3_write_bw.min = "l2_l3_write_bw_min", l2_l3_write_bw.max = "l2_l3_write_bw_max",
        }
        "shire_cache_config_t" => CacheSizes { scp_size, l2_size, l3_size }
    }
}

/// The payloads of messages; the parts before them are checked apart.
pub(crate) fn messages() -> Vec<Layout> {
    layouts! {
        "device_mgmt_echo_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_echo_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_default_rsp_t" => DefaultRsp { payload, pad }
        "device_mgmt_asset_tracking_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_asset_tracking_rsp_t" => Text { asset }
        "device_mgmt_fused_pub_keys_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_fused_pub_keys_rsp_t" => PublicKeys { keys }
        "device_mgmt_firmware_versions_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_firmware_versions_rsp_t" => FirmwareVersions {
            bl1_v, bl2_v, mm_v, wm_v, machm_v, fw_release_rev, pmic_v, pad,
        }
        "device_mgmt_update_firmware_cmd_t" => ImagePath { path }
        "device_mgmt_update_firmware_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_certificate_hash_cmd_t" => CertificateHash { key_blob, associated_data }
        "device_mgmt_certificate_hash_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_temperature_threshold_cmd_t" => ByteArg { value = "sw_temperature_c", pad }
        "device_mgmt_temperature_threshold_rsp_t" => ByteArg { value = "sw_temperature_c", pad }
        "device_mgmt_power_state_cmd_t" => ByteArg { value = "pwr_state", pad }
        "device_mgmt_power_state_rsp_t" => ByteArg { value = "pwr_state", pad }
        "device_mgmt_active_power_management_cmd_t" => ByteArg { value = "pwr_management", pad }
        "device_mgmt_active_power_management_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_tdp_level_cmd_t" => ByteArg { value = "tdp_level", pad }
        "device_mgmt_tdp_level_rsp_t" => ByteArg { value = "tdp_level", pad }
        "device_mgmt_current_temperature_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_current_temperature_rsp_t" => Temperatures {
            ioshire_current, ioshire_low, ioshire_high, minshire_avg, minshire_low, minshire_high,
            pmic_sys, pad,
        }
        "device_mgmt_throttle_residency_cmd_t" => ByteArg { value = "pwr_throttle_state", pad }
        "device_mgmt_throttle_residency_rsp_t" => Residency {
            cumulative, average, maximum, minimum,
        }
        "device_mgmt_module_power_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_module_power_rsp_t" => Power { power, pad }
        "device_mgmt_get_asic_voltage_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_get_asic_voltage_rsp_t" => AsicVoltages {
            ddr, l2_cache, maxion, minion, pshire_0p75, noc, ioshire_0p75, vddqlp, vddq, pad,
        }
        "device_mgmt_get_module_voltage_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_get_module_voltage_rsp_t" => ModuleVoltages {
            ddr, l2_cache, maxion, minion, pcie, noc, pcie_logic, vddqlp, vddq, pad,
        }
        "device_mgmt_set_module_voltage_cmd_t" => SetVoltage { r#type, value, pad }
        "device_mgmt_set_module_voltage_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_set_module_part_number_cmd_t" => WordArg { value = "part_number", pad }
        "device_mgmt_module_uptime_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_module_uptime_rsp_t" => Uptime { day, hours, mins, pad }
        "device_mgmt_max_temperature_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_max_temperature_rsp_t" => ByteArg { value = "max_temperature_c", pad }
        "device_mgmt_max_memory_error_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_max_memory_error_rsp_t" => WordArg { value = "count", pad }
        "device_mgmt_max_dram_bw_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_max_dram_bw_rsp_t" => ReadWrite {
            read = "max_bw_rd_req_sec", write = "max_bw_wr_req_sec",
        }
        "device_mgmt_power_residency_cmd_t" => ByteArg { value = "pwr_state", pad }
        "device_mgmt_power_residency_rsp_t" => Residency { cumulative, average, maximum, minimum }
        "device_mgmt_set_error_count_cmd_t" => ByteArg { value = "count", pad }
        "device_mgmt_pcie_reset_cmd_t" => WordArg { value = "reset_type", pad }
        "device_mgmt_get_error_count_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_get_error_count_rsp_t" => ErrorCounts { ecc, uecc }
        "device_mgmt_dram_bw_counter_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_dram_bw_counter_rsp_t" => ReadWrite {
            read = "bw_rd_req_sec", write = "bw_wr_req_sec",
        }
        "device_mgmt_pcie_link_speed_cmd_t" => WordArg { value = "speed", pad }
        "device_mgmt_pcie_lane_width_cmd_t" => WordArg { value = "lane_width", pad }
        "device_mgmt_pcie_retrain_phy_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_etsoc_reset_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_asic_frequencies_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_asic_frequencies_rsp_t" => Frequencies {
            minion_shire_mhz, noc_mhz, mem_shire_mhz, ddr_mhz, pcie_shire_mhz, io_shire_mhz,
        }
        "device_mgmt_set_frequency_cmd_t" => SetFrequency { pll_freq, pll_id, use_step_clock, pad }
        "device_mgmt_set_frequency_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_dram_bw_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_dram_bw_rsp_t" => ReadWrite { read = "read_req_sec", write = "write_req_sec" }
        "device_mgmt_dram_capacity_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_dram_capacity_rsp_t" => WordArg { value = "pct_cap", pad }
        "device_mgmt_asic_per_core_util_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_asic_per_core_util_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_asic_stalls_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_asic_stalls_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_asic_latency_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_asic_latency_rsp_t" => Quad { value = "dummy" }
        "device_mgmt_mm_state_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_mm_state_rsp_t" => MinionErrors { hang_count, exception_count }
        "device_mgmt_get_sp_stats_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_get_sp_stats_rsp_t" => SpStats {
            system_power.avg = "system_power_avg", system_power.min = "system_power_min",
            system_power.max = "system_power_max",
            system_temperature.avg = "system_temperature_avg",
            system_temperature.min = "system_temperature_min",
            system_temperature.max = "system_temperature_max",
            minion_power.avg = "minion_power_avg", minion_power.min = "minion_power_min",
            minion_power.max = "minion_power_max",
            minion_temperature.avg = "minion_temperature_avg",
            minion_temperature.min = "minion_temperature_min",
            minion_temperature.max = "minion_temperature_max",
            minion_voltage.avg = "minion_voltage_avg", minion_voltage.min = "minion_voltage_min",
            minion_voltage.max = "minion_voltage_max", minion_freq.avg = "minion_freq_avg",
            minion_freq.min = "minion_freq_min", minion_freq.max = "minion_freq_max",
            sram_power.avg = "sram_power_avg", sram_power.min = "sram_power_min",
            sram_power.max = "sram_power_max", sram_temperature.avg = "sram_temperature_avg",
            sram_temperature.min = "sram_temperature_min",
            sram_temperature.max = "sram_temperature_max", sram_voltage.avg = "sram_voltage_avg",
            sram_voltage.min = "sram_voltage_min", sram_voltage.max = "sram_voltage_max",
            sram_freq.avg = "sram_freq_avg", sram_freq.min = "sram_freq_min",
            sram_freq.max = "sram_freq_max", noc_power.avg = "noc_power_avg",
            noc_power.min = "noc_power_min", noc_power.max = "noc_power_max",
            noc_temperature.avg = "noc_temperature_avg",
            noc_temperature.min = "noc_temperature_min",
            noc_temperature.max = "noc_temperature_max", noc_voltage.avg = "noc_voltage_avg",
            noc_voltage.min = "noc_voltage_min", noc_voltage.max = "noc_voltage_max",
            noc_freq.avg = "noc_freq_avg", noc_freq.min = "noc_freq_min",
            noc_freq.max = "noc_freq_max",
        }
        "device_mgmt_get_mm_stats_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_get_mm_stats_rsp_t" => MmStats {
            cm_utilization.avg = "cm_utilization_avg", cm_utilization.min = "cm_utilization_min",
            cm_utilization.max = "cm_utilization_max", cm_bw.avg = "cm_bw_avg",
            cm_bw.min = "cm_bw_min", cm_bw.max = "cm_bw_max",
            pcie_dma_read_bw.avg = "pcie_dma_read_bw_avg",
            pcie_dma_read_bw.min = "pcie_dma_read_bw_min",
            pcie_dma_read_bw.max = "pcie_dma_read_bw_max",
            pcie_dma_write_bw.avg = "pcie_dma_write_bw_avg",
            pcie_dma_write_bw.min = "pcie_dma_write_bw_min",
            pcie_dma_write_bw.max = "pcie_dma_write_bw_max",
            pcie_dma_read_utilization.avg = "pcie_dma_read_utilization_avg",
            pcie_dma_read_utilization.min = "pcie_dma_read_utilization_min",
            pcie_dma_read_utilization.max = "pcie_dma_read_utilization_max",
            pcie_dma_write_utilization.avg = "pcie_dma_write_utilization_avg",
            pcie_dma_write_utilization.min = "pcie_dma_write_utilization_min",
            pcie_dma_write_utilization.max = "pcie_dma_write_utilization_max",
            ddr_read_bw.avg = "ddr_read_bw_avg", ddr_read_bw.min = "ddr_read_bw_min",
            ddr_read_bw.max = "ddr_read_bw_max", ddr_write_bw.avg = "ddr_write_bw_avg",
            ddr_write_bw.min = "ddr_write_bw_min", ddr_write_bw.max = "ddr_write_bw_max",
            l2_l3_read_bw.avg = "l2_l3_read_bw_avg", l2_l3_read_bw.min = "l2_l3_read_bw_min",
            l2_l3_read_bw.max = "l2_l3_read_bw_max", l2_l3_write_bw.avg = "l2_l3_write_bw_avg",
            l2_l3_write_bw.min = "l2_l3_write_bw_min", l2_l3_write_bw.max = "l2_l3_write_bw_max",
        }
        "device_mgmt_stats_run_control_cmd_t" => StatsRun { r#type, control }
        "device_mgmt_trace_config_cmd_t" => TraceMasks { event_mask, filter_mask }
        "device_mgmt_trace_config_rsp_t" => StatusWord { status, pad }
        "device_mgmt_trace_run_control_cmd_t" => StatusWord { status = "control", pad }
        "device_mgmt_trace_run_control_rsp_t" => StatusWord { status, pad }
        "device_mgmt_power_throttle_config_cmd_t" => ByteArg { value = "power_state", pad }
        "device_mgmt_power_throttle_config_rsp_t" => StatusWord { status, pad }
        "device_mgmt_get_shire_cache_config_cmd_t" => Quad { value = "dummy" }
        "device_mgmt_get_shire_cache_config_rsp_t" => CacheSizes { scp_size, l2_size, l3_size }
        "device_mgmt_set_shire_cache_config_cmd_t" => CacheSizes { scp_size, l2_size, l3_size }
        "device_mgmt_set_shire_cache_config_rsp_t" => Quad { value = "dummy" }
        "mdi_hart_selection_cmd_t" => HartSelection { shire_id, thread_mask, flags }
        "mdi_hart_selection_rsp_t" => StatusWord { status, pad }
        "mdi_hart_control_cmd_t" => HartControl { hart_id, flags }
        "mdi_hart_control_rsp_t" => StatusWord { status, pad }
        "mdi_bp_control_cmd_t" => Breakpoint {
            hart_id, bp_address, mode, bp_event_wait_timeout, flags,
        }
        "mdi_bp_control_rsp_t" => StatusWord { status, pad }
        "mdi_ss_control_cmd_t" => SingleStep { shire_mask, thread_mask, flags }
        "mdi_ss_control_rsp_t" => StatusWord { status, pad }
        "mdi_read_gpr_cmd_t" => RegisterRead { hart_id, register = "gpr_index", pad }
        "mdi_dump_gpr_cmd_t" => Quad { value = "hart_id" }
        "mdi_dump_gpr_rsp_t" => GprDump { gpr }
        "mdi_read_gpr_rsp_t" => Quad { value = "data" }
        "mdi_write_gpr_cmd_t" => RegisterWrite { hart_id, data, register = "gpr_index", pad }
        "mdi_write_gpr_rsp_t" => Quad { value = "dummy" }
        "mdi_read_csr_cmd_t" => RegisterRead { hart_id, register = "csr_name", pad }
        "mdi_read_csr_rsp_t" => Quad { value = "data" }
        "mdi_write_csr_cmd_t" => RegisterWrite { hart_id, data, register = "csr_name", pad }
        "mdi_write_csr_rsp_t" => Quad { value = "dummy" }
        "mdi_mem_read_cmd_t" => MemRead { address, hart_id, size, access_type, pad }
        "mdi_mem_read_rsp_t" => Quad { value = "data" }
        "mdi_mem_write_cmd_t" => MemWrite { address, data, size, pad }
        "mdi_mem_write_rsp_t" => StatusWord { status, pad }
        "device_mgmt_mdi_bp_event_t" => StatusWord { status = "event_type", pad }
        "device_mgmt_set_fru_cmd_t" => Text { asset }
        "device_mgmt_set_vmin_lut_cmd_t" => Text { asset }
    }
}
