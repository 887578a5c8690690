//! The bundle.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use et_devapi::mailbox::RingMailbox;
use et_devapi::pci::{MAILBOX_BAR, SIMULATED_IDS};
use et_hal::{
    Bar, DeviceAddr, ErrorType, Generation, Hal, Identity, MailboxLayout, MemoryWatch, Sharing,
};
use et_sim_device::{Board, BoardConfig};

use crate::watch::SimWatch;
use crate::{SimDma, SimError, SimReset, SimSignal, SimWindow};

/// A mailbox of the simulated card.
pub type SimMailbox = RingMailbox<SimWindow, SimSignal, SimError>;

/// A simulated card in this process.
///
/// The card exists as long as this value, a window, a mailbox or a buffer does.
#[derive(Debug)]
pub struct SimHal {
    board: Arc<Board>,
    dma: SimDma,
    reset_taken: Arc<AtomicBool>,
}

impl SimHal {
    /// Powers a board on.
    ///
    /// # Errors
    /// `Exhausted` if the host lacks memory or threads; `Other` if the configuration makes no
    /// sense.
    pub fn open(config: BoardConfig) -> Result<Self, SimError> {
        Ok(Self::with_board(Board::power_on(config)?))
    }

    /// Uses a board that is already there.
    #[must_use]
    pub fn with_board(board: Arc<Board>) -> Self {
        let dma = SimDma::new(Arc::clone(&board));
        Self { board, dma, reset_taken: Arc::default() }
    }

    /// Returns the board, for tests that look behind the curtain.
    #[must_use]
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }
}

impl ErrorType for SimHal {
    type Error = SimError;
}

impl Hal for SimHal {
    type Mmio = SimWindow;
    type Dma = SimDma;
    type Mailbox = SimMailbox;
    type Reset = SimReset;

    fn window(&self, bar: Bar) -> Result<SimWindow, SimError> {
        SimWindow::new(&self.board, bar)
    }

    fn dma(&self) -> &SimDma {
        &self.dma
    }

    fn open_mailbox(&self, layout: &MailboxLayout) -> Result<SimMailbox, SimError> {
        let window = self.window(MAILBOX_BAR)?;
        let board = Arc::clone(&self.board);
        let signal = SimSignal::new(board, layout.endpoint, layout.completion.at);
        Ok(SimMailbox::attach(window, signal, *layout)?)
    }

    fn reset(&self) -> Result<SimReset, SimError> {
        SimReset::take(&self.board, &self.reset_taken)
    }

    fn generation(&self) -> Generation {
        self.board.generation()
    }

    fn watch_memory(&self, base: DeviceAddr, len_bytes: u64) -> Option<Box<dyn MemoryWatch>> {
        let buffers = self.board.watch_memory(base, len_bytes)?;
        Some(Box::new(SimWatch(buffers)))
    }

    fn identity(&self) -> Identity<'_> {
        let identity = Identity::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        identity.with_pci(SIMULATED_IDS).with_sharing(Sharing::OneEach)
    }
}
