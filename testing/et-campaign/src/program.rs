//! A program that uses everything once, checks every result, and can be disturbed at each step.

#![expect(clippy::cast_precision_loss, reason = "small numbers")]

use std::time::Duration;

use et_hal::Hal;
use et_runtime::executor::{ExecutorConfig, Place, RunError};
use et_runtime::graph::{GraphBuilder, GraphError, HostData, Task};
use et_runtime::{Device, DeviceBuffer, Error, Kernel, Launch, LoadError, TransferError};

/// A step of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub(crate) enum Step {
    Open,
    Load,
    Upload,
    Launch,
    Download,
    Streams,
    GraphStreams,
    GraphResident,
    Management,
    Abort,
    ComputeReset,
    Reset,
    Close,
}

impl Step {
    pub(crate) const ALL: [Self; 13] = [
        Self::Open,
        Self::Load,
        Self::Upload,
        Self::Launch,
        Self::Download,
        Self::Streams,
        Self::GraphStreams,
        Self::GraphResident,
        Self::Management,
        Self::Abort,
        Self::ComputeReset,
        Self::Reset,
        Self::Close,
    ];

    /// Returns the name that the command line and the report use.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map(|it| it.get_name().to_owned())
            .unwrap_or_default()
    }
}

/// Limit of each wait of the program.
const LIMIT: Duration = Duration::from_secs(2);

const ADD: &[u8] = include_bytes!("../../kernels/elf/add.elf");
const HANG: &[u8] = include_bytes!("../../kernels/elf/hang.elf");

/// Floats of each vector: several commands' worth.
const FLOATS: usize = 50_000;

/// Why the program ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The runtime said so.
    #[error(transparent)]
    Device(#[from] Error),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// It kept an error for those who would not wait.
    #[error("listed: {0}")]
    Unasked(String),
    /// It said that all is well, and it is not.
    #[error("wrong: {0}")]
    Wrong(String),
}

impl<H: Hal> From<TransferError<H>> for Trouble {
    fn from(error: TransferError<H>) -> Self {
        Self::Device(error.error)
    }
}

/// Runs every step on an open device; `before` is called before each.
pub(crate) fn run<H: Hal>(
    device: &mut Device<H>,
    before: &mut dyn FnMut(Step),
) -> Result<(), Trouble> {
    before(Step::Load);
    let add = device.load_kernel("add", ADD)?;
    let hang = device.load_kernel("hang", HANG)?;

    before(Step::Upload);
    let a = ramp(1.0);
    let vectors = Vectors::new(device, &a)?;

    before(Step::Launch);
    device.default_stream().launch(&vectors.launch(&add))?.wait(LIMIT)?;

    before(Step::Download);
    vectors.check(device)?;

    before(Step::Streams);
    streams(device, &add)?;
    before(Step::GraphStreams);
    graph(device, &add, Place::Streams)?;
    before(Step::GraphResident);
    graph(device, &add, Place::Resident)?;

    before(Step::Management);
    let management = device.management()?.with_timeout(LIMIT);
    let serial = management.serial_number()?;
    for _ in 0..4 {
        if management.serial_number()? != serial || management.temperatures()?.minion_average_c == 0
        {
            return Err(Trouble::Wrong("the card's data changes".into()));
        }
    }

    before(Step::Abort);
    let endless = device.default_stream().launch(&Launch::new(&hang))?;
    device.abort(&endless, LIMIT)?;
    if endless.wait(LIMIT).is_ok() {
        return Err(Trouble::Wrong("an endless kernel succeeded".into()));
    }

    before(Step::ComputeReset);
    let endless = device.default_stream().launch(&Launch::new(&hang))?;
    device.reset_compute(LIMIT)?;
    if endless.wait(LIMIT).is_ok() {
        return Err(Trouble::Wrong("an endless kernel survived a reset".into()));
    }
    // Device memory has kept its contents.
    vectors.check(device)?;

    before(Step::Reset);
    device.reset(LIMIT)?;
    let add = device.load_kernel("add", ADD)?;
    let vectors = Vectors::new(device, &a)?;
    device.default_stream().launch(&vectors.launch(&add))?.wait(LIMIT)?;
    vectors.check(device)?;

    before(Step::Close);
    Ok(())
}

/// x + y = z on the device.
struct Vectors {
    x: DeviceBuffer,
    y: DeviceBuffer,
    z: DeviceBuffer,
    sum: Vec<f32>,
}

