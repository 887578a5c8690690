//! The handlers of all kinds of operations, by kind.

use crate::decode::op::kind;
use crate::exec::Handler;
use crate::exec::control;
use crate::exec::float;
use crate::exec::integer;
use crate::exec::memory;
#[cfg(target_arch = "x86_64")]
use crate::exec::{wide, wide_memory};

/// The handler of each kind.
pub(crate) static HANDLERS: [Handler; 256] = table();

/// Enters handlers of modules into a table: `kind = handler`, the handler of long instructions,
/// and `kind, short kind = handler` for those that exist in both lengths.
macro_rules! enter {
    ($table:ident, $module:ident: $($kind:ident $(, $short:ident)? = $handler:ident;)*) => {
        $(
            $table[kind::$kind as usize] = $module::$handler::<2>;
            $($table[kind::$short as usize] = $module::$handler::<1>;)?
        )*
    };
}

const fn table() -> [Handler; 256] {
    let mut table: [Handler; 256] = [control::illegal::<2>; 256];
    enter!(table, control:
        UNDECODED = undecoded;
        STRADDLE = straddle;
        COUNTED = counted;
        MICROCODED = microcoded;
        JAL = jal;
        JALR = jalr;
        BEQ, C_BEQ = beq;
        BNE, C_BNE = bne;
        BLT = blt;
        BGE = bge;
        BLTU = bltu;
        BGEU = bgeu;
        FENCE = fence;
        WEAK_FENCE = weak_fence;
        PAUSE = pause;
        ECALL = ecall;
        EBREAK = ebreak;
        CSR = csr;
    );
    enter!(table, integer:
        LUI, C_LUI = lui;
        AUIPC = auipc;
        ADDI, C_ADDI = addi;
        SLTI = slti;
        SLTIU = sltiu;
        XORI = xori;
        ORI = ori;
        ANDI, C_ANDI = andi;
        SLLI, C_SLLI = slli;
        SRLI, C_SRLI = srli;
        SRAI, C_SRAI = srai;
        ADDIW, C_ADDIW = addiw;
        SLLIW = slliw;
        SRLIW = srliw;
        SRAIW = sraiw;
        ADD, C_ADD = add;
        SUB, C_SUB = sub;
        SLL = sll;
        SLT = slt;
        SLTU = sltu;
        XOR, C_XOR = xor;
        SRL = srl;
        SRA = sra;
        OR, C_OR = or;
        AND, C_AND = and;
        ADDW, C_ADDW = addw;
        SUBW, C_SUBW = subw;
        SLLW = sllw;
        SRLW = srlw;
        SRAW = sraw;
        MUL = mul;
        MULH = mulh;
        MULHSU = mulhsu;
        MULHU = mulhu;
        DIV = div;
        DIVU = divu;
        REM = rem;
        REMU = remu;
        MULW = mulw;
        DIVW = divw;
        DIVUW = divuw;
        REMW = remw;
        REMUW = remuw;
        PACKB = packb;
    );
    enter!(table, memory:
        LB = lb;
        LH = lh;
        LW, C_LW = lw;
        LD, C_LD = ld;
        LBU = lbu;
        LHU = lhu;
        LWU = lwu;
        SB = sb;
        SH = sh;
        SW, C_SW = sw;
        SD, C_SD = sd;
        FLW = flw;
        FSW = fsw;
        WEAK_LB = lb_slow;
        WEAK_LH = lh_slow;
        WEAK_LW, C_WEAK_LW = lw_slow;
        WEAK_LD, C_WEAK_LD = ld_slow;
        WEAK_LBU = lbu_slow;
        WEAK_LHU = lhu_slow;
        WEAK_LWU = lwu_slow;
        WEAK_FLW = flw_slow;
        WEAK_SB = sb_slow;
        WEAK_SH = sh_slow;
        WEAK_SW, C_WEAK_SW = sw_slow;
        WEAK_SD, C_WEAK_SD = sd_slow;
        WEAK_FSW = fsw_slow;
        PRIVATE_LB = lb_private;
        PRIVATE_LH = lh_private;
        PRIVATE_LW, C_PRIVATE_LW = lw_private;
        PRIVATE_LD, C_PRIVATE_LD = ld_private;
        PRIVATE_LBU = lbu_private;
        PRIVATE_LHU = lhu_private;
        PRIVATE_LWU = lwu_private;
        PRIVATE_FLW = flw_private;
        PRIVATE_SB = sb_private;
        PRIVATE_SH = sh_private;
        PRIVATE_SW, C_PRIVATE_SW = sw_private;
        PRIVATE_SD, C_PRIVATE_SD = sd_private;
        PRIVATE_FSW = fsw_private;
        ATOMIC = atomic;
        SMALL_STORE = small_store;
    );
    enter!(table, float:
        FADD = fadd;
        FSUB = fsub;
        FMUL = fmul;
        FMADD = fmadd;
        FMSUB = fmsub;
        FNMSUB = fnmsub;
        FNMADD = fnmadd;
        FSGNJ = fsgnj;
        FSGNJN = fsgnjn;
        FSGNJX = fsgnjx;
        FMV_X_W = fmv_x_w;
        FMV_W_X = fmv_w_x;
        FMIN = fmin;
        FMAX = fmax;
        FEQ = feq;
        FLT = flt;
        FLE = fle;
        FLOAT = other;
        PACKED = packed;
        MOV_M_X = set_one_mask;
        MOVA_X_M = get_masks;
        MOVA_M_X = set_masks;
    );
    #[cfg(target_arch = "x86_64")]
    enter!(table, wide:
        WIDE_FMADD = fmadd;
        WIDE_FMSUB = fmsub;
        WIDE_FNMSUB = fnmsub;
        WIDE_FNMADD = fnmadd;
        PACKED_FUSED = fused;
        PACKED_FUSED_SIGNED = fused_signed;
        PACKED_SUM = sum;
        PACKED_DIFFERENCE = difference;
        PACKED_PRODUCT = product;
        PACKED_FROM_INTEGERS = from_integers;
        PACKED_FROM_HALVES = from_halves;
        PACKED_SWIZZLE = swizzle;
        PACKED_SPREAD = spread;
        PACKED_SHORT_FLOAT = short_float;
        PACKED_SHORT_INTEGER = short_integer;
        PACKED_MASK = mask;
        PACKED_SHIFT = shift;
    );
    #[cfg(target_arch = "x86_64")]
    enter!(table, wide_memory:
        PACKED_LOAD = load;
        PACKED_STORE = store;
        PACKED_BROADCAST = broadcast;
        PACKED_GATHER = gather;
        PACKED_GATHER_HALVES = gather_halves;
        PACKED_GATHER_BLOCK = gather_block;
        PRIVATE_PACKED_LOAD = private_load;
        PRIVATE_PACKED_STORE = private_store;
        PRIVATE_PACKED_BROADCAST = private_broadcast;
        PRIVATE_PACKED_GATHER = private_gather;
        PRIVATE_PACKED_GATHER_HALVES = private_gather_halves;
        PRIVATE_PACKED_GATHER_BLOCK = private_gather_block;
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MemoryModel;
    use crate::decode::op::{self, Op};

    #[test]
    fn operations_on_caches_have_handlers_of_their_own() {
        for model in [MemoryModel::Weak { seed: 0 }, MemoryModel::Private] {
            for kind in 0..=u8::MAX {
                let op = Op(kind.into());
                let (flat, other) = (op.kind(), op.under(model).kind());
                let handlers = (HANDLERS[flat as usize], HANDLERS[other as usize]);
                assert_eq!(flat == other, std::ptr::fn_addr_eq(handlers.0, handlers.1), "{kind}");
                assert_eq!(op.under(MemoryModel::Flat), op);
            }
        }
    }

    #[test]
    fn short_operations_have_handlers_of_their_own() {
        let kinds = 0..=u8::MAX;
        for kind in kinds.filter(|&kind| op::short(kind) != kind) {
            let (long, short) = (HANDLERS[kind as usize], HANDLERS[op::short(kind) as usize]);
            let illegal: Handler = control::illegal::<2>;
            assert!(!std::ptr::fn_addr_eq(short, illegal) && !std::ptr::fn_addr_eq(short, long));
        }
    }
}
