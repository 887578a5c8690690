//! The card fails.

use std::sync::Arc;

use et::{AnyHal, Config, Device};
use et_broker::{Broker, BrokerOptions, CardState};
use et_sim_device::{Board, BoardConfig, Fault};
use et_sim_server::{Card, CardOptions};
use et_vfio_user::Server;

use crate::rig::{LONG, PARTITION};
use crate::work;

/// The card itself is behind a socket here: brokers share whatever a locator names.
#[test]
fn a_failure_of_the_card_is_one_of_every_function_and_is_recovered_from() {
    let mut config = BoardConfig::default();
    (config.dram_bytes, config.shires, config.waits_for_host) = (512 << 20, 0b11, true);
    let board = Board::power_on(config).unwrap();
    let card = Arc::new(Card::new(Arc::clone(&board), CardOptions::new().trap(true)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let server = Server::bind(&path).unwrap();
    let stop = server.stop_handle();
    let device: Arc<dyn et_vfio_user::Device> = card;
    let server = std::thread::spawn(move || server.run(&device).unwrap());

    let locator = format!("vfio-user:{}", path.display()).parse().unwrap();
    let device = et::open_with(locator, Config::new().byte_copies(true)).unwrap();
    let options = BrokerOptions::new(2).memory_bytes(PARTITION);
    let broker = Broker::start(device, folder.path(), &options).unwrap();
    let open = |slot: usize| -> Device<AnyHal> {
        et::open(&format!("vfio-user:{}", broker.sockets()[slot].display())).unwrap()
    };
    let mut clients = [open(0), open(1)];
    clients.iter().for_each(work::saxpy);
    // Clearing a partition costs the simulator no memory.
    assert!(board.dram().resident_bytes() < 32 << 20, "{}", board.dram().resident_bytes());

    board.inject(Fault::LinkLoss { after: 0 });
    for client in &clients {
        let buffer = client.alloc(64);
        let copied = buffer.and_then(|buffer| {
            client.default_stream().copy_to_device(&[1_u8; 64], &buffer)?.wait(LONG)
        });
        assert!(copied.is_err(), "{copied:?}");
    }
    // As on a bus: the function answers again after its reset, and when the card does.
    for client in &mut clients {
        client.reset(LONG).unwrap();
        work::everything(client);
    }
    let status = broker.status();
    assert_eq!((status.card, status.failures, status.recoveries), (CardState::Up, 1, 1));
    drop(clients);
    drop(broker);
    stop.stop();
    server.join().unwrap();
}
