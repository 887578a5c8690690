//! Names of devices.

use std::fmt;
use std::str::FromStr;

/// The name of a device: a backend, and what the backend needs to find or make it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Locator {
    /// `sim:` or `sim:key=value,…`: a simulated card.
    #[cfg(feature = "sim")]
    Sim(et_hal_sim::BoardConfig),
    /// `vfio:0000:01:00.0` or `vfio:0000:01:00.0,key=value,…`: a card, by the kernel's VFIO.
    #[cfg(feature = "vfio")]
    Vfio(et_hal_vfio::VfioAddress),
    /// `vfio-user:/path/to/socket` or `vfio-user:/path/to/socket,key=value,…`: a card that another
    /// process simulates.
    #[cfg(feature = "vfio")]
    VfioUser(et_hal_vfio::UserAddress),
    /// `process:1234` or `process:1234/1`: a device that a process has open, the first or a certain
    /// one. It can be looked at: [`open_management`](crate::open_management) takes this name, and
    /// [`open`](crate::open) does not.
    #[cfg(feature = "share")]
    Process {
        /// Number of the process.
        pid: u32,
        /// Which of its devices, by the order in which it opened them; the first that is still
        /// there if not given.
        index: Option<u32>,
    },
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocatorError {
    /// The text has no backend.
    #[error("\"{0}\" names no backend; write for example \"sim:\"")]
    NoBackend(String),
    /// There is no such backend, or it is not compiled in.
    #[error("no backend \"{0}\" in this program{more}", more = backends())]
    UnknownBackend(String),
    /// The parameters of the simulator are wrong.
    #[cfg(feature = "sim")]
    #[error("bad parameters for the simulator")]
    Sim(#[source] et_hal_sim::ConfigError),
    /// The address of the card is wrong.
    #[cfg(feature = "vfio")]
    #[error("bad address of a card")]
    Vfio(#[source] et_hal_vfio::AddressError),
    /// The address of a simulated card is wrong.
    #[cfg(feature = "vfio")]
    #[error("bad address of a simulated card, as in vfio-user:/run/et.sock")]
    VfioUser(#[source] et_hal_vfio::AddressError),
    /// Number of a process, or which of its devices, is wrong.
    #[cfg(feature = "share")]
    #[error("\"{0}\" names no device of a process; write for example \"process:1234\"")]
    Process(String),
}

/// Which ones there are, and where the others come from.
fn backends() -> String {
    let known = [
        ("sim", "sim", cfg!(feature = "sim")),
        ("vfio", "vfio", cfg!(feature = "vfio")),
        ("vfio-user", "vfio", cfg!(feature = "vfio")),
        ("process", "share", cfg!(feature = "share")),
    ];
    let names = |wanted: bool| {
        let names = known.iter().filter(move |(.., is_in)| *is_in == wanted);
        names.map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")
    };
    let mut text = match names(true) {
        names if names.is_empty() => ", which has none".to_owned(),
        names => format!(", which has {names}"),
    };
    for (name, feature, _) in known.iter().filter(|(.., is_in)| !is_in) {
        text += &format!("; {name} comes with the feature \"{feature}\" of the crate et");
    }
    text
}

impl FromStr for Locator {
    type Err = LocatorError;

    fn from_str(text: &str) -> Result<Self, LocatorError> {
        let (backend, parameters) =
            text.split_once(':').ok_or_else(|| LocatorError::NoBackend(text.to_owned()))?;
        match backend {
            #[cfg(feature = "sim")]
            "sim" => parameters.parse().map(Self::Sim).map_err(LocatorError::Sim),
            #[cfg(feature = "vfio")]
            "vfio" => parameters.parse().map(Self::Vfio).map_err(LocatorError::Vfio),
            #[cfg(feature = "vfio")]
            "vfio-user" => parameters.parse().map(Self::VfioUser).map_err(LocatorError::VfioUser),
            #[cfg(feature = "share")]
            "process" => {
                let (pid, index) = match parameters.split_once('/') {
                    Some((pid, index)) => (pid, index.parse().map(Some)),
                    None => (parameters, Ok(None)),
                };
                match (pid.parse(), index) {
                    (Ok(pid), Ok(index)) => Ok(Self::Process { pid, index }),
                    _ => Err(LocatorError::Process(parameters.to_owned())),
                }
            }
            _ => {
                let _ = parameters;
                Err(LocatorError::UnknownBackend(backend.to_owned()))
            }
        }
    }
}

impl fmt::Display for Locator {
    #[cfg_attr(
        not(any(feature = "share", feature = "sim", feature = "vfio")),
        expect(unused_variables, reason = "without backends there are no names")
    )]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            #[cfg(feature = "sim")]
            Self::Sim(ref config) => write!(f, "sim:{config}"),
            #[cfg(feature = "vfio")]
            Self::Vfio(ref address) => write!(f, "vfio:{address}"),
            #[cfg(feature = "vfio")]
            Self::VfioUser(ref address) => write!(f, "vfio-user:{address}"),
            #[cfg(feature = "share")]
            Self::Process { pid, index: Some(index) } => write!(f, "process:{pid}/{index}"),
            #[cfg(feature = "share")]
            Self::Process { pid, index: None } => write!(f, "process:{pid}"),
        }
    }
}
