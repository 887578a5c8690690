//! What is disassembled is assembled to the same word again.

#![allow(clippy::unwrap_used, reason = "tests: a panic is a failure")]

use et_isa::{Class, INSTRUCTIONS, Id, Instruction, Support, assemble, decode};
use proptest::prelude::*;

/// Prints a word that is an instruction, reads it back; `false` if it is none.
fn survives(word: u32) -> bool {
    let Some(decoded) = decode(word) else { return false };
    let text = decoded.text().to_string();
    assert_eq!(assemble(&text), Ok(decoded.word()), "{word:#010x}: {text}");
    true
}

/// Random values for all operands of an instruction.
fn values(instruction: &Instruction, mut random: u64) -> Vec<i64> {
    let mut values = Vec::new();
    for operand in instruction.operands() {
        let (min, max) = operand.range();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let count = u64::try_from(max - min).unwrap() + 1;
        let value = min + i64::try_from((random >> 20) % count).unwrap();
        // The offsets of jumps, and those of 16-bit loads and stores, have zeros at the end.
        let fits = (0..8).map(|shift| value >> shift << shift);
        let fits = fits.chain(min..=max).find(|&value| operand.encode(value).is_ok());
        values.push(fits.unwrap());
    }
    values
}

#[test]
fn every_halfword() {
    let count = (0..=0xFFFF_u32).filter(|half| half & 3 != 3 && survives(*half)).count();
    assert!(count > 30_000, "only {count} are instructions");
}

#[test]
fn every_row_with_many_operands() {
    for instruction in &INSTRUCTIONS {
        let mut encoded = 0;
        for seed in 0..500 {
            let values = values(instruction, seed);
            // Some operands together mean another instruction, such as `c.lui` of `sp`.
            let Ok(word) = instruction.encode(&values) else { continue };
            encoded += 1;
            let decoded = decode(word).unwrap();
            assert_eq!(decoded.id(), instruction.id(), "{word:#010x}");
            assert_eq!(decoded.values().collect::<Vec<_>>(), values, "{word:#010x}");
            assert!(decoded.is_canonical());
            assert!(survives(word));
        }
        assert!(encoded > 300, "{}: only {encoded} of 500", instruction.mnemonic());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200_000))]

    #[test]
    fn any_word(word: u32) {
        survives(word);
    }

    #[test]
    fn any_word_near_an_instruction(row in 0..INSTRUCTIONS.len(), word: u32) {
        let instruction = &INSTRUCTIONS[row];
        survives(word & !instruction.mask() | instruction.value());
    }
}

#[test]
fn the_table_is_consistent() {
    for (number, instruction) in INSTRUCTIONS.iter().enumerate() {
        let mnemonic = instruction.mnemonic();
        assert_eq!(Id::from_number(number), Some(instruction.id()));
        assert_eq!(instruction.id().instruction(), instruction);
        assert_eq!(Instruction::find(mnemonic), Some(instruction), "{mnemonic} is twice there");
        assert_eq!(instruction.value() & !instruction.mask(), 0, "{mnemonic}");
        let mut used = instruction.mask();
        for operand in instruction.operands() {
            assert_eq!(used & operand.mask(), 0, "{mnemonic}: {} overlaps", operand.name());
            used |= operand.mask();
        }
        assert!(instruction.operands().len() <= et_isa::MAX_OPERANDS);
        if instruction.len_bytes() == 2 {
            assert_eq!(used, 0xFFFF, "{mnemonic} leaves bits open");
        }
    }
    assert_eq!(Id::from_number(INSTRUCTIONS.len()), None);
}

#[test]
fn short_instructions_stand_for_long_ones() {
    for half in 0..=0xFFFF_u32 {
        let Some(decoded) = decode(half).filter(|_| half & 3 != 3) else { continue };
        let expanded = decoded.expand();
        assert_eq!(decode(expanded.word()), Some(expanded), "{half:#06x}: {}", decoded.text());
        assert!(expanded.is_canonical());
        assert_eq!(decoded.target(0x1000), expanded.target(0x1000));
    }
    for (half, text) in [
        (0x157D, "addi a0, a0, -1"),
        (0x7139, "addi sp, sp, -64"),
        (0x0028, "addi a0, sp, 8"),
        (0x757D, "lui a0, 0xfffff"),
        (0xE406, "sd ra, 8(sp)"),
        (0x8082, "jalr zero, 0(ra)"),
        (0x9502, "jalr ra, 0(a0)"),
        (0x852E, "add a0, zero, a1"),
        (0xD97D, "beq a0, zero, .-10"),
        (0x9002, "ebreak"),
    ] {
        assert_eq!(decode(half).unwrap().expand().text().to_string(), text);
    }
}

