//! The interrupts of a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use et_devapi::pci::{VECTORS, Vector};
use et_hal::Endpoint;

use crate::notifier::{Alarms, Notifier};
use crate::sys::{Fd, Handle, Sys};
use crate::transport::{IrqIndex, Transport, Vectors};
use crate::{Call, Mode, VfioError};

/// Event counters for all vectors, and who waits for them.
///
/// With all four vectors each endpoint has its own. With fewer, whatever arrives wakes everybody,
/// and everybody also looks from time to time: the device drops messages for vectors it does not
/// have. Spec: §2.1
#[derive(Debug)]
pub(crate) struct Interrupts {
    events: Vec<Arc<Handle>>,
    alarms: Arc<Alarms>,
    management: Arc<Notifier>,
    operations: Arc<Notifier>,
    everybody: Arc<Notifier>,
    /// Vectors that are enabled.
    armed: AtomicUsize,
}

fn event(sys: &Arc<dyn Sys>) -> Result<Handle, VfioError> {
    Handle::event(sys).map_err(|errno| VfioError::call(Call::Event, "interrupts", errno))
}

impl Interrupts {
    /// Creates the counters, and hears errors and requests from now on; the device's own messages
    /// are not enabled yet.
    pub(crate) fn new(sys: &Arc<dyn Sys>, transport: &dyn Transport) -> Result<Self, VfioError> {
        let alarm = |index| -> Result<Option<Handle>, VfioError> {
            if transport.vectors(index)? == 0 {
                return Ok(None);
            }
            let handle = event(sys)?;
            let set = transport.set_vectors(index, &[handle.fd()])?;
            Ok((set == Vectors::Enabled).then_some(handle))
        };
        let error = alarm(IrqIndex::Error)?;
        let request = alarm(IrqIndex::Request)?;
        let alarms = Arc::new(Alarms { error, request, gone: transport.gone() });
        // A process that simulates a device signals what it has to say of an endpoint at once, if
        // there is one counter for it. Kernels complain when vectors share one.
        let shares = transport.mode() == Mode::User;
        let mut events: Vec<Arc<Handle>> = Vec::new();
        for vector in Vector::ALL {
            let partner = match vector {
                Vector::MgmtCompletion => Some(Vector::MgmtSubmission),
                Vector::OpsCompletion => Some(Vector::OpsSubmission),
                _ => None,
            };
            let shared = partner.filter(|_| shares).and_then(|with| events.get(with as usize));
            events.push(match shared {
                Some(shared) => Arc::clone(shared),
                None => Arc::new(event(sys)?),
            });
        }
        let notifier = |vectors: &[Vector]| {
            let mut heard: Vec<Arc<Handle>> = Vec::new();
            for &vector in vectors {
                let event = &events[vector as usize];
                if !heard.iter().any(|other| Arc::ptr_eq(other, event)) {
                    heard.push(Arc::clone(event));
                }
            }
            Notifier::new(sys, heard, &alarms)
                .map(Arc::new)
                .map_err(|errno| VfioError::call(Call::Event, "interrupts", errno))
        };
        let management = notifier(&[Vector::MgmtSubmission, Vector::MgmtCompletion])?;
        let operations = notifier(&[Vector::OpsSubmission, Vector::OpsCompletion])?;
        let everybody = notifier(&Vector::ALL)?;
        let armed = AtomicUsize::new(0);
        Ok(Self { events, alarms, management, operations, everybody, armed })
    }

    /// Enables all vectors in one call, or as many as there are. The device looks at the set-up
    /// once, so this is done before it may send anything.
    pub(crate) fn arm(&self, transport: &dyn Transport) -> Result<(), VfioError> {
        self.armed.store(0, Ordering::Relaxed);
        let have = transport.vectors(IrqIndex::Msi)?;
        let mut want = VECTORS.min(usize::try_from(have).unwrap_or(usize::MAX));
        while want > 0 {
            let fds: Vec<Fd> = self.events.iter().take(want).map(|event| event.fd()).collect();
            match transport.set_vectors(IrqIndex::Msi, &fds)? {
                Vectors::Enabled => break,
                // Each try asks for less, so this ends.
                Vectors::Only(only) => {
                    want = (want - 1).min(usize::try_from(only).unwrap_or(usize::MAX));
                }
            }
        }
        if want < VECTORS {
            tracing::warn!(
                vectors = want,
                "too few interrupt vectors, waits look at the queues instead"
            );
        }
        self.armed.store(want, Ordering::Relaxed);
        Ok(())
    }

    /// Disables the device's messages; errors and requests are still heard.
    pub(crate) fn disarm(&self, transport: &dyn Transport) -> Result<(), VfioError> {
        if self.armed.swap(0, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        transport.disable_vectors(IrqIndex::Msi)
    }

    /// Takes back that an error was heard: a reset is the answer to it.
    pub(crate) fn forget_errors(&self) {
        if let Some(error) = &self.alarms.error {
            error.sys().clear(error.fd());
        }
    }

    /// Disables everything.
    pub(crate) fn disable(&self, transport: &dyn Transport) -> Result<(), VfioError> {
        let mut outcome = self.disarm(transport);
        let alarms =
            [(&self.alarms.error, IrqIndex::Error), (&self.alarms.request, IrqIndex::Request)];
        for (alarm, index) in alarms {
            if alarm.is_some() {
                outcome = outcome.and(transport.disable_vectors(index));
            }
        }
        outcome
    }

    pub(crate) fn armed(&self) -> usize {
        self.armed.load(Ordering::Relaxed)
    }

    /// Returns `true` if every vector of the endpoints has its interrupt.
    pub(crate) fn complete(&self) -> bool {
        self.armed() == VECTORS
    }

    /// Returns who hears the interrupts of an endpoint.
    pub(crate) fn notifier(&self, endpoint: Endpoint) -> &Arc<Notifier> {
        match endpoint {
            _ if !self.complete() => &self.everybody,
            Endpoint::Management => &self.management,
            _ => &self.operations,
        }
    }

    /// Returns who hears one vector.
    pub(crate) fn notifier_of(&self, vector: Vector) -> &Arc<Notifier> {
        self.notifier(match vector {
            Vector::MgmtSubmission | Vector::MgmtCompletion => Endpoint::Management,
            Vector::OpsSubmission | Vector::OpsCompletion => Endpoint::Operations,
        })
    }

    /// Makes every wait return.
    pub(crate) fn wake_all(&self) {
        for notifier in [&self.management, &self.operations, &self.everybody] {
            notifier.wake();
        }
    }
}
