//! Two control nodes, and a real etcd that says which of them is the active one.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::forward::{BULK, DATA, frames, join};
use super::{Gateway, eventually, port};
use crate::config::Mode;
use crate::status::Show;

/// An etcd of one; ended when dropped.
struct Etcd {
    child: Child,
    folder: TempDir,
    at: [SocketAddr; 2],
}

impl Etcd {
    /// None where there is no etcd.
    fn start() -> Option<Etcd> {
        if Command::new("etcd").arg("--version").output().is_err() {
            eprintln!("SKIPPED: there is no etcd here, the election was not tried");
            return None;
        }
        let (folder, at) = (tempfile::tempdir().unwrap(), [port(), port()]);
        let child = Etcd::run(&folder, at);
        Some(Etcd { child, folder, at })
    }

    fn run(folder: &TempDir, [clients, members]: [SocketAddr; 2]) -> Child {
        Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.path())
            .arg(format!("--listen-client-urls=http://{clients}"))
            .arg(format!("--advertise-client-urls=http://{clients}"))
            .arg(format!("--listen-peer-urls=http://{members}"))
            .arg(format!("--initial-advertise-peer-urls=http://{members}"))
            .arg(format!("--initial-cluster=default=http://{members}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Cluster {
    etcd: Etcd,
    controls: Vec<Gateway>,
    data: Gateway,
    other: Gateway,
}

impl Cluster {
    fn start() -> Option<Cluster> {
        let etcd = Etcd::start()?;
        let at = [port(), port()];
        let calls = [port(), port()];
        let control = |number: usize| {
            let more = format!(
                "[cluster]\nlisten = \"{}\"\n[etcd]\nendpoints = [\"http://{}\"]\nname = \"{number}\"",
                calls[number], etcd.at[0]
            );
            // A standby listens elsewhere; it calls.
            let own = [[at[0], at[1]], [port(), at[1]]][number];
            Gateway::start(Mode::Control, 0, &own, &[1], &more)
        };
        let controls = (0..2).map(control).collect();
        let data = format!(
            "[cluster]\ncontrol = [\"{}\", \"{}\"]\n[data]\nlisten = \"127.0.0.1:0\"\nnodes = 1",
            calls[0], calls[1]
        );
        let data = Gateway::start(Mode::Data, 0, &at, &[], &data);
        let other = Gateway::start(Mode::All, 1, &at, &[0], DATA);
        Some(Cluster {
            etcd,
            controls,
            data,
            other,
        })
    }

    /// Waits until exactly one control node is active, with the data node and the peer; which.
    fn active(&self) -> usize {
        eventually("one active control node", || {
            let views: Vec<_> = self
                .controls
                .iter()
                .map(|one| one.show(Show::Overview))
                .collect();
            let active = |view: &&serde_json::Value| view["active"] == true;
            if views.iter().filter(active).count() != 1 {
                return None;
            }
            let at = views.iter().position(|view| view["active"] == true)?;
            (views[at]["nodes"] == 1 && views[at]["established"] == 1).then_some(at)
        })
    }

    fn epoch(&self, of: usize) -> u64 {
        self.controls[of].show(Show::Overview)["epoch"]
            .as_u64()
            .unwrap()
    }

    fn flows(&self, session: &str) {
        let before = self.other.hand.got(session).len();
        eventually("data", || {
            self.data.hand.send(session, frames(1, 100));
            (self.other.hand.got(session).len() > before).then_some(())
        });
    }

    fn answers(&self, of: usize, expected: bool) {
        eventually("etcd, there or away", || {
            let overview = self.controls[of].show(Show::Overview);
            (overview["store_answers"] == expected).then_some(())
        });
    }
}

#[test]
fn a_standby_takes_over_and_data_flows_meanwhile() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let active = cluster.active();
    let epoch = cluster.epoch(active);
    join(&cluster.other, 1, BULK);
    cluster.flows(BULK);
    cluster.controls.remove(active).kill();
    cluster.flows(BULK);
    let now = cluster.active();
    assert!(cluster.epoch(now) > epoch);
    cluster.flows(BULK);
    eventually("the tree at the successor", || {
        let sessions = cluster.controls[now].show(Show::Sessions);
        (sessions["sessions"][0]["attached"] == true).then_some(())
    });
    cluster.flows(BULK);
}

#[test]
fn while_etcd_is_away_everything_goes_on() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let active = cluster.active();
    join(&cluster.other, 1, BULK);
    cluster.flows(BULK);
    cluster.etcd.stop();
    cluster.answers(active, false);
    cluster.flows(BULK);
    // Also what is new.
    let another = "bfed://1/fake/another/?content=bulk-data";
    join(&cluster.other, 50, another);
    cluster.flows(another);
    let (folder, at) = (&cluster.etcd.folder, cluster.etcd.at);
    cluster.etcd.child = Etcd::run(folder, at);
    for of in 0..2 {
        cluster.answers(of, true);
    }
    cluster.active();
    for session in [BULK, another] {
        cluster.flows(session);
    }
}