impl Vectors {
    /// Uploads one vector from ordinary memory, the other from memory that the device reaches.
    fn new<H: Hal>(device: &Device<H>, values: &[f32]) -> Result<Self, Trouble> {
        let stream = device.default_stream();
        let bytes = size_of_val(values);
        let buffer = || device.alloc(bytes as u64);
        let (x, y, z) = (buffer()?, buffer()?, buffer()?);
        let mut host = device.host_buffer(bytes)?;
        let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
        host.copy_in(0, &doubled)?;
        let first = stream.copy_to_device(values, &x)?;
        stream.upload(host, &y)?.wait(LIMIT)?;
        first.wait(LIMIT)?;
        stream.fill(&z, 0xff)?.wait(LIMIT)?;
        Ok(Self { x, y, z, sum: values.iter().map(|value| 3.0 * value).collect() })
    }

    fn launch(&self, add: &Kernel) -> Launch {
        let count = self.sum.len() as u64;
        Launch::new(add).buffer(&self.x).buffer(&self.y).buffer(&self.z).u64(count)
    }

    /// Reads the sum in both ways.
    fn check<H: Hal>(&self, device: &Device<H>) -> Result<(), Trouble> {
        let stream = device.default_stream();
        let mut read = vec![0.0f32; self.sum.len()];
        stream.read(&self.z, &mut read, LIMIT)?;
        same("what was read", &read, &self.sum)?;
        let host = device.host_buffer(size_of_val(self.sum.as_slice()))?;
        let host = stream.download(&self.z, host)?.wait(LIMIT)?;
        host.copy_out(0, &mut read)?;
        same("what was downloaded", &read, &self.sum)
    }
}

/// Several streams at once; the last waits for all others.
fn streams<H: Hal>(device: &Device<H>, add: &Kernel) -> Result<(), Trouble> {
    let values: Vec<Vec<f32>> = [1.0, 2.0, 3.0].into_iter().map(ramp).collect();
    let last = device.stream();
    let mut all = Vec::new();
    for values in &values {
        let stream = device.stream();
        let buffer = || device.alloc(size_of_val(values.as_slice()) as u64);
        let (x, y, z) = (buffer()?, buffer()?, buffer()?);
        // The stream lists what fails of these.
        drop(stream.copy_to_device(values, &x)?);
        drop(stream.copy_on_device(&x, &y)?);
        let count = values.len() as u64;
        drop(stream.launch(&Launch::new(add).buffer(&x).buffer(&y).buffer(&z).u64(count))?);
        last.wait_for(&stream.barrier()?);
        let sum = values.iter().map(|value| 2.0 * value).collect();
        all.push((stream, Vectors { x, y, z, sum }));
    }
    last.barrier()?.wait(LIMIT)?;
    for (stream, vectors) in &all {
        stream.synchronize(LIMIT)?;
        if let Some(error) = stream.take_errors().errors.first() {
            return Err(Trouble::Unasked(format!("{error:?}")));
        }
        vectors.check(device)?;
    }
    Ok(())
}

/// (a + b) + (a + b), with copies at both ends.
fn graph<H: Hal>(device: &Device<H>, add: &Kernel, place: Place) -> Result<(), Trouble> {
    let values = ramp(0.5);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let buffer = || device.alloc(bytes.len() as u64);
    let (a, b, sum, twice) = (buffer()?, buffer()?, buffer()?, buffer()?);
    let input = HostData::new(bytes.clone());
    let result = HostData::zeroed(bytes.len());
    let count = values.len() as u64;
    let mut builder = GraphBuilder::new();
    let add = builder.kernel(add);
    builder.copy_in(&input, &a)?;
    builder.copy_in(&input, &b)?;
    builder.add(Task::new(add).input(&a).input(&b).output(&sum).u64(count))?;
    builder.add(Task::new(add).input(&sum).input(&sum).output(&twice).u64(count))?;
    builder.copy_out(&twice, &result)?;
    let executor = device.executor(&ExecutorConfig::new().place(place).cores(4))?;
    executor.launch(&builder.build()?)?.finish(LIMIT)?;
    let expected: Vec<u8> = values.iter().flat_map(|value| (4.0 * value).to_le_bytes()).collect();
    same("the result of a graph", &result.to_vec(), &expected)
}

fn ramp(scale: f32) -> Vec<f32> {
    (0..FLOATS).map(|n| scale * n as f32).collect()
}

fn same<T: PartialEq>(what: &str, found: &[T], expected: &[T]) -> Result<(), Trouble> {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None if found.len() == expected.len() => Ok(()),
        at => Err(Trouble::Wrong(format!("{what} differs, first at {at:?}"))),
    }
}
