//! Compiling kernels; what is kept, and what the messages mean, is in `et._compile`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use et_cc::{Compiler, Library, Options};
use pyo3::prelude::*;

use crate::error;
use crate::wait;

fn find(files: PathBuf, libc: Option<&str>) -> PyResult<Compiler> {
    let library = match libc {
        None => Library::None,
        Some("picolibc") => Library::Picolibc,
        Some(other) => {
            return Err(error::raise("ArgumentError", format!("no C library {other:?}")));
        }
    };
    let prefix = std::env::var("CROSS_COMPILE").ok();
    let options = Options { clang: None, prefix: prefix.as_deref(), files: Some(&files), library };
    Compiler::find(&options).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    error::raise("CompileError", format!("{error:#}"))
}

/// The name of the compiler.
#[pyfunction]
pub(crate) fn compiler(py: Python<'_>, files: PathBuf) -> PyResult<PathBuf> {
    py.detach(|| Ok(find(files, None)?.program().to_owned()))
}

/// Calls the compiler; returns whether it succeeded, and what it said.
#[pyfunction]
pub(crate) fn run_compiler(
    py: Python<'_>,
    files: PathBuf,
    libc: Option<String>,
    args: Vec<OsString>,
) -> PyResult<(bool, String)> {
    let mut call = py.detach(|| find(files, libc.as_deref())?.call(&args).map_err(failed))?;
    let command = call.command();
    // Messages are read by a program, whatever the language and the terminal.
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let (done, output) = std::sync::mpsc::channel();
    // Ctrl-C goes to the compiler as well, so that it ends.
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let output = wait::wait(py, None, move |slice| output.recv_timeout(slice).ok())?;
    let Some(output) = output else { return Ok((false, String::new())) };
    let output = output?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}
