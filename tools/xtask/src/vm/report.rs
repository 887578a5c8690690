//! What the layers came to, for people and for programs.

use std::time::Duration;

use serde::Serialize;

use super::tally::Tally;

/// All layers of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) layers: Vec<Row>,
    /// The versions of QEMU that ran.
    pub(crate) qemu: String,
    /// The kernels that ran.
    pub(crate) kernels: Vec<String>,
}

/// One layer.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) seconds: f64,
    pub(crate) reasons: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, name: &'static str, tally: Tally, took: Duration) {
        let Tally { passed, failed, skipped, reasons, .. } = tally;
        let seconds = (took.as_secs_f64() * 10.0).round() / 10.0;
        self.layers.push(Row { name, passed, failed, skipped, seconds, reasons });
    }

    pub(crate) fn ran_in(&mut self, qemu: &str, kernel: &str) {
        if !self.qemu.split(", ").any(|known| known == qemu) {
            if !self.qemu.is_empty() {
                self.qemu += ", ";
            }
            self.qemu += qemu;
        }
        if !self.kernels.iter().any(|known| known == kernel) {
            self.kernels.push(kernel.to_owned());
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.layers.iter().map(|row| row.failed).sum()
    }

    pub(crate) fn print(&self) {
        println!("\n{:<12}{:>8}{:>8}{:>9}{:>9}", "layer", "passed", "failed", "skipped", "time");
        for row in &self.layers {
            println!(
                "{:<12}{:>8}{:>8}{:>9}{:>7.1} s",
                row.name, row.passed, row.failed, row.skipped, row.seconds
            );
            for reason in &row.reasons {
                println!("    {reason}");
            }
        }
        if !self.qemu.is_empty() {
            println!("QEMU {}; kernels: {}", self.qemu, self.kernels.join(", "));
        }
    }
}
