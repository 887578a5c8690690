//! The guest's files: an archive that the kernel unpacks into memory.
//!
//! "newc" of cpio: a header of hexadecimal fields per file, then name and content, each filled up
//! to a multiple of four bytes.

use std::io::{self, Write};

/// Kind and permissions of a file, as `stat` has them.
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
/// What ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// An archive being written.
#[derive(Debug)]
pub(crate) struct Archive<W> {
    into: W,
    /// Number of the next file; files of the same number would be hard links.
    next: u32,
    /// The folders that exist; the kernel makes none by itself.
    folders: Vec<String>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(into: W) -> Self {
        Self { into, next: 1, folders: Vec::new() }
    }

    /// Adds a file that may be executed; `name` has no leading slash.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.folders_of(name)?;
        self.entry(name, PROGRAM, content)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.folders_of(name)?;
        self.entry(name, LINK, target.as_bytes())
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[])?;
        self.into.flush()?;
        Ok(self.into)
    }

    fn folders_of(&mut self, name: &str) -> io::Result<()> {
        for (at, _) in name.match_indices('/') {
            let folder = &name[..at];
            if !self.folders.iter().any(|known| known == folder) {
                self.entry(folder, FOLDER, &[])?;
                self.folders.push(folder.to_owned());
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::new(io::ErrorKind::FileTooLarge, name.to_owned());
        let size = u32::try_from(content.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        let links = if mode == FOLDER { 2 } else { 1 };
        let (user, group, time, device, checksum) = (0, 0, 0, 0, 0);
        let number = self.next;
        self.next += 1;
        self.into.write_all(b"070701")?;
        for field in [
            number, mode, user, group, links, time, size, device, device, device, device,
            name_size, checksum,
        ] {
            write!(self.into, "{field:08X}")?;
        }
        self.into.write_all(name.as_bytes())?;
        self.into.write_all(&[0])?;
        // The magic number and thirteen fields are 110 bytes.
        self.fill(110 + name.len() + 1)?;
        self.into.write_all(content)?;
        self.fill(content.len())
    }

    fn fill(&mut self, written: usize) -> io::Result<()> {
        self.into.write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    /// Reads an archive back: name, mode and content of each entry.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * index..14 + 8 * index]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let content = (110 + name_size).next_multiple_of(4);
            assert_eq!(bytes[110 + name_size - 1], 0);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            if name == "TRAILER!!!" {
                assert_eq!(bytes.len(), content);
                return found;
            }
            found.push((name, mode, bytes[content..content + size].to_vec()));
            bytes = &bytes[(content + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn an_archive_has_each_folder_before_its_files() {
        let mut archive = Archive::new(Vec::new());
        archive.file("init", b"12345").unwrap();
        archive.file("a/b/c", b"").unwrap();
        archive.file("a/b/d", b"1234").unwrap();
        archive.link("a/sh", "busybox").unwrap();
        let entries = entries(&archive.finish().unwrap());
        let names: Vec<_> = entries.iter().map(|(name, mode, _)| (name.as_str(), *mode)).collect();
        let folder = 0o040_755;
        let file = 0o100_755;
        assert_eq!(
            names,
            [
                ("init", file),
                ("a", folder),
                ("a/b", folder),
                ("a/b/c", file),
                ("a/b/d", file),
                ("a/sh", 0o120_777)
            ]
        );
        assert_eq!(entries[0].2, b"12345");
        assert_eq!(entries[4].2, b"1234");
        assert_eq!(entries[5].2, b"busybox");
    }
}
