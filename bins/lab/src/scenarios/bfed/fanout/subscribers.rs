//! The subscribers: all on one thread, several at a socket. Each compares every byte of a group with the film, and notes when
//! each picture is complete.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{Notify, Semaphore};

use super::film::{self, LEN, PICTURES, Sent};
use super::servers::Place;
use super::{SESSION, confined};
use crate::prelude::*;
use crate::scenarios::bfed::load::time_of_thread;
use crate::scenarios::bfed::moq::{Connector, Viewer};

/// Subscribers at one socket: its receive buffer must hold a picture of each.
const AT_A_SOCKET: usize = 16;
/// Subscribers that connect at a time.
const CONNECTING: usize = 16;
/// How late a group may be for a subscriber that is served, at the 95th percentile of its pictures.
pub(super) const IN_TIME: Duration = Duration::from_secs(1);

/// What one subscriber got.
#[derive(Debug, Default)]
struct Got {
    /// Groups of which every byte is right.
    groups: BTreeSet<u64>,
    /// Pictures, and when each was complete.
    pictures: Vec<(u64, Instant)>,
    /// A group had a wrong byte.
    is_wrong: bool,
}

/// What all subscribers share with the thread that measures.
#[derive(Debug, Default)]
struct Shared {
    got: Vec<Mutex<Got>>,
    /// Subscribers that have a picture.
    ready: AtomicUsize,
    /// Subscribers that could not connect, or lost their connection, and why one did.
    failed: Mutex<(usize, Option<String>)>,
    stop: Notify,
    /// The thread's folder in `/proc`.
    thread: Mutex<PathBuf>,
}

/// Running subscribers. They end when dropped.
pub(super) struct Subscribers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// What subscribers got of some groups.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    pub(super) subscribers: usize,
    /// Subscribers that got every group whole and in time.
    pub(super) served: usize,
    /// The part of all pictures that arrived.
    pub(super) arrived: f64,
    /// Age of pictures, of all subscribers; those that did not arrive count as the oldest.
    pub(super) p95_ms: Option<f64>,
    /// Subscribers that got a wrong byte.
    pub(super) wrong: usize,
    /// Subscribers whose connection failed, and why one did.
    pub(super) failed: (usize, Option<String>),
}

impl Subscribers {
    /// Starts `count` subscribers in the calling thread's namespace, on these cores.
    pub(super) fn start(place: Place, count: usize, cores: &[usize]) -> Subscribers {
        let shared = Arc::new(Shared {
            got: (0..count).map(|_| Mutex::default()).collect(),
            ..Shared::default()
        });
        let (all, cores) = (Arc::clone(&shared), cores.to_vec());
        let subscribe = move || {
            let folder = format!("/proc/self/task/{}", nix::unistd::gettid());
            *lock(&all.thread) = PathBuf::from(folder);
            confined(&cores)?.block_on(subscribe(&place, &all))
        };
        Subscribers {
            shared,
            thread: Some(std::thread::spawn(subscribe)),
        }
    }

    /// Waits until each has a picture or has failed, at most that long. Returns the number of those that have one.
    pub(super) fn wait(&self, limit: Duration) -> usize {
        let until = Instant::now() + limit;
        let ready = || self.shared.ready.load(Ordering::Relaxed);
        let failed = || lock(&self.shared.failed).0;
        while ready() + failed() < self.shared.got.len() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        ready()
    }

    /// Processor time of all of them.
    pub(super) fn cpu_time(&self) -> Duration {
        time_of_thread(&lock(&self.shared.thread)).unwrap_or_default()
    }

