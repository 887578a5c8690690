//! Tests of the runtime from outside, in one program: each of its own would be built from the
//! whole runtime anew.

mod arrays;
mod closing;
mod completions;
mod elf;
mod executor;
mod flows;
mod host_threads;
mod management;
mod management_calls;
mod parts;
mod recovery;
mod refusals;
mod sp_trace;
mod stalls;
