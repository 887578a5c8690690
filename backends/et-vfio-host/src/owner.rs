//! Whom a node is to belong to.

use crate::{Error, Host};

/// A user and a group, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group; `None` leaves it.
    pub gid: Option<u32>,
}

impl Host {
    /// Looks up `USER[:GROUP]`, names or numbers, in the files of the host.
    ///
    /// # Errors
    /// [`Error::UnknownName`]; [`Error::Read`] for the files.
    pub fn owner(&self, text: &str) -> Result<Owner, Error> {
        let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
        Ok(Owner {
            uid: self.lookup("user", user, "/etc/passwd")?,
            gid: group.map(|group| self.lookup("group", group, "/etc/group")).transpose()?,
        })
    }

    /// Returns how tables of limits name a user: by name, or as a range of numbers.
    pub(crate) fn limits_name(&self, uid: u32) -> String {
        let table = self.text("/etc/passwd").ok().flatten().unwrap_or_default();
        let mut rows = table.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let number = uid.to_string();
        let row = rows.find(|row| row.get(2) == Some(&number.as_str()));
        let name = row.and_then(|row| row.first().copied());
        name.map_or_else(|| format!("{uid}:{uid}"), str::to_owned)
    }

    /// Both files have the name in the first field and the number in the third.
    fn lookup(&self, kind: &'static str, name: &str, file: &str) -> Result<u32, Error> {
        let unknown = || Error::UnknownName { kind, name: name.to_owned(), file: file.into() };
        if let Ok(number) = name.parse() {
            return Ok(number);
        }
        let table = self.text(file)?.unwrap_or_default();
        let mut rows = table.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let row = rows.find(|row| !name.is_empty() && row.first() == Some(&name));
        row.and_then(|row| row.get(2)?.parse().ok()).ok_or_else(unknown)
    }
}
