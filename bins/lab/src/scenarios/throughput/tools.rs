//! The tools that play on a stage: ours, and those of others where they are installed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::stage::Stage;
use crate::net::{Launch, Process};
use crate::session::installed;

/// What a transfer came to.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Outcome {
    pub(super) tool: String,
    /// From the sender's start until it is done, or every receiver is, whichever is later.
    pub(super) seconds: f64,
    pub(super) goodput_bps: f64,
    /// Ethernet bytes on the sender's wire / bytes of the file; nothing is said where packets of
    /// several segments pass as one.
    pub(super) overhead: f64,
}

/// A way to carry a file to all receivers.
pub(super) trait Tool {
    fn name(&self) -> String;

    /// Whether it is there; if not, the remark to make.
    fn missing(&self) -> Option<String> {
        None
    }

    /// Starts the receivers and waits until they listen. Returns them and the copies they will write.
    fn listen(&self, stage: &Stage) -> Result<(Vec<Process>, Vec<PathBuf>)>;

    /// Starts the sender.
    fn send(&self, stage: &Stage) -> Result<Process>;

    /// Whether receivers end by themselves; daemons are stopped.
    fn receivers_end(&self) -> bool;
}

/// Plays one transfer and checks every copy.
pub(super) fn play(tool: &dyn Tool, stage: &mut Stage) -> Result<Outcome> {
    let (mut receivers, copies) = tool.listen(stage)?;
    std::thread::sleep(Duration::from_millis(300));
    let before = stage.wire_bytes()?;
    let start = Instant::now();
    let mut sender = tool.send(stage)?;
    let patience = stage.patience();
    sender.succeed(patience).with_context(|| {
        let tails: String = receivers.iter().map(Process::tail).collect();
        format!("receivers say:\n{tails}")
    })?;
    if tool.receivers_end() {
        for receiver in &mut receivers {
            receiver.succeed(patience)?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let wire = stage.wire_bytes()? - before;
    for receiver in &mut receivers {
        let _ = receiver.stop(Duration::from_secs(5));
    }
    stage.compare(&copies).with_context(|| tool.name())?;
    for copy in &copies {
        std::fs::remove_file(copy)?;
    }
    Ok(Outcome {
        tool: tool.name(),
        seconds,
        goodput_bps: stage.bytes as f64 * 8.0 / seconds,
        overhead: wire as f64 / stage.bytes as f64,
    })
}

fn not_installed(name: &str) -> Option<String> {
    match installed(name) {
        Some(_) => None,
        None => Some(format!("{name} is not installed: left out")),
    }
}

fn find(name: &str) -> Result<PathBuf> {
    installed(name).with_context(|| format!("{name} is not installed"))
}

/// LTP: `lms-send` and `lms-recv`.
pub(super) struct Ltp {
    /// `--rate`.
    pub(super) rate: &'static str,
}

const LTP_GROUP: &str = "239.9.2.1:5000";

impl Tool for Ltp {
    fn name(&self) -> String {
        "LTP".to_owned()
    }

    fn listen(&self, stage: &Stage) -> Result<(Vec<Process>, Vec<PathBuf>)> {
        let mut processes = Vec::new();
        let mut copies = Vec::new();
        for (number, node) in stage.receivers.iter().enumerate() {
            let folder = stage.folder(number)?;
            let launch = Launch::carried("lms-recv")
                .named(format!("lms-recv {number}"))
                .args([
                    "--json",
                    "--quiet",
                    "--interface",
                    "eth0",
                    "--group",
                    LTP_GROUP,
                ])
                .arg("--output")
                .arg(&folder);
            let mut process = stage.network.start(*node, launch)?;
            process.wait_event("waiting", Duration::from_secs(10))?;
            processes.push(process);
            copies.push(folder.join("original.bin"));
        }
        Ok((processes, copies))
    }

    fn send(&self, stage: &Stage) -> Result<Process> {
        let launch = Launch::carried("lms-send")
            .args([
                "--json",
                "--quiet",
                "--interface",
                "eth0",
                "--group",
                LTP_GROUP,
            ])
            .args(["--rate", self.rate, "--start-at-once", "--ttl", "1"])
            .args(["--receivers", &stage.receivers.len().to_string()])
            .arg(&stage.file);
        stage.network.start(stage.sender, launch)
    }

    fn receivers_end(&self) -> bool {
        true
    }
}

/// uftp, at its full speed or at a rate.
pub(super) struct Uftp {
    /// Kilobits a second, -1 for as fast as it can.
    pub(super) rate_kbps: i64,
}

impl Tool for Uftp {
    fn name(&self) -> String {
        "uftp".to_owned()
    }

    fn missing(&self) -> Option<String> {
        not_installed("uftp").or_else(|| not_installed("uftpd"))
    }

    fn listen(&self, stage: &Stage) -> Result<(Vec<Process>, Vec<PathBuf>)> {
        let mut processes = Vec::new();
        let mut copies = Vec::new();
        for (number, node) in stage.receivers.iter().enumerate() {
            let folder = stage.folder(number)?;
            let launch = Launch::external(find("uftpd")?, &format!("uftpd {number}"))
                .args([
                    "-d",
                    "-t",
                    "-q",
                    "-I",
                    "eth0",
                    "-M",
                    "239.9.0.1",
                    "-B",
                    "8388608",
                ])
                .args(["-U", &format!("0x{:08x}", number + 1), "-D"])
                .arg(&folder);
            processes.push(stage.network.start(*node, launch)?);
            copies.push(folder.join("original.bin"));
        }
        Ok((processes, copies))
    }

    fn send(&self, stage: &Stage) -> Result<Process> {
        let hosts: Vec<String> = (1..=stage.receivers.len())
            .map(|number| format!("0x{number:08x}"))
            .collect();
        let launch = Launch::external(find("uftp")?, "uftp")
            .args([
                "-R",
                &self.rate_kbps.to_string(),
                "-I",
                "eth0",
                "-B",
                "8388608",
            ])
            .args([
                "-M",
                "239.9.0.1",
                "-P",
                "239.9.1.1",
                "-Y",
                "none",
                "-b",
                "1464",
            ])
            .args(["-r", "0.01:0.005:0.5", "-H", &hosts.join(",")])
            .arg(&stage.file);
        stage.network.start(stage.sender, launch)
    }

    fn receivers_end(&self) -> bool {
        false
    }
}

/// udpcast.
pub(super) struct Udpcast {
    /// `--max-bitrate`, 0 for none.
    pub(super) rate_bps: u64,
}

impl Tool for Udpcast {
    fn name(&self) -> String {
        "udpcast".to_owned()
    }

    fn missing(&self) -> Option<String> {
        not_installed("udp-sender").or_else(|| not_installed("udp-receiver"))
    }

    fn listen(&self, stage: &Stage) -> Result<(Vec<Process>, Vec<PathBuf>)> {
        let mut processes = Vec::new();
        let mut copies = Vec::new();
        for (number, node) in stage.receivers.iter().enumerate() {
            let copy = stage.folder(number)?.join("copy");
            let launch = Launch::external(find("udp-receiver")?, &format!("udp-receiver {number}"))
                .args(["--nokbd", "--no-progress", "--interface", "eth0", "--file"])
                .arg(&copy);
            processes.push(stage.network.start(*node, launch)?);
            copies.push(copy);
        }
        Ok((processes, copies))
    }

    fn send(&self, stage: &Stage) -> Result<Process> {
        let mut launch = Launch::external(find("udp-sender")?, "udp-sender")
            .args([
                "--nokbd",
                "--no-progress",
                "--interface",
                "eth0",
                "--full-duplex",
            ])
            .args([
                "--rexmit-hello-interval",
                "10",
                "--retries-until-drop",
                "10000",
            ])
            .args([
                "--min-receivers",
                &stage.receivers.len().to_string(),
                "--max-wait",
                "10",
            ]);
        if self.rate_bps > 0 {
            launch = launch.args(["--max-bitrate", &self.rate_bps.to_string()]);
        }
        stage
            .network
            .start(stage.sender, launch.arg("--file").arg(&stage.file))
    }

    fn receivers_end(&self) -> bool {
        true
    }
}

/// Parallel kernel TCP streams, one to each receiver, from memory to nowhere.
pub(super) fn tcp(stage: &mut Stage) -> Result<Outcome> {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

    const PORT: u16 = 7_001;
    let mut listeners = Vec::new();
    for node in &stage.receivers {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        listeners.push(
            stage
                .network
                .within(*node, || Ok(TcpListener::bind(any)?))?,
        );
    }
    let targets: Vec<SocketAddr> = stage
        .receivers
        .iter()
        .map(|node| SocketAddr::from((stage.network.plan().address(*node), PORT)))
        .collect();
    let before = stage.wire_bytes()?;
    let start = Instant::now();
    let bytes = stage.bytes;
    let (network, sender) = (&stage.network, stage.sender);
    let received = std::thread::scope(|scope| -> Result<u64> {
        for target in &targets {
            scope.spawn(move || -> Result<()> {
                let mut stream = network.within(sender, || Ok(TcpStream::connect(target)?))?;
                let block = vec![0x5a; 256 * 1024];
                let mut left = bytes;
                while left > 0 {
                    let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
                    stream.write_all(&block[..part])?;
                    left -= part as u64;
                }
                Ok(())
            });
        }
        let sinks: Vec<_> = listeners
            .iter()
            .map(|listener| {
                scope.spawn(move || -> Result<u64> {
                    let (mut stream, _) = listener.accept()?;
                    let mut block = vec![0; 256 * 1024];
                    let mut total = 0;
                    loop {
                        match stream.read(&mut block)? {
                            0 => return Ok(total),
                            count => total += count as u64,
                        }
                    }
                })
            })
            .collect();
        let mut total = 0;
        for sink in sinks {
            total += sink
                .join()
                .map_err(|_| anyhow::anyhow!("a sink panicked"))??;
        }
        Ok(total)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if received != bytes * targets.len() as u64 {
        bail!("TCP delivered {received} bytes");
    }
    Ok(Outcome {
        tool: format!("{} kernel TCP streams", targets.len()),
        seconds,
        goodput_bps: bytes as f64 * 8.0 / seconds,
        overhead: (stage.wire_bytes()? - before) as f64 / bytes as f64,
    })
}
