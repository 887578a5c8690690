//! Copies through the runtime, from and to a card in another process.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use et::{AnyHal, Device, DeviceBuffer, HostBuffer};

use super::peer::CardProcess;
use super::{Take, median};
use crate::figure::{Figure, Unit};

const BOARD: &str = "compute=null,dram=2GiB";
const LARGE: usize = 64 << 20;
const RUNS: usize = 11;
const WAIT: Duration = Duration::from_secs(30);

/// One device with what a copy needs.
struct Copier {
    buffer: Option<HostBuffer<AnyHal>>,
    pageable: Vec<u8>,
    target: DeviceBuffer,
    device: Device<AnyHal>,
}

/// Where the bytes on the host's side are, and which way they go.
#[derive(Clone, Copy, Debug)]
enum Way {
    DmaIn,
    DmaOut,
    PageableIn,
    PageableOut,
}

impl Copier {
    fn open(locator: &str) -> anyhow::Result<Self> {
        let device = et::open(locator)?;
        let target = device.alloc(LARGE as u64)?;
        let mut buffer = device.host_buffer(LARGE)?;
        buffer.fill(0, LARGE, 3)?;
        let pageable = vec![3; LARGE];
        Ok(Self { buffer: Some(buffer), pageable, target, device })
    }

    /// Copies once; returns GiB per second.
    fn run(&mut self, way: Way) -> anyhow::Result<f64> {
        let stream = self.device.default_stream();
        let start = Instant::now();
        match way {
            Way::DmaIn | Way::DmaOut => {
                let buffer = self.buffer.take().context("the buffer did not come back")?;
                let transfer = match way {
                    Way::DmaIn => stream.upload(buffer, &self.target)?,
                    _ => stream.download(&self.target, buffer)?,
                };
                self.buffer = Some(transfer.wait(WAIT).map_err(|failed| failed.error)?);
            }
            Way::PageableIn => {
                stream.copy_to_device(&self.pageable, &self.target)?.wait(WAIT)?;
            }
            Way::PageableOut => stream.read(&self.target, &mut self.pageable, WAIT)?,
        }
        Ok(LARGE as f64 / start.elapsed().as_secs_f64() / f64::from(1 << 30))
    }

    /// Checks that bytes go there and come back.
    fn check(&mut self) -> anyhow::Result<()> {
        self.pageable.fill(5);
        self.run(Way::PageableIn)?;
        self.run(Way::DmaOut)?;
        self.pageable.fill(0);
        self.run(Way::DmaIn)?;
        self.run(Way::PageableOut)?;
        ensure!(self.pageable.iter().all(|&byte| byte == 5), "a copy changed its bytes");
        Ok(())
    }
}

/// 64 MiB, in DMA memory and in ordinary memory, both ways.
pub(super) fn figures(take: Take<'_>) -> anyhow::Result<()> {
    let card = CardProcess::start(BOARD)?;
    let mut outside = Copier::open(&card.locator())?;
    let mut inside = Copier::open(&format!("sim:{BOARD}"))?;
    outside.check()?;
    inside.check()?;
    let ways = [
        ("vfio_copy_h2d_dma", Way::DmaIn),
        ("vfio_copy_d2h_dma", Way::DmaOut),
        ("vfio_copy_h2d_pageable", Way::PageableIn),
        ("vfio_copy_d2h_pageable", Way::PageableOut),
    ];
    for (name, way) in ways {
        let (mut values, mut floors) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            values.push(outside.run(way)?);
            floors.push(inside.run(way)?);
        }
        let floor = ("the same with the simulator in this process", median(&floors));
        take(Figure::new(name, Unit::More("GiB/s"), &values, floor));
    }
    Ok(())
}
