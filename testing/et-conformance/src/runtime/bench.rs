//! A device on which kernels can be tried.

#![expect(clippy::cast_possible_truncation, reason = "test data is cut to size")]

use std::time::Duration;

use et_devapi::abi::HARTS_PER_SHIRE;
use et_hal::Hal;
use et_runtime::{Config, Device, DeviceBuffer, Event, Kernel, Launch, LaunchFailure, Stream};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::check::same;
use crate::{Failure, Rig, kernels};

/// A device, and what every case does with it.
pub(super) struct Bench<H: Hal> {
    pub(super) device: Device<H>,
    pub(super) patience: Duration,
}

impl<H: Hal> Bench<H> {
    pub(super) fn open(rig: &Rig<H>) -> Result<Self, Failure> {
        Self::open_with(rig, rig.config())
    }

    pub(super) fn open_with(rig: &Rig<H>, config: Config) -> Result<Self, Failure> {
        Ok(Self { device: rig.open_with(config)?, patience: rig.patience() })
    }

    pub(super) fn stream(&self) -> &Stream<H> {
        self.device.default_stream()
    }

    pub(super) fn load(&self, name: &str) -> Result<Kernel, Failure> {
        Ok(self.device.load_kernel(name, kernels::elf(name)?)?)
    }

    /// Waits with the patience of the rig.
    #[track_caller]
    pub(super) fn done(&self, event: &Event) -> Result<(), Failure> {
        match event.wait(self.patience) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn upload<T: IntoBytes + Immutable>(
        &self,
        data: &[T],
    ) -> Result<DeviceBuffer, Failure> {
        let buffer = self.device.alloc(size_of_val(data) as u64)?;
        self.done(&self.stream().copy_to_device(data, &buffer)?)?;
        Ok(buffer)
    }

    pub(super) fn download<T: FromBytes + IntoBytes + Clone>(
        &self,
        buffer: &DeviceBuffer,
    ) -> Result<Vec<T>, Failure> {
        let count = usize::try_from(buffer.len_bytes())? / size_of::<T>();
        let mut data = vec![T::new_zeroed(); count];
        self.stream().read(buffer, &mut data, self.patience)?;
        Ok(data)
    }

    pub(super) fn zeroed(&self, len_bytes: u64) -> Result<DeviceBuffer, Failure> {
        let buffer = self.device.alloc(len_bytes)?;
        self.done(&self.stream().fill(&buffer, 0)?)?;
        Ok(buffer)
    }

    pub(super) fn run(&self, launch: &Launch) -> Result<(), Failure> {
        self.done(&self.stream().launch(launch)?)
    }

    /// Runs what must fail on the device, and returns its report.
    #[track_caller]
    pub(super) fn fails(&self, launch: &Launch) -> Result<LaunchFailure, Failure> {
        let outcome = match self.stream().launch(launch) {
            Ok(event) => event.wait(self.patience),
            Err(error) => return Err(error.into()),
        };
        match outcome {
            Err(et_runtime::Error::Launch(failure)) => Ok((*failure).clone()),
            other => Err(Failure::new(format!("a launch that must fail gave {other:?}"))),
        }
    }

    /// The device still copies and computes.
    pub(super) fn works(&self) -> Result<(), Failure> {
        let kernel = self.load("add")?;
        let buffer = self.upload(&[1.5f32; 16])?;
        let launch = Launch::new(&kernel).buffer(&buffer).buffer(&buffer).buffer(&buffer).u64(16);
        self.run(&launch)?;
        same("1.5 + 1.5", &self.download::<f32>(&buffer)?, &[3.0; 16])
    }

    /// The shires of the device, lowest first.
    pub(super) fn shires(&self) -> Vec<u32> {
        let mask = self.device.properties().shire_mask;
        (0..32).filter(|shire| mask >> shire & 1 != 0).collect()
    }

    /// The lowest shire, every other one, and all of them, as masks.
    pub(super) fn masks(&self) -> [u64; 3] {
        let shires = self.shires();
        let mask = |step: usize| shires.iter().step_by(step).fold(0, |mask, &bit| mask | 1 << bit);
        [mask(shires.len().max(1)), mask(2), mask(1)]
    }

    /// The lowest shire as a mask.
    pub(super) fn one_shire(&self) -> u64 {
        self.masks()[0]
    }

    /// The hart with this rank in a launch on all shires.
    pub(super) fn hart_of_rank(&self, rank: u64) -> Result<u32, Failure> {
        let per_shire = u64::from(HARTS_PER_SHIRE);
        let shire = self.shires().get(usize::try_from(rank / per_shire)?).copied();
        let shire = shire.ok_or_else(|| Failure::new(format!("no hart has rank {rank}")))?;
        Ok(shire * HARTS_PER_SHIRE + u32::try_from(rank % per_shire)?)
    }
}

/// Bytes that differ from page to page.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 4096) % 253) as u8).collect()
}

/// Normal numbers of both signs and many sizes, different for each seed.
pub(super) fn floats(seed: u32, len: u32) -> Vec<f32> {
    (0..len)
        .map(|i| {
            let x = (i + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(97));
            let sign = if x & 1 == 0 { 1.0 } else { -1.0 };
            sign * (1.0 + f32::from((x >> 16) as u16) / 1024.0)
        })
        .collect()
}

/// The bits, which tell numbers apart that compare equal.
pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
