//! Every layout and every message against the vectors taken from the vendor's definitions, in both
//! directions.
//!
//! A vector that no table here knows is a failure, and so is a table entry without a vector.
//!
//! Spec: §20

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "golden/abi.rs"]
mod abi;
#[path = "golden/codes.rs"]
mod codes;
#[path = "golden/dir.rs"]
mod dir;
#[path = "golden/layout.rs"]
mod layout;
#[path = "golden/mgmt.rs"]
mod mgmt;
#[path = "golden/mgmt_codes.rs"]
mod mgmt_codes;
#[path = "golden/ops.rs"]
mod ops;
#[path = "golden/ring.rs"]
mod ring;
