//! The simulated card as a process: serves it over vfio-user until told to stop.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{CommandFactory, Parser};
use et_hal_sim::BoardConfig;
use et_sim_device::Board;
use et_sim_server::{Card, CardOptions};
use et_vfio_user::{Device, Ended, Server, StopHandle};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;

/// How long a client may take to let the card go when the process is told to stop.
const FAREWELL: Duration = Duration::from_secs(2);

/// Simulates an ET-SoC-1 and serves it as a PCIe function over vfio-user.
///
/// One client at a time; the next is served when the one before has gone, on a card that has been
/// reset. SIGTERM and SIGINT ask the client to let the card go, then end the process; SIGUSR1
/// reports a bus error to the client.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Unix socket to listen on; made, and removed at the end.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// The board, as after `sim:`; for example `shires=4,dram=1GiB`.
    #[arg(long, value_name = "KEY=VALUE,…", default_value = "", value_parser = board)]
    board: BoardConfig,
    /// Let no BAR be mapped: each access is a message, and closed BARs read as ones.
    #[arg(long)]
    trap: bool,
    /// Open the BARs without waiting until the client has enabled memory space and MSIs.
    #[arg(long)]
    open_at_once: bool,
    /// End when the first client has gone.
    #[arg(long)]
    once: bool,
}

/// Reads the board's text form; errors with all they say.
fn board(text: &str) -> Result<BoardConfig, String> {
    text.parse::<BoardConfig>().map_err(|error| format!("{:#}", anyhow::Error::new(error)))
}

fn main() -> anyhow::Result<()> {
    // For packages; not among the options, which all belong to a card.
    if std::env::args_os().nth(1).is_some_and(|first| first == "--man-page") {
        clap_mangen::Man::new(Args::command()).render(&mut std::io::stdout())?;
        return Ok(());
    }
    let filter = EnvFilter::try_from_env("ET_LOG").unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let args = Args::parse();
    let mut config = args.board;
    config.waits_for_host = !args.open_at_once;
    let board = Board::power_on(config).context("cannot power the board on")?;
    let card = Arc::new(Card::new(board, CardOptions::new().trap(args.trap)));

    let server = Server::bind_anew(&args.socket)?;
    let signals = Signals::new([SIGINT, SIGTERM, SIGUSR1]).context("cannot handle signals")?;
    let (stop, of_signals) = (server.stop_handle(), Arc::clone(&card));
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || handle(signals, &of_signals, &stop))
        .context("cannot start a thread")?;

    announce(&args.socket);
    let device: Arc<dyn Device> = Arc::clone(&card) as _;
    if args.once {
        // Who only looks whether someone listens is no client.
        while server.serve_one(&device)? != Ended::Stopped && card.clients() == 0 {}
    } else {
        server.run(&device)?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "whoever starts the process waits for this line")]
fn announce(socket: &Path) {
    println!("listening on {}", socket.display());
}

fn handle(mut signals: Signals, card: &Card, stop: &StopHandle) {
    for signal in signals.forever() {
        if signal == SIGUSR1 {
            card.report_bus_error();
            continue;
        }
        if card.request_removal() {
            card.wait_until_free(FAREWELL);
        }
        stop.stop();
        return;
    }
}
