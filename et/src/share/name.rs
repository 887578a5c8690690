//! Names of the sockets: abstract ones, which have no file, belong to one process at a time and go
//! with it.

use std::fs;

use rustix::net::SocketAddrUnix;

use super::{ShareError, Shared};

const PREFIX: &str = "et-soc1/";
/// Bytes of a name at most, the 0 before it not counted.
const LIMIT: usize = 107;

pub(super) fn of(shared: &Shared) -> Result<SocketAddrUnix, ShareError> {
    SocketAddrUnix::new_abstract_name(text(shared).as_bytes())
        .map_err(ShareError::os("name a socket"))
}

/// The locator is there for those who look at the list of sockets; what counts is in the greeting.
fn text(Shared { pid, index, locator }: &Shared) -> String {
    let mut name = format!("{PREFIX}{pid}/{index}/");
    for c in locator.chars().take_while(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > LIMIT {
            break;
        }
        name.push(c);
    }
    name
}

/// What is shared now, by process and index.
pub(super) fn all() -> Vec<Shared> {
    let mut found: Vec<Shared> = fs::read_to_string("/proc/net/unix")
        .unwrap_or_default()
        .lines()
        .filter_map(parse)
        .collect();
    found.sort_by_key(|shared| (shared.pid, shared.index));
    found
}

/// Reads a line of the kernel's list: seven columns, and the name with `@` for its first byte.
fn parse(line: &str) -> Option<Shared> {
    /// `__SO_ACCEPTCON`: it listens. Connections have the same name.
    const LISTENS: u32 = 0x10000;
    let flags = line.split_whitespace().nth(3)?;
    if u32::from_str_radix(flags, 16).ok()? & LISTENS == 0 {
        return None;
    }
    let (_, name) = line.split_once(" @")?;
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '/');
    let pid = parts.next()?.parse().ok()?;
    let index = parts.next()?.parse().ok()?;
    Some(Shared { pid, index, locator: parts.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_name_what_is_shared() {
        let row = |flags: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0005 01 34567 {name}")
        };
        let shared = |locator: &str| Shared { pid: 12, index: 3, locator: locator.into() };
        let name = "@et-soc1/12/3/vfio-user:/run/a b @c.sock";
        assert_eq!(parse(&row("00010000", name)), Some(shared("vfio-user:/run/a b @c.sock")));
        assert_eq!(parse(&row("00000000", name)), None);
        for other in ["@et-soc1/12/3", "@et-soc1/x/3/sim:", "@other/12/3/sim:", "/run/et-soc1", ""]
        {
            assert_eq!(parse(&row("00010000", other)), None, "{other}");
        }
        assert_eq!(parse("Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }

    #[test]
    fn names_are_cut_between_characters() {
        let locator = "vfio-user:/ü".to_owned() + &"ü".repeat(80);
        let name = text(&Shared { pid: 1, index: 0, locator });
        assert!(name.len() > LIMIT - 2 && name.len() <= LIMIT, "{name}");
        assert!(name.starts_with("et-soc1/1/0/vfio-user:/ü"));
        assert!(of(&Shared { pid: 1, index: 0, locator: name }).is_ok());
    }
}
