//! Hostile behaviour, as data.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use et_devapi::msg::ops::MsgId;
use et_hal::Endpoint;

/// One thing that the device does wrong.
///
/// Counts start at 1. Everything random comes from the seed of the board, so a run can be repeated.
/// The text form, as [`FromStr`] takes it and [`Display`](fmt::Display) gives it, is the name of
/// the fault and its parameters, separated by colons: `drop-response:3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `never-boots`: the registers of the device stay unreachable, all reads return ones.
    NeverBoots,
    /// `boot-stops:ENDPOINT:STATUS`: the endpoint gets this far and no further.
    BootStops {
        /// The endpoint (`ops` or `mgmt`).
        endpoint: Endpoint,
        /// The last status it publishes.
        status: i16,
    },
    /// `boot-error:ENDPOINT`: the endpoint publishes status −1 and stops.
    BootError {
        /// The endpoint (`ops` or `mgmt`).
        endpoint: Endpoint,
    },
    /// `stuck:SCOPE`: the operations endpoint publishes status −1 at every boot, until the `slot`
    /// or the `chip` is reset.
    Stuck {
        /// The gentlest reset that helps.
        until: StuckUntil,
    },
    /// `bad-crc:ENDPOINT`: one bit of the registers is wrong.
    BadCrc {
        /// The endpoint (`ops` or `mgmt`).
        endpoint: Endpoint,
    },
    /// `bad-size:ENDPOINT:BYTES`: the registers claim another total size.
    BadSize {
        /// The endpoint (`ops` or `mgmt`).
        endpoint: Endpoint,
        /// The claim in bytes.
        total_size: u16,
    },
    /// `no-frequency`: the registers give 0 for the clock of the cores.
    NoFrequency,
    /// `noise`: random bytes in the flags and the padding of every response, as real firmware does.
    Noise,
    /// `spurious-interrupts:N`: with every N-th interrupt all four vectors are raised.
    SpuriousInterrupts {
        /// Period in interrupts.
        every: NonZeroU32,
    },
    /// `lost-interrupts:N`: every N-th interrupt is lost; 1 loses them all.
    LostInterrupts {
        /// Period in interrupts.
        every: NonZeroU32,
    },
    /// `bad-index:N:HEAD`: after the N-th response the head of the completion queue is `HEAD`.
    BadIndex {
        /// Number of the response.
        nth: u64,
        /// What is published, not a legal index if it is at least the length of the ring.
        head: u64,
    },
    /// `garbage:N`: the N-th response is a message of random bytes.
    Garbage {
        /// Number of the response.
        nth: u64,
    },
    /// `unknown-tag:N:TAG`: before the N-th response comes one more for a tag that is not in use.
    UnknownTag {
        /// Number of the response.
        nth: u64,
        /// The tag.
        tag: u16,
    },
    /// `drop-response:N`: the N-th response is never sent.
    DropResponse {
        /// Number of the response.
        nth: u64,
    },
    /// `duplicate-response:N`: the N-th response is sent twice.
    DuplicateResponse {
        /// Number of the response.
        nth: u64,
    },
    /// `answer:COMMAND:N:STATUS`: the N-th answer to such a command has this status, whatever
    /// became of the command. Spec: §7
    Answer {
        /// The command: its name in the specification, `echo` or `kernel-launch`.
        to: Answered,
        /// Number of the answer to such commands.
        nth: NonZeroU32,
        /// The status, as a number of the answer's enumeration or any other.
        status: u32,
    },
    /// `delay-responses:MICROSECONDS`: every response comes this much late, in order.
    DelayResponses {
        /// How late.
        by: Duration,
    },
    /// `partial-message:N:BYTES:MICROSECONDS`: the N-th response is published in two pieces.
    PartialMessage {
        /// Number of the response.
        nth: u64,
        /// Bytes of the first piece.
        bytes: u16,
        /// Time between the pieces.
        delay: Duration,
    },
    /// `hang:N`: the operations firmware stops for good after it has executed N commands.
    Hang {
        /// Commands it still executes; 0 stops it as soon as it is ready.
        after: u64,
    },
    /// `compute-hang:N`: the cores do not acknowledge the N-th launch. The host gets the event, and
    /// every launch and abort of a kernel fails until a compute reset.
    ComputeHang {
        /// Number of the launch.
        nth: u64,
    },
    /// `compute-exception:N:HART`: the firmware of a hart takes an exception after the N-th launch
    /// has begun, which never ends. The host gets the event, and every launch fails until a compute
    /// reset.
    ComputeException {
        /// Number of the launch.
        nth: u64,
        /// The hart.
        hart: u32,
    },
    /// `ecc:SOURCE:CORRECTED:UNCORRECTABLE`: error correction has found so many errors when the
    /// service processor starts.
    Ecc {
        /// Where: `dram`, `sram` or `pcie`.
        source: ErrorSource,
        /// Errors that were corrected.
        corrected: u32,
        /// Errors that could not be.
        uncorrectable: u32,
    },
    /// `sp-garbage:N:SIZE`: the N-th response of the service processor is random, except for its
    /// size field.
    SpGarbage {
        /// Number of the response.
        nth: u64,
        /// The size field.
        size: u16,
    },
    /// `sp-silent:N`: the service processor answers N commands and then none.
    SpSilent {
        /// Commands it still answers.
        after: u64,
    },
    /// `link-loss:N`: after N accesses to the BARs every read returns ones and writes are lost.
    LinkLoss {
        /// Accesses that still work.
        after: u32,
    },
}

