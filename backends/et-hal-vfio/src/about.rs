//! What a device is and what connects it, asked once.

use std::path::Path;

use et_hal::{Identity, PciIds, Sharing};

use crate::shared::Shared;
use crate::{Mode, VfioError, VfioOptions};

const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// What [`Identity`] lends out.
#[derive(Debug)]
pub(crate) struct About {
    interface: String,
    driver: Option<String>,
    ids: PciIds,
    address: Option<String>,
}

impl About {
    /// Asks configuration space, and the kernel where that is between us and the device. What the
    /// kernel does not say is left out.
    pub(crate) fn ask(shared: &Shared, options: &VfioOptions) -> Result<Self, VfioError> {
        let ids = shared.config.identity()?;
        let interface = shared.transport.interface();
        if shared.transport.mode() == Mode::User {
            return Ok(Self { interface, driver: None, ids, address: None });
        }
        let link = options.sysfs.join("bus/pci/devices").join(&shared.name).join("driver");
        let driver = shared.sys.read_link(&link).ok();
        let driver = driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned()));
        let release = shared.sys.read_text(Path::new(RELEASE)).unwrap_or_default();
        let driver = driver.map(|driver| match release.trim() {
            "" => driver,
            release => format!("{driver}, Linux {release}"),
        });
        Ok(Self { interface, driver, ids, address: Some(shared.name.clone()) })
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        let identity = Identity::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let mut identity = identity.with_pci(self.ids).with_sharing(Sharing::Exclusive);
        identity.interface = Some(&self.interface);
        identity.driver = self.driver.as_deref();
        identity.pci_address = self.address.as_deref();
        identity
    }
}
