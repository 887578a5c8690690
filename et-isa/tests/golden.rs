//! Every word of the instruction vectors. Spec: ISA §8

#![allow(clippy::unwrap_used, reason = "tests: a panic is a failure")]

use std::fs;

use et_isa::{Id, Instruction, Support, assemble, decode};
use serde_json::Value;

const ILLEGAL: u64 = 2;
const MICROCODED: u64 = 30;

fn golden() -> Option<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/et-testkit/golden/isa.json");
    let text = fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// The words of a case; the upper half of 16-bit instructions is 0.
fn words(case: &Value) -> Vec<u32> {
    let code = case["code"].as_str().unwrap();
    code.split_whitespace().map(|word| u32::from_str_radix(word, 16).unwrap()).collect()
}

/// Returns `true` if a CSR instruction is refused for its register, not for its encoding.
fn is_csr(id: Id) -> bool {
    use Id::{Csrrc, Csrrci, Csrrs, Csrrsi, Csrrw, Csrrwi};
    matches!(id, Csrrw | Csrrs | Csrrc | Csrrwi | Csrrsi | Csrrci)
}

#[test]
fn each_case_is_the_instruction_that_it_names() {
    let Some(golden) = golden() else {
        eprintln!("skipped, because the vectors are not in this package");
        return;
    };
    let (mut named, mut trapping) = (0, 0);
    for case in golden["cases"].as_array().unwrap() {
        let (id, op) = (&case["id"], case["op"].as_str().unwrap());
        let cause = case["trap"]["cause"].as_u64();
        let words = words(case);
        for &word in &words {
            let Some(decoded) = decode(word) else {
                assert_eq!(cause, Some(ILLEGAL), "case {id} ({op}): {word:#010x} is unknown");
                continue;
            };
            let text = decoded.text().to_string();
            assert_eq!(assemble(&text), Ok(word), "case {id}: {text}");
        }
        // The last instruction is the one that the case is about.
        let Some(decoded) = words.last().and_then(|&word| decode(word)) else { continue };
        let support = decoded.instruction().support();
        let is_ieee = case["profile"] == "ieee-standard";
        assert_eq!(
            support == Support::Microcoded,
            is_ieee || cause == Some(MICROCODED),
            "{id} {op}"
        );
        if cause == Some(ILLEGAL) {
            trapping += 1;
            // A dynamic rounding mode may be reserved, and registers may not exist.
            let dynamic =
                op.contains("dyn") || op.contains("tensor_fma illegal") || op.contains("rm=7");
            assert!(support != Support::Hardware || is_csr(decoded.id()) || dynamic, "{id} {op}");
        } else {
            assert!(matches!(support, Support::Hardware | Support::Microcoded), "{id} {op}");
        }
        let name = op.split_whitespace().next().unwrap();
        if let (Some(row), 1) = (Instruction::find(name), words.len())
            && cause.is_none()
        {
            named += 1;
            assert_eq!(decoded.instruction().mnemonic(), row.mnemonic(), "case {id} ({op})");
        }
    }
    assert!(named > 1400 && trapping > 30, "{named} cases name an instruction, {trapping} trap");
}
