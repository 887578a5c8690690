//! The promises of the traits.

mod dma;
mod dma_device;
mod mailbox;
mod open;
mod reset;
mod wait;
mod window;

use std::time::{Duration, Instant};

use et_devapi::dir::{BarSizes, MgmtStatus, OpsRegion, OpsStatus};
use et_devapi::discovery::{self, Layout};
use et_devapi::msg::ops::{Body, Command, Completion, EchoStatus};
use et_devapi::msg::{CommandFlags, Tag};
use et_devapi::pci::{BAR0_BYTES, DRAM_BAR, MAILBOX_BAR};
use et_hal::{BarOffset, DeviceAddr, Hal, Mailbox, Mmio, Pop, Push, QueueId, Wake};

use crate::check::{check, check_eq, check_matches, until};
use crate::{Case, Failure, Opened, Rig};

/// All cases of the level.
pub(crate) fn cases<H: Hal>() -> Vec<Case<H>> {
    [
        open::cases(),
        window::cases(),
        dma::cases(),
        dma_device::cases(),
        mailbox::cases(),
        wait::cases(),
        reset::cases(),
    ]
    .concat()
}

/// The first submission queue.
const SQ0: QueueId = QueueId::Submission(0);
/// Where cases play in the memory for the user, from its start; a multiple of every width.
const PLAYGROUND: u64 = 1 << 20;

/// A device that has booted.
struct Ready<H: Hal> {
    hal: Opened<H>,
    layout: Layout,
    patience: Duration,
}

impl<H: Hal> Ready<H> {
    fn open(rig: &Rig<H>) -> Result<Self, Failure> {
        let hal = rig.open_hal()?;
        let patience = rig.patience();
        let layout = discover(&*hal, patience)?;
        Ok(Self { hal, layout, patience })
    }

    fn mailbox(&self) -> Result<H::Mailbox, Failure> {
        Ok(self.hal.open_mailbox(&self.layout.ops_mailbox)?)
    }

    /// Where the playground is: in BAR0 and in the device.
    fn playground(&self) -> Result<(BarOffset, DeviceAddr), Failure> {
        let region = self.layout.ops.region(OpsRegion::HostManaged);
        let region = region.ok_or_else(|| Failure::new("no memory for the user"))?;
        check_eq!(region.bar, DRAM_BAR.index(), "the BAR of the memory for the user");
        check!(region.len_bytes >= 2 * PLAYGROUND, "only {} bytes", region.len_bytes);
        let device = DeviceAddr::new(region.device_addr.as_u64() + PLAYGROUND);
        Ok((BarOffset::new(region.bar_offset + PLAYGROUND), device))
    }
}

/// Waits for boot and reads the registers. Spec: §4
fn discover<H: Hal>(hal: &H, patience: Duration) -> Result<Layout, Failure> {
    let window = hal.window(MAILBOX_BAR)?;
    until("boot", patience, || {
        Ok(discovery::mgmt_status(&window)? == MgmtStatus::DevReady
            && discovery::ops_status(&window)? == OpsStatus::Ready)
    })?;
    let bars = BarSizes { bar0: BAR0_BYTES, bar2: window.len_bytes() };
    let mgmt = discovery::read_mgmt(&window, &bars)?;
    let ops = discovery::read_ops(&window, &bars)?;
    Ok(Layout::new(mgmt, ops)?)
}

fn echo(tag: u16) -> Result<Vec<u8>, Failure> {
    let mut out = [0; 64];
    let len = Command::Echo.encode(Tag::new(tag), CommandFlags::EMPTY, &mut out)?;
    Ok(out[..len].to_vec())
}

fn send<M: Mailbox>(mailbox: &M, queue: QueueId, message: &[u8]) -> Result<(), Failure> {
    check_eq!(mailbox.push(queue, message)?, Push::Accepted, "a push to an empty queue");
    Ok(mailbox.kick()?)
}

/// Receives as a driver does: ticket, look, wait.
fn receive<M: Mailbox>(mailbox: &M, patience: Duration) -> Result<Completion, Failure> {
    let started = Instant::now();
    let mut buffer = [0; 512];
    loop {
        let ticket = mailbox.ticket();
        if let Pop::Message(len) = mailbox.pop(&mut buffer)? {
            return Ok(Completion::parse(&buffer[..len])?);
        }
        let left = patience.saturating_sub(started.elapsed());
        check!(!left.is_zero(), "no message within {patience:?}");
        let (Wake::Notified | Wake::TimedOut) = mailbox.wait(ticket, left)?;
    }
}

/// Receives the answer to an echo.
fn receive_echo<M: Mailbox>(mailbox: &M, tag: u16, patience: Duration) -> Result<(), Failure> {
    let completion = receive(mailbox, patience)?;
    let tag = Tag::new(tag);
    check_matches!(
        completion,
        Completion { tag: its, body: Body::Echo { status: EchoStatus::Success, .. } } if *its == tag,
        "echo {tag:?}"
    );
    Ok(())
}

/// Sends an echo and receives its answer.
fn ping<M: Mailbox>(mailbox: &M, tag: u16, patience: Duration) -> Result<(), Failure> {
    send(mailbox, SQ0, &echo(tag)?)?;
    receive_echo(mailbox, tag, patience)
}
