//! Why a layer could not run.

/// What stands in the way of a layer.
#[derive(Clone, Debug)]
pub(crate) enum Hindrance {
    /// The machine lacks something: the layer is skipped.
    Absent(String),
    /// Something that was there did not do its work: the layer has failed.
    Broken(String),
}

impl Hindrance {
    /// What to say of a step that needs the network, a package or a program.
    pub(crate) fn absent(error: &anyhow::Error) -> Self {
        Self::Absent(format!("{error:#}"))
    }
}

impl<E: Into<anyhow::Error>> From<E> for Hindrance {
    fn from(error: E) -> Self {
        Self::Broken(format!("{:#}", error.into()))
    }
}