impl Fault {
    /// Returns `true` if it shows in the boot, or in what the registers say after it.
    pub(crate) fn is_of_boot(&self) -> bool {
        matches!(
            self,
            Self::NeverBoots
                | Self::BootStops { .. }
                | Self::BootError { .. }
                | Self::Stuck { .. }
                | Self::BadCrc { .. }
                | Self::BadSize { .. }
                | Self::NoFrequency
        )
    }

    /// Returns the fault if it shows in responses, to happen so many responses later.
    pub(crate) fn of_responses_after(mut self, past: u64) -> Option<Self> {
        match &mut self {
            Self::BadIndex { nth, .. }
            | Self::Garbage { nth }
            | Self::UnknownTag { nth, .. }
            | Self::DropResponse { nth }
            | Self::DuplicateResponse { nth }
            | Self::PartialMessage { nth, .. } => *nth = nth.saturating_add(past),
            // It counts for itself.
            Self::Answer { .. } | Self::Noise | Self::DelayResponses { .. } => {}
            _ => return None,
        }
        Some(self)
    }
}

/// The form of one fault, for error messages and help.
pub const FAULT_FORMS: &[&str] = &[
    "never-boots",
    "boot-stops:ENDPOINT:STATUS",
    "boot-error:ENDPOINT",
    "stuck:SCOPE",
    "bad-crc:ENDPOINT",
    "bad-size:ENDPOINT:BYTES",
    "no-frequency",
    "noise",
    "spurious-interrupts:N",
    "lost-interrupts:N",
    "bad-index:N:HEAD",
    "garbage:N",
    "unknown-tag:N:TAG",
    "drop-response:N",
    "duplicate-response:N",
    "answer:COMMAND:N:STATUS",
    "delay-responses:MICROSECONDS",
    "partial-message:N:BYTES:MICROSECONDS",
    "hang:N",
    "compute-hang:N",
    "compute-exception:N:HART",
    "ecc:SOURCE:CORRECTED:UNCORRECTABLE",
    "sp-garbage:N:SIZE",
    "sp-silent:N",
    "link-loss:N",
];

/// The gentlest reset that mends what is [stuck](Fault::Stuck).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StuckUntil {
    /// That of the slot.
    Slot,
    /// That of the chip.
    Chip,
}

/// A command of the operations interface that is answered with a status. Spec: §7.1
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Answered {
    /// `compatibility`. Spec: §7.2
    Compatibility,
    /// `firmware-version`. Spec: §7.3
    FirmwareVersion,
    /// `echo`. Spec: §7.4
    Echo,
    /// `abort`. Spec: §7.5
    Abort,
    /// `kernel-launch`. Spec: §7.6
    KernelLaunch,
    /// `kernel-abort`. Spec: §7.7
    KernelAbort,
    /// `dma-read`. Spec: §7.8
    DmaRead,
    /// `dma-write`. Spec: §7.8
    DmaWrite,
    /// `p2p-read`. Spec: §7.9
    P2pRead,
    /// `p2p-write`. Spec: §7.9
    P2pWrite,
    /// `trace-config`. Spec: §7.10
    TraceConfig,
    /// `trace-control`. Spec: §7.11
    TraceControl,
    /// `compute-reset`. Spec: §7.12
    ComputeReset,
}

