//! Transfers: those that are repeated all the time, and those of disturbances, in which the receiver on the host
//! that is disturbed is called the victim.

use super::world::{COMES_UP, FILES, MCPD_PORT, TRIALS, VICTIM, World, endpoint};
use crate::prelude::*;

/// The groups that name the sessions through relays; nothing is sent to them.
const RELAYED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 3), 5_003);
const RELAYED_TRIALS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 5), 5_005);
const LAYERS_TRIALS_PORT: u16 = 7_200;
/// Port of the `mcpd` that is started for each copy.
const ONCE_PORT: u16 = 4_239;
/// Time for which transfers of disturbances wait for a silent peer.
const SILENCE: &str = "5s";
/// Bytes after which a viewer leaves.
const VIEWED: &str = "400KiB";

/// One transfer by `lms-send`: what it is called, its group, and the receivers.
struct Session<'a> {
    group: SocketAddrV4,
    sender: (&'a str, &'a str),
    rate: &'a str,
    timeout: &'a str,
    receivers: [Receiver<'a>; 2],
}

struct Receiver<'a> {
    name: &'a str,
    host: usize,
    assist: &'a str,
    folder: PathBuf,
}

impl World {
    pub(super) fn start_mcpd(
        &self,
        host: usize,
        port: u16,
        folder: &Path,
        options: &[&str],
    ) -> Result<Process> {
        let address = self.address(self.nodes.hosts[host]);
        let launch = Launch::carried("mcpd")
            .named(format!("mcpd {}", host + 1))
            .args(["--json", "--quiet", "--insecure"])
            .arg(format!("--listen={address}:{port}"))
            .args(options)
            .arg("--dir")
            .arg(folder);
        let mut daemon = self.network.start(self.nodes.hosts[host], launch)?;
        daemon.wait_event("listening", COMES_UP)?;
        Ok(daemon)
    }

    /// Starts the receivers, then the sender.
    fn start_session(&self, session: &Session<'_>) -> Result<Vec<Process>> {
        let source = self.address(self.nodes.source).to_string();
        let mut all = Vec::new();
        for receiver in &session.receivers {
            let launch = endpoint("lms-recv", session.group)
                .named(receiver.name)
                .args(["--assist", receiver.assist, "--source", &source])
                .args(["--timeout", session.timeout, "--output"])
                .arg(&receiver.folder);
            let node = self.nodes.hosts[receiver.host];
            let mut process = self.network.start(node, launch)?;
            process.wait_event("waiting", COMES_UP)?;
            all.push(process);
        }
        let (name, assist) = session.sender;
        let launch = endpoint("lms-send", session.group)
            .named(name)
            .args(["--assist", assist, "--receivers", "2"])
            .args(["--rate", session.rate, "--timeout", session.timeout])
            .args(["--connect-timeout", "30s"])
            .arg(&self.file);
        all.push(self.network.start(self.nodes.source, launch)?);
        Ok(all)
    }

    fn receiver<'a>(&self, name: &'a str, host: usize, assist: &'a str) -> Result<Receiver<'a>> {
        Ok(Receiver {
            name,
            host,
            assist,
            folder: self.folder(&name.replace(' ', "-"))?,
        })
    }

    pub(super) fn start_file(&self) -> Result<Vec<Process>> {
        self.start_session(&Session {
            group: FILES,
            sender: ("lms-send file", "lms"),
            rate: "20M",
            timeout: "30s",
            receivers: [
                self.receiver("lms-recv file 2", 1, "lms")?,
                self.receiver("lms-recv file 4", 3, "lms")?,
            ],
        })
    }

    pub(super) fn start_relayed(&self) -> Result<Vec<Process>> {
        let [first, second] = self.nodes.routers.map(|node| self.address(node));
        let near = format!("dyram://{first}");
        let far = format!("dyram://{second},{first}");
        self.start_session(&Session {
            group: RELAYED,
            sender: ("lms-send relayed", &near),
            rate: "20M",
            timeout: "30s",
            receivers: [
                self.receiver("lms-recv relayed 2", 1, &near)?,
                self.receiver("lms-recv relayed 4", 3, &far)?,
            ],
        })
    }

    pub(super) fn start_copy(&self) -> Result<Vec<Process>> {
        let folder = self.folder("mcpd2")?;
        let daemon = self.start_mcpd(1, ONCE_PORT, &folder, &["--once"])?;
        let hosts = [(0, MCPD_PORT), (1, ONCE_PORT)];
        let name = format!("copy-{}.bin", self.copies() % 4);
        self.forget_copy(&name)?;
        Ok(vec![daemon, self.mcp("mcp to two", "20M", &name, hosts)?])
    }

    /// Two viewers of the federation's session, which leave when they have some of it.
    pub(super) fn start_viewers(&self) -> Result<Vec<Process>> {
        let view = |name| {
            let options = ["--output", "/dev/null", "--length", VIEWED];
            self.federation.view(name, &options)
        };
        Ok(vec![view("bfed-join guest 1")?, view("bfed-join guest 2")?])
    }

