//! A connection: requests and replies of both directions on one socket, for any number of threads.
//!
//! There is no reading thread of its own. Whoever waits reads, if no other thread does, and sorts
//! what comes: replies to their askers, requests into a queue. So a device may reach for the
//! client's memory in the middle of a call from that client, and a client may be asked for its
//! memory while it waits for an answer.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown,
};
use zerocopy::IntoBytes;

use crate::frame::{FrameReader, Message, Step};
use crate::stop::Stop;
use crate::wire::{Command, Header, flag};
use crate::{Closed, Home, Limits, Peer};

/// Requests kept while their turn has not come; beyond, the socket is left full.
const QUEUED_MESSAGES: usize = 4096;
/// Bytes of them.
const QUEUED_BYTES: usize = 16 << 20;
/// Requests without an answer; a peer that leaves more unanswered is given up.
const UNANSWERED: usize = 4096;
/// Id of requests that are not replied to. Some servers reply to them when they fail; such replies
/// are dropped.
const UNASKED: u16 = u16::MAX;
/// Descriptors sent in one message at most.
pub(crate) const SENT_FDS: usize = 16;

/// Why a wait ended without what was waited for.
#[derive(Debug)]
pub(crate) enum End {
    Closed(Closed),
    Timeout,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    /// Only there the connection may be used.
    home: Home,
    /// Ends the connection from outside.
    stop: Arc<Stop>,
    /// Raised when the connection is gone.
    gone: Stop,
    /// How long the rest of a message may take, either way.
    patience: Duration,
    /// Who holds it reads.
    reader: Mutex<FrameReader>,
    /// Who holds it writes.
    writer: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

/// What is known to all threads of a connection.
#[derive(Debug, Default)]
struct State {
    closed: Option<Closed>,
    requests: VecDeque<Message>,
    queued_bytes: usize,
    asked: HashMap<u16, Asked>,
    next_id: u16,
}

#[derive(Debug)]
struct Asked {
    command: Command,
    reply: Option<Message>,
    /// The asker has gone; the id stays taken until the reply comes.
    abandoned: bool,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd, stop: Arc<Stop>, patience: Duration) -> Result<Self, Errno> {
        Ok(Self {
            socket,
            home: Home::new(),
            stop,
            gone: Stop::new()?,
            patience,
            reader: Mutex::new(FrameReader::new(&Limits::OURS)),
            writer: Mutex::new(()),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Returns which process has connected, as the kernel says.
    pub(crate) fn peer(&self) -> Peer {
        rustix::net::sockopt::socket_peercred(&self.socket).map_or(
            Peer { pid: 0, uid: u32::MAX },
            |peer| Peer {
                pid: u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default(),
                uid: peer.uid.as_raw(),
            },
        )
    }

    /// How long the rest of a message may take, either way.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Why the connection is gone, if it is.
    pub(crate) fn closed(&self) -> Option<Closed> {
        if !self.is_here() {
            return Some(Closed::Forked);
        }
        if !self.gone.is_raised() {
            return None;
        }
        self.lock().closed.clone()
    }

    /// Returns `false` in a child of the process that made the connection. There no lock is taken:
    /// a thread that did not come along may hold it.
    pub(crate) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// An eventfd that becomes readable, and stays so, when the connection is gone.
    pub(crate) fn gone(&self) -> BorrowedFd<'_> {
        self.gone.as_fd()
    }

    /// Ends the connection on both sides; the first reason stays.
    pub(crate) fn close(&self, why: Closed) {
        if !self.is_here() {
            return;
        }
        self.close_locked(&mut self.lock(), why);
    }

    /// The next request of the peer.
    pub(crate) fn next_request(&self, within: Option<Duration>) -> Result<Message, End> {
        self.wait(deadline(within), State::pop)
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(
        &self,
        command: Command,
        parts: [&[u8]; 2],
        fds: &[BorrowedFd<'_>],
        within: Duration,
    ) -> Result<Message, End> {
        if !self.is_here() {
            return Err(End::Closed(Closed::Forked));
        }
        let until = deadline(Some(within));
        let id = self.lock().register(command).map_err(|why| {
            self.close(why.clone());
            End::Closed(why)
        })?;
        let header = Header::request(id, command, parts[0].len() + parts[1].len(), 0);
        if let Err(end) = self.send_until(&header, parts, fds, until) {
            // Nothing of it was sent, so no reply will come.
            self.lock().asked.remove(&id);
            return Err(end);
        }
        let reply = self.wait(until, |state| state.answer(id));
        if reply.is_err() {
            self.lock().abandon(id);
        }
        reply
    }

    /// Sends a request that is not replied to: one system call, no allocation.
    pub(crate) fn tell(
        &self,
        command: Command,
        parts: [&[u8]; 2],
        within: Duration,
    ) -> Result<(), End> {
        let body = parts[0].len() + parts[1].len();
        let header = Header::request(UNASKED, command, body, flag::NO_REPLY);
        self.send(&header, parts, &[], within)
    }

    /// Sends a message; all of it, or nothing, or the connection is closed.
    pub(crate) fn send(
        &self,
        header: &Header,
        parts: [&[u8]; 2],
        fds: &[BorrowedFd<'_>],
        within: Duration,
    ) -> Result<(), End> {
        self.send_until(header, parts, fds, deadline(Some(within)))
    }

    fn send_until(
        &self,
        header: &Header,
        parts: [&[u8]; 2],
        fds: &[BorrowedFd<'_>],
        until: Option<Instant>,
    ) -> Result<(), End> {
        let mut slices =
            [IoSlice::new(header.as_bytes()), IoSlice::new(parts[0]), IoSlice::new(parts[1])];
        let mut rest = &mut slices[..];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(End::Closed(self.fail("sendmsg", Errno::TOOMANYREFS)));
        }
        if !self.is_here() {
            return Err(End::Closed(Closed::Forked));
        }
        let turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = self.closed() {
            return Err(End::Closed(why));
        }
        let mut begun = None;
        while !rest.is_empty() {
            match sendmsg(
                &self.socket,
                rest,
                &mut control,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(bytes) => {
                    // The descriptors went with the first byte.
                    control.clear();
                    begun.get_or_insert_with(Instant::now);
                    IoSlice::advance_slices(&mut rest, bytes);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // A message that is begun has to be finished, whatever the caller's deadline.
                    let until =
                        begun.map_or(until, |begun: Instant| begun.checked_add(self.patience));
                    match self.poll(PollFlags::OUT, until) {
                        Ok(true) => {}
                        Ok(false) if begun.is_none() => return Err(End::Timeout),
                        Ok(false) => return Err(self.give_up(Closed::NotTaken(self.patience))),
                        Err(why) => return Err(self.give_up(why)),
                    }
                }
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(self.give_up(Closed::ByPeer)),
                Err(errno) => return Err(End::Closed(self.fail("sendmsg", errno))),
            }
        }
        drop(turn);
        Ok(())
    }

    fn fail(&self, call: &'static str, errno: Errno) -> Closed {
        let why = Closed::System { call, errno };
        self.close(why.clone());
        why
    }

    fn give_up(&self, why: Closed) -> End {
        self.close(why.clone());
        End::Closed(why)
    }

    /// Waits until `take` finds something. Reads the socket meanwhile, if no other thread does.
    fn wait<T>(
        &self,
        until: Option<Instant>,
        mut take: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, End> {
        if !self.is_here() {
            return Err(End::Closed(Closed::Forked));
        }
        let mut state = self.lock();
        loop {
            let was_full = state.is_full();
            if let Some(found) = take(&mut state) {
                if was_full {
                    self.changed.notify_all();
                }
                return Ok(found);
            }
            if let Some(why) = &state.closed {
                return Err(End::Closed(why.clone()));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(End::Timeout);
            }
            state = match self.reading_turn(&state) {
                Some(mut reader) => {
                    drop(state);
                    let read = self.read_one(&mut reader, until);
                    // What was read is sorted before the turn is given back, or the next message
                    // could overtake it. The turn is given back with the state locked: who finds
                    // it taken waits from then on, and is woken.
                    let mut state = self.lock();
                    match read {
                        Ok(Some(message)) => self.sort(&mut state, message),
                        Ok(None) => {}
                        Err(why) => self.close_locked(&mut state, why),
                    }
                    drop(reader);
                    self.changed.notify_all();
                    state
                }
                None => match left {
                    Some(left) => {
                        let waited = self.changed.wait_timeout(state, left);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                },
            };
        }
    }

    fn reading_turn(&self, state: &State) -> Option<MutexGuard<'_, FrameReader>> {
        if state.is_full() {
            return None;
        }
        match self.reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::Poisoned(reader)) => Some(reader.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Reads until a message is whole or the time is over.
    fn read_one(
        &self,
        reader: &mut FrameReader,
        until: Option<Instant>,
    ) -> Result<Option<Message>, Closed> {
        loop {
            if self.stop.is_raised() {
                return Err(Closed::Here);
            }
            if let Step::Message(message) = reader.step(self.socket.as_fd())? {
                return Ok(Some(message));
            }
            let stalled = reader.since().and_then(|since| since.checked_add(self.patience));
            let next = [until, stalled].into_iter().flatten().min();
            if !self.poll(PollFlags::IN, next)? {
                if stalled.is_some_and(|stalled| stalled <= Instant::now()) {
                    return Err(Closed::Stalled(self.patience));
                }
                return Ok(None);
            }
        }
    }

    /// Waits for the socket; false when the time is over.
    fn poll(&self, events: PollFlags, until: Option<Instant>) -> Result<bool, Closed> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds =
                [PollFd::new(&self.socket, events), PollFd::new(&*self.stop, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) if !fds[1].revents().is_empty() => return Err(Closed::Here),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Closed::System { call: "poll", errno }),
            }
        }
    }

    fn sort(&self, state: &mut State, message: Message) {
        match message.header.kind() {
            flag::REQUEST => state.push(message),
            flag::REPLY => {
                if let Err(why) = state.reply(message) {
                    self.close_locked(state, why);
                }
            }
            other => self.close_locked(state, Closed::BadType(other)),
        }
    }

    fn close_locked(&self, state: &mut State, why: Closed) {
        if state.closed.is_some() {
            return;
        }
        state.closed = Some(why);
        self.gone.raise();
        // Wakes whoever polls the socket, here and at the peer. It fails only if the peer has
        // gone already.
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.requests.len() >= QUEUED_MESSAGES || self.queued_bytes >= QUEUED_BYTES
    }

    fn push(&mut self, message: Message) {
        self.queued_bytes += message.body.len();
        self.requests.push_back(message);
    }

    fn pop(&mut self) -> Option<Message> {
        let message = self.requests.pop_front()?;
        self.queued_bytes -= message.body.len();
        Some(message)
    }

    fn register(&mut self, command: Command) -> Result<u16, Closed> {
        if self.asked.len() >= UNANSWERED {
            return Err(Closed::Unanswered(UNANSWERED));
        }
        while self.next_id == UNASKED || self.asked.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.asked.insert(id, Asked { command, reply: None, abandoned: false });
        Ok(id)
    }

    fn reply(&mut self, message: Message) -> Result<(), Closed> {
        let (id, command) = (message.header.id.get(), message.header.command.get());
        match self.asked.get_mut(&id) {
            None if id == UNASKED => Ok(()),
            Some(asked) if asked.command.code() == command && asked.reply.is_none() => {
                if asked.abandoned {
                    self.asked.remove(&id);
                } else {
                    asked.reply = Some(message);
                }
                Ok(())
            }
            _ => Err(Closed::UnexpectedReply { id, command }),
        }
    }

    fn answer(&mut self, id: u16) -> Option<Message> {
        let reply = self.asked.get_mut(&id)?.reply.take()?;
        self.asked.remove(&id);
        Some(reply)
    }

    fn abandon(&mut self, id: u16) {
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.abandoned = true;
            if asked.reply.is_some() {
                self.asked.remove(&id);
            }
        }
    }
}

/// A length of time too long for the clock is no limit.
fn deadline(within: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(within?)
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::{State, UNANSWERED, UNASKED};
    use crate::Closed;
    use crate::frame::Message;
    use crate::wire::{Command, Header};

    fn reply(id: u16, command: Command) -> Message {
        let header =
            Header { id: id.into(), command: command.code().into(), ..Header::new_zeroed() };
        Message { header, body: vec![], fds: vec![], cut: false }
    }

    #[test]
    fn ids_of_abandoned_requests_are_not_used_again() {
        let mut state = State { next_id: UNASKED - 1, ..State::default() };
        let first = state.register(Command::DmaRead).unwrap();
        state.abandon(first);
        assert_eq!(first, UNASKED - 1);
        for _ in 0..200_000 {
            let id = state.register(Command::DmaRead).unwrap();
            assert!(id != first && id != UNASKED);
            state.reply(reply(id, Command::DmaRead)).unwrap();
            assert!(state.answer(id).is_some());
        }
        // Its reply comes at last, once.
        state.reply(reply(first, Command::DmaRead)).unwrap();
        assert!(state.answer(first).is_none() && state.asked.is_empty());
        let why = state.reply(reply(first, Command::DmaRead)).unwrap_err();
        assert!(matches!(why, Closed::UnexpectedReply { .. }));
    }

    #[test]
    fn second_reply_and_reply_to_another_command_are_unexpected() {
        let mut state = State::default();
        let id = state.register(Command::DmaRead).unwrap();
        state.reply(reply(id, Command::DmaWrite)).unwrap_err();
        state.reply(reply(id, Command::DmaRead)).unwrap();
        state.reply(reply(id, Command::DmaRead)).unwrap_err();
    }

    #[test]
    fn peer_that_never_answers_is_given_up() {
        let mut state = State::default();
        for _ in 0..UNANSWERED {
            let id = state.register(Command::DmaRead).unwrap();
            state.abandon(id);
        }
        let why = state.register(Command::DmaRead).unwrap_err();
        assert_eq!(why, Closed::Unanswered(UNANSWERED));
    }
}
