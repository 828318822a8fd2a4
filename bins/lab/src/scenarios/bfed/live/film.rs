//! The film: a test pattern of ffmpeg, sent to a group as it plays, and when each of its pictures left.

use std::collections::{HashMap, VecDeque};
use std::io::Read as _;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use media::{Event, Reader};

use crate::prelude::*;

/// Seven packets of MPEG-TS: as many as fit a datagram on Ethernet.
const DATAGRAM: usize = 7 * 188;
/// Pictures per second, and per group of pictures.
const PICTURES: &str = "25";

/// A picture, and the sound around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture {
    /// Its time in the film, microseconds.
    pub(super) time: u64,
    /// Its bytes.
    pub(super) len: u64,
    /// When its last byte passed.
    pub(super) at: Instant,
    /// The piece with its last byte.
    pub(super) piece: usize,
}

/// Finds pictures in a stream, and records when each was complete.
#[derive(Default)]
pub(super) struct PictureLog {
    reader: Reader,
    /// The ends of the pieces in which a picture may end, as offsets in the stream.
    ends: VecDeque<(u64, Instant)>,
    /// Pieces before those.
    before: usize,
    offset: u64,
}

impl PictureLog {
    /// Takes the next piece of the stream; calls `each` with the pictures that are now known to have ended.
    pub(super) fn push(&mut self, piece: &[u8], mut each: impl FnMut(Picture)) {
        self.offset += piece.len() as u64;
        self.ends.push_back((self.offset, Instant::now()));
        self.reader.push(piece);
        while let Some(event) = self.reader.poll_event() {
            let Event::Unit(unit) = event else { continue };
            while self.ends.front().is_some_and(|(end, _)| *end < unit.end()) {
                self.ends.pop_front();
                self.before += 1;
            }
            if let (Some(time), Some((_, at))) = (unit.time, self.ends.front()) {
                each(Picture {
                    time: time.total_micros(),
                    len: unit.len,
                    at: *at,
                    piece: self.before,
                });
            }
        }
    }
}

/// When pictures left, by their time in the film.
pub(super) type Sent = Arc<Mutex<HashMap<u64, Picture>>>;

/// The source. It ends when dropped.
pub(super) struct Film {
    pub(super) sent: Sent,
    stop: Arc<AtomicBool>,
    ffmpeg: Child,
    thread: Option<JoinHandle<()>>,
}

impl Film {
    /// Starts a test pattern of this many bit/s towards a group. Call it in the source's namespace.
    pub(super) fn start(to: SocketAddr, rate_bps: u64) -> Result<Film> {
        let rate = rate_bps.to_string();
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-hide_banner", "-loglevel", "error", "-re", "-f", "lavfi"]);
        ffmpeg.args(["-i", &format!("testsrc=size=640x360:rate={PICTURES}")]);
        ffmpeg.args([
            "-c:v",
            "libx264",
            "-preset",
            "ultrafast",
            "-tune",
            "zerolatency",
        ]);
        ffmpeg.args(["-g", PICTURES, "-pix_fmt", "yuv420p"]);
        // As much as it is asked for, although a test pattern needs less.
        ffmpeg.args(["-b:v", &rate, "-minrate", &rate, "-maxrate", &rate]);
        ffmpeg.args(["-bufsize", &rate, "-x264-params", "nal-hrd=cbr"]);
        ffmpeg.args(["-f", "mpegts", "-flush_packets", "1", "pipe:1"]);
        let ffmpeg = ffmpeg.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut ffmpeg = ffmpeg.spawn().context("start ffmpeg")?;
        let mut output = ffmpeg.stdout.take().context("no output of ffmpeg")?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_multicast_ttl_v4(8)?;
        let (sent, stop) = (Sent::default(), Arc::new(AtomicBool::new(false)));
        let (record, over) = (Arc::clone(&sent), Arc::clone(&stop));
        let pour = move || {
            let (mut log, mut datagram) = (PictureLog::default(), [0; DATAGRAM]);
            while !over.load(Ordering::Relaxed) && output.read_exact(&mut datagram).is_ok() {
                // What the network does not take is lost, as a camera's is.
                let _ = socket.send_to(&datagram, to);
                log.push(&datagram, |picture| {
                    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
                    record.insert(picture.time, picture);
                });
            }
        };
        Ok(Film {
            sent,
            stop,
            ffmpeg,
            thread: Some(std::thread::spawn(pour)),
        })
    }
}

impl Drop for Film {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.ffmpeg.kill();
        let _ = self.ffmpeg.wait();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
