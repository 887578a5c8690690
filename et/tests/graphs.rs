//! The graph kernel of the runtime. What graphs must do on every device is in the conformance kit.

/// The copy in `et-runtime` is the one that the sources give.
#[test]
fn the_runtime_has_the_kernel_of_this_tree() {
    let root = env!("CARGO_MANIFEST_DIR");
    let ours = std::fs::read(format!("{root}/../et-runtime/src/executor/graph.elf")).unwrap();
    let built = std::fs::read(format!("{root}/../testing/kernels/elf/graph.elf")).unwrap();
    assert!(ours == built, "copy testing/kernels/elf/graph.elf to et-runtime/src/executor");
}
