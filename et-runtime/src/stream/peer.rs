//! Copies from one device to another, through the host.
//!
//! The operation of the source stays open until the last piece is on the host, that of the target
//! until the last is on the device. A few pieces are under way at a time, each with a chunk of
//! staging memory on either side: while one is written, the next is read. No thread waits; the
//! answer to one command sends the next.

use et_devapi::msg::ops::{DmaReadNode, DmaWriteNode};
use et_hal::{DeviceAccess, DeviceAddr, Hal};

use super::Stream;
use super::copy::{advance, check_host};
use crate::event::Event;
use crate::link::core::Command;
use crate::link::{
    Arrival, Driver, Keep, Link, Load, Nodes, OneShot, OpKey, Submission, Wire, take_arrival,
};
use crate::memory::Access;
use crate::memory::{Chunk, DeviceSlice, Staging};
use crate::sync::{Arc, Mutex, lock};
use crate::{Error, Result};

const NAME: &str = "copy between devices";
/// Pieces under way at a time.
const WINDOW: usize = 4;

/// One side of a copy. It does not hold the operation, whose failure is listed when no one asks.
struct Side<H: Hal> {
    link: Arc<Link<H>>,
    operation: OpKey,
    slice: DeviceSlice,
}

impl<H: Hal> Side<H> {
    /// Sends a command that gives its chunk to `then` when it has ended.
    fn send(
        &self,
        wire: Wire,
        chunk: Chunk<H>,
        then: impl FnOnce(Result<Chunk<H>>) + Send + 'static,
    ) {
        let place: Arc<OneShot<Arrival<H>>> = Arc::new(OneShot::new());
        place.call_first(move |arrival| then(take_arrival(arrival)));
        let keep = Keep::Reader { chunk, place, _device: (&self.slice).into() };
        self.link.append(self.operation, Command::new(Load::copy(wire, keep)));
    }

    fn close(&self, outcome: Result<()>) {
        self.link.close_operation(self.operation, outcome);
    }
}

/// What is left to do.
struct State {
    from: DeviceAddr,
    to: DeviceAddr,
    /// Bytes not asked for yet.
    left: usize,
    reading: usize,
    writing: usize,
    has_failed: bool,
}

/// A piece on its way.
#[derive(Clone, Copy)]
struct Piece {
    from: DeviceAddr,
    to: DeviceAddr,
    len: usize,
}

/// A copy under way.
struct Relay<S: Hal, T: Hal> {
    source: Side<S>,
    target: Side<T>,
    state: Mutex<State>,
    /// A piece, on its way through the processor.
    bytes: Mutex<Vec<u8>>,
}

impl<S: Hal, T: Hal> Relay<S, T> {
    /// Asks for the next piece, if there is one.
    fn read(self: &Arc<Self>, chunk: Chunk<S>, spare: Chunk<T>) {
        let mut state = lock(&self.state);
        let len = state.left.min(chunk.len_bytes()).min(spare.len_bytes());
        if len == 0 {
            return;
        }
        let piece = Piece { from: state.from, to: state.to, len };
        state.from = advance(piece.from, len);
        state.to = advance(piece.to, len);
        state.left -= len;
        state.reading += 1;
        drop(state);
        let size = self.source.link.padded(&self.source.slice, len);
        let wire = Wire::DmaRead(Nodes::One(DmaReadNode::new(chunk.bus_addr(), piece.from, size)));
        let relay = Arc::clone(self);
        self.source.send(wire, chunk, move |arrival| match arrival {
            Ok(chunk) => relay.arrived(chunk, spare, piece),
            Err(error) => relay.fail(Error::at_source(error)),
        });
    }

    /// A piece is on the host.
    fn arrived(self: &Arc<Self>, chunk: Chunk<S>, mut spare: Chunk<T>, piece: Piece) {
        let mut bytes = lock(&self.bytes);
        bytes.resize(piece.len, 0);
        let taken = chunk.read(&self.source.link.hal, &mut bytes).map_err(Error::at_source);
        let taken = taken.and_then(|()| spare.write(&self.target.link.hal, &bytes));
        drop(bytes);
        if let Err(error) = taken {
            return self.fail(error);
        }
        let mut state = lock(&self.state);
        state.reading -= 1;
        state.writing += 1;
        let is_read = state.left == 0 && state.reading == 0 && !state.has_failed;
        drop(state);
        if is_read {
            self.source.close(Ok(()));
        }
        let size = self.target.link.padded(&self.target.slice, piece.len);
        let wire = Wire::DmaWrite(Nodes::One(DmaWriteNode::new(spare.bus_addr(), piece.to, size)));
        let relay = Arc::clone(self);
        self.target.send(wire, spare, move |outcome| match outcome {
            Ok(spare) => relay.written(chunk, spare),
            Err(error) => relay.fail(error),
        });
    }

