//! What becomes of sources.

#![allow(clippy::unwrap_used, reason = "tests: a panic is a failure")]

use std::collections::HashMap;

use et_as::Translator;

/// Translates a source; the marker in front is not shown.
fn translate(source: &str) -> Result<String, Vec<String>> {
    let mut translator = Translator::new(HashMap::from([("GIVEN".to_owned(), 3)]));
    translator.add("x.s", source.as_bytes());
    let translation = translator.finish();
    if !translation.diagnostics.is_empty() {
        return Err(translation.diagnostics.iter().map(ToString::to_string).collect());
    }
    let text = String::from_utf8(translation.source).unwrap();
    let text = text.strip_prefix("# 1 \"x.s\"\n").unwrap_or(&text);
    assert_eq!(translation.changed, text.trim_end() != source.trim_end());
    Ok(text.trim_end().to_owned())
}

/// Translates one statement.
fn line(statement: &str) -> String {
    translate(statement).unwrap()
}

#[test]
fn everything_else_is_left_as_it_is() {
    let source = r#"
	.file	"a.c"
	.option nopic
	.attribute arch, "rv64i2p1_m2p0_f2p2_c2p0"
	.text
.Ltext0:
	.cfi_sections	.debug_frame
	.align	1
	.type	f, @function
f:
.LFB0:
	.loc 1 2 3
	.cfi_startproc
	lw	a5,%pcrel_lo(.LA0)(a4)	# tmp, comment; flw.ps f0, 0(a0)
	csrw	fcsr, a0; csrr a0, cycle; csrrw zero, 0x820, a1
	.ascii	"fadd.ps f0, f0, f0; \"\\"
	/* flw.ps
	   fadd.ps f0, f0, f0 */
	fadd.s	fa0,fa0,fa1
	.insn	r 0x7b, 0, 0, x1, x2, x3
	.set	flw.ps, 3
	.section	.debug_info,"",@progbits
	.byte 0x1, ';', '#
"#;
    assert_eq!(line(source), source.trim_end());
}

#[test]
fn vendor_instructions_become_words() {
    for (statement, expected) in [
        ("\tfadd.ps f4, f1, f2, rne", "\t.insn r 0x7b, 0, 0x00, x4, x1, x2"),
        ("flw.ps fa0, 16(a5)", ".insn r 0x0b, 2, 0x00, x10, x15, x16"),
        ("flw.ps fa0, (a5)", ".insn r 0x0b, 2, 0x00, x10, x15, x0"),
        ("1: fgb.ps f4, f1(a1) # c", "1: .insn r 0x0b, 1, 0x24, x4, x1, x11 # c"),
        ("a: b:\tshg a0,(a1);ret", "a: b:\t.insn r 0x3b, 3, 0x0d, x0, x11, x10;ret"),
        ("nop;fbci.pi f0, 0", "nop;.4byte 0x0000005f"),
        ("fandi.pi f1, f2, 0xF", ".4byte 0x04f110bf"),
        ("mov.m.x m0, x0, (1 << 4) - 1", ".insn r 0x7b, 7, 0x2b, x0, x0, x1"),
        ("fswizz.ps f1, f2 /* pairs */ , 0xB1", ".insn r 0x7b, 1, 0x73, x1, x2, x22"),
        ("flw.ps f0, GIVEN*8(a0)", ".insn r 0x0b, 2, 0x00, x0, x10, x24"),
        ("csrw stall, x0", "csrw 0x822, x0"),
        ("csrr a0, hartid; csrrw a1,flb,a2", "csrr a0, 0xcd0; csrrw a1, 0x820, a2"),
    ] {
        assert_eq!(line(statement), expected, "{statement}");
    }
}

