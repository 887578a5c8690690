//! The runtime's handles, for the backend that a locator names unless another one is given.

use crate::AnyHal;

/// [`et_runtime::Device`], which [`open`](crate::open) gives.
pub type Device<H = AnyHal> = et_runtime::Device<H>;
/// [`et_runtime::Stream`].
pub type Stream<H = AnyHal> = et_runtime::Stream<H>;
/// [`et_runtime::HostBuffer`].
pub type HostBuffer<H = AnyHal> = et_runtime::HostBuffer<H>;
/// [`et_runtime::Transfer`].
pub type Transfer<H = AnyHal> = et_runtime::Transfer<H>;
/// [`et_runtime::TransferFuture`].
pub type TransferFuture<H = AnyHal> = et_runtime::TransferFuture<H>;
/// [`et_runtime::TransferError`].
pub type TransferError<H = AnyHal> = et_runtime::TransferError<H>;
/// [`et_runtime::Mapping`].
pub type Mapping<H = AnyHal> = et_runtime::Mapping<H>;
/// [`et_runtime::UnmapError`].
pub type UnmapError<H = AnyHal> = et_runtime::UnmapError<H>;
/// [`et_runtime::Management`].
pub type Management<H = AnyHal> = et_runtime::Management<H>;
