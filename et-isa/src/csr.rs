//! Control and status registers of user mode. Spec: ISA §2

/// What user mode can do with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Read only; a write is an illegal instruction.
    Read,
    /// Reads as 0; a write starts an action.
    Action,
    /// The same, on the first hart of a minion; an illegal instruction on the second.
    FirstThreadAction,
    /// Read and write.
    ReadWrite,
    /// An illegal instruction: switched off, or of a higher mode.
    None,
}

/// A control and status register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Csr {
    /// Number in the instruction.
    pub number: u32,
    /// Name in assembly.
    pub name: &'static str,
    /// What user mode can do with it.
    pub access: Access,
    /// What it is.
    pub about: &'static str,
}

impl Csr {
    /// Returns `true` if a stock assembler does not know it.
    #[must_use]
    pub const fn is_vendor(&self) -> bool {
        self.number >> 8 == 8
            || self.number >> 8 == 9
            || self.number >> 4 == 0xCC
            || self.number >> 4 == 0xCD
    }
}

/// Numbers the registers and lists them.
macro_rules! registers {
    ($($constant:ident = $number:literal $name:literal $access:ident: $about:literal;)*) => {
        $(#[doc = concat!("`", $name, "`: ", $about, ".")]
        pub const $constant: u32 = $number;)*

        /// All registers, by number.
        pub static CSRS: &[Csr] = &[$(Csr {
            number: $number,
            name: $name,
            access: Access::$access,
            about: $about,
        }),*];
    };
}

registers! {
    FFLAGS = 0x001 "fflags" ReadWrite: "floating-point flags, bit 31 for subnormal operands";
    FRM = 0x002 "frm" ReadWrite: "rounding mode";
    FCSR = 0x003 "fcsr" ReadWrite: "flags and rounding mode";
    TENSOR_REDUCE = 0x800 "tensor_reduce" FirstThreadAction: "sends, receives or combines registers between minions";
    TENSOR_FMA = 0x801 "tensor_fma" FirstThreadAction: "multiplies two matrices and adds";
    TENSOR_CONV_SIZE = 0x802 "tensor_conv_size" Action: "size of a convolution; computes tensor_mask";
    TENSOR_CONV_CTRL = 0x803 "tensor_conv_ctrl" Action: "start of a convolution; computes tensor_mask";
    TENSOR_COOP = 0x804 "tensor_coop" FirstThreadAction: "group of minions that load together";
    TENSOR_MASK = 0x805 "tensor_mask" ReadWrite: "rows that masked operations take";
    TENSOR_QUANT = 0x806 "tensor_quant" FirstThreadAction: "up to ten conversion steps on a matrix";
    TEX_SEND = 0x807 "tex_send" None: "texture request; graphics, switched off";
    TENSOR_ERROR = 0x808 "tensor_error" ReadWrite: "sticky errors of tensor and cache operations";
    UCACHE_CONTROL = 0x810 "ucache_control" ReadWrite: "scratchpad on or off, rate of cache operations";
    PREFETCH_VA = 0x81F "prefetch_va" Action: "prefetches lines";
    FLB = 0x820 "flb" Action: "joins a fast local barrier";
    FCC = 0x821 "fcc" Action: "consumes a credit, waits for one";
    STALL = 0x822 "stall" Action: "sleeps until an interrupt";
    TENSOR_WAIT = 0x830 "tensor_wait" Action: "waits for an operation";
    TENSOR_LOAD = 0x83F "tensor_load" FirstThreadAction: "loads lines into the scratchpad";
    GSC_PROGRESS = 0x840 "gsc_progress" ReadWrite: "lane at which a gather goes on";
    TENSOR_LOAD_L2 = 0x85F "tensor_load_l2" Action: "loads lines into the shire's scratchpad";
    TENSOR_STORE = 0x87F "tensor_store" FirstThreadAction: "stores a matrix";
    EVICT_VA = 0x89F "evict_va" Action: "evicts lines";
    FLUSH_VA = 0x8BF "flush_va" Action: "writes lines back";
    VALIDATION0 = 0x8D0 "validation0" ReadWrite: "marker of test programs";
    VALIDATION1 = 0x8D1 "validation1" Action: "console of the emulator";
    VALIDATION2 = 0x8D2 "validation2" ReadWrite: "scratch";
    VALIDATION3 = 0x8D3 "validation3" ReadWrite: "scratch";
    LOCK_VA = 0x8DF "lock_va" Action: "locks lines and zeroes them";
    UNLOCK_VA = 0x8FF "unlock_va" Action: "unlocks lines";
    PORTCTRL0 = 0x9CC "portctrl0" None: "message port; supervisor mode";
    PORTCTRL1 = 0x9CD "portctrl1" None: "message port; supervisor mode";
    PORTCTRL2 = 0x9CE "portctrl2" None: "message port; supervisor mode";
    PORTCTRL3 = 0x9CF "portctrl3" None: "message port; supervisor mode";
    CYCLE = 0xC00 "cycle" None: "switched off by the firmware";
    TIME = 0xC01 "time" None: "switched off by the firmware";
    INSTRET = 0xC02 "instret" None: "switched off by the firmware";
    HPMCOUNTER3 = 0xC03 "hpmcounter3" Read: "cycles";
    HPMCOUNTER4 = 0xC04 "hpmcounter4" Read: "instructions of the first thread";
    HPMCOUNTER5 = 0xC05 "hpmcounter5" Read: "instructions of the second thread";
    HPMCOUNTER6 = 0xC06 "hpmcounter6" Read: "misses of the second-level cache";
    HPMCOUNTER7 = 0xC07 "hpmcounter7" Read: "requests to the instruction cache";
    HPMCOUNTER8 = 0xC08 "hpmcounter8" Read: "requests on the link of the instruction cache";
    FCCNB = 0xCC0 "fccnb" Read: "credits of both counters";
    HARTID = 0xCD0 "hartid" Read: "number of the hart on the chip";
    MHARTID = 0xF14 "mhartid" None: "the same; the firmware emulates a read";
}

/// Finds a register by its name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Csr> {
    CSRS.iter().find(|csr| csr.name == name)
}

/// Finds a register by its number.
#[must_use]
pub fn by_number(number: u32) -> Option<&'static Csr> {
    CSRS.binary_search_by_key(&number, |csr| csr.number).ok().map(|index| &CSRS[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_is_found_both_ways() {
        for csr in CSRS {
            assert_eq!(by_number(csr.number), Some(csr));
            assert_eq!(by_name(csr.name), Some(csr));
            let privileged = csr.number >> 8 & 3 != 0;
            assert!(!privileged || csr.access == Access::None, "{}", csr.name);
            let read_only = csr.number >> 10 == 3;
            assert!(!read_only || matches!(csr.access, Access::Read | Access::None));
        }
    }
}
