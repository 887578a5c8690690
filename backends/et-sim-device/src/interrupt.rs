//! The four interrupt vectors towards the host, and the doorbells towards the device.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use et_devapi::pci::Vector;
use et_hal::Endpoint;

use crate::{Event, Fault};

/// The interrupts of the device, as the host sees them: one [`Event`] for each endpoint.
///
/// Only the firmware thread raises them.
///
/// Spec: §2.1
#[derive(Debug)]
pub struct Interrupts {
    operations: CachePadded<Event>,
    management: CachePadded<Event>,
    raised: CachePadded<[AtomicU64; 4]>,
    faults: Option<InterruptFaults>,
}

#[derive(Debug)]
struct InterruptFaults {
    spurious: Option<NonZeroU32>,
    lost: Option<NonZeroU32>,
    count: AtomicU32,
}

impl Interrupts {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        let mut spurious = None;
        let mut lost = None;
        for fault in faults {
            match fault {
                Fault::SpuriousInterrupts { every } => spurious = Some(*every),
                Fault::LostInterrupts { every } => lost = Some(*every),
                _ => {}
            }
        }
        let any = spurious.is_some() || lost.is_some();
        Self {
            operations: CachePadded::default(),
            management: CachePadded::default(),
            raised: CachePadded::default(),
            faults: any.then_some(InterruptFaults { spurious, lost, count: AtomicU32::new(0) }),
        }
    }

    /// Returns the event that both vectors of the endpoint raise.
    #[must_use]
    pub fn event(&self, endpoint: Endpoint) -> &Event {
        match endpoint {
            Endpoint::Management => &self.management,
            _ => &self.operations,
        }
    }

    /// Returns how many interrupts of this vector have reached the host.
    #[must_use]
    pub fn raised(&self, vector: Vector) -> u64 {
        self.raised[vector as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn raise(&self, vector: Vector) {
        match &self.faults {
            None => self.deliver(vector),
            Some(faults) => self.raise_badly(vector, faults),
        }
    }

    fn deliver(&self, vector: Vector) {
        let raised = &self.raised[vector as usize];
        // Relaxed, and no read-modify-write: a statistic with one writer.
        raised.store(raised.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        match vector {
            Vector::MgmtSubmission | Vector::MgmtCompletion => self.management.raise(),
            Vector::OpsSubmission | Vector::OpsCompletion => self.operations.raise(),
        }
    }

    #[cold]
    fn raise_badly(&self, vector: Vector, faults: &InterruptFaults) {
        let count = faults.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let hits = |every: Option<NonZeroU32>| every.is_some_and(|n| count % n == 0);
        if hits(faults.spurious) {
            for any in [
                Vector::MgmtSubmission,
                Vector::MgmtCompletion,
                Vector::OpsSubmission,
                Vector::OpsCompletion,
            ] {
                self.deliver(any);
            }
        } else if !hits(faults.lost) {
            self.deliver(vector);
        }
    }
}

/// What wakes the firmware thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Doorbell writes for the operations endpoint.
    operations: AtomicU32,
    /// Doorbell writes for the management endpoint.
    management: AtomicU32,
    /// Doorbells, ended kernels, power and reset.
    event: Event,
}

impl Bell {
    pub(crate) fn ring(&self, endpoint: Endpoint) {
        // Release: the messages pushed before are visible to whoever sees the count.
        match endpoint {
            Endpoint::Management => self.management.fetch_add(1, Ordering::Release),
            _ => self.operations.fetch_add(1, Ordering::Release),
        };
        self.event.raise();
    }

    /// Returns the number of doorbell writes, modulo 2³².
    pub(crate) fn rung(&self, endpoint: Endpoint) -> u32 {
        // Acquire: pairs with the release in `ring`.
        match endpoint {
            Endpoint::Management => self.management.load(Ordering::Acquire),
            _ => self.operations.load(Ordering::Acquire),
        }
    }

    pub(crate) fn event(&self) -> &Event {
        &self.event
    }
}
