//! The standard part of the table against stock binutils.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests: a panic is a failure")]

use std::fmt::Write;
use std::fs;
use std::process::{Command, Output};

use et_isa::{Class, INSTRUCTIONS, Id, Instruction, decode};

fn tool(name: &str) -> Option<Command> {
    let prefix = std::env::var("CROSS_COMPILE").unwrap_or("riscv64-unknown-elf-".to_owned());
    let program = format!("{prefix}{name}");
    match Command::new(&program).arg("--version").output() {
        Ok(output) if output.status.success() => Some(Command::new(program)),
        _ => {
            eprintln!("skipped, because {program} is not installed");
            None
        }
    }
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Text of an instruction as the assembler takes it, with registers that differ.
fn line(instruction: &Instruction, seed: i64) -> Option<(String, u32)> {
    let mut values = Vec::new();
    for (index, operand) in (0..).zip(instruction.operands()) {
        let (min, max) = operand.range();
        let span = max - min + 1;
        let wanted = min + (seed * 7919 + index * 104_729 + 12_345).rem_euclid(span);
        let candidate = |value: i64| (min..=max).contains(&value) && operand.encode(value).is_ok();
        values.push((wanted..wanted + 64).chain(wanted - 64..wanted).find(|&v| candidate(v))?);
    }
    let word = instruction.encode(&values).ok()?;
    Some((decode(word)?.text().to_string(), word))
}

/// Returns `true` for legal encodings that the assembler refuses to write.
fn is_hint(instruction: &Instruction, word: u32) -> bool {
    use Id::{CAdd, CAddi, CLi, CLui, CMv, CSlli, CSrai, CSrli, Fence};
    let id = instruction.id();
    let destination = word >> 7 & 31;
    let immediate = word >> 2 & 31 | word >> 7 & 32;
    match id {
        CAddi | CSlli => destination == 0 || immediate == 0,
        CLi | CLui | CMv | CAdd => destination == 0,
        CSrli | CSrai => immediate == 0,
        Fence => word >> 24 & 15 == 0 || word >> 20 & 15 == 0,
        _ => false,
    }
}

#[test]
fn the_assembler_gives_the_same_words() {
    let (Some(mut assembler), Some(mut objcopy)) = (tool("as"), tool("objcopy")) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut source = ".option norelax\n".to_owned();
    let mut expected = Vec::new();
    for instruction in INSTRUCTIONS.iter().filter(|row| !row.is_vendor()) {
        for (text, word) in (0..40).filter_map(|seed| line(instruction, seed)) {
            if is_hint(instruction, word) {
                continue;
            }
            writeln!(source, "\t{}", for_binutils(instruction, word, &text)).unwrap();
            expected.push((text, word));
        }
    }
    assert!(expected.len() > 4000, "{} lines", expected.len());
    fs::write(path("all.s"), source).unwrap();
    run(assembler.args(OPTIONS).arg(path("all.s")).arg("-o").arg(path("all.o")));
    run(objcopy.args(["-O", "binary", "-j", ".text"]).arg(path("all.o")).arg(path("all.bin")));
    let code = fs::read(path("all.bin")).unwrap();
    let found: Vec<_> = et_isa::words(&code).map(|(_, word)| word).collect();
    for ((text, word), found) in expected.iter().zip(&found) {
        assert_eq!(format!("{word:#x}"), format!("{found:#x}"), "{text}");
    }
    assert_eq!(found.len(), expected.len());
}

const OPTIONS: [&str; 2] = ["-march=rv64imfc_zicsr_zifencei_zihintpause", "-mabi=lp64f"];

/// Registers that binutils does not know by name are written as numbers.
fn for_binutils(instruction: &Instruction, word: u32, text: &str) -> String {
    let csr = instruction.operands().iter().find(|operand| operand.class() == Class::Csr);
    let Some(csr) = csr else { return without_option(instruction, text) };
    let number = csr.value(word);
    let mut parts: Vec<_> = text.split(", ").map(str::to_owned).collect();
    parts[1] = format!("{number:#x}");
    parts.join(", ")
}

fn without_option(instruction: &Instruction, text: &str) -> String {
    // Compressed forms are wanted only where they are written.
    if instruction.len_bytes() == 2 {
        format!(".option rvc\n\t{text}")
    } else {
        format!(".option norvc\n\t{text}")
    }
}

#[test]
fn the_disassembler_reads_the_same_instructions() {
    let (Some(mut assembler), Some(mut objdump)) = (tool("as"), tool("objdump")) else { return };
    let directory = tempfile::tempdir().unwrap();
    let object = directory.path().join("all.o");
    let source = directory.path().join("all.s");
    let mut words = Vec::new();
    for instruction in INSTRUCTIONS.iter().filter(|row| !row.is_vendor()) {
        let of_row = (0..40).filter_map(|seed| line(instruction, seed)).map(|(_, word)| word);
        words.extend(of_row.filter(|&word| !is_hint(instruction, word)));
    }
    let mut text = String::new();
    for word in &words {
        let directive = if word & 3 == 3 { ".4byte" } else { ".2byte" };
        writeln!(text, "{directive} {word:#x}").unwrap();
    }
    fs::write(&source, text).unwrap();
    run(assembler.args(OPTIONS).arg(&source).arg("-o").arg(&object));
    let listing = run(objdump.args(["-D", "-j", ".text", "-M", "no-aliases"]).arg(&object));
    let listing = String::from_utf8(listing.stdout).unwrap();
    let theirs: Vec<_> = listing.lines().filter_map(their_instruction).collect();
    assert_eq!(theirs.len(), words.len());
    for ((address, theirs), &word) in theirs.iter().zip(&words) {
        let row = decode(word).unwrap().instruction();
        // Names of registers differ: many numbers have another meaning elsewhere.
        if !row.operands().contains(&et_isa::operand::CSR) {
            assert_eq!(numbers(&ours(word, *address)), numbers(theirs), "{word:#x}");
        }
    }
}

/// Mnemonic and operands of a line `address: word  mnemonic operands # comment`, in our style.
fn their_instruction(line: &str) -> Option<(u64, String)> {
    let mut columns = line.split('\t');
    let address = columns.next()?.trim().strip_suffix(':')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    columns.next()?;
    let mnemonic = columns.next()?.trim();
    let operands = columns.next().unwrap_or_default();
    let operands = operands.split(['<', '#']).next()?.trim();
    Some((address, format!("{mnemonic} {operands}").trim().to_owned()))
}

/// Our text in the style of objdump.
fn ours(word: u32, address: u64) -> String {
    let decoded = decode(word).unwrap();
    let text = decoded.text().at(address).to_string();
    let Some((mnemonic, operands)) = text.split_once(' ') else { return text };
    let mut operands: Vec<_> = operands.split(", ").map(str::to_owned).collect();
    for (text, operand) in operands.iter_mut().zip(decoded.instruction().operands()) {
        if operand.class() == Class::Target {
            *text = text.trim_start_matches("0x").to_owned();
        }
    }
    // A rounding mode in a register is not mentioned.
    if operands.last().is_some_and(|last| last == "dyn") {
        operands.pop();
    }
    format!("{mnemonic} {}", operands.join(","))
}

/// The text with numbers in decimal.
fn numbers(text: &str) -> String {
    let decimal = |part: &str| match et_isa::operand::number(part) {
        Some(number) => number.to_string(),
        None => part.to_owned(),
    };
    text.split_inclusive([' ', ',', '('])
        .map(|part| {
            let end = part.trim_end_matches([' ', ',', '(']).len();
            decimal(&part[..end]) + &part[end..]
        })
        .collect()
}