    /// A piece is on the target.
    fn written(self: &Arc<Self>, chunk: Chunk<S>, spare: Chunk<T>) {
        let mut state = lock(&self.state);
        state.writing -= 1;
        let is_over = state.left == 0 && state.reading == 0 && state.writing == 0;
        let has_failed = state.has_failed;
        drop(state);
        match (is_over, has_failed) {
            (_, true) => {}
            (true, false) => self.target.close(Ok(())),
            (false, false) => self.read(chunk, spare),
        }
    }

    /// Ends both operations. What is under way comes back by itself.
    fn fail(&self, error: Error) {
        let mut state = lock(&self.state);
        state.left = 0;
        if std::mem::replace(&mut state.has_failed, true) {
            return;
        }
        drop(state);
        self.source.close(Err(Error::Aborted { op: NAME }));
        self.target.close(Err(error));
    }
}

impl<H: Hal> Stream<H> {
    pub(super) fn relay<P: Hal>(
        &self,
        from: &DeviceSlice,
        peer: &Stream<P>,
        to: &DeviceSlice,
    ) -> Result<Event> {
        let (source, target) = (self.link(), peer.link());
        if from.len_bytes() != to.len_bytes() {
            return Err(Error::LengthMismatch { from: from.len_bytes(), to: to.len_bytes() });
        }
        if let Some(error) = source.refusal() {
            return Err(Error::at_source(error));
        }
        source.check_slice(from)?;
        target.check_slice(to)?;
        check_host(from, Access::Read, NAME).map_err(Error::at_source)?;
        check_host(to, Access::Write, NAME)?;
        let is_same = source.address() == target.address();
        if is_same || from.len_bytes() == 0 {
            let before = self.barrier().map_err(Error::at_source)?;
            peer.wait_for(&before);
            let event =
                if is_same { peer.copy_on_device(from, to)? } else { peer.submit(NAME, None)? };
            self.wait_for(&event);
            return Ok(event);
        }
        let (read, write) = self.begin_both(peer)?;
        let left = usize::try_from(from.len_bytes()).unwrap_or(usize::MAX);
        let piece = left.min(Staging::<H>::largest());
        // In an order that is the same for all, so that none has what another waits for.
        let first = if source.address() < target.address() {
            let chunk = read.chunk(piece, DeviceAccess::Write).map_err(Error::at_source)?;
            (chunk, write.chunk(piece, DeviceAccess::Read)?)
        } else {
            let spare = write.chunk(piece, DeviceAccess::Read)?;
            (read.chunk(piece, DeviceAccess::Write).map_err(Error::at_source)?, spare)
        };
        let mut chunks = vec![first];
        while chunks.len() < WINDOW.min(left.div_ceil(piece))
            && let Some(chunk) = read.try_chunk(piece, DeviceAccess::Write)?
            && let Some(spare) = write.try_chunk(piece, DeviceAccess::Read)?
        {
            chunks.push((chunk, spare));
        }
        let (read, write) = (read.leave_open(), write.leave_open());
        // Its failure is told by the event of the target.
        read.look_at();
        // The next piece is to go on although no one waits for the last.
        source.want(&read);
        target.want(&write);
        let relay = Arc::new(Relay {
            source: Side { link: Arc::clone(source), operation: read.key, slice: from.clone() },
            target: Side { link: Arc::clone(target), operation: write.key, slice: to.clone() },
            state: Mutex::new(State {
                from: from.addr(),
                to: to.addr(),
                left,
                reading: 0,
                writing: 0,
                has_failed: false,
            }),
            bytes: Mutex::new(Vec::new()),
        });
        drop(read);
        for (chunk, spare) in chunks {
            relay.read(chunk, spare);
        }
        Ok(peer.event(write))
    }

    /// Begins an operation in each of two streams: of any two such pairs, one is before the other
    /// in both streams, so that none waits for itself.
    fn begin_both<'a, P: Hal>(
        &'a self,
        peer: &'a Stream<P>,
    ) -> Result<(Submission<'a, H>, Submission<'a, P>)> {
        let (source, target) = (self.link(), peer.link());
        let _pairing = if source.address() < target.address() {
            let first = lock(&source.pairing);
            (first, lock(&target.pairing))
        } else {
            let first = lock(&target.pairing);
            (first, lock(&source.pairing))
        };
        // Callbacks may copy between the same devices, which needs these locks.
        let read = Submission::begin_quietly(source, self.inner.key, NAME);
        let read = read.map_err(Error::at_source)?;
        Ok((read, Submission::begin_quietly(target, peer.inner.key, NAME)?))
    }
}
