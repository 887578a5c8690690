//! Names the shared library, so that programs find the version they were built for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libet.so.0");
}