impl Answered {
    /// Names, ids of the answers, and where in them the status is.
    const ALL: [(Self, &str, MsgId, usize); 13] = [
        (Self::Compatibility, "compatibility", MsgId::CompatibilityRsp, 8),
        (Self::FirmwareVersion, "firmware-version", MsgId::FirmwareVersionRsp, 8),
        (Self::Echo, "echo", MsgId::EchoRsp, 16),
        (Self::Abort, "abort", MsgId::AbortRsp, 8),
        (Self::KernelLaunch, "kernel-launch", MsgId::KernelLaunchRsp, 32),
        (Self::KernelAbort, "kernel-abort", MsgId::KernelAbortRsp, 8),
        (Self::DmaRead, "dma-read", MsgId::DmaReadListRsp, 32),
        (Self::DmaWrite, "dma-write", MsgId::DmaWriteListRsp, 32),
        (Self::P2pRead, "p2p-read", MsgId::P2pDmaReadListRsp, 32),
        (Self::P2pWrite, "p2p-write", MsgId::P2pDmaWriteListRsp, 32),
        (Self::TraceConfig, "trace-config", MsgId::TraceRtConfigRsp, 8),
        (Self::TraceControl, "trace-control", MsgId::TraceRtControlRsp, 8),
        (Self::ComputeReset, "compute-reset", MsgId::CmResetRsp, 8),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns the bytes of the status in an answer to such a command; `None` if it is another.
    pub(crate) fn status_in(self, message: &mut [u8]) -> Option<&mut [u8; 4]> {
        let (_, _, id, at) = Self::ALL[self as usize];
        let is_it = message.get(4..6)? == id.as_u16().to_le_bytes();
        message.get_mut(at..)?.first_chunk_mut().filter(|_| is_it)
    }
}

/// Memory and wires that are watched for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorSource {
    /// The DRAM.
    Dram,
    /// The static memory of the shires.
    Sram,
    /// The PCIe link.
    Pcie,
}

impl ErrorSource {
    const NAMES: [(Self, &str); 3] =
        [(Self::Dram, "dram"), (Self::Sram, "sram"), (Self::Pcie, "pcie")];

    fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

/// A text that names no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a fault; faults are {}", FAULT_FORMS.join(", "))]
pub struct ParseFaultError {
    text: String,
}

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, ParseFaultError> {
        let mut fields = Fields { rest: text.split(':') };
        fields
            .fault()
            .filter(|_| fields.rest.next().is_none())
            .ok_or_else(|| ParseFaultError { text: text.to_owned() })
    }
}

struct Fields<'a> {
    rest: std::str::Split<'a, char>,
}

