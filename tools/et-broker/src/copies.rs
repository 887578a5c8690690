//! The threads that copy between clients and the card, and clear partitions.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use et_hal::Hal;
use et_runtime::{DeviceSlice, Error, HostBuffer, Stream};
use et_sim_device::{CopyDirection, ForwardedCopy, MAX_PARTS, PIECE_BYTES};

use crate::hub::{CopyJob, Hub, Opened, PAUSE, is_fatal};

/// Limit of one piece.
const PIECE: Duration = Duration::from_secs(30);
/// Bytes that are cleared before it is another's turn.
const CLEARED_BYTES: u64 = 8 << 20;
/// Parts begin at multiples of this in the buffer.
const ALIGN_BYTES: usize = 64;
/// What is taken from a client, or given to it, in one step.
const STEP_BYTES: usize = 64 << 10;
/// What a piece costs besides its bytes, in bytes.
const PIECE_COST: u64 = 4096;

/// What a thread copies with.
struct Tools<H: Hal> {
    opened: Arc<Opened<H>>,
    stream: Stream<H>,
    /// Away after a failure.
    buffer: Option<HostBuffer<H>>,
    step: Vec<u8>,
}

/// Copies until the hub is stopped.
pub(crate) fn run<H: Hal>(hub: &Hub<H>) {
    let mut tools: Option<Tools<H>> = None;
    loop {
        let mut state = hub.state();
        if state.is_stopped {
            return;
        }
        let Some(opened) = state.opened.clone() else {
            // What the thread holds belongs to the card of before.
            tools = None;
            let waited = hub.copies.wait_timeout(state, PAUSE);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            continue;
        };
        let Some((index, job)) = state.copies.take_turn() else {
            let waited = hub.copies.wait_timeout(state, PAUSE);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            continue;
        };
        let cost = match &job {
            CopyJob::Piece(copy) => copy.len_bytes() as u64,
            CopyJob::Clear(_) => CLEARED_BYTES,
        };
        state.copies.charge(index, cost + PIECE_COST);
        if let Some(member) = state.members.get_mut(index) {
            member.copying += 1;
        }
        drop(state);
        let tools = tools.get_or_insert_with(|| Tools::new(hub, Arc::clone(&opened)));
        if !Arc::ptr_eq(&tools.opened, &opened) {
            *tools = Tools::new(hub, opened);
        }
        let outcome = tools.execute(hub, index, &job);
        if let Err(error) = &outcome
            && is_fatal(error)
        {
            hub.fail(error);
        }
        finish(hub, index, job, &outcome);
    }
}

/// Takes note of the end of a job, then tells its client.
fn finish<H: Hal>(hub: &Hub<H>, index: usize, job: CopyJob, outcome: &Result<(), Error>) {
    let mut state = hub.state();
    let is_open = state.opened.is_some();
    let Some(member) = state.members.get_mut(index) else { return };
    member.copying -= 1;
    match (&job, outcome) {
        (CopyJob::Piece(copy), Ok(())) => member.counts.copied_bytes += copy.len_bytes() as u64,
        // What has failed meanwhile begins anew when it works again; so does who was reset.
        (CopyJob::Clear(_), _) if !is_open || member.is_ending => {}
        (CopyJob::Clear(_), Err(_)) => member.is_ending = true,
        (CopyJob::Clear(at), Ok(())) => {
            let next = at + CLEARED_BYTES;
            if next < member.partition.end - member.partition.start {
                state.copies.push(index, CopyJob::Clear(next));
                hub.copies.notify_one();
                return;
            }
            (member.is_to_clear, member.is_dirty) = (false, false);
            member.is_ending = true;
        }
        (CopyJob::Piece(_), Err(_)) => {}
    }
    hub.settle(&mut state, index);
    let is_down = state.opened.is_none();
    drop(state);
    if is_down {
        // The card may be recovered when all have let it go.
        hub.launches.notify_all();
    }
    if let (CopyJob::Piece(copy), Ok(())) = (job, outcome) {
        copy.done();
    }
}

impl<H: Hal> Tools<H> {
    fn new(hub: &Hub<H>, opened: Arc<Opened<H>>) -> Self {
        Self { opened, stream: hub.stream(), buffer: None, step: vec![0; STEP_BYTES] }
    }

    fn execute(&mut self, hub: &Hub<H>, index: usize, job: &CopyJob) -> Result<(), Error> {
        match job {
            CopyJob::Piece(copy) => self.copy(hub, index, copy),
            CopyJob::Clear(at) => {
                let Some(buffer) = self.opened.buffers.get(index) else { return Ok(()) };
                let end = at.saturating_add(CLEARED_BYTES).min(buffer.len_bytes());
                let range = buffer.slice(*at..end)?;
                self.stream.fill(range, 0)?.wait(PIECE).map(drop)
            }
        }
    }

    fn copy(&mut self, hub: &Hub<H>, index: usize, copy: &ForwardedCopy) -> Result<(), Error> {
        let mut places: Vec<(usize, DeviceSlice)> = Vec::with_capacity(MAX_PARTS);
        let mut end = 0_usize;
        for part in copy.parts() {
            places.push((end, self.opened.slice(index, part.device, part.len as u64)?));
            end = (end + part.len).next_multiple_of(ALIGN_BYTES);
        }
        let mut buffer = match self.buffer.take() {
            Some(buffer) => buffer,
            None => hub.device().host_buffer(PIECE_BYTES + MAX_PARTS * ALIGN_BYTES)?,
        };
        // Refused by the client's own mappings: the command fails, the card is none the worse.
        let refused = Err(Error::ForeignBuffer);
        let outcome = match copy.direction() {
            CopyDirection::ToDevice => {
                if !self.gather(copy, &places, &mut buffer)? {
                    self.buffer = Some(buffer);
                    return refused;
                }
                let transfer = self.stream.upload_list(buffer, &places)?;
                transfer.wait(PIECE)
            }
            CopyDirection::ToHost => self.stream.download_list(&places, buffer)?.wait(PIECE),
        };
        let buffer = outcome.map_err(|failed| failed.error)?;
        let is_taken = match copy.direction() {
            CopyDirection::ToDevice => true,
            CopyDirection::ToHost => self.scatter(copy, &places, &buffer)?,
        };
        self.buffer = Some(buffer);
        if is_taken { Ok(()) } else { refused }
    }

    /// Fetches the parts from the client; `false` if it does not allow that.
    fn gather(
        &mut self,
        copy: &ForwardedCopy,
        places: &[(usize, DeviceSlice)],
        buffer: &mut HostBuffer<H>,
    ) -> Result<bool, Error> {
        for (part, (place, _)) in copy.parts().iter().zip(places) {
            for offset in (0..part.len).step_by(STEP_BYTES) {
                let step = &mut self.step[..STEP_BYTES.min(part.len - offset)];
                if !copy.read_host(*part, offset, step) {
                    return Ok(false);
                }
                buffer.copy_in(place + offset, step)?;
            }
        }
        Ok(true)
    }

    /// Gives the parts to the client; `false` if it does not allow that.
    fn scatter(
        &mut self,
        copy: &ForwardedCopy,
        places: &[(usize, DeviceSlice)],
        buffer: &HostBuffer<H>,
    ) -> Result<bool, Error> {
        for (part, (place, _)) in copy.parts().iter().zip(places) {
            for offset in (0..part.len).step_by(STEP_BYTES) {
                let step = &mut self.step[..STEP_BYTES.min(part.len - offset)];
                buffer.copy_out(place + offset, step)?;
                if !copy.write_host(*part, offset, step) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