    /// Ends them. Returns what they got of these groups.
    pub(super) fn finish(mut self, due: Range<u64>, sent: &Sent) -> Result<Facts> {
        self.end()?;
        let pictures = due.start * PICTURES..due.end * PICTURES;
        let (mut served, mut wrong, mut ages) = (0, 0, Vec::new());
        for got in &self.shared.got {
            let got = lock(got);
            let mut own: Vec<Duration> = got
                .pictures
                .iter()
                .filter(|(picture, _)| pictures.contains(picture))
                .filter_map(|(picture, at)| Some(*at - sent.at(*picture)?))
                .collect();
            own.sort_unstable();
            let all = (pictures.end - pictures.start) as usize;
            let is_whole = due.clone().all(|group| got.groups.contains(&group));
            let is_in_time = own.get(all * 95 / 100).is_some_and(|age| *age < IN_TIME);
            served += usize::from(is_whole && is_in_time && !got.is_wrong);
            wrong += usize::from(got.is_wrong);
            ages.append(&mut own);
        }
        ages.sort_unstable();
        let subscribers = self.shared.got.len();
        let all = (pictures.end - pictures.start) as usize * subscribers;
        let p95 = ages.get(all * 95 / 100);
        Ok(Facts {
            subscribers,
            served,
            arrived: ages.len() as f64 / all.max(1) as f64,
            p95_ms: p95.map(|age| age.as_secs_f64() * 1e3),
            wrong,
            failed: lock(&self.shared.failed).clone(),
        })
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.notify_one();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => bail!("the subscribers have panicked"),
            None => Ok(()),
        }
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs all subscribers until they are stopped.
async fn subscribe(place: &Place, shared: &Arc<Shared>) -> Result<()> {
    let gate = Arc::new(Semaphore::new(CONNECTING));
    let mut connector = None;
    for at in 0..shared.got.len() {
        if at % AT_A_SOCKET == 0 {
            connector = Some(Connector::open(&place.certificate)?);
        }
        let connector = connector.clone().context("no socket")?;
        let (url, shared, gate) = (place.url.clone(), Arc::clone(shared), Arc::clone(&gate));
        tokio::spawn(async move {
            let Err(error) = view(&connector, &url, &shared, at, &gate).await else {
                return;
            };
            let mut failed = lock(&shared.failed);
            failed.0 += 1;
            failed.1.get_or_insert_with(|| format!("{error:#}"));
        });
    }
    shared.stop.notified().await;
    Ok(())
}

/// One subscriber.
async fn view(
    connector: &Connector,
    url: &str,
    shared: &Shared,
    at: usize,
    gate: &Semaphore,
) -> Result<()> {
    let place = gate.acquire().await?;
    let viewer = Viewer::connect(connector, url).await?;
    let mut groups = viewer.track(SESSION).await?.ordered();
    drop(place);
    let mut is_ready = false;
    while let Some(mut group) = groups.next_group().await? {
        let mut check = Check::default();
        let read = async {
            group.read_frame().await?.context("an empty group")?;
            while let Some(frame) = group.read_frame().await? {
                check.push(&frame.payload, &mut lock(&shared.got[at]));
                if !is_ready {
                    is_ready = true;
                    shared.ready.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<(), anyhow::Error>(())
        };
        // A group that the server gave up is missing; the subscriber goes on with the next.
        if read.await.is_ok() {
            check.end(&mut lock(&shared.got[at]));
        }
    }
    bail!("the session has ended")
}

/// Compares one group with the film.
#[derive(Default)]
struct Check {
    /// The group's number and bytes, once its number is known.
    film: Option<(u64, Arc<[u8]>)>,
    /// Bytes before that.
    before: Vec<u8>,
    /// Bytes that were compared.
    len: usize,
}

impl Check {
    fn push(&mut self, bytes: &[u8], got: &mut Got) {
        if let Some((number, film)) = self.film.clone() {
            return self.compare(number, &film, bytes, got);
        }
        self.before.extend_from_slice(bytes);
        film::without_tables(&mut self.before);
        let Some(number) = film::number_of(&self.before) else {
            return;
        };
        let film = cached(number);
        self.film = Some((number, Arc::clone(&film)));
        let before = std::mem::take(&mut self.before);
        self.compare(number, &film, &before, got);
    }

    fn compare(&mut self, group: u64, film: &[u8], bytes: &[u8], got: &mut Got) {
        let end = self.len + bytes.len();
        got.is_wrong |= film.get(self.len..end) != Some(bytes);
        let (complete, now) = (self.len / LEN..end / LEN, Instant::now());
        for picture in complete {
            let picture = group * PICTURES + picture as u64;
            got.pictures.push((picture, now));
        }
        self.len = end;
    }

    fn end(self, got: &mut Got) {
        let whole = self.film.filter(|(_, film)| film.len() == self.len);
        got.groups.extend(whole.map(|(number, _)| number));
    }
}

/// Returns the bytes of a group; those of the last ones are kept, as all subscribers need them.
fn cached(number: u64) -> Arc<[u8]> {
    static LAST: Mutex<Vec<(u64, Arc<[u8]>)>> = Mutex::new(Vec::new());
    /// Groups that subscribers read at a time.
    const KEPT: usize = 8;
    let mut last = lock(&LAST);
    if let Some((_, found)) = last.iter().find(|(known, _)| *known == number) {
        return Arc::clone(found);
    }
    let film: Arc<[u8]> = film::group(number).into();
    if last.len() == KEPT {
        last.remove(0);
    }
    last.push((number, Arc::clone(&film)));
    film
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_counts_if_each_of_its_bytes_is_right() {
        let film = film::group(3);
        let read = |bytes: &[u8], pieces: usize| {
            let (mut check, mut got) = (Check::default(), Got::default());
            for piece in bytes.chunks(pieces) {
                check.push(piece, &mut got);
            }
            check.end(&mut got);
            got
        };
        for pieces in [1, LEN, 1000, film.len()] {
            let got = read(&film, pieces);
            assert!(got.groups.contains(&3) && !got.is_wrong);
            assert_eq!(got.pictures.len() as u64, PICTURES);
        }
        let mut wrong = film.clone();
        wrong[5000] ^= 1;
        assert!(read(&wrong, LEN).is_wrong);
        let short = read(&film[..film.len() - 1], LEN);
        assert!(short.groups.is_empty() && !short.is_wrong);
        assert_eq!(short.pictures.len() as u64, PICTURES - 1);
        let long = [&film[..], &[0]].concat();
        assert!(read(&long, LEN).is_wrong);
    }
}
