//! What the types refuse; `cargo xtask ci` compares the error codes.
//!
//! A buffer belongs to its transfer until that has ended, so that it can neither be freed nor read
//! under it:
//!
//! ```compile_fail,E0382
//! # use et_runtime::{DeviceBuffer, HostBuffer, Result, Stream};
//! fn free<H: et_hal::Hal>(s: &Stream<H>, from: &DeviceBuffer, to: HostBuffer<H>) -> Result<()> {
//!     let transfer = s.download(from, to)?;
//!     drop(to);
//!     drop(transfer);
//!     Ok(())
//! }
//! ```
//!
//! A transfer gives its buffer back once:
//!
//! ```compile_fail,E0382
//! # use et_runtime::{HostBuffer, Transfer};
//! # use std::time::Duration;
//! fn both<H: et_hal::Hal>(transfer: Transfer<H>) -> [Option<HostBuffer<H>>; 2] {
//!     let first = transfer.wait(Duration::MAX).ok();
//!     [first, transfer.wait(Duration::MAX).ok()]
//! }
//! ```
//!
//! Memory that one backend's device reaches means nothing to another's:
//!
//! ```compile_fail,E0308
//! # use et_hal::Hal;
//! # use et_runtime::{DeviceSlice, HostBuffer, Stream, Result};
//! fn mix<A: Hal, B: Hal>(a: &Stream<A>, of_b: HostBuffer<B>, to: DeviceSlice) -> Result<()> {
//!     a.upload(of_b, to).map(drop)
//! }
//! ```
//!
//! A backend is used by several threads, so it has to be `Send` and `Sync`:
//!
//! ```compile_fail,E0277
//! use std::rc::Rc;
//!
//! use et_hal::{Bar, ErrorType, Generation, Hal, MailboxLayout};
//! use et_hal_mock::MockHal;
//!
//! struct Local(MockHal, Rc<()>);
//!
//! impl ErrorType for Local {
//!     type Error = <MockHal as ErrorType>::Error;
//! }
//!
//! impl Hal for Local {
//!     type Mmio = <MockHal as Hal>::Mmio;
//!     type Dma = <MockHal as Hal>::Dma;
//!     type Mailbox = <MockHal as Hal>::Mailbox;
//!     type Reset = <MockHal as Hal>::Reset;
//!
//!     fn window(&self, bar: Bar) -> Result<Self::Mmio, Self::Error> {
//!         self.0.window(bar)
//!     }
//!     fn dma(&self) -> &Self::Dma {
//!         self.0.dma()
//!     }
//!     fn open_mailbox(&self, layout: &MailboxLayout) -> Result<Self::Mailbox, Self::Error> {
//!         self.0.open_mailbox(layout)
//!     }
//!     fn reset(&self) -> Result<Self::Reset, Self::Error> {
//!         self.0.reset()
//!     }
//!     fn generation(&self) -> Generation {
//!         self.0.generation()
//!     }
//! }
//! ```
//!
//! A callback may run long after the function that registered it, so it borrows nothing:
//!
//! ```compile_fail,E0373
//! # use et_runtime::Event;
//! fn count(event: &Event) -> u32 {
//!     let mut done = 0;
//!     event.on_done(|_| done += 1);
//!     done
//! }
//! ```
//!
//! Awaiting a run takes the handle; what should cancel it needs a clone:
//!
//! ```compile_fail,E0382
//! # use et_runtime::executor::Run;
//! async fn late(run: Run) {
//!     run.await;
//!     run.cancel();
//! }
//! ```
