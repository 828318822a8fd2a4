//! rsync, one process for each host.

use std::fs;

use super::super::super::stage::Stage;
use super::super::super::stage::play::external;
use super::Line;
use crate::prelude::*;

const PORT: u16 = 8730;

/// Copies with `rsync` to its daemon on each host, all at once.
pub(super) fn rsync(stage: &mut Stage) -> Result<Line> {
    let mut daemons = Vec::new();
    let mut copies = Vec::new();
    for receiver in 0..stage.receivers.len() {
        let copy = stage.copy(receiver)?;
        let folder = copy.parent().context("a copy without a folder")?.to_owned();
        let config = Path::new(SCRATCH).join(format!("rsyncd-{receiver}.conf"));
        let text = format!(
            "use chroot = no\nreverse lookup = no\nlock file = {0}.lock\npid file = {0}.pid\n\
             [copy]\npath = {1}\nread only = no\nuid = root\ngid = root\n",
            config.display(),
            folder.display()
        );
        fs::write(&config, text)?;
        let launch = external("rsync", &format!("rsyncd {receiver}"))?
            .args(["--daemon", "--no-detach", "--port", &PORT.to_string()])
            .args(["--log-file", "/dev/null", "--config"])
            .arg(&config);
        daemons.push(stage.network.start(stage.receivers[receiver], launch)?);
        copies.push(copy);
    }
    for receiver in &stage.receivers {
        let address = SocketAddr::from((stage.network.plan().address(*receiver), PORT));
        stage.network.within(stage.sender, || listens(address))?;
    }
    let before = stage.wire()?;
    let began = Instant::now();
    let mut senders = Vec::new();
    for receiver in &stage.receivers {
        let address = stage.network.plan().address(*receiver);
        let launch = external("rsync", &format!("rsync {address}"))?
            .args(["--whole-file", "--inplace"])
            .arg(&stage.file)
            .arg(format!("rsync://{address}:{PORT}/copy/"));
        senders.push(stage.network.start(stage.sender, launch)?);
    }
    let limit = stage.foreign_limit() * 8;
    for sender in &mut senders {
        sender.succeed(limit)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let sent = stage.wire()?.bytes - before.bytes;
    for daemon in &mut daemons {
        let _ = daemon.stop(Duration::from_secs(2));
    }
    stage.compare(&copies)?;
    stage.discard(&copies)?;
    Ok(Line::new(
        "rsync to each",
        seconds,
        sent as f64 / stage.bytes as f64,
    ))
}

/// Waits until something listens there.
pub(super) fn listens(address: SocketAddr) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
