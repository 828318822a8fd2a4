//! Runs a copy by `mcp` and `mcpd`, the real programs, and collects the results.

use super::{Stage, Wire};
use crate::prelude::*;
use netlab::Event;

/// Time between checks of `mcp` while a copy runs, and the number of checks between those of all `mcpd`.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: u32 = 8;

/// Exit code of `mcp` for arguments that it does not take.
const USAGE: i32 = 2;

/// How a copy is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copying {
    /// With a key: data is sealed (AEAD), and the control connections are TLS. Without: neither.
    pub(crate) sealed: bool,
    /// The port that every `mcpd` listens on, when several copies run at once.
    pub(crate) port: Option<u16>,
    /// The receivers, counted from 0, in the order of `mcp`'s arguments; none: all.
    pub(crate) receivers: Vec<usize>,
    /// More arguments of `mcp`.
    pub(crate) send: Vec<String>,
    /// More arguments of every `mcpd`.
    pub(crate) receive: Vec<String>,
}

impl Copying {
    /// To all receivers, in the clear.
    pub(crate) fn plain() -> Copying {
        Copying::default()
    }

    /// Distinguishes its programs from those of other copies at the same time.
    fn suffix(&self) -> String {
        self.port.map_or(String::new(), |port| format!(" {port}"))
    }

    /// The same with these arguments for `mcp`.
    #[must_use]
    pub(crate) fn send(mut self, args: &[&str]) -> Copying {
        self.send.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }
}

/// A copy in progress.
pub(crate) struct Running {
    /// `mcp`.
    pub(crate) sender: Process,
    /// `mcpd`, in the order of [`Copying::receivers`].
    pub(crate) daemons: Vec<Daemon>,
    /// What was on the sender's wire before.
    before: Wire,
    /// The most memory that `mcp`, and that the largest `mcpd`, was seen to use; bytes.
    memory: [u64; 2],
    /// The processor time of `mcp`, and of each `mcpd`, when they were last seen.
    cpu: (Duration, Vec<Duration>),
    looks: u32,
}

/// One receiver's end.
pub(crate) struct Daemon {
    /// Which receiver of the stage.
    pub(crate) receiver: usize,
    /// Its address, as given to `mcp`.
    pub(crate) address: String,
    /// `mcpd`.
    pub(crate) process: Process,
    /// The path of its copy.
    pub(crate) copy: PathBuf,
}

/// The result of a copy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Copied {
    /// Every receiver, in the order of [`Copying::receivers`].
    pub(crate) hosts: Vec<HostCopied>,
    /// From the start of `mcp` until the last receiver is verified.
    pub(crate) seconds: f64,
    /// The file's bits in that time.
    pub(crate) goodput_bps: f64,
    /// What the sender sent on its link in total.
    pub(crate) wire: Wire,
    /// The same for each byte of the file.
    pub(crate) overhead: f64,
    /// The exit code of `mcp`.
    pub(crate) exit_code: i32,
    /// The first line that is no event: `mcp` says there why it refuses its arguments.
    pub(crate) message: String,
    /// The most memory that `mcp` was seen to use, bytes.
    pub(crate) sender_memory: u64,
    /// The most that any `mcpd` was seen to use, bytes.
    pub(crate) receiver_memory: u64,
    /// Processor time of `mcp`, seconds.
    pub(crate) sender_cpu: f64,
    /// Processor time of all `mcpd`, seconds.
    pub(crate) receivers_cpu: f64,
}

/// One receiver's account.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostCopied {
    /// Its name on the stage.
    pub(crate) name: String,
    /// From the start of `mcp` until it is verified; `None`: it is not.
    pub(crate) seconds: Option<f64>,
    /// Its digest is the others', and its copy the file, byte by byte.
    pub(crate) whole: bool,
    /// Why it failed, if it did.
    pub(crate) failed: Option<String>,
    /// When it was detached to its own stream.
    pub(crate) detached: Option<f64>,
    /// How it was reached, and since when.
    pub(crate) modes: Vec<(f64, String)>,
    /// Bytes received on the data connection, by time of the report.
    pub(crate) progress: Vec<(f64, u64)>,
}

