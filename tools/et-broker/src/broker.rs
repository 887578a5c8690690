//! What a program uses.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use et_hal::Hal;
use et_runtime::Device;
use et_sim_device::{Board, BoardConfig};
use et_vfio_user::{Server, StopHandle};

use crate::function::Function;
use crate::hub::{self, Hub, PAGE_BYTES, Status};
use crate::member::Seat;
use crate::{BrokerError, copies, kernels};

/// Most slots of a broker.
const MOST_CLIENTS: usize = 32;
/// Threads that copy: while one waits for the card, the other moves a client's bytes.
const COPIERS: usize = 2;
/// What stays free for the broker's own launches and staging.
const RESERVE_BYTES: u64 = 4 << 20;
/// Clock of the cores if the card does not say.
const FREQUENCY_MHZ: u32 = 600;

/// How a card is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerOptions {
    /// Number of slots, and of clients at the same time.
    pub clients: usize,
    /// Bytes of each partition, a multiple of 4 KiB; if none, all there is in equal parts.
    pub memory_bytes: Option<u64>,
    /// A client finds the memory as the one before has left it.
    pub keeps_memory: bool,
    /// How long a kernel may run.
    pub kernel_limit: Option<Duration>,
}

impl BrokerOptions {
    /// So many clients; the memory is divided equally and cleared, kernels run as long as they
    /// like.
    #[must_use]
    pub fn new(clients: usize) -> Self {
        Self { clients, memory_bytes: None, keeps_memory: false, kernel_limit: None }
    }

    /// Sets the size of the partitions.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Sets whether memory is kept between clients.
    #[must_use]
    pub fn keeps_memory(mut self, keeps: bool) -> Self {
        self.keeps_memory = keeps;
        self
    }

    /// Ends kernels that run longer.
    #[must_use]
    pub fn kernel_limit(mut self, limit: Duration) -> Self {
        self.kernel_limit = Some(limit);
        self
    }
}

/// One card for several clients. Dropping it ends all their connections.
pub struct Broker<H: Hal> {
    hub: Arc<Hub<H>>,
    functions: Vec<Arc<Function>>,
    sockets: Vec<PathBuf>,
    stops: Vec<StopHandle>,
    servers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl<H: Hal> fmt::Debug for Broker<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}

impl<H: Hal> Broker<H> {
    /// Shares a device: makes a socket in `folder` for each slot, named by its number.
    ///
    /// The device should be opened with [`byte_copies`](et_runtime::Config::byte_copies): how
    /// copies are aligned is for clients to say.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub fn start(
        device: Device<H>,
        folder: &Path,
        options: &BrokerOptions,
    ) -> Result<Self, BrokerError> {
        let count = options.clients;
        if !(1..=MOST_CLIENTS).contains(&count) {
            return Err(BrokerError::Clients { asked: count, most: MOST_CLIENTS });
        }
        let len = partition_bytes(&device, options)?;
        let config = board_config(&device);
        let opened = hub::open(&device, &vec![len; count])?;
        let range = |start: u64| start..start + len;
        let partitions = opened.buffers.iter().map(|b| range(b.addr().as_u64())).collect();
        let hub = Hub::new(device, opened, partitions, options.kernel_limit, options.keeps_memory);
        let mut this = Self {
            hub: Arc::new(hub),
            functions: Vec::new(),
            sockets: Vec::new(),
            stops: Vec::new(),
            servers: Vec::new(),
            workers: Vec::new(),
        };
        let worker = |name: &str, run: fn(&Hub<H>)| {
            let hub = Arc::clone(&this.hub);
            spawn(name, move || run(&hub))
        };
        this.workers.push(worker("et-broker-launch", kernels::run)?);
        for _ in 0..COPIERS {
            this.workers.push(worker("et-broker-copy", copies::run)?);
        }
        for index in 0..count {
            this.serve(index, folder, config.clone())?;
        }
        Ok(this)
    }

    fn serve(
        &mut self,
        index: usize,
        folder: &Path,
        config: BoardConfig,
    ) -> Result<(), BrokerError> {
        let seat = Arc::new(Seat { hub: Arc::clone(&self.hub), index });
        let function = Arc::new(Function::new(Board::mediate(config, seat)?));
        if let Some(member) = self.hub.state().members.get_mut(index) {
            member.function = Arc::downgrade(&function);
        }
        let path = folder.join(index.to_string());
        let failed = |source| BrokerError::Socket { path: path.clone(), source };
        let server = Server::bind_anew(&path).map_err(failed)?;
        self.stops.push(server.stop_handle());
        let device: Arc<dyn et_vfio_user::Device> = Arc::clone(&function) as _;
        self.servers.push(spawn("et-broker-client", move || {
            if let Err(error) = server.run(&device) {
                tracing::error!(index, error = &error as &dyn std::error::Error, "no clients");
            }
        })?);
        self.functions.push(function);
        self.sockets.push(path);
        Ok(())
    }

    /// Returns the sockets, by slot.
    #[must_use]
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Returns what is going on.
    #[must_use]
    pub fn status(&self) -> Status {
        self.hub.status()
    }

    /// Asks all clients to let their functions go; returns `true` if all have within the time.
    pub fn ask_to_leave(&self, within: Duration) -> bool {
        for function in &self.functions {
            // Who does not want to hear of it is not waited for any longer than the others.
            let _ = function.request_removal();
        }
        let deadline = std::time::Instant::now() + within;
        self.functions.iter().all(|function| {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            function.client().0.is_none() || function.wait_until_free(left)
        })
    }
}

impl<H: Hal> Drop for Broker<H> {
    fn drop(&mut self) {
        self.stops.iter().for_each(StopHandle::stop);
        let join = |thread: JoinHandle<()>| {
            if thread.join().is_err() {
                tracing::error!("a thread of the broker panicked");
            }
        };
        self.servers.drain(..).for_each(join);
        self.hub.state().is_stopped = true;
        self.hub.launches.notify_all();
        self.hub.copies.notify_all();
        self.workers.drain(..).for_each(join);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, BrokerError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(run).map_err(BrokerError::Thread)
}

/// Returns how large partitions are.
fn partition_bytes<H: Hal>(
    device: &Device<H>,
    options: &BrokerOptions,
) -> Result<u64, BrokerError> {
    let free = device.memory_stats().largest_free_bytes;
    let clients = options.clients;
    let share = free.saturating_sub(RESERVE_BYTES) / clients as u64 / PAGE_BYTES * PAGE_BYTES;
    let bytes = options.memory_bytes.unwrap_or(share);
    if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || bytes > share {
        return Err(BrokerError::Memory { clients, bytes, free, reserve: RESERVE_BYTES });
    }
    Ok(bytes)
}

/// The function of a client has the cores and the clock of the card.
fn board_config<H: Hal>(device: &Device<H>) -> BoardConfig {
    let properties = device.properties();
    let mut config = BoardConfig::default();
    config.shires = properties.shire_mask;
    config.frequency_mhz = properties.boot_frequency_mhz.unwrap_or(FREQUENCY_MHZ);
    config.tdp_watts = properties.tdp_watts.unwrap_or(config.tdp_watts);
    config.waits_for_host = true;
    config
}
