//! The bundle.

use std::sync::{Arc, Mutex, PoisonError};

use et_hal::{Bar, ErrorKind, ErrorType, Generation, Hal, Identity, MailboxLayout};

use crate::{MockError, MockMailbox, MockMmio, MockReset, VecDma};

/// A `Hal` of mocks.
///
/// Every window is the same mock, and so is every mailbox.
pub struct MockHal {
    mmio: Arc<MockMmio>,
    mailbox: Arc<MockMailbox>,
    dma: VecDma,
    reset: Mutex<Option<MockReset>>,
}

impl std::fmt::Debug for MockHal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MockHal").field("dma", &self.dma).finish_non_exhaustive()
    }
}

impl MockHal {
    /// Bundles mocks; DMA memory is unlimited and resets are not supported.
    #[must_use]
    pub fn new(mmio: MockMmio, mailbox: MockMailbox) -> Self {
        Self {
            mmio: Arc::new(mmio),
            mailbox: Arc::new(mailbox),
            dma: VecDma::default(),
            reset: Mutex::new(None),
        }
    }

    /// Takes DMA memory from `dma`.
    #[must_use]
    pub fn with_dma(mut self, dma: VecDma) -> Self {
        self.dma = dma;
        self
    }

    /// Gives out `reset`, once.
    #[must_use]
    pub fn with_reset(mut self, reset: MockReset) -> Self {
        self.reset = Mutex::new(Some(reset));
        self
    }
}

impl ErrorType for MockHal {
    type Error = MockError;
}

impl Hal for MockHal {
    type Mmio = Arc<MockMmio>;
    type Dma = VecDma;
    type Mailbox = Arc<MockMailbox>;
    type Reset = MockReset;

    fn window(&self, _: Bar) -> Result<Self::Mmio, MockError> {
        Ok(Arc::clone(&self.mmio))
    }

    fn dma(&self) -> &VecDma {
        &self.dma
    }

    fn open_mailbox(&self, _: &MailboxLayout) -> Result<Self::Mailbox, MockError> {
        Ok(Arc::clone(&self.mailbox))
    }

    fn reset(&self) -> Result<MockReset, MockError> {
        let mut reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        reset.take().ok_or(ErrorKind::Unsupported)
    }

    fn generation(&self) -> Generation {
        Generation(0)
    }

    fn identity(&self) -> Identity<'_> {
        Identity::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
    }
}
