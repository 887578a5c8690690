//! The `et-as` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    et_as::run(std::env::args_os().skip(1).collect())
}
