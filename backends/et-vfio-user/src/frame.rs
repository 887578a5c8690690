//! Whole messages out of a stream that delivers them in pieces.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use zerocopy::{FromZeros, IntoBytes};

use crate::wire::{HEADER_BYTES, Header, flag};
use crate::{Closed, Limits};

/// Most bytes read at a time; a body grows with what has come, not with what is announced.
const CHUNK: usize = 64 << 10;
/// A message of up to this many times the allowed length is skipped, a longer one ends the
/// connection: what comes after it would be a long wait.
const SKIP_FACTOR: usize = 16;
/// Descriptors the kernel passes at most in one message.
const KERNEL_FDS: usize = 253;

/// One message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
    /// Body or descriptors are not those that were sent, since they were too many; both are empty.
    pub(crate) cut: bool,
}

impl Message {
    /// The errno of a reply that refuses.
    pub(crate) fn refusal(&self) -> Option<Errno> {
        if !self.header.has(flag::ERROR) {
            return None;
        }
        Some(match i32::try_from(self.header.errno.get()) {
            Ok(code @ 1..=4095) => Errno::from_raw_os_error(code),
            _ => Errno::IO,
        })
    }
}

/// What a look at the socket brought.
#[derive(Debug)]
pub(crate) enum Step {
    /// A message.
    Message(Message),
    /// The rest is not there yet.
    Blocked,
}

/// The part of a message that has come so far.
#[derive(Debug)]
pub(crate) struct FrameReader {
    longest_body: usize,
    max_fds: usize,
    header: Header,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// Bytes that have come, header included.
    have: usize,
    cut: bool,
    since: Option<Instant>,
}

impl FrameReader {
    /// A reader for messages with up to `limits` of data and descriptors.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            longest_body: crate::wire::TRANSFER_BYTES + limits.max_data_xfer_size,
            max_fds: limits.max_msg_fds,
            header: Header::new_zeroed(),
            body: Vec::new(),
            fds: Vec::new(),
            have: 0,
            cut: false,
            since: None,
        }
    }

    /// When the first byte of an unfinished message came.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Reads without waiting until a message is whole or nothing is left.
    ///
    /// # Errors
    /// The stream has ended, or the place of the next message cannot be known.
    pub(crate) fn step(&mut self, socket: BorrowedFd<'_>) -> Result<Step, Closed> {
        loop {
            // A read never goes beyond the end of a message: so descriptors that come with its
            // bytes are its own.
            let read = if self.have < HEADER_BYTES {
                let header = self.header.as_mut_bytes();
                receive(socket, &mut header[self.have..], &mut self.fds)
            } else {
                let left = self.total() - self.have;
                if left == 0 {
                    return Ok(Step::Message(self.finish()));
                }
                let from = if self.cut { 0 } else { self.body.len() };
                self.body.resize(from + left.min(CHUNK), 0);
                let read = receive(socket, &mut self.body[from..], &mut self.fds);
                let came = if self.cut { 0 } else { *read.as_ref().unwrap_or(&0) };
                self.body.truncate(from + came);
                read
            };
            match read {
                Ok(0) | Err(Lost::Errno(Errno::CONNRESET)) => return Err(self.ended()),
                Ok(bytes) => self.advance(bytes)?,
                Err(Lost::Descriptors(bytes)) => {
                    self.cut = true;
                    self.advance(bytes)?;
                }
                Err(Lost::Errno(Errno::INTR)) => {}
                Err(Lost::Errno(Errno::AGAIN)) => return Ok(Step::Blocked),
                Err(Lost::Errno(errno)) => return Err(Closed::System { call: "recvmsg", errno }),
            }
        }
    }

    /// Counts what has come; with the last byte of the header, judges the announced length.
    fn advance(&mut self, bytes: usize) -> Result<(), Closed> {
        let before = self.have;
        self.have += bytes;
        self.since.get_or_insert_with(Instant::now);
        if self.fds.len() > self.max_fds {
            self.cut = true;
        }
        if self.cut {
            // Nothing of it is needed, and descriptors in particular must not pile up.
            self.body.clear();
            self.fds.clear();
        }
        if before < HEADER_BYTES && self.have >= HEADER_BYTES {
            let body = self
                .total()
                .checked_sub(HEADER_BYTES)
                .ok_or(Closed::Undersized(self.header.size.get()))?;
            if body > self.longest_body {
                let limit = self.longest_body * SKIP_FACTOR;
                if body > limit {
                    return Err(Closed::Oversized { announced: self.header.size.get(), limit });
                }
                self.cut = true;
            }
        }
        Ok(())
    }

    fn total(&self) -> usize {
        usize::try_from(self.header.size.get()).unwrap_or(usize::MAX)
    }

    fn ended(&self) -> Closed {
        match self.have {
            0 => Closed::ByPeer,
            have if have < HEADER_BYTES => Closed::MidMessage { have, of: HEADER_BYTES },
            have => Closed::MidMessage { have, of: self.total() },
        }
    }

    fn finish(&mut self) -> Message {
        let cut = std::mem::take(&mut self.cut);
        let mut body = std::mem::take(&mut self.body);
        let mut fds = std::mem::take(&mut self.fds);
        if cut {
            body.clear();
            fds.clear();
        }
        self.have = 0;
        self.since = None;
        Message { header: self.header, body, fds, cut }
    }
}

