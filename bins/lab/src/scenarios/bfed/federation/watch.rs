//! Records when data arrives: samples the length of viewers' files every few milliseconds, and records pauses in
//! their growth.

use crate::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

const TICK: Duration = Duration::from_millis(2);

/// One viewer's file.
#[derive(Clone, Debug)]
struct Track {
    file: PathBuf,
    len: u64,
    /// When it last grew.
    at: Option<Instant>,
    /// The last data before and the first after each pause.
    pauses: Vec<(Instant, Instant)>,
}

/// Samples files until it is dropped.
pub(crate) struct Watch {
    tracks: Arc<Mutex<Vec<Track>>>,
    /// Shorter pauses are none.
    least: Duration,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a viewer saw after an action on its session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Time from the action until data came again after the longest pause since; none if it never did.
    pub(crate) again: Option<Duration>,
    /// That pause, from the last data before.
    pub(crate) pause: Duration,
    /// How long ago data came last.
    pub(crate) ago: Duration,
}

impl Watch {
    /// Records pauses that are at least this long.
    pub(crate) fn start(files: impl IntoIterator<Item = PathBuf>, least: Duration) -> Watch {
        let track = |file| Track {
            file,
            len: 0,
            at: None,
            pauses: Vec::new(),
        };
        let tracks: Vec<Track> = files.into_iter().map(track).collect();
        let tracks = Arc::new(Mutex::new(tracks));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&tracks), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut tracks = shared.lock().unwrap_or_else(PoisonError::into_inner);
                tracks.iter_mut().for_each(|track| track.look(least));
                drop(tracks);
                std::thread::sleep(TICK);
            }
        });
        Watch {
            tracks,
            least,
            stop,
            thread: Some(thread),
        }
    }

    /// Whether every file grew in the last `lately`.
    pub(crate) fn flows(&self, lately: Duration) -> bool {
        let tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |track: &Track| track.at.is_some_and(|at| at.elapsed() < lately);
        tracks.iter().all(fresh)
    }

    /// Waits until every file has grown for half a second; returns whether they do.
    pub(crate) fn until_all_flow(&self, limit: Duration) -> bool {
        let begun = Instant::now();
        let mut since = None;
        while begun.elapsed() < limit {
            if self.flows(Duration::from_millis(200)) {
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() > Duration::from_millis(500) {
                    return true;
                }
            } else {
                since = None;
            }
            std::thread::sleep(TICK * 5);
        }
        false
    }

    /// Returns, for each file, the longest pause that ends after `then`.
    pub(crate) fn since(&self, then: Instant) -> Vec<Seen> {
        let tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = tracks.iter().map(|track| track.since(then, self.least));
        seen.collect()
    }
}

impl Track {
    fn look(&mut self, least: Duration) {
        let len = std::fs::metadata(&self.file).map_or(0, |metadata| metadata.len());
        if len == self.len {
            return;
        }
        let now = Instant::now();
        if let Some(at) = self.at
            && now - at >= least
        {
            self.pauses.push((at, now));
        }
        (self.len, self.at) = (len, Some(now));
    }

    fn since(&self, then: Instant, least: Duration) -> Seen {
        let ago = self.at.map_or(Duration::MAX, |at| at.elapsed());
        if self.at.is_none_or(|at| at <= then) {
            return Seen {
                again: None,
                pause: ago,
                ago,
            };
        }
        let after = self.pauses.iter().filter(|(_, end)| *end > then);
        let longest = after.max_by_key(|(begin, end)| *end - *begin);
        let pause = longest.map_or(Duration::ZERO, |(begin, end)| *end - *begin);
        Seen {
            again: Some(longest.map_or(Duration::ZERO, |(_, end)| *end - then)),
            // A pause that still lasts counts until now.
            pause: if ago >= least { pause.max(ago) } else { pause },
            ago,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