impl Fields<'_> {
    fn fault(&mut self) -> Option<Fault> {
        Some(match self.rest.next()? {
            "never-boots" => Fault::NeverBoots,
            "boot-stops" => Fault::BootStops { endpoint: self.endpoint()?, status: self.number()? },
            "boot-error" => Fault::BootError { endpoint: self.endpoint()? },
            "stuck" => Fault::Stuck { until: self.until()? },
            "bad-crc" => Fault::BadCrc { endpoint: self.endpoint()? },
            "bad-size" => Fault::BadSize { endpoint: self.endpoint()?, total_size: self.number()? },
            "no-frequency" => Fault::NoFrequency,
            "noise" => Fault::Noise,
            "spurious-interrupts" => Fault::SpuriousInterrupts { every: self.number()? },
            "lost-interrupts" => Fault::LostInterrupts { every: self.number()? },
            "bad-index" => Fault::BadIndex { nth: self.number()?, head: self.number()? },
            "garbage" => Fault::Garbage { nth: self.number()? },
            "unknown-tag" => Fault::UnknownTag { nth: self.number()?, tag: self.number()? },
            "drop-response" => Fault::DropResponse { nth: self.number()? },
            "duplicate-response" => Fault::DuplicateResponse { nth: self.number()? },
            "answer" => {
                Fault::Answer { to: self.answered()?, nth: self.number()?, status: self.number()? }
            }
            "delay-responses" => Fault::DelayResponses { by: self.micros()? },
            "partial-message" => Fault::PartialMessage {
                nth: self.number()?,
                bytes: self.number()?,
                delay: self.micros()?,
            },
            "hang" => Fault::Hang { after: self.number()? },
            "compute-hang" => Fault::ComputeHang { nth: self.number()? },
            "compute-exception" => {
                Fault::ComputeException { nth: self.number()?, hart: self.number()? }
            }
            "ecc" => Fault::Ecc {
                source: self.source()?,
                corrected: self.number()?,
                uncorrectable: self.number()?,
            },
            "sp-garbage" => Fault::SpGarbage { nth: self.number()?, size: self.number()? },
            "sp-silent" => Fault::SpSilent { after: self.number()? },
            "link-loss" => Fault::LinkLoss { after: self.number()? },
            _ => return None,
        })
    }

    fn number<T: FromStr>(&mut self) -> Option<T> {
        self.rest.next()?.parse().ok()
    }

    fn micros(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_micros)
    }

    fn source(&mut self) -> Option<ErrorSource> {
        let text = self.rest.next()?;
        ErrorSource::NAMES.iter().find(|(_, name)| *name == text).map(|(source, _)| *source)
    }

    fn answered(&mut self) -> Option<Answered> {
        let text = self.rest.next()?;
        Answered::ALL.iter().find(|(_, name, ..)| *name == text).map(|(command, ..)| *command)
    }

    fn until(&mut self) -> Option<StuckUntil> {
        match self.rest.next()? {
            "slot" => Some(StuckUntil::Slot),
            "chip" => Some(StuckUntil::Chip),
            _ => None,
        }
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        match self.rest.next()? {
            "ops" => Some(Endpoint::Operations),
            "mgmt" => Some(Endpoint::Management),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |endpoint: &Endpoint| match endpoint {
            Endpoint::Management => "mgmt",
            _ => "ops",
        };
        match self {
            Self::NeverBoots => f.write_str("never-boots"),
            Self::BootStops { endpoint, status } => {
                write!(f, "boot-stops:{}:{status}", end(endpoint))
            }
            Self::BootError { endpoint } => write!(f, "boot-error:{}", end(endpoint)),
            Self::Stuck { until: StuckUntil::Slot } => f.write_str("stuck:slot"),
            Self::Stuck { until: StuckUntil::Chip } => f.write_str("stuck:chip"),
            Self::BadCrc { endpoint } => write!(f, "bad-crc:{}", end(endpoint)),
            Self::BadSize { endpoint, total_size } => {
                write!(f, "bad-size:{}:{total_size}", end(endpoint))
            }
            Self::NoFrequency => f.write_str("no-frequency"),
            Self::Noise => f.write_str("noise"),
            Self::SpuriousInterrupts { every } => write!(f, "spurious-interrupts:{every}"),
            Self::LostInterrupts { every } => write!(f, "lost-interrupts:{every}"),
            Self::BadIndex { nth, head } => write!(f, "bad-index:{nth}:{head}"),
            Self::Garbage { nth } => write!(f, "garbage:{nth}"),
            Self::UnknownTag { nth, tag } => write!(f, "unknown-tag:{nth}:{tag}"),
            Self::DropResponse { nth } => write!(f, "drop-response:{nth}"),
            Self::DuplicateResponse { nth } => write!(f, "duplicate-response:{nth}"),
            Self::Answer { to, nth, status } => write!(f, "answer:{}:{nth}:{status}", to.name()),
            Self::DelayResponses { by } => write!(f, "delay-responses:{}", by.as_micros()),
            Self::PartialMessage { nth, bytes, delay } => {
                write!(f, "partial-message:{nth}:{bytes}:{}", delay.as_micros())
            }
            Self::Hang { after } => write!(f, "hang:{after}"),
            Self::ComputeHang { nth } => write!(f, "compute-hang:{nth}"),
            Self::ComputeException { nth, hart } => write!(f, "compute-exception:{nth}:{hart}"),
            Self::Ecc { source, corrected, uncorrectable } => {
                write!(f, "ecc:{}:{corrected}:{uncorrectable}", source.name())
            }
            Self::SpGarbage { nth, size } => write!(f, "sp-garbage:{nth}:{size}"),
            Self::SpSilent { after } => write!(f, "sp-silent:{after}"),
            Self::LinkLoss { after } => write!(f, "link-loss:{after}"),
        }
    }
}

