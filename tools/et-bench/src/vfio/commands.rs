//! Commands to a card at the level of the HAL, without a runtime.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use et::hal::{Hal, Mailbox, Mmio, Pop, Push, QueueId, Wake};
use et_devapi::dir::{BarSizes, OpsStatus};
use et_devapi::discovery::{self, Layout};
use et_devapi::msg::ops::{Body, Command, Completion, EchoStatus};
use et_devapi::msg::{CommandFlags, Tag};
use et_devapi::pci::{BAR0_BYTES, MAILBOX_BAR};

use super::LIMIT;

/// Room for an echo and for its answer.
const MESSAGE_BYTES: usize = 64;
const TAG: Tag = Tag::new(7);
const QUEUE: QueueId = QueueId::Submission(0);

/// A card and its operations mailbox; the smallest command there is.
#[derive(Debug)]
pub(super) struct Commands<H: Hal> {
    mailbox: H::Mailbox,
    pub(super) layout: Layout,
    echo: [u8; MESSAGE_BYTES],
    len: usize,
    pub(super) hal: H,
}

impl<H: Hal> Commands<H> {
    /// Waits until the card has booted and opens its mailbox.
    pub(super) fn open(hal: H) -> anyhow::Result<Self> {
        let bar2 = hal.window(MAILBOX_BAR)?;
        let start = Instant::now();
        while discovery::ops_status(&bar2)? != OpsStatus::Ready {
            ensure!(start.elapsed() < LIMIT, "the card did not boot within {LIMIT:?}");
            std::thread::park_timeout(Duration::from_micros(50));
        }
        let bars = BarSizes { bar0: BAR0_BYTES, bar2: bar2.len_bytes() };
        let layout =
            Layout::new(discovery::read_mgmt(&bar2, &bars)?, discovery::read_ops(&bar2, &bars)?)?;
        let mailbox = hal.open_mailbox(&layout.ops_mailbox)?;
        let mut echo = [0; MESSAGE_BYTES];
        let len = Command::Echo.encode(TAG, CommandFlags::EMPTY, &mut echo)?;
        Ok(Self { mailbox, layout, echo, len, hal })
    }

    /// Puts one command into the queue and rings the doorbell.
    pub(super) fn submit(&self) -> anyhow::Result<()> {
        let pushed = self.mailbox.push(QUEUE, &self.echo[..self.len])?;
        ensure!(pushed == Push::Accepted, "the queue is full");
        Ok(self.mailbox.kick()?)
    }

    /// Takes one answer, if there is one.
    pub(super) fn try_finish(&self) -> anyhow::Result<bool> {
        let mut message = [0; MESSAGE_BYTES];
        let Pop::Message(len) = self.mailbox.pop(&mut message)? else { return Ok(false) };
        match Completion::parse(&message[..len])? {
            Completion { tag: TAG, body: Body::Echo { status: EchoStatus::Success, .. } } => {
                Ok(true)
            }
            other => bail!("the answer to an echo is {other:?}"),
        }
    }

    /// Waits for one answer as a runtime does.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        loop {
            let ticket = self.mailbox.ticket();
            if self.try_finish()? {
                return Ok(());
            }
            let woken = self.mailbox.wait(ticket, LIMIT)?;
            ensure!(woken == Wake::Notified, "no answer within {LIMIT:?}");
        }
    }

    /// One command and its answer.
    pub(super) fn trip(&self) -> anyhow::Result<()> {
        self.submit()?;
        self.finish()
    }
}
