//! The checks of the preflight.

mod card;
mod driver;
mod environment;
mod iommu;
mod memory;
mod nodes;

pub(crate) use driver::NO_IOMMU;

use crate::preflight::chain;
use crate::{Bdf, Check, Error, Finding, Function, Group, Host, Mode, Needs};

/// What all checks look at.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) host: &'a Host,
    pub(crate) bdf: Bdf,
    pub(crate) needs: &'a Needs,
    pub(crate) function: Option<Function>,
    pub(crate) group: Option<Group>,
    pub(crate) mode: Option<Mode>,
}

impl Context<'_> {
    /// Makes one check; what cannot be read is skipped with the reason.
    pub(crate) fn check(&self, check: Check) -> Finding {
        let Some(function) = &self.function else {
            return Finding::skipped(check, "the card could not be described");
        };
        let finding = match check {
            Check::Card => Ok(self.card(function)),
            Check::Power => Ok(self.power(function)),
            Check::Bars => Ok(self.bars(function)),
            Check::VirtualFunctions => Ok(self.virtual_functions(function)),
            Check::Reset => Ok(self.reset(function)),
            Check::Iommu => self.iommu(),
            Check::Group => Ok(self.viable()),
            Check::Interrupts => self.interrupts(),
            Check::Module => self.module(),
            Check::Lockdown => self.lockdown(),
            Check::Sysfs => self.sysfs(function),
            Check::Driver => Ok(self.driver(function)),
            Check::Mode => Ok(self.mode(function)),
            Check::Permission => self.permission(),
            Check::Holder => self.holder(function),
            Check::Memlock => Ok(self.memlock()),
            Check::HugePages => self.huge_pages(function),
        };
        finding.unwrap_or_else(|error| Finding::skipped(check, chain(&error)))
    }

    /// Makes one of the checks that need no card, without any.
    pub(crate) fn of_host(&self, check: Check) -> Finding {
        let finding = match check {
            Check::Card => self.no_cards(),
            Check::Iommu => self.iommu_of_host(),
            Check::Module => self.module(),
            Check::Lockdown => self.lockdown(),
            Check::Memlock => Ok(self.memlock()),
            _ => return Finding::skipped(check, "there is no card"),
        };
        finding.unwrap_or_else(|error| Finding::skipped(check, chain(&error)))
    }

    /// Makes the checks that need no function, after it or its group could not be described.
    pub(crate) fn without(&self, check: Check, failure: &Error) -> Finding {
        let finding = match check {
            Check::Card => return self.no_card(failure),
            Check::Module => self.module(),
            Check::Lockdown => self.lockdown(),
            Check::Memlock => Ok(self.memlock()),
            _ => return Finding::skipped(check, "the card could not be described"),
        };
        finding.unwrap_or_else(|error| Finding::skipped(check, chain(&error)))
    }
}

/// Bytes in the largest unit that divides them.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit =
        units.iter().find(|(_, shift)| bytes >= 1 << shift && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(name, shift)| format!("{} {name}", bytes >> shift),
    )
}