impl Running {
    /// Starts `mcpd` on each receiver, waits until all listen, then starts `mcp`.
    pub(crate) fn start(stage: &mut Stage, copying: &Copying) -> Result<Running> {
        let key = copying.sealed.then(|| key(stage)).transpose()?;
        let trust: Vec<&str> = match &key {
            Some(key) => vec!["--key-file", key],
            None => vec!["--insecure"],
        };
        let receivers = match &copying.receivers[..] {
            [] => (0..stage.receivers.len()).collect(),
            some => some.to_vec(),
        };
        let mut daemons = Vec::new();
        for receiver in receivers {
            daemons.push(daemon(stage, receiver, &trust, copying)?);
        }
        for daemon in &mut daemons {
            daemon
                .process
                .wait_event("listening", Duration::from_secs(10))?;
        }
        let before = stage.wire()?;
        let launch = Launch::carried("mcp")
            .named(format!("mcp{}", copying.suffix()))
            .args(["--json", "--quiet"])
            .args(&trust)
            .args(&copying.send)
            .arg(&stage.file)
            .args(daemons.iter().map(|daemon| &daemon.address));
        let sender = stage.network.start(stage.sender, launch)?;
        let cpu = (Duration::ZERO, vec![Duration::ZERO; daemons.len()]);
        Ok(Running {
            sender,
            daemons,
            before,
            memory: [0; 2],
            cpu,
            looks: 0,
        })
    }

    /// Samples the programs; returns whether `mcp` still runs.
    pub(crate) fn look(&mut self) -> bool {
        self.memory[0] = self.memory[0].max(self.sender.peak_memory());
        self.cpu.0 = self.cpu.0.max(self.sender.cpu_time());
        let runs = self.sender.ended().is_none();
        self.looks += 1;
        if runs && !self.looks.is_multiple_of(LOOKS) {
            return runs;
        }
        for (daemon, cpu) in self.daemons.iter().zip(&mut self.cpu.1) {
            self.memory[1] = self.memory[1].max(daemon.process.peak_memory());
            *cpu = (*cpu).max(daemon.process.cpu_time());
        }
        runs
    }

    /// Seconds since the start of `mcp`.
    pub(crate) fn elapsed(&self) -> f64 {
        self.sender.started().elapsed().as_secs_f64()
    }

    /// Whether a receiver (by its place in [`Copying::receivers`]) is a member of a group, as its
    /// kernel tells.
    pub(crate) fn is_member(&self, place: usize) -> bool {
        let id = self.daemons[place].process.id();
        let groups = std::fs::read_to_string(format!("/proc/{id}/net/igmp")).unwrap_or_default();
        // Addresses are printed as in memory; the group of all hosts is always there.
        let groups = groups.lines().filter(|line| line.starts_with("\t\t\t\t"));
        groups.filter(|line| !line.contains("010000E0")).count() > 0
    }

    /// Waits for the end, with every receiver verified.
    pub(crate) fn succeed(self, stage: &mut Stage) -> Result<Copied> {
        self.finish(stage, |_, _| Ok(()))?.expect_whole()
    }

    /// Waits for the end of `mcp`, however it ends; `meanwhile` is called every few milliseconds.
    pub(crate) fn finish(
        mut self,
        stage: &mut Stage,
        mut meanwhile: impl FnMut(&mut Running, &mut Stage) -> Result<()>,
    ) -> Result<Copied> {
        let end = Instant::now() + stage.timeout();
        while self.look() {
            meanwhile(&mut self, stage)?;
            if Instant::now() > end {
                bail!(
                    "mcp does not end within {:?}\n{}",
                    stage.timeout(),
                    self.logs()
                );
            }
            std::thread::sleep(LOOK);
        }
        let (status, _) = self.sender.wait(Duration::from_secs(1))?;
        let wire = stage.wire()?.since(self.before);
        let copied = self.account(stage, status.code().unwrap_or(-1), wire)?;
        let copies: Vec<PathBuf> = self.daemons.iter().map(|d| d.copy.clone()).collect();
        for daemon in &mut self.daemons {
            let _ = daemon.process.stop(Duration::from_secs(5));
        }
        stage.discard(&copies)?;
        Ok(copied)
    }

    fn logs(&self) -> String {
        let daemons = self.daemons.iter().map(|daemon| &daemon.process);
        daemons.chain([&self.sender]).map(Process::tail).collect()
    }

    fn account(&mut self, stage: &Stage, exit_code: i32, wire: Wire) -> Result<Copied> {
        let told = self.sender.events();
        let began = self.sender.started();
        let mut hosts = Vec::new();
        for daemon in &mut self.daemons {
            hosts.push(daemon.account(stage, &told, began)?);
        }
        let digests: Vec<Option<String>> = self.daemons.iter().map(Daemon::digest).collect();
        for (host, digest) in hosts.iter_mut().zip(&digests) {
            let first = digests.iter().flatten().next();
            host.whole &= digest.is_some() && digest.as_ref() == first;
        }
        let seconds = hosts.iter().filter_map(|host| host.seconds);
        let seconds = most(seconds);
        Ok(Copied {
            hosts,
            seconds,
            goodput_bps: stage.bytes as f64 * 8.0 / seconds,
            wire,
            overhead: wire.bytes as f64 / stage.bytes as f64,
            exit_code,
            message: self.sender.log().into_iter().next().unwrap_or_default(),
            sender_memory: self.memory[0],
            receiver_memory: self.memory[1],
            sender_cpu: self.cpu.0.as_secs_f64(),
            receivers_cpu: self.cpu.1.iter().sum::<Duration>().as_secs_f64(),
        })
    }
}

