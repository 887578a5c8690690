//! Commands of the random programs.

use et_devapi::msg::ops::{Body, DmaStatus, LaunchStatus};

use crate::Error;
use crate::link::core::{Load, Verdict, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::link::core) enum Kind {
    Copy,
    Launch,
    /// An echo in a stream.
    Barrier,
    Abort,
    Ping,
    Own,
    /// Resets compute.
    Reset,
    /// What follows from the answer to a launch, and keeps its context.
    Report,
}

/// A command of the model; it knows what it belongs to, for the checks.
#[derive(Debug)]
pub(in crate::link::core) struct Model {
    pub(in crate::link::core) kind: Kind,
    pub(in crate::link::core) op: u64,
    pub(in crate::link::core) context: Option<u32>,
    /// It brings a context of its own, which nothing may use again unless it completes.
    pub(in crate::link::core) is_fresh: bool,
}

impl Model {
    pub(in crate::link::core) const fn new(kind: Kind, op: u64) -> Self {
        Self { kind, op, context: None, is_fresh: false }
    }
}

impl Load for Model {
    type Context = u32;

    fn abort() -> Self {
        Self::new(Kind::Abort, 0)
    }

    fn ping() -> Self {
        Self::new(Kind::Ping, 0)
    }

    fn is_launch(&self) -> bool {
        self.kind == Kind::Launch
    }

    fn wants_context(&self) -> bool {
        self.is_launch() && self.context.is_none()
    }

    fn give_context(&mut self, context: u32) {
        assert!(self.context.replace(context).is_none(), "two contexts");
    }

    fn take_context(&mut self) -> Option<u32> {
        // As those of users: it comes back by a decision only.
        self.context.take_if(|_| self.kind == Kind::Launch)
    }

    fn has_clean_context(&self) -> bool {
        !self.is_fresh
    }

    fn has_context(&self) -> bool {
        self.is_launch()
    }

    fn take_listener(&mut self) -> Option<Self> {
        let is_own = matches!(self.kind, Kind::Own | Kind::Reset);
        is_own.then(|| std::mem::replace(self, Self::ping()))
    }

    fn work(&self) -> Work {
        match self.kind {
            Kind::Launch => Work::Launch(1 << (self.op % 32)),
            Kind::Copy => Work::ToDevice(self.op),
            _ => Work::Other,
        }
    }

    fn verdict(&self, answer: &Body) -> Verdict {
        match (self.kind, answer) {
            (Kind::Own, answer) => Verdict::of_reply(answer),
            (Kind::Reset, Body::CmReset { .. }) => Verdict::Hold(None),
            (Kind::Barrier | Kind::Ping, Body::Echo { status, .. }) => Verdict::of_echo(*status),
            (Kind::Abort, Body::Abort { status }) => Verdict::of_abort(*status),
            (Kind::Report, Body::DmaWrite { status, .. }) => match status {
                DmaStatus::HostAborted => Verdict::NOT_BEGUN,
                _ => Verdict::Hold(None),
            },
            (Kind::Copy, Body::DmaWrite { status, times }) => match status {
                DmaStatus::Complete => Verdict::Done(None),
                DmaStatus::HostAborted => {
                    Verdict::Aborted { is_repeatable: true, has_begun: times.execute != 0 }
                }
                status => Verdict::Failed(Error::Copy { op: "copy", status: *status }, None),
            },
            (Kind::Launch, Body::Launch { status, times, .. }) => match status {
                LaunchStatus::KernelCompleted => Verdict::Done(Some(*times)),
                LaunchStatus::HostAborted => Verdict::of_launch_aborted(times.execute != 0),
                _ => Verdict::Hold(Some(*times)),
            },
            _ => Verdict::Nonsense,
        }
    }
}
