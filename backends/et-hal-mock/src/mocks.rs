//! The mocks.

#![allow(missing_docs, reason = "the macro's expectation types have no docs of their own")]
#![allow(missing_debug_implementations, reason = "the macro's expectation types have none")]

use std::time::Duration;

use et_hal::{
    AccessPath, BarOffset, ErrorType, Loss, Mailbox, Mmio, Pop, Push, QueueId, Reset, ResetScope,
    ResetState, Ticket, Wake, Width, Widths,
};
use mockall::mock;

use crate::MockError;

mock! {
    /// Mock of [`et_hal::Mmio`].
    pub Mmio {}

    impl ErrorType for Mmio {
        type Error = MockError;
    }

    impl Mmio for Mmio {
        fn len_bytes(&self) -> u64;
        fn widths(&self) -> Widths;
        fn path(&self, at: BarOffset, len: u64) -> AccessPath;
        fn read(&self, at: BarOffset, width: Width) -> Result<u64, MockError>;
        fn write(&self, at: BarOffset, width: Width, value: u64) -> Result<(), MockError>;
        fn read_bytes(&self, at: BarOffset, into: &mut [u8]) -> Result<(), MockError>;
        fn write_bytes(&self, at: BarOffset, from: &[u8]) -> Result<(), MockError>;
        fn load_acquire_u64(&self, at: BarOffset) -> Result<u64, MockError>;
        fn store_release_u64(&self, at: BarOffset, value: u64) -> Result<(), MockError>;
        fn flush(&self) -> Result<(), MockError>;
    }
}

mock! {
    /// Mock of [`et_hal::Mailbox`].
    pub Mailbox {}

    impl ErrorType for Mailbox {
        type Error = MockError;
    }

    impl Mailbox for Mailbox {
        fn max_message_bytes(&self, queue: QueueId) -> Result<usize, MockError>;
        fn push(&self, queue: QueueId, message: &[u8]) -> Result<Push, MockError>;
        fn kick(&self) -> Result<(), MockError>;
        fn pop(&self, into: &mut [u8]) -> Result<Pop, MockError>;
        fn ticket(&self) -> Ticket;
        fn wait(&self, seen: Ticket, timeout: Duration) -> Result<Wake, MockError>;
        fn wake(&self);
    }
}

mock! {
    /// Mock of [`et_hal::Reset`].
    pub Reset {}

    impl ErrorType for Reset {
        type Error = MockError;
    }

    impl Reset for Reset {
        fn loss(&self, scope: ResetScope) -> Option<Loss>;
        fn begin(&mut self, scope: ResetScope) -> Result<(), MockError>;
        fn poll(&mut self) -> Result<ResetState, MockError>;
    }
}
