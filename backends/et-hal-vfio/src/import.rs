//! Memory of the caller that the device can reach.

use std::ptr::NonNull;
use std::sync::Arc;

use et_hal::{BusAddr, DeviceAccess};

use crate::config_space::BUS_MASTER;
use crate::pool::Pool;
use crate::{LostBecause, VfioError};

/// Keeps memory of the caller mapped for the device; see
/// [`VfioDma::import`](crate::VfioDma::import).
#[derive(Debug)]
#[must_use = "the memory is unmapped when this is dropped"]
pub struct Imported {
    pool: Arc<Pool>,
    iova: u64,
    len: u64,
    #[expect(dead_code, reason = "counted by being there")]
    handle: Arc<()>,
}

impl Imported {
    pub(crate) fn map(
        pool: &Arc<Pool>,
        address: NonNull<u8>,
        len_bytes: usize,
        access: DeviceAccess,
    ) -> Result<Self, VfioError> {
        if pool.is_physical() {
            let mode = pool.shared().transport.mode();
            return Err(VfioError::NotInMode { what: "importing memory", mode });
        }
        let page = usize::try_from(pool.page_bytes()).unwrap_or(usize::MAX);
        if len_bytes == 0 {
            return Err(VfioError::BufferSize { len: 0, max: pool.max_buffer_bytes() });
        }
        if !address.addr().get().is_multiple_of(page) || !len_bytes.is_multiple_of(page) {
            return Err(VfioError::ImportAlignment { page });
        }
        let address = address.as_ptr().expose_provenance() as u64;
        let len = len_bytes as u64;
        let iova = pool.map(address, None, len, pool.page_bytes(), access)?;
        Ok(Self { pool: Arc::clone(pool), iova, len, handle: pool.shared().handle() })
    }

    /// Returns the address the device uses for byte 0.
    #[must_use]
    pub fn bus_addr(&self) -> BusAddr {
        BusAddr::new(self.iova)
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len
    }
}

impl Drop for Imported {
    /// Returns when the device does not reach the memory any more, also while another thread closes
    /// it.
    fn drop(&mut self) {
        if !self.pool.shared().is_here() {
            return;
        }
        let Err(error) = self.pool.unmap(self.iova, self.len) else { return };
        // The caller is about to use the memory again, and the device may still reach it: better no
        // device.
        tracing::error!(%error, "imported memory is not unmapped: the device is stopped");
        let shared = self.pool.shared();
        let silenced = shared.config.set_command(0, BUS_MASTER);
        tracing::debug!(?silenced, "bus mastering taken away");
        let _ = shared.lose(LostBecause::Closed);
    }
}
