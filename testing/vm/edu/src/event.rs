//! Interrupts as the kernel hands them out.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read};

/// A counter that the kernel raises.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// A counter at zero.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new() -> Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// `count` counters at zero.
    ///
    /// # Errors
    /// As [`Event::new`].
    pub fn several(count: u32) -> Result<Vec<Self>> {
        (0..count).map(|_| Self::new()).collect()
    }

    /// Waits until the counter is raised, and sets it to zero; what it was, or 0 if `limit` is
    /// over.
    ///
    /// # Errors
    /// If the counter cannot be read.
    pub fn take(&self, limit: Duration) -> Result<u64> {
        let limit = Timespec::try_from(limit).map_err(|_| Errno::INVAL)?;
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit))?;
        let mut count = [0; 8];
        match read(&self.0, &mut count) {
            Ok(_) => Ok(u64::from_le_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AsFd, Event};

    #[test]
    fn an_event_is_taken_once() {
        let event = Event::new().unwrap();
        assert_eq!(event.take(Duration::ZERO).unwrap(), 0);
        for _ in 0..2 {
            rustix::io::write(event.as_fd(), &1_u64.to_le_bytes()).unwrap();
        }
        assert_eq!(event.take(Duration::from_secs(5)).unwrap(), 2);
        assert_eq!(event.take(Duration::ZERO).unwrap(), 0);
    }
}
