//! Messages of the protocol: one packet each, all numbers little-endian.

use std::time::Duration;

use et_runtime::management::{Answer, ManagementCounters};
use et_runtime::{Activity, Error, Refusal};

/// Bytes of the largest message.
pub(super) const MOST: usize = 4096;
/// The first bytes of a greeting: what this is, and which version of it.
const MAGIC: &[u8; 12] = b"ET-share\x01\0\0\0";

/// Takes fields off a message.
struct Fields<'m>(&'m [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// What a server says first: where it has the device from.
pub(super) fn greeting(locator: &str) -> Vec<u8> {
    let mut message = MAGIC.to_vec();
    for c in locator.chars() {
        if message.len() + c.len_utf8() > MOST {
            break;
        }
        message.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    message
}

pub(super) fn parse_greeting(message: &[u8]) -> Option<String> {
    message.strip_prefix(MAGIC).and_then(|rest| String::from_utf8(rest.to_vec()).ok())
}

/// In place of a command: what the process has its device do.
pub(super) const ACTIVITY: u16 = u16::MAX;

/// A command for the service processor, or [`ACTIVITY`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'m> {
    pub(super) id: u16,
    pub(super) timeout: Duration,
    pub(super) payload: &'m [u8],
}

impl<'m> Request<'m> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let millis = u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX);
        let mut message = self.id.to_le_bytes().to_vec();
        message.extend_from_slice(&millis.to_le_bytes());
        message.extend_from_slice(self.payload);
        message
    }

    pub(super) fn parse(message: &'m [u8]) -> Option<Self> {
        let mut fields = Fields(message);
        let id = fields.u16()?;
        let timeout = Duration::from_millis(fields.u32()?.into());
        Some(Self { id, timeout, payload: fields.0 })
    }
}

/// The fields in their order.
fn fields(activity: &mut Activity) -> impl Iterator<Item = &mut u64> {
    let fields = [
        &mut activity.streams,
        &mut activity.accepted,
        &mut activity.pending,
        &mut activity.in_flight,
        &mut activity.memory_bytes,
        &mut activity.memory_used_bytes,
        &mut activity.buffers,
        &mut activity.launches,
        &mut activity.to_device_bytes,
        &mut activity.to_host_bytes,
        &mut activity.available_shires,
        &mut activity.launched_shires,
    ];
    fields.into_iter().chain(&mut activity.busy_cycles)
}

pub(super) fn encode_activity(mut activity: Activity) -> Vec<u8> {
    fields(&mut activity).flat_map(|field| field.to_le_bytes()).collect()
}

/// What comes behind what is known here is of a later version.
pub(super) fn parse_activity(message: &[u8]) -> Option<Activity> {
    let (mut message, mut activity) = (Fields(message), Activity::default());
    for field in fields(&mut activity) {
        *field = message.u64()?;
    }
    Some(activity)
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Timeout,
    Closed,
    /// Not allowed, or the endpoint has failed.
    Refused(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Timeout { .. } => Self::Timeout,
            Error::Closed { .. } => Self::Closed,
            error => Self::Refused(et_runtime::Report(&error).to_string()),
        }
    }
}

impl Failure {
    pub(super) fn error(self, op: &'static str, after: Duration) -> Error {
        match self {
            Self::Timeout => Error::timeout(op, after),
            Self::Closed => Error::closed(op),
            Self::Refused(why) => Error::Refused { op, status: Refusal::Owner(why.into()) },
        }
    }
}

/// What became of a request, and the counts of the endpoint after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) outcome: Result<Answer, Failure>,
    pub(super) counters: ManagementCounters,
}