#[test]
fn symbols_are_known_from_their_definition_on() {
    let source = ".equ OFF, 8\nSTEP = OFF * 2\nflw.ps f0, OFF+STEP(a0)";
    assert_eq!(line(source), ".equ OFF, 8\nSTEP = OFF * 2\n.insn r 0x0b, 2, 0x00, x0, x10, x24");
    let again = ".set N, 1\n.set N, N + 1\nfmvz.x.ps a0, f0, N";
    assert!(line(again).ends_with(".insn r 0x7b, 0, 0x70, x10, x0, x2"), "{}", line(again));
}

#[test]
fn what_only_the_assembler_knows_is_left_to_it() {
    for (statement, expected) in [
        ("flw.ps f1, %pcrel_lo(.LA0)(a5)", ".insn i 0x0b, 2, f1, %pcrel_lo(.LA0)(x15)"),
        ("fsw.ps f1, %lo(x+4)(a5)", ".insn s 0x0b, 6, f1, %lo(x+4)(x15)"),
        ("flw.ps \\d, \\o(\\b)", ".insn i 0x0b, 2, \\d, \\o(\\b)"),
        ("fadd.ps \\d, f1, \\b", ".insn r 0x7b, 7, 0x00, \\d, x1, \\b"),
        ("fmadd.ps \\d, f1, f2, \\d", ".insn r4 0x5b, 7, 0, \\d, x1, x2, \\d"),
        ("amoaddg.w x0, \\v, (\\a)", ".insn r 0x3b, 2, 0x01, x0, \\a, \\v"),
        (
            "mov.m.x m1, x0, END-START",
            ".if ((END-START) < 0) || ((END-START) > 255); .error \"operand 3 is not in 0..=255\"; \
             .endif; .4byte 0x560000fb | ((((END-START) >> 3) & 0x1f) << 20) | \
             ((((END-START) >> 0) & 0x7) << 12)",
        ),
    ] {
        assert_eq!(line(statement), expected, "{statement}");
    }
}

#[test]
fn macros_with_the_name_of_an_instruction_are_the_sources_own() {
    let source = ".macro flw.ps a, b\nnop\n.endm\nflw.ps 1, 2";
    assert_eq!(line(source), source);
}

#[test]
fn mistakes_are_at_the_place_that_the_compiler_says() {
    let source = "\t.file \"k.c\"\n\t.file 1 \"/src\" \"k.c\"\n\tnop\n\t.loc 1 7 3\n\tfadd.ps f0, a1, f2\n\
                  #APP\n# 12 \"k.h\" 1\n\tflw.ps f0, 0(a0)\n\tflw.ps f0, 4096(a0)\n# 0 \"\" 2\n\
                  #NO_APP\n\tfadd.ps f0, f1\n";
    assert_eq!(
        translate(source).unwrap_err(),
        [
            "x.s:5: Error: operand 2, `a1', is not a float register in `fadd.ps f0, a1, f2'\n\
             /src/k.c:7: note: the code is for this line",
            "k.h:13: Error: operand 2 is not in -2048..=2047 in `flw.ps f0, 4096(a0)'",
            "x.s:12: Error: 2 operands instead of 4 in `fadd.ps f0, f1'\n\
             /src/k.c:7: note: the code is for this line",
        ]
    );
}

#[test]
fn each_kind_of_mistake_has_its_text() {
    for (statement, message) in [
        ("maskand m0, m8, m0", "operand 2, `m8', is not a mask register, m0 to m7"),
        ("fadd.ps f0, f1, f2, nearest", "operand 4, `nearest', is not a rounding mode"),
        ("amoaddg.w a0, f1, (a1)", "operand 2, `f1', is not an integer register"),
        ("faddi.pi f0, f1, 512", "operand 3 is not in -512..=511"),
        ("mova.x.m a0, a1", "2 operands instead of 1"),
        ("fandi.pi \\d, f1, 1", "operand 1 cannot be a macro's argument"),
        ("fgb.ps f0, f1, a1", "operand 2 is not an address in parentheses"),
    ] {
        let found = translate(statement).unwrap_err().join("\n");
        assert!(found.contains(message), "{found}");
    }
}
