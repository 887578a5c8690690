//! State of a hart. Spec: ISA §4.2

use crate::decode::op::REGISTERS;
use crate::exec::event::Event;
use crate::exec::tensor::Unit;
use crate::machine::launch::HartState;
use crate::memory::map::{HARTS_PER_SHIRE, compute_harts};
use crate::memory::private::Private;
use crate::native::Resume;

/// A floating-point register: eight lanes, of which scalar instructions use the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(32))]
pub(crate) struct Vector(pub(crate) [u32; 8]);

impl Vector {
    /// The register after a scalar instruction wrote `bits`.
    #[inline(always)]
    pub(crate) const fn scalar(bits: u32) -> Self {
        Self([bits, 0, 0, 0, 0, 0, 0, 0])
    }

    /// The register with the bytes of memory in it.
    #[inline(always)]
    pub(crate) fn of_bytes(bytes: &[u8; 32]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        Self(std::array::from_fn(|lane| u32::from_le_bytes(words[lane])))
    }
}

/// What user mode finds in `ucache_control` at the start: split cache, scratchpad on, at most 8
/// operations at a time.
pub(crate) const UCACHE_CONTROL_AT_START: u16 = 0x203;
/// All lanes enabled by m0, none by the other masks.
const MASKS_AT_START: u64 = 0xFF;
/// `sstatus` with floating-point state dirty (FS = 3, SD) and 64-bit user mode (UXL = 2).
const SSTATUS_IN_KERNEL: u64 = 1 << 63 | 2 << 32 | 3 << 13;

/// What only the hart itself touches while it runs. What every turn needs comes first, in as few
/// lines of the host's cache as possible: there are many harts.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Hart {
    pub(crate) pc: u64,
    /// Instructions that the last chain of handlers could have executed in addition.
    pub(crate) left: u64,
    /// Instructions executed since the start of the kernel.
    pub(crate) retired: u64,
    /// The same that belong to later turns, and are not in `retired` yet.
    pub(crate) ahead: u32,
    /// Where translated code goes on.
    pub(crate) resume: Resume,
    /// The cache of the shire, while the hart has its turn and if caches are private.
    pub(crate) cache: Option<Box<Private>>,
    pub(crate) fcsr: u32,
    pub(crate) gsc_progress: u8,
    /// The tensor unit has started arithmetic that it has not executed yet.
    pub(crate) has_pending_arithmetic: bool,
    pub(crate) tensor_mask: u16,
    /// Mask registers m0 to m7, m0 lowest.
    pub(crate) masks: u64,
    /// Why the last chain of handlers ended; none if it only came to its end.
    pub(crate) event: Option<Event>,
    pub(crate) id: u32,
    pub(crate) tensor_coop: u32,
    /// Integer registers; 0 stays 0, 32 collects what is written to it, the rest is unused.
    pub(crate) x: [u64; REGISTERS],
    pub(crate) f: [Vector; 32],
    pub(crate) conv_size: u64,
    pub(crate) conv_ctrl: u64,
    /// The tensor unit, once the first hart of a minion has used it.
    pub(crate) unit: Option<Box<Unit>>,
    pub(crate) validation: [u64; 4],
}

impl Hart {
    /// Bytes of what most turns need.
    pub(crate) const NEEDED: usize = std::mem::offset_of!(Self, x) + 32 * size_of::<u64>();

    /// A hart at the start of a kernel, apart from what the launch passes to it.
    pub(crate) fn new(id: u32) -> Self {
        Self {
            x: [0; REGISTERS],
            pc: 0,
            fcsr: 0,
            f: [Vector::default(); 32],
            masks: MASKS_AT_START,
            gsc_progress: 0,
            tensor_mask: 0,
            tensor_coop: 0,
            conv_size: 0,
            conv_ctrl: 0,
            unit: None,
            has_pending_arithmetic: false,
            validation: [0; 4],
            cache: None,
            retired: 0,
            ahead: 0,
            id,
            event: None,
            left: 0,
            resume: Resume::default(),
        }
    }

    /// Returns `true` if others have read something ahead of their turns, in its own.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.is_watching())
    }

    pub(crate) fn shire(&self) -> u32 {
        self.id / HARTS_PER_SHIRE
    }

    /// Thread 1 of a minion has no tensor unit.
    pub(crate) fn is_second_thread(&self) -> bool {
        self.id & 1 != 0
    }

    /// Writes an integer register; x0 stays 0.
    pub(crate) fn set_x(&mut self, register: usize, value: u64) {
        if register != 0 {
            self.x[register] = value;
        }
    }

    /// What is reported when the hart leaves the kernel.
    pub(crate) fn state(&self, tensor_error: u16) -> HartState {
        let mut x = [0; 32];
        x.copy_from_slice(&self.x[..32]);
        HartState { pc: self.pc, x, sstatus: SSTATUS_IN_KERNEL, tensor_error }
    }
}

/// What instructions change that reach nothing but registers.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    pc: u64,
    retired: u64,
    ahead: u32,
    resume: Resume,
    fcsr: u32,
    masks: u64,
    x: [u64; REGISTERS],
    f: [Vector; 32],
}

impl Registers {
    pub(crate) fn new() -> Self {
        Self {
            pc: 0,
            retired: 0,
            ahead: 0,
            resume: Resume::default(),
            fcsr: 0,
            masks: 0,
            x: [0; REGISTERS],
            f: [Vector::default(); 32],
        }
    }

    /// Takes over those of a hart.
    pub(crate) fn save(&mut self, hart: &Hart) {
        let Hart { pc, retired, ahead, resume, fcsr, masks, x, f, .. } = hart;
        (self.pc, self.retired, self.ahead) = (*pc, *retired, *ahead);
        (self.resume, self.fcsr, self.masks) = (*resume, *fcsr, *masks);
        self.x.copy_from_slice(x);
        self.f.copy_from_slice(f);
    }

    /// Gives them back.
    pub(crate) fn restore(&self, hart: &mut Hart) {
        let Self { pc, retired, ahead, resume, fcsr, masks, x, f } = self;
        (hart.pc, hart.retired, hart.ahead) = (*pc, *retired, *ahead);
        (hart.resume, hart.fcsr, hart.masks) = (*resume, *fcsr, *masks);
        hart.x.copy_from_slice(x);
        hart.f.copy_from_slice(f);
    }
}

/// Hart of a shire's minion and thread, if it exists and runs kernels.
pub(crate) fn hart_of(shire: u32, minion: u32, thread: u32) -> Option<u32> {
    let id = shire * HARTS_PER_SHIRE + 2 * minion + thread;
    compute_harts(shire).contains(&id).then_some(id)
}
