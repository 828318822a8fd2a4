//! aria2 over BitTorrent: the sender seeds, the hosts exchange pieces, and a tracker beside the sender names them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ring::digest::{Context as Hasher, SHA1_FOR_LEGACY_USE_ONLY};

use super::super::super::stage::Stage;
use super::super::super::stage::play::external;
use super::Line;
use super::tools::listens;
use crate::prelude::*;

const PORT: u16 = 6881;
const TRACKER: u16 = 6969;
const PIECE: usize = 1 << 20;

/// Copies by a swarm of aria2. The time ends when the last host has every piece.
pub(super) fn aria2(stage: &mut Stage) -> Result<Line> {
    let sender = stage.network.plan().address(stage.sender);
    let torrent = torrent(stage, sender)?;
    let addresses = stage.receivers.iter().chain([&stage.sender]);
    let peers: Vec<Ipv4Addr> = addresses
        .map(|node| stage.network.plan().address(*node))
        .collect();
    let listener = stage.network.within(stage.sender, || {
        Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, TRACKER))?)
    })?;
    let over = Arc::new(AtomicBool::new(false));
    let tracker = {
        let over = Arc::clone(&over);
        std::thread::spawn(move || track(&listener, &peers, &over))
    };
    let swarmed = swarm(stage, &torrent);
    over.store(true, Ordering::Release);
    tracker.join().map_err(|_| anyhow!("the tracker failed"))?;
    swarmed
}

fn swarm(stage: &mut Stage, torrent: &Path) -> Result<Line> {
    let folder = stage.file.parent().context("a file without a folder")?;
    let seed = peer("aria2 sender", folder, torrent)?.arg("--bt-seed-unverified=true");
    let mut seed = stage.network.start(stage.sender, seed)?;
    let address = SocketAddr::from((stage.network.plan().address(stage.sender), PORT));
    stage.network.within(stage.sender, || listens(address))?;
    let (mut copies, mut marks) = (Vec::new(), Vec::new());
    for receiver in 0..stage.receivers.len() {
        copies.push(stage.copy(receiver)?);
        marks.push(Path::new(SCRATCH).join(format!("aria2-{receiver}")));
    }
    let before = stage.wire()?;
    let began = Instant::now();
    let mut peers = Vec::new();
    for (receiver, (copy, mark)) in copies.iter().zip(&marks).enumerate() {
        let folder = copy.parent().context("a copy without a folder")?;
        let hook = hook(mark)?;
        let launch = peer(&format!("aria2 {receiver}"), folder, torrent)?
            .arg(format!("--on-bt-download-complete={}", hook.display()));
        peers.push(stage.network.start(stage.receivers[receiver], launch)?);
    }
    let limit = stage.foreign_limit() * 4;
    while !marks.iter().all(|mark| mark.exists()) {
        if began.elapsed() > limit {
            let tails: Vec<String> = peers.iter().map(Process::tail).collect();
            bail!("aria2 does not end within {limit:?}: {}", tails.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let seconds = began.elapsed().as_secs_f64();
    let sent = stage.wire()?.bytes - before.bytes;
    for peer in peers.iter_mut().chain([&mut seed]) {
        let _ = peer.stop(Duration::from_secs(5));
    }
    stage.compare(&copies)?;
    stage.discard(&copies)?;
    Ok(Line::new(
        "aria2 over BitTorrent",
        seconds,
        sent as f64 / stage.bytes as f64,
    ))
}

fn peer(name: &str, folder: &Path, torrent: &Path) -> Result<Launch> {
    Ok(external("aria2c", name)?
        .args(["--quiet=true", "--no-conf=true", "--seed-ratio=0.0"])
        .args(["--enable-dht=false", "--bt-enable-lpd=false"])
        .args(["--allow-overwrite=true", "--file-allocation=none"])
        .arg(format!("--listen-port={PORT}"))
        .arg(format!("--dir={}", folder.display()))
        .arg(torrent))
}

/// A program that leaves a mark.
fn hook(mark: &Path) -> Result<PathBuf> {
    let _ = fs::remove_file(mark);
    let hook = mark.with_extension("sh");
    fs::write(&hook, format!("#!/bin/sh\n: > {}\n", mark.display()))?;
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755))?;
    Ok(hook)
}

/// Writes the torrent of the stage's file.
fn torrent(stage: &Stage, tracker: Ipv4Addr) -> Result<PathBuf> {
    let mut file = fs::File::open(&stage.file)?;
    let mut pieces = Vec::new();
    let mut left = stage.bytes as usize;
    let mut piece = vec![0; PIECE];
    while left > 0 {
        let part = &mut piece[..left.min(PIECE)];
        file.read_exact(part)?;
        let mut hasher = Hasher::new(&SHA1_FOR_LEGACY_USE_ONLY);
        hasher.update(part);
        pieces.extend_from_slice(hasher.finish().as_ref());
        left -= part.len();
    }
    let name = stage.file.file_name().context("a file without a name")?;
    let name = name.to_string_lossy();
    let announce = format!("http://{tracker}:{TRACKER}/announce");
    let mut text = format!(
        "d8:announce{}:{announce}4:infod6:lengthi{}e4:name{}:{name}12:piece lengthi{PIECE}e6:pieces{}:",
        announce.len(),
        stage.bytes,
        name.len(),
        pieces.len()
    )
    .into_bytes();
    text.extend_from_slice(&pieces);
    text.extend_from_slice(b"ee");
    let path = Path::new(SCRATCH).join("overlay.torrent");
    fs::write(&path, text)?;
    Ok(path)
}

/// Names all peers to each that asks.
fn track(listener: &TcpListener, peers: &[Ipv4Addr], over: &AtomicBool) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !over.load(Ordering::Acquire) {
        match listener.accept() {
            // A peer that is not answered asks again.
            Ok((stream, _)) => drop(answer(stream, peers)),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn answer(mut stream: TcpStream, peers: &[Ipv4Addr]) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut reader = BufReader::new(stream.try_clone()?.take(8192));
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut body = format!("d8:intervali60e5:peers{}:", peers.len() * 6).into_bytes();
    for peer in peers {
        body.extend_from_slice(&peer.octets());
        body.extend_from_slice(&PORT.to_be_bytes());
    }
    body.push(b'e');
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)?;
    Ok(())
}
