//! What the two sides tell each other about themselves in the version message.

use serde_json::{Map, Value, json};

/// What one side can take; each side states its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Descriptors in one message.
    pub max_msg_fds: usize,
    /// Bytes of data in one read or write message.
    pub max_data_xfer_size: usize,
    /// DMA windows at a time.
    pub max_dma_maps: usize,
    /// Page sizes of DMA windows in bytes, or-ed together.
    pub pgsizes: u64,
    /// Takes `REGION_WRITE_MULTI`.
    pub write_multiple: bool,
}

impl Limits {
    /// What this crate takes. QEMU refuses servers that take more than 16 descriptors.
    pub const OURS: Self = Self {
        max_msg_fds: 16,
        max_data_xfer_size: 1 << 20,
        max_dma_maps: 65535,
        pgsizes: 4096,
        write_multiple: true,
    };
}

impl Default for Limits {
    /// What holds for a side that says nothing.
    fn default() -> Self {
        Self {
            max_msg_fds: 1,
            max_data_xfer_size: 1 << 20,
            max_dma_maps: 65535,
            pgsizes: 4096,
            write_multiple: false,
        }
    }
}

/// The other side's limits, and the names it used.
#[derive(Debug, PartialEq)]
pub(crate) struct Stated {
    pub(crate) limits: Limits,
    names: Vec<String>,
}

impl Stated {
    /// Reads the text after the version numbers.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut stated = Self { limits: Limits::default(), names: Vec::new() };
        if text.is_empty() {
            return Ok(stated);
        }
        let Some((0, json)) = text.split_last() else {
            return Err("capabilities do not end with a NUL".into());
        };
        let value: Value =
            serde_json::from_slice(json).map_err(|error| format!("capabilities: {error}"))?;
        let Value::Object(all) = value else {
            return Err("capabilities are not a JSON object".into());
        };
        let given = match all.get("capabilities") {
            None => return Ok(stated),
            Some(Value::Object(given)) => given,
            Some(_) => return Err("\"capabilities\" is not an object".into()),
        };
        let limits = &mut stated.limits;
        number(given, "max_msg_fds", 0, &mut limits.max_msg_fds)?;
        number(given, "max_data_xfer_size", 1, &mut limits.max_data_xfer_size)?;
        number(given, "max_dma_maps", 1, &mut limits.max_dma_maps)?;
        number(given, "pgsizes", 1, &mut limits.pgsizes)?;
        match given.get("write_multiple") {
            None => {}
            Some(Value::Bool(is)) => limits.write_multiple = *is,
            Some(_) => return Err("\"write_multiple\" is not a boolean".into()),
        }
        stated.names = given.keys().cloned().collect();
        Ok(stated)
    }

    /// Our answer to this proposal: only what was proposed may be in it.
    ///
    /// It is therefore never longer than the proposal of a client that says all, which is what
    /// QEMU's receive buffer is sized for.
    pub(crate) fn answer(&self) -> Vec<u8> {
        encode(&Limits::OURS, |name| match name {
            "write_multiple" => self.limits.write_multiple,
            name => self.names.iter().any(|known| known == name),
        })
    }
}

/// Our proposal, with the NUL at its end.
pub(crate) fn proposal() -> Vec<u8> {
    encode(&Limits::OURS, |_| true)
}

fn encode(limits: &Limits, wanted: impl Fn(&str) -> bool) -> Vec<u8> {
    let all = [
        ("max_msg_fds", json!(limits.max_msg_fds)),
        ("max_data_xfer_size", json!(limits.max_data_xfer_size)),
        ("max_dma_maps", json!(limits.max_dma_maps)),
        ("pgsizes", json!(limits.pgsizes)),
        ("write_multiple", json!(limits.write_multiple)),
    ];
    let given: Map<String, Value> = all
        .into_iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let mut text = json!({ "capabilities": given }).to_string().into_bytes();
    text.push(0);
    text
}

fn number<T: TryFrom<u64>>(
    given: &Map<String, Value>,
    name: &str,
    least: u64,
    into: &mut T,
) -> Result<(), String> {
    let Some(value) = given.get(name) else { return Ok(()) };
    *into = value
        .as_u64()
        .filter(|number| *number >= least)
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("\"{name}\" is {value}, not a number from {least} on"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Limits, Stated, proposal};

    /// As QEMU 11 writes it, in its order of keys.
    const QEMU: &[u8] = b"{\"capabilities\": {\"migration\": {\"max_bitmap_size\": 268435456, \
        \"pgsize\": 4096}, \"pgsizes\": 4096, \"max_msg_fds\": 16, \"max_data_xfer_size\": 1048576, \
        \"write_multiple\": true, \"max_dma_maps\": 65535}}\0";

    #[test]
    fn qemu_is_understood_and_gets_a_shorter_answer() {
        let stated = Stated::parse(QEMU).unwrap();
        assert_eq!(stated.limits, Limits::OURS);
        let answer = stated.answer();
        assert!(answer.len() <= QEMU.len());
        assert_eq!(Stated::parse(&answer).unwrap().limits, Limits::OURS);
        assert!(!answer.windows(9).any(|w| w == b"migration"));
    }

    #[test]
    fn silence_means_the_defaults_and_gets_none_of_ours() {
        for text in [&b""[..], b"{}\0", b"{\"capabilities\":{}}\0"] {
            let stated = Stated::parse(text).unwrap();
            assert_eq!(stated.limits, Limits::default());
            assert_eq!(stated.answer(), b"{\"capabilities\":{}}\0");
        }
    }

    #[test]
    fn own_proposal_states_own_limits() {
        assert_eq!(Stated::parse(&proposal()).unwrap().limits, Limits::OURS);
    }

    #[test]
    fn wrong_texts_are_refused_by_name() {
        for (text, said) in [
            (&b"{}"[..], "NUL"),
            (b"\0", "capabilities: "),
            (b"[]\0", "not a JSON object"),
            (b"{\"capabilities\":3}\0", "not an object"),
            (b"{\"capabilities\":{\"max_msg_fds\":-1}}\0", "max_msg_fds"),
            (b"{\"capabilities\":{\"max_data_xfer_size\":0}}\0", "max_data_xfer_size"),
            (b"{\"capabilities\":{\"pgsizes\":\"4k\"}}\0", "pgsizes"),
            (b"{\"capabilities\":{\"write_multiple\":1}}\0", "write_multiple"),
            (b"\xff\xfe\0", "capabilities: "),
        ] {
            let error = Stated::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let deep = [vec![b'['; 100_000], vec![0]].concat();
        Stated::parse(&deep).unwrap_err();
    }
}
