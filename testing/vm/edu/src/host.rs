//! The host outside of the guest.

use std::io::{Error, ErrorKind, Result, stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Limit of whatever the host is asked to do.
const LIMIT: Duration = Duration::from_secs(20);

/// Asks the host for something by printing a marker, and waits until it says that it has been done.
///
/// # Errors
/// If it does not say so in time.
#[expect(clippy::print_stdout, reason = "the host reads standard output")]
pub fn ask(marker: &str) -> Result<()> {
    println!("{marker}");
    let limit = Timespec::try_from(LIMIT).map_err(|_| Errno::INVAL)?;
    let input = stdin();
    if poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&limit))? == 0 {
        return Err(Error::new(ErrorKind::TimedOut, "the host did not answer"));
    }
    // What has begun to come is a line, and short.
    let mut line = String::new();
    input.read_line(&mut line)?;
    match line.trim_end() {
        "HOST-DONE" => Ok(()),
        other => Err(Error::other(format!("the host answers \"{other}\""))),
    }
}
