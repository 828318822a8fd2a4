//! Two control nodes, and a real etcd that decides which of them is active.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use bfed_gateway::config::Mode;
use bfed_gateway::status::Show;

use super::cluster::{KEYS, key_file};
use super::forward::{BULK, DATA, frames, join};
use super::{Gateway, eventually, port};

/// An etcd of one; ended when dropped.
pub(super) struct Etcd {
    child: Child,
    folder: TempDir,
    /// Where clients and members call.
    pub(super) at: [SocketAddr; 2],
    tls: bool,
}

impl Etcd {
    /// None where there is no etcd.
    pub(super) fn start(tls: bool) -> Option<Etcd> {
        if Command::new("etcd").arg("--version").output().is_err() {
            netlab::lacks_program(env!("CARGO_PKG_NAME"), "etcd");
            return None;
        }
        let (folder, at) = (tempfile::tempdir().unwrap(), [port(), port()]);
        let child = Etcd::run(&folder, at, tls);
        Some(Etcd {
            child,
            folder,
            at,
            tls,
        })
    }

    fn again(&mut self) {
        self.child = Etcd::run(&self.folder, self.at, self.tls);
    }

    fn run(folder: &TempDir, [clients, members]: [SocketAddr; 2], tls: bool) -> Child {
        let scheme = if tls { "https" } else { "http" };
        let mut command = Command::new("etcd");
        if tls {
            let pem = std::fs::read_to_string(Path::new(KEYS).join("server.pem")).unwrap();
            let authority = &pem[pem.rfind("-----BEGIN CERTIFICATE").unwrap()..];
            let authority = &authority[..authority.find("-----BEGIN PRIVATE").unwrap()];
            let file = folder.path().join("authority.pem");
            std::fs::write(&file, authority).unwrap();
            key_file(folder, "server.pem");
            let own = folder.path().join("server.pem");
            command
                .arg(format!("--cert-file={}", own.display()))
                .arg(format!("--key-file={}", own.display()))
                .arg(format!("--trusted-ca-file={}", file.display()))
                .arg("--client-cert-auth");
        }
        command
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .arg(format!("--listen-client-urls={scheme}://{clients}"))
            .arg(format!("--advertise-client-urls={scheme}://{clients}"))
            .arg(format!("--listen-peer-urls=http://{members}"))
            .arg(format!("--initial-advertise-peer-urls=http://{members}"))
            .arg(format!("--initial-cluster=default=http://{members}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn revoke_all_leases(&self) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let at = format!("http://{}", self.at[0]);
            let mut client = etcd_client::Client::connect([at], None).await.unwrap();
            let leases = client.leases().await.unwrap();
            assert!(!leases.leases().is_empty());
            for lease in leases.leases() {
                client.lease_revoke(lease.id()).await.unwrap();
            }
        });
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

/// A control node of that name, whose data nodes call there.
fn control(etcd: &Etcd, name: &str, at: [SocketAddr; 2], calls: SocketAddr) -> Gateway {
    let (scheme, key) = match etcd.tls {
        true => ("https", key_file(&etcd.folder, "client.pem")),
        false => ("http", String::new()),
    };
    let more = format!(
        "[cluster]\nlisten = \"{calls}\"\n[etcd]\nendpoints = [\"{scheme}://{}\"]\nname = \"{name}\"\n{key}",
        etcd.at[0]
    );
    Gateway::start(Mode::Control, 0, &at, &[1], &more)
}

struct Cluster {
    etcd: Etcd,
    controls: Vec<Gateway>,
    data: Gateway,
    other: Gateway,
}

impl Cluster {
    fn start(tls: bool) -> Option<Cluster> {
        let etcd = Etcd::start(tls)?;
        let at = [port(), port()];
        let calls = [port(), port()];
        let controls = vec![
            control(&etcd, "0", at, calls[0]),
            // A standby listens elsewhere; it calls.
            control(&etcd, "1", [port(), at[1]], calls[1]),
        ];
        let data = format!(
            "[cluster]\ncontrol = [\"{}\", \"{}\"]\n[data]\nlisten = \"127.0.0.1:0\"\nnodes = 2",
            calls[0], calls[1]
        );
        let data = Gateway::start(Mode::Data, 0, &at, &[], &data);
        let other = Gateway::start(Mode::Whole, 1, &at, &[0], DATA);
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
            (views[at]["nodes"] == 2 && views[at]["established"] == 1).then_some(at)
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

fn takes_over(tls: bool) {
    let Some(mut cluster) = Cluster::start(tls) else {
        return;
    };
    let active = cluster.active();
    let epoch = cluster.epoch(active);
    join(&cluster.other, 1, BULK);
    cluster.flows(BULK);
    join(&cluster.other, 2, super::forward::REAL_TIME);
    cluster.flows(super::forward::REAL_TIME);
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
    // Longer than data nodes may be silent: the successor gets the reports of its data nodes.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let peers = cluster.controls[now].show(Show::Peers);
    assert!(peers["peers"][0]["last_end"].is_null(), "{peers}");
}

#[test]
fn a_standby_takes_over_and_data_flows_meanwhile() {
    takes_over(false);
}

#[test]
fn the_same_over_tls_with_both_sides_certificates() {
    takes_over(true);
}

#[test]
fn while_etcd_is_away_nobody_is_active_and_data_flows() {
    let Some(mut cluster) = Cluster::start(false) else {
        return;
    };
    let active = cluster.active();
    join(&cluster.other, 1, BULK);
    cluster.flows(BULK);
    cluster.etcd.stop();
    cluster.answers(active, false);
    // Another might be elected where etcd can be reached: its lease is over.
    eventually("nobody is active", || {
        let mut views = cluster.controls.iter().map(|one| one.show(Show::Overview));
        views.all(|view| view["active"] == false).then_some(())
    });
    cluster.flows(BULK);
    cluster.etcd.again();
    for of in 0..2 {
        cluster.answers(of, true);
    }
    cluster.active();
    cluster.flows(BULK);
    // New assignments, too.
    let another = "bfed://1/fake/another/?content=bulk-data";
    join(&cluster.other, 50, another);
    cluster.flows(another);
}

#[test]
fn who_begins_while_etcd_answers_knows_that_it_does() {
    let Some(mut cluster) = Cluster::start(false) else {
        return;
    };
    cluster.active();
    let late = control(&cluster.etcd, "2", [port(), port()], port());
    cluster.controls.push(late);
    cluster.answers(2, true);
}

#[test]
fn who_lost_its_lease_steps_down_and_is_elected_with_another() {
    let Some(mut cluster) = Cluster::start(false) else {
        return;
    };
    let active = cluster.active();
    // No rival: it is the next one itself.
    cluster.controls.remove(1 - active).kill();
    cluster.active();
    let epoch = cluster.epoch(0);
    cluster.etcd.revoke_all_leases();
    eventually("a new term", || {
        let overview = cluster.controls[0].show(Show::Overview);
        let term = overview["epoch"].as_u64().unwrap();
        (overview["active"] == true && term > epoch).then_some(())
    });
    cluster.active();
    cluster.answers(0, true);
}