impl Copied {
    /// Checks that every receiver is verified.
    fn expect_whole(self) -> Result<Copied> {
        if self.exit_code == USAGE {
            bail!("mcp refuses: {}", self.message);
        }
        for host in &self.hosts {
            ensure!(
                host.whole,
                "{} has no good copy: {}",
                host.name,
                host.failed.as_deref().unwrap_or("its copy differs")
            );
        }
        ensure!(self.exit_code == 0, "mcp ends with {}", self.exit_code);
        Ok(self)
    }
}

impl Daemon {
    /// The digest of the whole copy that it reported.
    fn digest(&self) -> Option<String> {
        let copied = self.process.last("copied")?;
        Some(copied["digest"].as_str()?.to_owned())
    }

    /// Its result, from the reports of `mcp`.
    fn account(&mut self, stage: &Stage, told: &[Event], began: Instant) -> Result<HostCopied> {
        let node = stage.receivers[self.receiver];
        let mut host = HostCopied {
            name: stage.network.plan().name(node).to_owned(),
            seconds: None,
            whole: false,
            failed: None,
            detached: None,
            modes: Vec::new(),
            progress: Vec::new(),
        };
        let mine = told
            .iter()
            .filter(|event| text(&event.value, "host") == self.address);
        for Event { at, value } in mine {
            let at = (*at - began).as_secs_f64();
            match text(value, "event") {
                "verified" => host.seconds = Some(at),
                "failed" => host.failed = Some(text(value, "message").to_owned()),
                "detached" => host.detached = Some(at),
                "mode" => host.modes.push((at, text(value, "mode").to_owned())),
                "progress" => host.progress.push((at, count(value, "received"))),
                _ => {}
            }
        }
        if host.seconds.is_some() {
            // It reports after the sender does.
            self.process.wait_event("copied", Duration::from_secs(5))?;
            host.whole = crate::transfer::same(&stage.file, &self.copy)?;
        }
        Ok(host)
    }
}

fn count(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or(0)
}

/// Starts `mcpd` on a receiver.
fn daemon(stage: &Stage, receiver: usize, trust: &[&str], copying: &Copying) -> Result<Daemon> {
    let node = stage.receivers[receiver];
    let mut address = stage.network.plan().address(node).to_string();
    let (copy, listen) = match copying.port {
        None => (stage.copy(receiver)?, None),
        Some(port) => {
            address = format!("{address}:{port}");
            let copy = stage.copy_into(&format!("h{receiver}-{port}"))?;
            (copy, Some(format!("--listen={address}")))
        }
    };
    let folder = copy.parent().context("a copy without a folder")?;
    let launch = Launch::carried("mcpd")
        .named(format!(
            "mcpd {}{}",
            stage.network.plan().name(node),
            copying.suffix()
        ))
        .args(["--json", "--quiet", "--once"])
        .args(trust)
        .args(listen)
        .args(&copying.receive)
        .arg("--dir")
        .arg(folder);
    Ok(Daemon {
        receiver,
        address,
        process: stage.network.start(node, launch)?,
        copy,
    })
}

/// The key that all programs of the stage share, made at its first use.
fn key(stage: &Stage) -> Result<String> {
    let path = Path::new(SCRATCH).join("mcp.key");
    if !path.exists() {
        let launch = Launch::carried("mcpd").arg("--new-key").arg(&path);
        let mut process = stage.network.start(stage.sender, launch)?;
        process.succeed(Duration::from_secs(10))?;
    }
    Ok(path.display().to_string())
}

/// Copies to all targets, and fails unless each has the file.
pub(crate) fn copy(stage: &mut Stage, copying: &Copying) -> Result<Copied> {
    Running::start(stage, copying)?.succeed(stage)
}

/// As [`copy`], where multicast no longer leaves the port of a host that has left its group, as with IGMP snooping
/// and immediate leave, and with multicast routing.
pub(crate) fn copy_pruned(stage: &mut Stage, copying: &Copying) -> Result<Copied> {
    let running = Running::start(stage, copying)?;
    let mut members = vec![false; running.daemons.len()];
    let copied = running.finish(stage, |running, stage| {
        if !running.looks.is_multiple_of(LOOKS) {
            return Ok(());
        }
        for (place, member) in members.iter_mut().enumerate() {
            let is = running.is_member(place);
            if std::mem::replace(member, is) && !is {
                stage.multicast(running.daemons[place].receiver, false)?;
            }
        }
        Ok(())
    })?;
    copied.expect_whole()
}