    /// Removes a copy where `mcpd` keeps it: otherwise the next copy of that name sends nothing.
    fn forget_copy(&self, name: &str) -> Result<()> {
        let copy = Path::new(SCRATCH).join("mcpd1").join(name);
        match std::fs::remove_file(copy) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn mcp(&self, name: &str, rate: &str, to: &str, hosts: [(usize, u16); 2]) -> Result<Process> {
        let hosts = hosts.map(|(host, port)| {
            let address = self.address(self.nodes.hosts[host]);
            format!("{address}:{port}")
        });
        let launch = Launch::carried("mcp")
            .named(name)
            .args(["--json", "--quiet", "--insecure", "--rate", rate])
            .args(["--connect-timeout", SILENCE, "--to", to])
            .arg(&self.file)
            .args(hosts);
        self.network.start(self.nodes.source, launch)
    }

    pub(super) fn start_lms_trial(&self) -> Result<Vec<Process>> {
        let victim = self.receiver("lms-recv victim", VICTIM, "lms")?;
        self.lms_trial(victim)
    }

    pub(super) fn start_lms_trial_to_full_disk(&self) -> Result<Vec<Process>> {
        self.disks.lms.fill()?;
        self.lms_trial_to_disk()
    }

    pub(super) fn start_lms_trial_to_free_disk(&self) -> Result<Vec<Process>> {
        self.disks.lms.free()?;
        self.lms_trial_to_disk()
    }

    fn lms_trial_to_disk(&self) -> Result<Vec<Process>> {
        let mut victim = self.receiver("lms-recv victim", VICTIM, "lms")?;
        victim.folder = self.disks.lms.folder().to_owned();
        self.lms_trial(victim)
    }

    fn lms_trial(&self, victim: Receiver<'_>) -> Result<Vec<Process>> {
        self.start_session(&Session {
            group: TRIALS,
            sender: ("lms-send to victim", "lms"),
            rate: "8M",
            timeout: SILENCE,
            receivers: [victim, self.receiver("lms-recv other", 2, "lms")?],
        })
    }

    /// Both receivers are at the first relay, which is not disturbed.
    pub(super) fn start_relayed_trial(&self) -> Result<Vec<Process>> {
        let relay = format!("dyram://{}", self.address(self.nodes.routers[0]));
        self.start_session(&Session {
            group: RELAYED_TRIALS,
            sender: ("lms-send relayed to victim", &relay),
            rate: "8M",
            timeout: SILENCE,
            receivers: [
                self.receiver("lms-recv relayed victim", VICTIM, &relay)?,
                self.receiver("lms-recv relayed other", 2, &relay)?,
            ],
        })
    }

    pub(super) fn start_copy_trial(&self) -> Result<Vec<Process>> {
        self.disks.copies.free()?;
        self.copy_trial()
    }

    pub(super) fn start_copy_trial_to_full_disk(&self) -> Result<Vec<Process>> {
        self.disks.copies.fill()?;
        self.copy_trial()
    }

    /// To the `mcpd`s that run all the time.
    fn copy_trial(&self) -> Result<Vec<Process>> {
        self.forget_copy("trial.bin")?;
        let hosts = [(0, MCPD_PORT), (VICTIM, MCPD_PORT)];
        Ok(vec![self.mcp("mcp to victim", "8M", "trial.bin", hosts)?])
    }

    pub(super) fn start_layers_trial(&self) -> Result<Vec<Process>> {
        let folder = self.folder("ldc-victim")?;
        self.layers_trial(&folder)
    }

    pub(super) fn start_layers_trial_to_full_disk(&self) -> Result<Vec<Process>> {
        self.disks.layers.fill()?;
        self.layers_trial(self.disks.layers.folder())
    }

    pub(super) fn start_layers_trial_to_free_disk(&self) -> Result<Vec<Process>> {
        self.disks.layers.free()?;
        self.layers_trial(self.disks.layers.folder())
    }

    fn layers_trial(&self, folder: &Path) -> Result<Vec<Process>> {
        let launch = Launch::carried("ldc-stream")
            .named("ldc-stream recv victim")
            .args(["recv", "--json", "--quiet", "--idle-timeout", SILENCE])
            .arg("--output")
            .arg(folder)
            .arg(LAYERS_TRIALS_PORT.to_string());
        let mut receiver = self.network.start(self.nodes.hosts[VICTIM], launch)?;
        receiver.wait_event("waiting", COMES_UP)?;
        let launch = Launch::carried("ldc-stream")
            .named("ldc-stream send to victim")
            .args(["send", "--json", "--quiet", "--duration", "10s"])
            .args(["--linger", SILENCE])
            .arg(format!("{}:{LAYERS_TRIALS_PORT}", self.victim()));
        let sender = self.network.start(self.nodes.source, launch)?;
        Ok(vec![receiver, sender])
    }

    pub(super) fn start_viewer_trial(&self) -> Result<Vec<Process>> {
        self.disks.bfed.free()?;
        self.viewer_trial()
    }

    pub(super) fn start_viewer_trial_to_full_disk(&self) -> Result<Vec<Process>> {
        self.disks.bfed.fill()?;
        self.viewer_trial()
    }

    fn viewer_trial(&self) -> Result<Vec<Process>> {
        let file = self.disks.bfed.folder().join("seen.bin");
        let file = file.to_str().context("a path")?;
        let options = ["--output", file, "--length", VIEWED];
        Ok(vec![self.federation.view("bfed-join victim", &options)?])
    }
}
