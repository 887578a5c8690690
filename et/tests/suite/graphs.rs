//! The kernels of the runtime. What graphs must do on every device is in the conformance kit.

/// The copies in `et-runtime` are those that the sources give.
#[test]
fn the_runtime_has_the_kernels_of_this_tree() {
    let root = env!("CARGO_MANIFEST_DIR");
    let ours = std::fs::read(format!("{root}/../et-runtime/src/executor/graph.elf")).unwrap();
    let built = std::fs::read(format!("{root}/../testing/kernels/elf/graph.elf")).unwrap();
    assert!(ours == built, "copy testing/kernels/elf/graph.elf to et-runtime/src/executor");
    let ours = std::fs::read(format!("{root}/../et-runtime/src/kernel/builtins.elf")).unwrap();
    let built = std::fs::read(format!("{root}/../testing/kernels/elf/builtins.elf")).unwrap();
    assert!(ours == built, "copy testing/kernels/elf/builtins.elf to et-runtime/src/kernel");
}
