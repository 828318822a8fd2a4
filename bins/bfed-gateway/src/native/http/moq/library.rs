//! Sessions as broadcasts: one track per flow, named by the flow's number. All subscribers of a process share the groups.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bfed::authorise::Right;
use bfed::{Content, SessionName};
use moq_net::{Error, Timestamp, broadcast, cache, track};
use tokio::sync::Notify;

use super::super::edge::Edge;
use super::super::hub::{Key, Shared};
use super::super::presented::Presented;
use super::groups::{Grouper, Part};

/// Most sessions at a time.
const MAX_OPEN: usize = 4096;
/// Time that a session without subscribers is kept.
const LINGER: Duration = Duration::from_secs(5);
/// Priority of real-time sessions before that of bulk sessions, in `track::Info`; higher is sent first.
const PRIORITY: [(Content, u8); 2] = [(Content::RealTime, 192), (Content::Bulk, 64)];

/// What happened, for metrics.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) clients: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) groups: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) relay_connects: AtomicU64,
    pub(super) relay_failures: AtomicU64,
    pub(super) audience: Audience,
}

/// Subscribers of each session: clients whose request for it was accepted, until they leave.
#[derive(Default)]
pub(super) struct Audience(Mutex<BTreeMap<String, usize>>);

/// One subscriber of a session until it is dropped.
pub(super) struct Subscriber {
    counts: Arc<Counts>,
    session: String,
}

impl Audience {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of subscribers of a session.
    pub(super) fn of(&self, session: &str) -> usize {
        self.all().get(session).copied().unwrap_or_default()
    }

    /// Returns the number of subscribers of all sessions.
    pub(super) fn count(&self) -> usize {
        self.all().values().sum()
    }
}

impl Subscriber {
    fn new(counts: &Arc<Counts>, session: &SessionName) -> Self {
        let session = session.as_str().to_owned();
        *counts.audience.all().entry(session.clone()).or_default() += 1;
        Subscriber {
            counts: Arc::clone(counts),
            session,
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut all = self.counts.audience.all();
        if let Some(count) = all.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.session);
            }
        }
    }
}

/// The sessions that one client watches: at most as many are counted as it may have streams.
#[derive(Clone, Default)]
pub(super) struct Watched(Arc<Mutex<BTreeMap<String, Subscriber>>>);

impl Watched {
    /// Counts the client as a subscriber of a session, once.
    pub(super) fn add(&self, counts: &Arc<Counts>, session: &SessionName) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < super::MAX_STREAMS as usize && !all.contains_key(session.as_str()) {
            let subscriber = Subscriber::new(counts, session);
            all.insert(session.as_str().to_owned(), subscriber);
        }
    }
}

pub(super) fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// The sessions that subscribers have.
pub(super) struct Library {
    pub(super) edge: Arc<Edge>,
    pub(super) shared: Arc<Shared>,
    pub(super) pool: cache::Pool,
    pub(super) counts: Arc<Counts>,
    /// How late a group may be.
    pub(super) max_age: Duration,
    open: Mutex<BTreeMap<String, broadcast::Producer>>,
}

/// Returns the session of a broadcast's path.
pub(super) fn session_of(path: &str) -> Option<SessionName> {
    SessionName::parse(&format!("bfed://{path}")).ok()
}

/// Returns the path of a session's broadcast.
pub(super) fn path_of(session: &SessionName) -> &str {
    let text = session.as_str();
    text.strip_prefix("bfed://").unwrap_or(text)
}

