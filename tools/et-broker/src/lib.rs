//! One card for several clients at once, each with a part of its memory.
//!
//! A broker is the one process that has the card. To each client it shows a PCIe function over
//! vfio-user, as a kernel does with mediated devices: own registers, queues, interrupts and resets,
//! and in the registers only the client's partition of device memory. Clients need to know nothing
//! of it: to the runtime, to virtual machines and to other drivers it is a card.
//!
//! The function is a board of the simulator without memory and cores: its firmware takes commands
//! out of the queues, checks every address against the partition, and hands over copies and
//! launches to the broker, which takes turns.
//!
//! | File | What |
//! |---|---|
//! | `broker.rs` | what a program uses |
//! | `turns.rs` | whose turn it is: a state machine without threads and clock |
//! | `hub.rs` | what threads share, the failure of the card, and its recovery |
//! | `member.rs` | a client's side of that |
//! | `kernels.rs` | the thread that launches |
//! | `copies.rs` | the threads that copy and clear |
//! | `function.rs` | the PCIe function of a client |

#![forbid(unsafe_code)]

mod broker;
mod copies;
mod error;
mod function;
mod hub;
mod kernels;
mod member;
mod turns;

pub use broker::{Broker, BrokerOptions};
pub use error::BrokerError;
pub use hub::{CardState, MemberStatus, Status};
pub use turns::Turns;
