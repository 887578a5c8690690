//! Names of devices.

use std::fmt;
use std::str::FromStr;

/// The name of a device: a backend, and what the backend needs to find or make it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Locator {
    /// `sim:` or `sim:key=value,…`: a simulated card.
    #[cfg(feature = "sim")]
    Sim(et_hal_sim::SimConfig),
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocatorError {
    /// The text has no backend.
    #[error("\"{0}\" names no backend; write for example \"sim:\"")]
    NoBackend(String),
    /// There is no such backend, or it is not compiled in.
    #[error("no backend \"{0}\" in this program")]
    UnknownBackend(String),
    /// The parameters of the simulator are wrong.
    #[cfg(feature = "sim")]
    #[error("bad parameters for the simulator")]
    Sim(#[source] et_hal_sim::SimConfigError),
}

impl FromStr for Locator {
    type Err = LocatorError;

    fn from_str(text: &str) -> Result<Self, LocatorError> {
        let (backend, parameters) =
            text.split_once(':').ok_or_else(|| LocatorError::NoBackend(text.to_owned()))?;
        match backend {
            #[cfg(feature = "sim")]
            "sim" => parameters.parse().map(Self::Sim).map_err(LocatorError::Sim),
            _ => {
                let _ = parameters;
                Err(LocatorError::UnknownBackend(backend.to_owned()))
            }
        }
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            #[cfg(feature = "sim")]
            Self::Sim(ref config) => write!(f, "sim:{config}"),
        }
    }
}