impl Response {
    pub(super) fn encode(&self) -> Vec<u8> {
        let c = &self.counters;
        let counts =
            [c.stray_responses, c.malformed_messages, c.events, c.events_lost, c.full_queues];
        let (code, status, latency, body) = match &self.outcome {
            Ok(answer) => (0_u16, answer.status, answer.latency, &*answer.payload),
            Err(Failure::Timeout) => (1, 0, Duration::ZERO, &[][..]),
            Err(Failure::Closed) => (2, 0, Duration::ZERO, &[][..]),
            Err(Failure::Refused(why)) => (3, 0, Duration::ZERO, why.as_bytes()),
        };
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let mut message = code.to_le_bytes().to_vec();
        message.extend_from_slice(&status.to_le_bytes());
        message.extend_from_slice(&latency.to_le_bytes());
        counts.iter().for_each(|count| message.extend_from_slice(&count.to_le_bytes()));
        let room = MOST - message.len();
        message.extend_from_slice(&body[..body.len().min(room)]);
        message
    }

    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let mut fields = Fields(message);
        let code = fields.u16()?;
        let status = fields.u32()?.cast_signed();
        let latency = Duration::from_nanos(fields.u64()?);
        let mut counters = ManagementCounters::default();
        for count in [
            &mut counters.stray_responses,
            &mut counters.malformed_messages,
            &mut counters.events,
            &mut counters.events_lost,
            &mut counters.full_queues,
        ] {
            *count = fields.u64()?;
        }
        let body = fields.0;
        let outcome = match code {
            0 => Ok(Answer { status, latency, payload: body.into() }),
            1 => Err(Failure::Timeout),
            2 => Err(Failure::Closed),
            3 => Err(Failure::Refused(String::from_utf8_lossy(body).into_owned())),
            _ => return None,
        };
        Some(Self { outcome, counters })
    }
}

#[cfg(test)]
mod tests {
    use et_runtime::management::command_info;

    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in() {
        let request = Request { id: 27, timeout: Duration::from_millis(1500), payload: &[1, 2, 3] };
        assert_eq!(Request::parse(&request.encode()), Some(request));
        assert_eq!(parse_greeting(&greeting("sim:shires=3")).as_deref(), Some("sim:shires=3"));
        let mut counters = ManagementCounters::default();
        (counters.stray_responses, counters.malformed_messages) = (1, 2);
        (counters.events, counters.events_lost, counters.full_queues) = (3, 4, 5);
        let latency = Duration::from_nanos(77);
        let answer = Answer { status: -5, latency, payload: [9; 40].as_slice().into() };
        for outcome in [
            Ok(answer),
            Err(Failure::Timeout),
            Err(Failure::Closed),
            Err(Failure::Refused("because".into())),
        ] {
            let response = Response { outcome, counters };
            assert_eq!(Response::parse(&response.encode()).as_ref(), Some(&response));
        }
    }

    #[test]
    fn activities_come_out_as_they_went_in() {
        let mut activity = Activity::default();
        for (field, value) in fields(&mut activity).zip(1..) {
            *field = value;
        }
        let message = encode_activity(activity);
        assert_eq!(parse_activity(&message), Some(activity));
        assert_eq!(parse_activity(&[&message[..], &[1; 8]].concat()), Some(activity));
        assert_eq!(parse_activity(&message[..message.len() - 1]), None);
        assert!(command_info(ACTIVITY).is_none(), "no command has this number");
    }

    #[test]
    fn what_is_cut_off_or_of_another_version_is_not_understood() {
        let whole = Response { outcome: Err(Failure::Closed), counters: Default::default() };
        let whole = whole.encode();
        assert!((0..whole.len()).all(|len| Response::parse(&whole[..len]).is_none()));
        assert_eq!(Response::parse(&[&[9, 0], &whole[2..]].concat()), None);
        assert!((0..6).all(|len| Request::parse(&[0; 6][..len]).is_none()));
        let mut greeting = greeting("sim:");
        greeting[8] += 1;
        assert_eq!(parse_greeting(&greeting), None);
        assert_eq!(parse_greeting(b"ET-sh"), None);
    }

    #[test]
    fn no_message_is_larger_than_the_room_for_it() {
        let long = "ü".repeat(MOST);
        assert!(greeting(&long).len() <= MOST && parse_greeting(&greeting(&long)).is_some());
        let outcome = Err(Failure::Refused(long));
        let response = Response { outcome, counters: ManagementCounters::default() };
        assert!(response.encode().len() <= MOST);
    }
}
