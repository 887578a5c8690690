//! What is asked and what has come: the state machine, without clock, threads and mailbox.

use std::collections::VecDeque;
use std::time::Duration;

use et_devapi::msg::mgmt::{BreakpointEvent, Event, Message, calls};
use et_devapi::msg::{HEADER_BYTES, Tag};

use crate::link::OneShot;
use crate::sync::Arc;
use crate::{Error, Result};

/// Most events that are kept; the oldest go first.
const EVENTS: usize = 1024;
/// Most commands at once: more never fit the queue of the device.
const PENDING: usize = 1024;

/// Counts of what has come from the service processor since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagementCounters {
    /// Responses that no command waits for; they are ignored.
    pub stray_responses: u64,
    /// Messages that are none of the interface; they are ignored.
    pub malformed_messages: u64,
    /// Events.
    pub events: u64,
    /// Events that were dropped here, because no one took them.
    pub events_lost: u64,
    /// Times the queue was found full, so that the service processor may have dropped events. It
    /// drops what it has no room for, and does not say so. Spec: §5.6
    pub full_queues: u64,
}

/// What the service processor has answered, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 0 if it did what was asked.
    pub status: i32,
    /// How long that took, by its own clock.
    pub latency: Duration,
    /// What follows the header of the response.
    pub payload: Arc<[u8]>,
}

/// Where an answer is put.
pub(super) type Reply = Arc<OneShot<Result<Answer>>>;

/// Something that no one has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagementEvent {
    /// When this runtime has seen it, on the clock of [`Config::clock`](crate::Config::clock).
    pub seen: Duration,
    /// What it is.
    pub kind: ManagementEventKind,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManagementEventKind {
    /// An event of the card. Spec: §17.4.
    Card(Event),
    /// What became of a breakpoint.
    Breakpoint(BreakpointEvent),
}

#[derive(Debug)]
struct Pending {
    tag: Tag,
    /// Id of the response.
    id: u16,
    reply: Reply,
}

/// Whom a message concerns.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Who waits for this answer.
    Answer(Reply, Answer),
    /// Who waits for events.
    Event,
    /// No one.
    Noise,
    /// Everyone: this is what reads of a card that is gone look like.
    AllOnes,
}

#[derive(Debug)]
pub(super) struct Core {
    next_tag: u16,
    pending: Vec<Pending>,
    events: VecDeque<ManagementEvent>,
    pub(super) counters: ManagementCounters,
    lost: Option<Error>,
}

impl Core {
    pub(super) fn new() -> Self {
        Self {
            next_tag: 1,
            pending: Vec::new(),
            events: VecDeque::new(),
            counters: ManagementCounters::default(),
            lost: None,
        }
    }

    /// Returns why nothing can be sent, if so.
    pub(super) fn refusal(&self) -> Option<&Error> {
        self.lost.as_ref()
    }

