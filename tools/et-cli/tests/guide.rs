//! The kernel with which the book begins, built and run as it says.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests fail like tests")]

mod arrays;

use std::fs;
use std::process::Command;

const CHAPTER: &str = include_str!("../../../docs/src/getting-started.md");
const SHOWN: &str = "$ cat kernel.c\n";

#[test]
fn the_first_kernel_of_the_book_does_what_it_says() {
    if Command::new("riscv64-unknown-elf-gcc").arg("--version").output().is_err() {
        eprintln!("skipped, because riscv64-unknown-elf-gcc is not installed");
        return;
    }
    let block = CHAPTER.split("```").find(|block| block.contains(SHOWN)).unwrap();
    let (_, shown) = block.split_once(SHOWN).unwrap();
    let (source, commands) = shown.split_once("$ ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kernel.c"), source).unwrap();
    let before: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let array = folder.path().join("x.npy");
    arrays::save(&array, &before);
    let mut count = 0;
    for command in commands.split("$ ") {
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some("et"), "{command}");
        let mut et = Command::new(env!("CARGO_BIN_EXE_et"));
        et.args(words).env("ET_DEVICE", "sim:shires=2,dram=1GiB").current_dir(folder.path());
        let output = et.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        count += 1;
    }
    assert_eq!(count, 2, "{commands}");
    let expected: Vec<f32> = before.iter().map(|x| 2.0 * x + 1.0).collect();
    let found = fs::read(array).unwrap();
    let found = npyz::NpyFile::new(&found[..]).unwrap();
    assert_eq!(found.into_vec::<f32>().unwrap(), expected);
}