/// Random numbers for noise: small, fast and the same on every host.
#[derive(Clone, Debug)]
pub(crate) struct Noise {
    state: u64,
}

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// `SplitMix64`.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use et_devapi::msg::Tag;
    use et_devapi::msg::ops::{Body, Completion, DmaStatus, FirmwareType, Times, Version};

    use super::*;

    #[test]
    fn every_fault_survives_its_text_form() {
        let texts = [
            "never-boots",
            "boot-stops:mgmt:7",
            "boot-error:ops",
            "stuck:chip",
            "bad-crc:mgmt",
            "bad-size:ops:600",
            "no-frequency",
            "noise",
            "spurious-interrupts:3",
            "lost-interrupts:1",
            "bad-index:2:5000",
            "garbage:4",
            "unknown-tag:1:77",
            "drop-response:9",
            "duplicate-response:9",
            "answer:kernel-launch:1:12",
            "delay-responses:250",
            "partial-message:1:12:100",
            "hang:0",
            "compute-hang:2",
            "compute-exception:2:77",
            "ecc:sram:3:1",
            "sp-garbage:1:24",
            "sp-silent:4",
            "link-loss:100",
        ];
        assert_eq!(texts.len(), FAULT_FORMS.len());
        for (text, form) in texts.iter().zip(FAULT_FORMS) {
            assert_eq!(text.split(':').next(), form.split(':').next());
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), *text);
        }
    }

    /// Where the status of each answer is, by what writes answers.
    #[test]
    fn statuses_are_where_answers_have_them() {
        let times = Times::default();
        let version = Version::default();
        let firmware = FirmwareType::MasterMinion;
        let dma = DmaStatus::from;
        for (name, body) in [
            ("compatibility", Body::Compatibility { status: 7.into(), version }),
            ("firmware-version", Body::FirmwareVersion { status: 7.into(), version, firmware }),
            ("echo", Body::Echo { start: 0, status: 7.into() }),
            ("abort", Body::Abort { status: 7.into() }),
            ("kernel-launch", Body::Launch { times, status: 7.into(), error: None }),
            ("kernel-abort", Body::KernelAbort { status: 7.into() }),
            ("dma-read", Body::DmaRead { times, status: dma(7) }),
            ("dma-write", Body::DmaWrite { times, status: dma(7) }),
            ("p2p-read", Body::P2pRead { times, status: dma(7) }),
            ("p2p-write", Body::P2pWrite { times, status: dma(7) }),
            ("trace-config", Body::TraceConfig { status: 7.into() }),
            ("trace-control", Body::TraceControl { status: 7.into() }),
            ("compute-reset", Body::CmReset { status: 7.into() }),
        ] {
            let Fault::Answer { to, .. } = format!("answer:{name}:1:0").parse().unwrap() else {
                panic!("{name}");
            };
            let mut message = [0; 64];
            let len = Completion::new(Tag::new(1), body).encode(&mut message).unwrap();
            let field = to.status_in(&mut message[..len]).unwrap();
            assert_eq!(*field, 7u32.to_le_bytes(), "{name}");
            assert!(
                Answered::Echo == to || Answered::Echo.status_in(&mut message[..len]).is_none()
            );
        }
    }

    #[test]
    fn commands_are_listed_in_their_order() {
        for (at, (command, name, ..)) in Answered::ALL.into_iter().enumerate() {
            assert_eq!((command as usize, command.name()), (at, name));
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_list() {
        for text in ["", "hang", "hang:x", "hang:1:2", "lost-interrupts:0", "boot-error:cm"] {
            let error = text.parse::<Fault>().unwrap_err();
            assert!(error.to_string().contains("hang:N"), "{text}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_noise() {
        let (mut a, mut b) = (Noise::new(7), Noise::new(7));
        let (mut x, mut y) = ([0; 13], [0; 13]);
        a.fill(&mut x);
        b.fill(&mut y);
        assert_eq!(x, y);
        assert_ne!(x, [0; 13]);
    }
}
