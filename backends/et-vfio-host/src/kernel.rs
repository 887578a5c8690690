//! Writes that change the host.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::Owner;

/// What binding does to the host, so that tests can put a made-up kernel behind it.
pub trait Kernel {
    /// Writes a text to an existing file at once, as sysfs wants it.
    ///
    /// # Errors
    /// As the operating system; [`io::ErrorKind::TimedOut`] when the write does not come back.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;

    /// Changes the owner of a node; when a group is named, its members may read and write.
    ///
    /// # Errors
    /// As the operating system.
    fn chown(&self, file: &Path, owner: Owner) -> io::Result<()>;
}

/// The kernel behind the files.
#[derive(Clone, Debug)]
pub struct FileKernel {
    deadline: Duration,
}

impl FileKernel {
    /// Returns a kernel whose writes are given up after `deadline`.
    ///
    /// A driver that lets go of a device may wait for programs. Such a write cannot be called off:
    /// its thread stays until the driver answers.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self { deadline }
    }
}

/// Gives up after 30 seconds.
impl Default for FileKernel {
    fn default() -> Self {
        Self::new(Duration::from_secs(30))
    }
}

impl Kernel for FileKernel {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let (done, answer) = mpsc::channel();
        let (file, text) = (file.to_owned(), text.to_owned());
        std::thread::Builder::new().name("et-vfio-host".to_owned()).spawn(move || {
            // The receiver is gone after the deadline.
            let _ = done.send(write(&file, &text));
        })?;
        answer.recv_timeout(self.deadline).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    fn chown(&self, file: &Path, owner: Owner) -> io::Result<()> {
        std::os::unix::fs::chown(file, Some(owner.uid), owner.gid)?;
        if owner.gid.is_some() {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o660))?;
        }
        Ok(())
    }
}

/// One write, because the kernel takes each as a whole.
fn write(file: &Path, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(file)?;
    let written = file.write(text.as_bytes())?;
    if written == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_never_made() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("driver_override");
        let kernel = FileKernel::default();
        let missing = kernel.write(&file, "vfio-pci").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        std::fs::write(&file, "a longer text than the next").unwrap();
        kernel.write(&file, "vfio-pci").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "vfio-pci");
    }

    #[test]
    fn a_named_group_may_use_the_node() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("12");
        std::fs::write(&file, "").unwrap();
        let kernel = FileKernel::default();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let own = file.metadata().unwrap();
        kernel.chown(&file, Owner { uid: own.uid(), gid: None }).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        kernel.chown(&file, Owner { uid: own.uid(), gid: Some(own.gid()) }).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o660);
    }

    #[test]
    fn a_write_that_blocks_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("unbind");
        // Opening a pipe for writing waits for a reader, and here is none.
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let kernel = FileKernel::new(Duration::from_millis(20));
        let error = kernel.write(&file, "0000:01:00.0").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