    /// Takes a tag for a command. One is used again only after all others.
    pub(super) fn begin(&mut self, id: u16) -> Result<(Tag, Reply)> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        if self.pending.len() >= PENDING {
            let why = "the service processor has 1024 commands without an answer";
            return Err(Error::Unsupported { op: "management command", why });
        }
        let tag = loop {
            let tag = Tag::new(self.next_tag);
            self.next_tag = self.next_tag.wrapping_add(1);
            if tag != Tag::EVENT && self.pending.iter().all(|other| other.tag != tag) {
                break tag;
            }
        };
        // Erratum 3 (§21): this one is answered under another id.
        let id = if id == calls::GET_ASIC_VOLTAGE.id { calls::GET_MODULE_VOLTAGE.id } else { id };
        let reply = Reply::default();
        self.pending.push(Pending { tag, id, reply: Arc::clone(&reply) });
        Ok((tag, reply))
    }

    /// No one waits for this answer any more; it is noise if it comes.
    pub(super) fn give_up(&mut self, tag: Tag) {
        self.pending.retain(|pending| pending.tag != tag);
    }

    /// Takes a message from the queue.
    pub(super) fn arrive(&mut self, bytes: &[u8], now: Duration) -> Arrival {
        // The header was there before the link was lost, what follows was not. Less than a word of
        // ones says nothing: that is no message of the card's, but garbage.
        let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
        if body.len() >= size_of::<u64>() && body.iter().all(|byte| *byte == 0xff) {
            return Arrival::AllOnes;
        }
        let kind = match Message::parse(bytes) {
            Ok(Message::Response(response)) => {
                let is_it = |p: &Pending| p.tag == response.tag && p.id == response.id;
                let Some(at) = self.pending.iter().position(is_it) else {
                    self.counters.stray_responses += 1;
                    tracing::debug!(tag = %response.tag, id = response.id, "stray response");
                    return Arrival::Noise;
                };
                let answer = Answer {
                    status: response.status,
                    latency: Duration::from_micros(response.latency_us),
                    payload: response.payload.into(),
                };
                return Arrival::Answer(self.pending.swap_remove(at).reply, answer);
            }
            Ok(Message::Event(event)) => ManagementEventKind::Card(event),
            Ok(Message::Breakpoint(event)) => ManagementEventKind::Breakpoint(event),
            other => {
                self.counters.malformed_messages += 1;
                tracing::warn!(?other, "the service processor talks nonsense");
                return Arrival::Noise;
            }
        };
        if self.events.len() == EVENTS {
            self.events.pop_front();
            self.counters.events_lost += 1;
        }
        self.counters.events += 1;
        self.events.push_back(ManagementEvent { seen: now, kind });
        Arrival::Event
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn take_event(&mut self) -> Option<ManagementEvent> {
        self.events.pop_front()
    }

    /// Nothing can be sent any more; returns who waits for an answer. The first reason stays.
    pub(super) fn lose(&mut self, error: &Error) -> Vec<Reply> {
        self.lost.get_or_insert_with(|| error.clone());
        self.pending.drain(..).map(|pending| pending.reply).collect()
    }
}

#[cfg(test)]
mod tests {
    use et_devapi::msg::mgmt::{EventClass, EventId, Response};
    use proptest::prelude::{Strategy, any, prop_oneof};
    use proptest::{collection, proptest};

    use super::*;

    const NOW: Duration = Duration::from_secs(7);

    fn response(tag: Tag, id: u16, status: i32) -> Vec<u8> {
        let mut bytes = [0; 64];
        let response = Response { tag, id, latency_us: 12, status, payload: &[1, 2, 3] };
        let len = response.encode(&mut bytes).unwrap();
        bytes[..len].to_vec()
    }

    fn event(count: u16) -> Event {
        Event { id: EventId::DramCorrected, class: EventClass::Warning, count, syndromes: [0; 2] }
    }

    #[test]
    fn an_answer_finds_its_command_by_tag_and_id() {
        let mut core = Core::new();
        let (first, _) = core.begin(30).unwrap();
        let (second, reply) = core.begin(32).unwrap();
        assert_ne!(first, second);
        // The right tag under the wrong id, a tag of no one.
        for (tag, id) in [(first, 31), (second, 30), (second, 32), (Tag::new(999), 30)] {
            let arrival = core.arrive(&response(tag, id, 0), NOW);
            assert!(matches!(arrival, Arrival::Noise), "{tag} {id}");
        }
        assert_eq!(core.counters.stray_responses, 4);
        let Arrival::Answer(found, answer) = core.arrive(&response(second, 31, -5), NOW) else {
            panic!()
        };
        assert!(Arc::ptr_eq(&found, &reply));
        assert_eq!((answer.status, answer.latency), (-5, Duration::from_micros(12)));
        assert_eq!(answer.payload[..4], [1, 2, 3, 0]);
        let twice = core.arrive(&response(second, 31, 0), NOW);
        assert!(matches!(twice, Arrival::Noise), "an answer comes once");
    }

