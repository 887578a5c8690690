//! The runtime over devices that no simulator gives, in one program: each of its own would be built
//! from the whole runtime anew.

mod contexts;
mod failures;
mod imports;
mod large;
mod link;
mod peers;
