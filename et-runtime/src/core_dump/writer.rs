//! The thread that writes the core files of failed launches, and does nothing else.
//!
//! A launch that fails ends when its file is written, so whoever hears of the failure finds the
//! file. The thread holds no lock meanwhile, and reads device memory as everyone does.

use std::fs::File;
use std::io;

use et_hal::Hal;

use super::{CoreDump, CoreSummary, CoreWriteError};
use crate::link::{Link, Order};
use crate::stream::Stream;
use crate::sync::{Arc, thread};
use crate::{Error, Result};

/// Starts the thread of a device, unless it is there.
pub(crate) fn start<H: Hal>(link: &Arc<Link<H>>) -> Result<()> {
    link.start_writer(|| {
        let link = Arc::clone(link);
        let builder = thread::Builder::new().name("et-core".into());
        builder
            .spawn(move || run(&link))
            .map_err(Error::no_thread("starting the thread for core files"))
    })
}

/// Writes core files until the link is closed.
fn run<H: Hal>(link: &Arc<Link<H>>) {
    while let Some(mut order) = link.next_order() {
        let written = write(link, &order);
        if let Err(error) = &written {
            link.report_core(&order, CoreWriteError::File(Arc::clone(error)));
        }
        for region in written.iter().flat_map(|summary| &summary.regions) {
            if let Some(error) = region.error.clone() {
                let region = region.name.clone();
                link.report_core(&order, CoreWriteError::Region { region, error });
            }
        }
        order.failure.core_written(written.ok());
        link.end_order(order);
    }
}

fn write<H: Hal>(link: &Arc<Link<H>>, order: &Order) -> Result<CoreSummary, Arc<io::Error>> {
    let dump = CoreDump::new(&order.failure, Stream::new(link), link.config.command_timeout);
    Ok(dump.write(File::create(&order.path)?)?)
}