impl Library {
    pub(super) fn new(
        edge: Arc<Edge>,
        pool: cache::Pool,
        max_age: Duration,
        counts: Arc<Counts>,
    ) -> Arc<Self> {
        let shared = Arc::clone(&edge.shared);
        Arc::new(Library {
            edge,
            shared,
            pool,
            counts,
            max_age,
            open: Mutex::default(),
        })
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, broadcast::Producer>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a client.
    pub(super) fn check(
        &self,
        right: Right,
        session: &SessionName,
        from: IpAddr,
        token: Option<&str>,
    ) -> bool {
        let checked = self.edge.access.check_client(right, session, from, token);
        if let Err(why) = &checked {
            add(&self.counts.denied);
            tracing::debug!(event = "moq_denied", %session, %from, why, "client denied");
        }
        checked.is_ok()
    }

    /// Returns the broadcast of a session that is available here.
    pub(super) async fn find(
        self: &Arc<Self>,
        session: &SessionName,
        presented: &Presented,
    ) -> Result<broadcast::Consumer, Error> {
        let key = (session.as_str().to_owned(), 0);
        if !self.edge.is_available(&key, session, presented).await {
            return Err(Error::NotFound);
        }
        self.broadcast(session)
    }

    /// Returns the broadcast of a session, which is opened if it is not there.
    fn broadcast(self: &Arc<Self>, session: &SessionName) -> Result<broadcast::Consumer, Error> {
        let mut open = self.open();
        if let Some(found) = open.get(session.as_str()) {
            return Ok(found.consume());
        }
        if open.len() >= MAX_OPEN {
            return Err(Error::NotFound);
        }
        let mut info = broadcast::Info::new();
        info.pool = self.pool.clone();
        let producer = info.produce();
        open.insert(session.as_str().to_owned(), producer.clone());
        let consumer = producer.consume();
        let (library, session) = (Arc::clone(self), session.clone());
        tokio::spawn(async move { library.serve(session, producer).await });
        Ok(consumer)
    }

    /// Serves the tracks of a session while it has subscribers.
    async fn serve(self: Arc<Self>, session: SessionName, producer: broadcast::Producer) {
        let (mut tracks, demand) = (producer.dynamic(), producer.demand());
        let mut flows = tokio::task::JoinSet::new();
        let unused = || async {
            let _ = demand.unused().await;
            tokio::time::sleep(LINGER).await;
        };
        let mut idle = pin!(unused());
        loop {
            tokio::select! {
                request = tracks.requested_track() => {
                    let Ok(request) = request else { break };
                    let flow = request.name().parse::<usize>().ok();
                    match flow.filter(|at| *at < session.flow_count() && at.to_string() == request.name()) {
                        Some(at) => {
                            let key = (session.as_str().to_owned(), at);
                            flows.spawn(Arc::clone(&self).pump(key, session.clone(), request));
                        }
                        None => request.reject(Error::NotFound),
                    }
                }
                Some(_) = flows.join_next() => {
                    // The stream has ended, and the next subscriber begins anew.
                    if flows.is_empty() { break }
                }
                () = idle.as_mut() => {
                    idle.set(unused());
                    let mut open = self.open();
                    if !demand.is_used() {
                        open.remove(session.as_str());
                        return;
                    }
                }
            }
        }
        self.open().remove(session.as_str());
        producer.close();
    }

    /// Carries a flow from the hub into a track, while the track has subscribers.
    async fn pump(self: Arc<Self>, key: Key, session: SessionName, request: track::Request) {
        let content = session.content();
        let priority = PRIORITY.iter().find(|(of, _)| *of == content);
        let info = track::Info::default()
            .with_max_age(self.max_age)
            .with_priority(priority.map_or(127, |(_, priority)| *priority));
        let track = request.accept(info);
        let demand = track.demand();
        let reader = Subscribed::new(&self.shared, &key, &session);
        let (mut grouper, mut group, from) = (Grouper::new(), None, Instant::now());
        let unused = || async {
            let _ = demand.unused().await;
            tokio::time::sleep(LINGER).await;
        };
        // Kept across iterations: data that goes on arriving must not restart the wait.
        let mut unwanted = pin!(unused());
        loop {
            let next = std::future::poll_fn(|context| self.shared.poll_reader(reader.id, context));
            let data = tokio::select! {
                data = next => data,
                () = unwanted.as_mut() => match demand.is_used() {
                    true => {
                        unwanted.set(unused());
                        continue;
                    }
                    false => break,
                },
                () = reader.cut.notified() => break,
            };
            let now_ms = from.elapsed().as_millis() as u64;
            let is_end = data.is_none();
            let parts = match data {
                Some(data) => grouper.push(data, now_ms),
                None => grouper.finish(now_ms),
            };
            if self.write(&track, &mut group, parts, now_ms).is_err() || is_end {
                break;
            }
        }
        if let Some(group) = group {
            let _: Result<(), Error> = group.finish();
        }
        let _ = track.finish();
    }

    fn write(
        &self,
        track: &track::Producer,
        group: &mut Option<moq_net::group::Producer>,
        parts: Vec<Part>,
        now_ms: u64,
    ) -> Result<(), Error> {
        let time = Timestamp::from_millis(now_ms).map_err(|_| Error::TimestampMismatch)?;
        for part in parts {
            let bytes = match part {
                Part::Group(header) => {
                    if let Some(ended) = group.take() {
                        ended.finish()?;
                    }
                    add(&self.counts.groups);
                    *group = Some(track.append_group()?);
                    header
                }
                Part::Frame(bytes) => bytes,
            };
            if let Some(group) = group {
                // A group that was evicted or is too large ends here; the next one begins at a key frame.
                let _ = group.write_frame(time, bytes);
            }
        }
        Ok(())
    }
}

/// A reader of the hub until it is dropped.
struct Subscribed<'a> {
    shared: &'a Shared,
    id: u64,
    cut: Arc<Notify>,
}

impl<'a> Subscribed<'a> {
    fn new(shared: &'a Shared, key: &Key, session: &SessionName) -> Self {
        let cut = Arc::new(Notify::new());
        let id = {
            let mut hub = shared.hub();
            let id = hub.add_reader(key, session, Arc::clone(&cut));
            hub.passes_on(id);
            id
        };
        Subscribed { shared, id, cut }
    }
}

impl Drop for Subscribed<'_> {
    fn drop(&mut self) {
        self.shared.forget_reader(self.id);
    }
}
