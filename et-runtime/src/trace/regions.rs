//! What kernels mark in their traces: regions, from one mark to another.

use std::collections::HashMap;
use std::sync::Arc;

use et_devapi::trace::Body;

use super::Trace;
use crate::Kernel;

/// Bit of a mark that ends a region. The vendor's coding is not specified; this is that of the
/// kernel library.
const END: u64 = 1;

/// A part of a kernel on one hart, between two marks of the same name.
///
/// The kernel library sets them by `ET_REGION_BEGIN` and `ET_REGION_END`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Region {
    /// The hart.
    pub hart: u16,
    /// Its name, or the address of that if the [kernel](Trace::of_kernel) is not known.
    pub name: Arc<str>,
    /// The function that began it, if the kernel is known.
    pub function: Option<Arc<str>>,
    /// Line of the source where it began.
    pub line: u32,
    /// Cycle counter at the begin.
    pub begin: u64,
    /// Cycle counter at the end; `None` if there is no end in the trace.
    pub end: Option<u64>,
    /// Instructions that the hart retired in it, where the card counts them.
    pub instructions: Option<u64>,
    /// Regions of the hart around it.
    pub depth: usize,
}

impl Trace {
    /// Says which kernel has traced, so that names of regions are read from its file.
    #[must_use]
    pub fn of_kernel(mut self, kernel: &Kernel) -> Self {
        self.program = Some(Arc::clone(&kernel.inner.program));
        self
    }

    /// Returns the regions, hart by hart, in the order in which they began. An end without a begin,
    /// as after losses, is left out.
    #[must_use]
    pub fn regions(&self) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        // Those that have begun on a hart: where they are, the address of the name, instructions.
        let mut open: HashMap<u16, Vec<(usize, u64, u64)>> = HashMap::new();
        let mut names: HashMap<u64, Option<Arc<str>>> = HashMap::new();
        let mut text = |address: u64| {
            let found = || self.program.as_ref().and_then(|program| program.text(address));
            names.entry(address).or_insert_with(|| found().map(Arc::from)).clone()
        };
        for (_, entry) in self.entries() {
            let Body::UserProfile(mark) = entry.body else { continue };
            let (address, retired) = (mark.region_name.get(), mark.retired_insts.get());
            let word = mark.line_region_status.get();
            let of_hart = open.entry(entry.hart_id).or_default();
            if word & END == 0 {
                of_hart.push((regions.len(), address, retired));
                regions.push(Region {
                    hart: entry.hart_id,
                    name: text(address).unwrap_or_else(|| format!("{address:#x}").into()),
                    function: text(mark.func.get()),
                    line: u32::try_from(word >> 32).unwrap_or(0),
                    begin: entry.cycle,
                    end: None,
                    instructions: None,
                    depth: of_hart.len() - 1,
                });
                continue;
            }
            // What began later and has no end of its own is left open.
            let Some(at) = of_hart.iter().rposition(|(_, name, _)| *name == address) else {
                continue;
            };
            let (index, _, before) = of_hart[at];
            of_hart.truncate(at);
            if let Some(region) = regions.get_mut(index) {
                region.end = Some(entry.cycle);
                region.instructions = Some(retired.wrapping_sub(before)).filter(|_| retired != 0);
            }
        }
        regions
    }
}