enum Lost {
    Errno(Errno),
    /// So many bytes came, but not all of their descriptors.
    Descriptors(usize),
}

fn receive(socket: BorrowedFd<'_>, into: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, Lost> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(KERNEL_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let came =
        recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags).map_err(Lost::Errno)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if came.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Lost::Descriptors(came.bytes));
    }
    Ok(came.bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use proptest::prelude::{any, prop, proptest};
    use zerocopy::IntoBytes;

    use super::{FrameReader, Message, Step};
    use crate::wire::{Command, Header};
    use crate::{Closed, Limits};

    fn pair() -> (UnixStream, UnixStream, FrameReader) {
        let (near, far) = UnixStream::pair().unwrap();
        let limits = Limits { max_data_xfer_size: 64, ..Limits::OURS };
        (near, far, FrameReader::new(&limits))
    }

    fn all(reader: &mut FrameReader, near: &UnixStream) -> (Vec<Message>, Option<Closed>) {
        let mut got = Vec::new();
        loop {
            match reader.step(near.as_fd()) {
                Ok(Step::Message(message)) => got.push(message),
                Ok(Step::Blocked) => return (got, None),
                Err(why) => return (got, Some(why)),
            }
        }
    }

    #[test]
    fn end_in_a_message_is_told_from_end_between() {
        let header = Header::request(1, Command::Version, 4, 0);
        let bytes = [header.as_bytes(), &[1, 2, 3, 4]].concat();
        for (sent, why) in [
            (0, Closed::ByPeer),
            (1, Closed::MidMessage { have: 1, of: 16 }),
            (16, Closed::MidMessage { have: 16, of: 20 }),
            (19, Closed::MidMessage { have: 19, of: 20 }),
            (20, Closed::ByPeer),
        ] {
            let (near, mut far, mut reader) = pair();
            far.write_all(&bytes[..sent]).unwrap();
            assert_eq!(all(&mut reader, &near).1, None);
            assert_eq!(reader.since().is_some(), (1..20).contains(&sent));
            drop(far);
            assert_eq!(all(&mut reader, &near).1, Some(why));
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..150), 1..8),
            cuts in prop::collection::vec(1..60_usize, 0..40),
        ) {
            let (near, mut far, mut reader) = pair();
            let stream: Vec<u8> = (0..)
                .zip(&bodies)
                .flat_map(|(id, body)| {
                    let header = Header::request(id, Command::Version, body.len(), 0);
                    [header.as_bytes(), body].concat()
                })
                .collect();
            let mut got = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                far.write_all(piece).unwrap();
                rest = after;
                let (messages, closed) = all(&mut reader, &near);
                assert_eq!(closed, None);
                got.extend(messages);
            }
            assert_eq!(got.len(), bodies.len());
            for ((id, body), message) in (0..).zip(&bodies).zip(&got) {
                assert_eq!(message.header.id.get(), id);
                // 64 bytes of data and 16 before it are the most that is kept.
                assert_eq!(message.cut, body.len() > 80);
                assert_eq!(&message.body, if message.cut { &[][..] } else { body });
            }
        }
    }
}
