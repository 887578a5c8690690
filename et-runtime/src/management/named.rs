//! Queries by the name of their command, for programs that print or record whatever there is.

use std::fmt;

use et_devapi::msg::mgmt::calls::{COMMANDS, CommandInfo};
use et_devapi::msg::mgmt::{
    AsicVoltages, ByteArg, CacheSizes, DefaultRsp, ErrorCounts, FirmwareVersions, Frequencies,
    MinionErrors, MmStats, ModuleVoltages, Power, PublicKeys, Quad, ReadWrite, Residency, SpStats,
    Temperatures, Text, Uptime, WordArg,
};
use et_hal::Hal;
use zerocopy::little_endian::{I16, I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::query::text;
use super::stats::{of_master_minion, of_service_processor};
use super::{Management, Statistic};
use crate::{Error, Refusal, Result};

const OP: &str = "query by name";

/// A field of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// What the interface calls it, as `minion_shire_mhz`; of statistics with `_average`, `_least`
    /// or `_greatest` behind it.
    pub name: String,
    /// What it says.
    pub value: FieldValue,
}

/// The value of a [`Field`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValue {
    /// A number, in the unit of the interface. Spec: §17.3
    Number(i128),
    /// A text.
    Text(String),
    /// Bytes that the interface does not describe.
    Bytes(Vec<u8>),
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl<H: Hal> Management<H> {
    /// Returns the commands that [`query`](Self::query) takes: those that only ask.
    pub fn queries() -> impl Iterator<Item = &'static CommandInfo> {
        COMMANDS.iter().filter(|command| command.is_query())
    }

    /// Executes a command that only asks, by its name, in small or capital letters and with or
    /// without `GET_`. `argument` is what is asked for: the state of a residency, for others 0.
    ///
    /// # Errors
    /// See [`Management`]; [`Error::Unsupported`] for a name that is none of
    /// [`queries`](Self::queries).
    ///
    /// Spec: §17.2, §17.3
    pub fn query(&self, name: &str, argument: u64) -> Result<Vec<Field>> {
        let why = "no command that only asks has this name";
        let command = Self::queries()
            .find(|command| is_name(command.name, name))
            .ok_or(Error::Unsupported { op: OP, why })?;
        let answer = self.forward(command.id, &argument.to_le_bytes(), OP)?;
        if answer.status != 0 {
            return Err(Error::Refused { op: OP, status: Refusal::Management(answer.status) });
        }
        fields(command.id, &answer.payload)
    }
}

/// Compares names as [`Management::query`] does.
fn is_name(command: &str, name: &str) -> bool {
    let name = name.replace('-', "_");
    let short = command.strip_prefix("GET_").unwrap_or(command);
    command.eq_ignore_ascii_case(&name) || short.eq_ignore_ascii_case(&name)
}

trait Number {
    fn number(&self) -> i128;
}

macro_rules! numbers {
    ($($type:ty)*) => {
        $(impl Number for $type {
            fn number(&self) -> i128 {
                self.get().into()
            }
        })*
    };
}

numbers! { U16 U32 U64 I16 I32 }

impl Number for u8 {
    fn number(&self) -> i128 {
        (*self).into()
    }
}

fn number(name: &str, value: &impl Number) -> Field {
    Field { name: name.to_owned(), value: FieldValue::Number(value.number()) }
}

fn read<T: FromBytes + KnownLayout + Immutable + Unaligned>(payload: &[u8]) -> Result<&T> {
    T::ref_from_prefix(payload).map(|(value, _)| value).map_err(|_| {
        let (len, needed) = (payload.len(), size_of::<T>());
        let why = format!("an answer of {len} bytes, {needed} are needed").into();
        Error::Malformed { op: OP, why }
    })
}

fn statistics(list: Vec<Statistic>) -> Vec<Field> {
    let fields = list.into_iter().flat_map(|of| {
        [("average", of.average), ("least", of.least), ("greatest", of.greatest)]
            .map(|(what, value)| number(&format!("{}_{what}", of.name), &U64::new(value)))
    });
    fields.collect()
}

/// Reads an answer as its command's, field by field. Padding is left out.
fn fields(id: u16, payload: &[u8]) -> Result<Vec<Field>> {
    macro_rules! of {
        ($type:ident: $($field:ident)*) => {{
            let answer: &$type = read(payload)?;
            vec![$(number(stringify!($field), &answer.$field)),*]
        }};
    }
    let one = |name: &str, value| vec![Field { name: name.to_owned(), value }];
    Ok(match id {
        0..=11 => one("text", FieldValue::Text(text(&read::<Text>(payload)?.asset))),
        13 => one("keys", FieldValue::Bytes(read::<PublicKeys>(payload)?.keys.to_vec())),
        14 => of!(FirmwareVersions: bl1_v bl2_v mm_v wm_v machm_v fw_release_rev pmic_v),
        16 => of!(DefaultRsp: payload),
        21 | 23 | 25 | 38 => of!(ByteArg: value),
        27 => of!(Temperatures: ioshire_current ioshire_low ioshire_high minshire_avg minshire_low
            minshire_high pmic_sys),
        29 | 34 => of!(Residency: cumulative average maximum minimum),
        30 => of!(Uptime: day hours mins),
        31 => of!(ModuleVoltages: ddr l2_cache maxion minion pcie noc pcie_logic vddqlp vddq),
        32 => of!(AsicVoltages: ddr l2_cache maxion minion pshire_0p75 noc ioshire_0p75 vddqlp
            vddq),
        33 => of!(Power: power),
        39 | 46 | 54 => of!(ReadWrite: read write),
        40 | 55 => of!(WordArg: value),
        45 | 47 | 48 => of!(ErrorCounts: ecc uecc),
        53 => of!(Frequencies: minion_shire_mhz noc_mhz mem_shire_mhz ddr_mhz pcie_shire_mhz
            io_shire_mhz),
        56..=59 => of!(Quad: value),
        60 => statistics(of_service_processor(read::<SpStats>(payload)?)),
        61 => statistics(of_master_minion(read::<MmStats>(payload)?)),
        63 => of!(MinionErrors: hang_count exception_count),
        69 => of!(CacheSizes: scp_size l2_size l3_size),
        71 | 73 => one("data", FieldValue::Bytes(read::<Text>(payload)?.asset.to_vec())),
        _ => one("raw", FieldValue::Bytes(payload.to_vec())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_fields_and_refuses_what_is_too_short() {
        for command in COMMANDS.iter().filter(|command| command.is_query()) {
            let len = command.response_bytes.unwrap() - 24;
            let found = fields(command.id, &vec![1; len]).unwrap();
            assert!(!found.is_empty() && found[0].name != "raw", "{}", command.name);
            assert!(fields(command.id, &[]).is_err(), "{}", command.name);
        }
        assert_eq!(fields(255, &[7]).unwrap()[0].value.to_string(), "07");
    }

    #[test]
    fn names_are_those_of_the_commands() {
        for name in ["GET_MODULE_POWER", "module-power", "Get-Module_Power"] {
            assert!(is_name("GET_MODULE_POWER", name), "{name}");
        }
        for name in ["GET_MODULE_POWER_STATE", "power", "", "GET_"] {
            assert!(!is_name("GET_MODULE_POWER", name), "{name}");
        }
    }
}