#[test]
fn text_is_what_kernels_are_written_in() {
    // Forms that occur in kernels, and their words on the device.
    for (text, word) in [
        ("fadd.ps f4, f1, f2, rne", 0x0020_827B),
        ("fswizz.ps f4, f1, 0xB1", 0xE760_827B | 1 << 12),
        ("flw.ps f4, (a0)", 0x0005_220B),
        ("flw.ps f4, 0(a0)", 0x0005_220B),
        ("fsw.ps f1, 0(a0)", 0x0015_600B),
        ("fgb.ps f4, f1(a1)", 0x48B0_920B),
        ("famoaddl.pi f4, f1(a1)", 0x06B0_C20B),
        ("amoaddl.w a2, a1, (a0)", 0x00B5_263B),
        ("amoaddl.w a2, a1, 0(a0)", 0x00B5_263B),
        ("sbl a1, (a0)", 0x10B5_303B),
        ("fbci.pi f4, 0xfffff", 0xFFFF_F25F),
        ("mov.m.x m0, zero, 0xff", 0x57F0_707B),
        ("mova.x.m x5", 0xD600_02FB),
        ("maskxor m3, m1, m2", 0x6620_C1FB),
        ("csrrw zero, stall, zero", 0x8220_1073),
        ("csrrwi x0, 0x830, 6", 0x8303_5073),
        ("fandi.pi f1, f2, 0xF", 0x04F1_10BF),
        ("faddi.pi f1, f2, -8", 0xFD81_00BF),
        ("fmvz.x.ps a0, f1, 4", 0xE040_857B),
        ("beq a0, a1, .-4096", 0x80B5_0063),
    ] {
        assert_eq!(
            assemble(text).map(|word| format!("{word:#x}")),
            Ok(format!("{word:#x}")),
            "{text}"
        );
        assert!(survives(word));
    }
}

#[test]
fn mistakes_name_the_operand() {
    for (text, message) in [
        ("fadd.pz f1, f2, f3", "unknown instruction"),
        ("fadd.ps f1, f2", "2 operands instead of 4"),
        ("fadd.ps f1, f2, f3, rne, f4", "5 operands instead of 4"),
        ("fadd.ps f1, a2, f3", "operand 2 is of the wrong kind"),
        ("fadd.ps f1, f2, f32", "operand 3 is of the wrong kind"),
        ("flw.ps f1, 2048(a0)", "operand 2 is not in -2048..=2047"),
        ("flw.ps f1, a0", "operand 2 is of the wrong kind"),
        ("amoaddl.w a0, a1, 4(a2)", "operand 3 is of the wrong kind"),
        ("fgb.ps f1, f2(f3)", "operand 3 is of the wrong kind"),
        ("fswizz.ps f1, f2, 256", "operand 3 is not in 0..=255"),
        ("maskand m8, m0, m0", "operand 1 is of the wrong kind"),
        ("jal ra, .+3", "operand 2 is not a multiple of 2"),
        ("c.lui sp, 1", "reserved encoding"),
        ("c.lui a0, 0", "operand 2 is reserved"),
        ("fbci.ps f1, 0x100000", "operand 2 is not in -524288..=524287"),
    ] {
        assert_eq!(assemble(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn ignored_bits_are_shown_as_data() {
    // sbl with a destination, fmadd.s of format 1, fdiv.s with a reserved rounding mode.
    for (word, text) in [
        (0x10B5_303B | 5 << 7, ".4byte 0x10b532bb # sbl a1, (a0)"),
        (0x1820_8243 | 1 << 25, ".4byte 0x1a208243 # fmadd.s ft4, ft1, ft2, ft3, rne"),
        (0x1820_D253, ".4byte 0x1820d253 # fdiv.s ft4, ft1, ft2, 0x5"),
    ] {
        assert_eq!(decode(word).unwrap().text().to_string(), text);
        assert!(survives(word));
    }
}

#[test]
fn addresses_are_shown_where_they_are_known() {
    let jump = decode(0xFFDF_F06F).unwrap();
    assert_eq!(jump.text().to_string(), "jal zero, .-4");
    assert_eq!(jump.text().at(0x80_0580_1004).to_string(), "jal zero, 0x8005801000");
    assert_eq!(jump.target(0x80_0580_1004), Some(0x80_0580_1000));
}

#[test]
fn what_traps_is_marked() {
    let microcoded = INSTRUCTIONS.iter().filter(|row| row.support() == Support::Microcoded);
    let names: Vec<_> = microcoded.map(Instruction::mnemonic).collect();
    // The list of ISA §1.5.
    let expected = "fence.i sfence.vma fdiv.s fsqrt.s fcvt.l.s fcvt.lu.s fcvt.s.l fcvt.s.lu fdiv.ps \
                    fsqrt.ps fsin.ps frsq.ps fdiv.pi fdivu.pi frem.pi fremu.pi";
    assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn only_what_stock_assemblers_lack_is_vendor() {
    let vendor = |name| Instruction::find(name).unwrap().is_vendor();
    assert!(vendor("amoaddl.w") && vendor("fcvt.sn8.ps") && vendor("flq2") && vendor("fbci.pi"));
    assert!(!vendor("fmv.w.x") && !vendor("c.addi4spn") && !vendor("flw"));
    for row in INSTRUCTIONS.iter().filter(|row| row.is_vendor()) {
        assert!(row.operands().iter().all(|operand| operand.class() != Class::Target));
    }
}
