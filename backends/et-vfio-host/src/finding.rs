//! What a check says.

use std::fmt;

/// What is checked, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// The function exists and is an ET-SoC-1.
    Card,
    /// The function is powered.
    Power,
    /// BAR0 and BAR2 exist and have the sizes of the specification.
    Bars,
    /// No virtual functions are enabled.
    VirtualFunctions,
    /// The kernel can reset the function.
    Reset,
    /// The function is behind an IOMMU.
    Iommu,
    /// No other member of the IOMMU group is in the way.
    Group,
    /// Interrupts are remapped.
    Interrupts,
    /// `vfio-pci` is loaded.
    Module,
    /// Kernel lockdown is not in the way.
    Lockdown,
    /// Sysfs can be written where that is needed.
    Sysfs,
    /// A VFIO driver has the function.
    Driver,
    /// The nodes of VFIO exist.
    Mode,
    /// This process may open the nodes.
    Permission,
    /// No process has the nodes open.
    Holder,
    /// This process may pin the memory it plans to.
    Memlock,
    /// Huge pages are free where they are wanted.
    HugePages,
}

impl Check {
    /// All checks, in the order of the report.
    pub const ALL: [Self; 17] = [
        Self::Card,
        Self::Power,
        Self::Bars,
        Self::VirtualFunctions,
        Self::Reset,
        Self::Iommu,
        Self::Group,
        Self::Interrupts,
        Self::Module,
        Self::Lockdown,
        Self::Sysfs,
        Self::Driver,
        Self::Mode,
        Self::Permission,
        Self::Holder,
        Self::Memlock,
        Self::HugePages,
    ];

    /// Returns the name that machines and people read.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Power => "power",
            Self::Bars => "bars",
            Self::VirtualFunctions => "virtual-functions",
            Self::Reset => "reset",
            Self::Iommu => "iommu",
            Self::Group => "group",
            Self::Interrupts => "interrupts",
            Self::Module => "module",
            Self::Lockdown => "lockdown",
            Self::Sysfs => "sysfs",
            Self::Driver => "driver",
            Self::Mode => "mode",
            Self::Permission => "permission",
            Self::Holder => "holder",
            Self::Memlock => "memlock",
            Self::HugePages => "huge-pages",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The card can be used, with a loss that the evidence names.
    Warning,
    /// The card cannot be used.
    Problem,
    /// Not known, for this reason.
    Skipped(String),
}

impl Verdict {
    /// Returns the name that machines and people read.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
            Self::Skipped(_) => "skipped",
        }
    }
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was checked.
    pub check: Check,
    /// How it ended.
    pub verdict: Verdict,
    /// What was seen; empty when the check was skipped.
    pub evidence: String,
    /// Commands that help, to be run as root; where one does not suffice, the next may.
    pub remedy: Vec<String>,
}

impl Finding {
    pub(crate) fn ok(check: Check, evidence: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, evidence: evidence.into(), remedy: Vec::new() }
    }

    pub(crate) fn warning(check: Check, evidence: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, ..Self::ok(check, evidence) }
    }

    pub(crate) fn problem(check: Check, evidence: impl Into<String>) -> Self {
        Self { verdict: Verdict::Problem, ..Self::ok(check, evidence) }
    }

    pub(crate) fn skipped(check: Check, reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped(reason.into()), ..Self::ok(check, "") }
    }

    /// Adds a command.
    pub(crate) fn fix(mut self, command: impl Into<String>) -> Self {
        self.remedy.push(command.into());
        self
    }

    /// Returns the evidence, or the reason for none.
    #[must_use]
    pub fn detail(&self) -> &str {
        match &self.verdict {
            Verdict::Skipped(reason) => reason,
            _ => &self.evidence,
        }
    }
}

/// One line: check, verdict, evidence, and the commands.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.check, self.verdict.name(), self.detail())?;
        if !self.remedy.is_empty() {
            write!(f, " (try: {})", self.remedy.join("; "))?;
        }
        Ok(())
    }
}
