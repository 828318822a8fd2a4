//! Whole gateways in one process, on loopback: everything but their native networks is real.

mod cluster;
#[cfg(feature = "etcd")]
mod etcd;
mod fake;
mod forward;
mod late;
#[cfg(feature = "etcd")]
mod lease;
#[path = "../../../../crates/bfed/tests/support/native.rs"]
pub mod native;
mod page;
mod quic;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::path::PathBuf;

use bfed_gateway::config::Mode;
use bfed_gateway::native::NetworkConfig;
use bfed_gateway::status::{self, Show};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

use fake::Hand;
use support::{eventually, port};

/// A running gateway.
struct Gateway {
    hand: Hand,
    folder: TempDir,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Gateway {
    /// Gateway `number`.1, which listens at the address of its number and has the others as peers.
    fn start(mode: Mode, number: usize, at: &[SocketAddr], peers: &[usize], more: &str) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        let mut text = format!(
            "[gateway]\nnetwork = {}\nlisten = \"{}\"\n[daemon]\nsocket = {:?}\n{more}\n",
            number + 1,
            at[number],
            folder.path().join("sock"),
        );
        for &peer in peers {
            let entry = format!(
                "[[peer]]\nnetwork = {}\naddress = \"{}\"\n",
                peer + 1,
                at[peer]
            );
            text.push_str(&entry);
        }
        Gateway::run(mode, folder, &text)
    }

    fn run(mode: Mode, folder: TempDir, text: &str) -> Gateway {
        Gateway::run_with(mode, folder, text, None)
    }

    /// Runs a gateway whose native network is `network`, or in the hands of the test.
    fn run_with(
        mode: Mode,
        folder: TempDir,
        text: &str,
        network: Option<NetworkConfig>,
    ) -> Gateway {
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, text).unwrap();
        let hand = Hand::default();
        let (kill, killed) = oneshot::channel();
        let (opened, is_open) = std::sync::mpsc::channel();
        let own_hand = hand.clone();
        let thread = std::thread::spawn(move || {
            let open = |role, owner| match &network {
                Some(network) => network.open(role, owner),
                None => Ok(own_hand.open(role)),
            };
            let run = bfed_gateway::open_with(mode, &file, &open).unwrap();
            opened.send(()).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                tokio::select! {
                    ended = run => panic!("ended: {ended:?}"),
                    _ = killed => {}
                }
            });
        });
        is_open.recv().unwrap();
        Gateway {
            hand,
            folder,
            kill: Some(kill),
            thread: Some(thread),
        }
    }

    /// Stops without notification.
    fn kill(&mut self) {
        drop(self.kill.take());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    fn show(&self, what: Show) -> Value {
        eventually("an answer", || status::query(&self.socket(), what).ok())
    }

    /// Waits until that many peerings are established.
    fn peered(&self, count: u64) {
        eventually("peerings", || {
            let overview = self.show(Show::Overview);
            (overview["established"] == count && overview["nodes"] != 0).then_some(())
        });
    }

    fn counter(&self, part: &str, name: &str) -> u64 {
        self.show(Show::Counters)[part][name].as_u64().unwrap()
    }
}

/// Gateways in a line, each with its neighbours as peers.
fn line(count: usize, more: &str) -> Vec<Gateway> {
    let at: Vec<_> = (0..count).map(|_| port()).collect();
    let start = |number: usize| {
        let near = |other: &usize| number.abs_diff(*other) == 1;
        let peers: Vec<_> = (0..count).filter(near).collect();
        Gateway::start(Mode::Whole, number, &at, &peers, more)
    };
    let gateways: Vec<_> = (0..count).map(start).collect();
    for (number, gateway) in gateways.iter().enumerate() {
        gateway.peered(if number == 0 || number + 1 == count {
            1
        } else {
            2
        });
    }
    gateways
}