    #[test]
    fn a_late_answer_is_not_that_of_the_next_command() {
        let mut core = Core::new();
        let (old, _) = core.begin(30).unwrap();
        core.give_up(old);
        let (new, _) = core.begin(30).unwrap();
        assert_ne!(old, new);
        assert!(matches!(core.arrive(&response(old, 30, 0), NOW), Arrival::Noise));
        assert!(matches!(core.arrive(&response(new, 30, 0), NOW), Arrival::Answer(..)));
    }

    #[test]
    fn tags_go_round_past_those_in_use() {
        let mut core = Core::new();
        let (kept, _) = core.begin(30).unwrap();
        for _ in 0..70_000 {
            let (tag, _) = core.begin(30).unwrap();
            assert!(tag != kept && tag != Tag::EVENT);
            core.give_up(tag);
        }
        for _ in 1..PENDING {
            core.begin(30).unwrap();
        }
        assert!(core.begin(30).is_err(), "there is an end");
    }

    #[test]
    fn events_are_kept_in_order_and_losses_counted() {
        let mut core = Core::new();
        for count in 0..1030 {
            assert!(matches!(core.arrive(&event(count).encode(), NOW), Arrival::Event));
        }
        assert_eq!((core.counters.events, core.counters.events_lost), (1030, 6));
        for count in 6..1030 {
            let kind = ManagementEventKind::Card(event(count));
            assert_eq!(core.take_event(), Some(ManagementEvent { seen: NOW, kind }));
        }
        assert_eq!(core.take_event(), None);
    }

    #[test]
    fn a_loss_reaches_everyone_and_stays() {
        let mut core = Core::new();
        core.begin(30).unwrap();
        core.begin(33).unwrap();
        assert_eq!(core.lose(&Error::all_closed()).len(), 2);
        assert_eq!(core.lose(&Error::all_stale()).len(), 0);
        assert!(matches!(core.begin(30), Err(Error::Closed { .. })));
    }

    #[test]
    fn a_message_of_ones_is_a_lost_card_and_no_answer() {
        let mut core = Core::new();
        let (tag, _) = core.begin(33).unwrap();
        let mut bytes = response(tag, 33, 0);
        bytes[8..].fill(0xff);
        assert!(matches!(core.arrive(&bytes, NOW), Arrival::AllOnes));
        let mut bytes = event(1).encode();
        bytes[8..].fill(0xff);
        assert!(matches!(core.arrive(&bytes, NOW), Arrival::AllOnes));
        assert_eq!((core.pending.len(), core.has_events()), (1, false));
        for len in 1..8 {
            let mut bytes = vec![0; 8];
            bytes.resize(8 + len, 0xff);
            assert!(matches!(core.arrive(&bytes, NOW), Arrival::Noise), "{len} bytes of garbage");
        }
        assert_eq!(core.counters.malformed_messages, 7);
    }

    fn messages() -> impl Strategy<Value = Vec<u8>> {
        let answers = (0..6_u16, 28..34_u16).prop_map(|(tag, id)| response(Tag::new(tag), id, 0));
        prop_oneof![answers, collection::vec(any::<u8>(), 0..300)]
    }

    proptest! {
        #[test]
        fn every_message_is_counted_once_whatever_comes(
            all in collection::vec(messages(), 0..60),
        ) {
            let mut core = Core::new();
            for id in 28..33 {
                core.begin(id).unwrap();
            }
            let mut answers = 0;
            for message in &all {
                if let Arrival::Answer(..) = core.arrive(message, NOW) {
                    answers += 1;
                }
            }
            let ManagementCounters { stray_responses, malformed_messages, events, .. } =
                core.counters;
            let counted = answers + stray_responses + malformed_messages + events;
            assert_eq!(counted, all.len() as u64);
            assert_eq!(core.pending.len() as u64, 5 - answers);
        }
    }
}
