//! The kernels that cases launch; they are part of the program, so that it runs where nothing else
//! is.

use crate::Failure;

macro_rules! embedded {
    ($($name:literal)+) => {
        /// Name and ELF file of each.
        const KERNELS: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../../kernels/elf/", $name, ".elf")))),+];
    };
}

embedded! {
    "add" "add_scalar" "atomics" "barrier" "bss" "crc32" "echo_env" "entries" "hang" "loads" "matmul" "memset"
    "mul" "negative_return" "reduce" "saxpy" "saxpy_fused" "self_abort" "spin_fp" "spin_int"
    "spin_packed" "stack_probe" "task_fail" "task_hang" "task_nop" "task_part" "task_trap" "trace" "trap_illegal" "trap_load"
}

/// Returns the ELF file of that name.
pub(crate) fn elf(name: &str) -> Result<&'static [u8], Failure> {
    let found = KERNELS.iter().find(|(known, _)| *known == name);
    found.map(|(_, elf)| *elf).ok_or_else(|| Failure::new(format!("no kernel {name} is built in")))
}
