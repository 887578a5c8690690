//! Reading and writing.

/// How a task uses a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Looks at what earlier tasks left there.
    Read,
    /// Replaces it, without a look.
    Write,
    /// Reads and writes.
    Update,
}

impl Access {
    /// Returns `true` if it sees what was there.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }

    /// Returns `true` if it changes what was there.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// Returns `true` if who has this access may use it so.
    pub(crate) const fn permits(self, wanted: Self) -> bool {
        (self.reads() || !wanted.reads()) && (self.writes() || !wanted.writes())
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Update => "update",
        }
    }
}
