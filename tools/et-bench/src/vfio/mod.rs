//! `cargo xtask bench vfio`: a card in another process, over vfio-user, beside what the machine
//! itself needs for the same.
//!
//! Value and floor alternate, run by run, so that what else the machine does meets both.

mod calls;
mod commands;
mod copies;
mod mappings;
mod peer;
mod processor;
mod registers;
mod trips;

use std::time::Duration;

use crate::figure::{Figure, Group, Take, measure, median};

pub(crate) use peer::{Role, play};

/// Limit of everything that another process is waited for.
const LIMIT: Duration = Duration::from_secs(20);

const GROUPS: [Group; 5] = [
    ("vfio_trip", trips::figures),
    ("vfio_write", registers::figures),
    ("vfio_copy", copies::figures),
    ("vfio_map", mappings::figures),
    ("vfio_submit", calls::figures),
];

/// Makes the figures; with `only`, those of groups whose names fit.
pub(crate) fn figures(only: Option<&str>, mut take: impl FnMut(Figure)) -> anyhow::Result<()> {
    measure(&GROUPS, only, &mut take)
}

/// Says why a figure is not there.
fn skip(name: &str, because: &str) {
    println!("{name:<26} skipped, because {because}");
}
