//! The machine: when announcements leave, and what others announce.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};

use proto_core::time::{Duration, Instant};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::sdp::{Description, MAX_SDP_LEN, Origin, SdpError};
use crate::stats::{Refused, Stats};
use crate::wire::Packet;

/// Announcements that may leave at once, as time at [`Config::limit_bps`]: 2500 bytes of 4000 bit/s.
pub const BURST: Duration = Duration::from_secs(5);
/// Shortest time between repetitions (RFC 2974 §3.1).
const MIN_INTERVAL: Duration = Duration::from_secs(300);
/// Shortest lifetime of a learned announcement (§4.1).
const LIFETIME: Duration = Duration::from_secs(3600);

/// Configuration of an [`Announcer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Address that own packets are sent from: the originating source, and how they are known when they come back.
    pub own: SocketAddr,
    /// Most bits in a second of all announcements on the group, those of others too (§3.1).
    pub limit_bps: u32,
    /// Most own announcements.
    pub max_announced: usize,
    /// Most learned announcements.
    pub max_learned: usize,
    /// Most learned announcements of one host.
    pub max_per_host: usize,
}

impl Config {
    /// Creates a configuration with 4000 bit/s, 4096 own announcements, and 1024 learned ones, 64 of each host.
    #[must_use]
    pub const fn new(own: SocketAddr) -> Self {
        Config {
            own,
            limit_bps: 4000,
            max_announced: 4096,
            max_learned: 1024,
            max_per_host: 64,
        }
    }
}

/// [`Config::max_announced`] is reached, or the description is too long: it is not announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("too many announcements, or a description that is too long")
    }
}

impl core::error::Error for Full {}

#[derive(Debug)]
struct Announced {
    description: Description,
    origin: Origin,
    packet: Vec<u8>,
    due: Instant,
    /// When it was sent last.
    sent: Option<Instant>,
}

/// An announcement of another host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learned {
    /// What it says.
    pub description: Description,
    /// Version of the description.
    version: u64,
    /// Length of its packet in bytes.
    len: usize,
    heard: Instant,
    /// Time between its last two packets.
    period: Duration,
}

impl Learned {
    fn until(&self) -> Instant {
        self.heard + LIFETIME.max(self.period * 10)
    }
}

/// Identity of a learned announcement: the host that sent it, and its origin.
type Key = (IpAddr, String, String);

/// The machine.
#[derive(Debug)]
pub struct Announcer {
    config: Config,
    rng: ChaCha8Rng,
    /// Session identifier of the first announcement.
    base: u32,
    hash: u16,
    announced: BTreeMap<u64, Announced>,
    queue: BTreeSet<(Instant, u64)>,
    /// Bytes of all own packets.
    announced_bytes: usize,
    deletions: VecDeque<Vec<u8>>,
    /// When the limit allows the next packet; [`BURST`] earlier is fine.
    free_at: Instant,
    learned: BTreeMap<Key, Learned>,
    learned_bytes: usize,
    /// Learned announcements of each host.
    hosts: BTreeMap<IpAddr, usize>,
    /// When the first learned announcement may expire; never later than that.
    expires: Option<Instant>,
    now: Instant,
    stats: Stats,
}

proto_core::impl_machine! {
    impl[] Announcer { Meta = SocketAddr; Transmit = usize; Event = Infallible; Error = Refused; }
}

impl Announcer {
    /// Creates a machine that announces nothing.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32], now: Instant) -> Self {
        let mut rng = ChaCha8Rng::from_seed(seed);
        let (base, hash) = (rng.next_u32(), rng.next_u32() as u16);
        Announcer {
            config,
            rng,
            base,
            hash,
            announced: BTreeMap::new(),
            queue: BTreeSet::new(),
            announced_bytes: 0,
            deletions: VecDeque::new(),
            free_at: now,
            learned: BTreeMap::new(),
            learned_bytes: 0,
            hosts: BTreeMap::new(),
            expires: None,
            now,
            stats: Stats::default(),
        }
    }

    /// Announces a session, under a number of the caller; another description replaces the one before.
    ///
    /// # Errors
    /// [`Full`]: nothing has changed.
    pub fn announce(
        &mut self,
        now: Instant,
        number: u64,
        description: &Description,
    ) -> Result<(), Full> {
        self.now = now;
        let before = self.announced.get(&number);
        if before.is_some_and(|before| before.description == *description) {
            return Ok(());
        }
        if before.is_none() && self.announced.len() >= self.config.max_announced {
            return Err(Full);
        }
        let id = u64::from(self.base) << 32 | (number & 0xffff_ffff);
        let origin = Origin {
            session: alloc::format!("- {id}"),
            address: self.config.own.ip().to_string(),
            version: before.map_or(1, |before| before.origin.version + 1),
        };
        let payload = description.emit(&origin);
        if payload.len() > MAX_SDP_LEN || Description::parse(payload.as_bytes()).is_err() {
            return Err(Full);
        }
        // Zero says that there is none.
        self.hash = self.hash.checked_add(1).unwrap_or(1);
        let packet = Packet {
            deletion: false,
            hash: self.hash,
            source: self.config.own.ip(),
            payload: payload.as_bytes(),
        }
        .emit();
        if let Some(before) = self.announced.remove(&number) {
            self.queue.remove(&(before.due, number));
            self.announced_bytes -= before.packet.len();
        }
        self.announced_bytes += packet.len();
        self.queue.insert((now, number));
        let announced = Announced {
            description: description.clone(),
            origin,
            packet,
            due: now,
            sent: None,
        };
        self.announced.insert(number, announced);
        Ok(())
    }

    /// Withdraws an announcement: listeners are told, if they were told of it.
    pub fn withdraw(&mut self, now: Instant, number: u64) {
        self.now = now;
        let Some(gone) = self.announced.remove(&number) else {
            return;
        };
        self.queue.remove(&(gone.due, number));
        self.announced_bytes -= gone.packet.len();
        if gone.sent.is_none() && gone.origin.version == 1 {
            return;
        }
        if self.deletions.len() >= self.config.max_announced {
            self.deletions.pop_front();
        }
        let hash = [gone.packet[2], gone.packet[3]];
        let payload = gone.origin.line() + "\r\n";
        let packet = Packet {
            deletion: true,
            hash: u16::from_be_bytes(hash),
            source: self.config.own.ip(),
            payload: payload.as_bytes(),
        };
        self.deletions.push_back(packet.emit());
    }

    /// Returns what others announce, and the host that sent it.
    pub fn learned(&self) -> impl Iterator<Item = (IpAddr, &Description)> {
        self.learned
            .iter()
            .map(|((from, _, _), learned)| (*from, &learned.description))
    }

    /// Returns the time of the last call.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of own announcements.
    #[must_use]
    pub fn announced_count(&self) -> usize {
        self.announced.len()
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Handles a packet of the group, from that address.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn handle_packet(
        &mut self,
        now: Instant,
        from: &SocketAddr,
        packet: &[u8],
    ) -> Result<(), Refused> {
        self.now = now;
        let taken = self.learn(now, *from, packet);
        match taken {
            Ok(()) => self.stats.received += 1,
            Err(refused) => self.stats.count(refused),
        }
        taken
    }

    fn learn(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Result<(), Refused> {
        if from == self.config.own {
            return Err(Refused::Own);
        }
        let packet = Packet::parse(bytes).map_err(Refused::Wire)?;
        let sdp = |error: SdpError| Refused::Sdp(error);
        if packet.deletion {
            let origin = Origin::of_deletion(packet.payload).map_err(sdp)?;
            self.forget(&(from.ip(), origin.session, origin.address));
            return Ok(());
        }
        let (origin, description) = Description::parse(packet.payload).map_err(sdp)?;
        let key = (from.ip(), origin.session, origin.address);
        let mut learned = Learned {
            description,
            version: origin.version,
            len: bytes.len(),
            heard: now,
            period: Duration::ZERO,
        };
        if let Some(before) = self.learned.get_mut(&key) {
            learned.period = now - before.heard;
            self.learned_bytes -= before.len;
            if learned.version < before.version {
                // An older description that was delayed.
                learned.description = before.description.clone();
                learned.version = before.version;
            }
            self.learned_bytes += learned.len;
            *before = learned;
            return Ok(());
        }
        let of_host = self.hosts.get(&from.ip()).copied().unwrap_or(0);
        if of_host >= self.config.max_per_host {
            return Err(Refused::HostFull);
        }
        if self.learned.len() >= self.config.max_learned {
            return Err(Refused::Full);
        }
        self.hosts.insert(from.ip(), of_host + 1);
        self.learned_bytes += learned.len;
        let until = learned.until();
        self.expires = Some(self.expires.map_or(until, |first| first.min(until)));
        self.learned.insert(key, learned);
        Ok(())
    }

    fn forget(&mut self, key: &Key) {
        let Some(gone) = self.learned.remove(key) else {
            return;
        };
        self.learned_bytes -= gone.len;
        if let Some(count) = self.hosts.get_mut(&key.0) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&key.0);
            }
        }
        if self.learned.is_empty() {
            self.expires = None;
        }
    }

    /// Handles the passing of time: forgets announcements that were not repeated.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.expires.is_none_or(|first| first > now) {
            return;
        }
        let late = self.learned.iter().filter(|(_, one)| one.until() <= now);
        let late: Vec<Key> = late.map(|(key, _)| key.clone()).collect();
        for key in late {
            self.forget(&key);
            self.stats.expired += 1;
        }
        self.expires = self.learned.values().map(Learned::until).min();
    }

    /// Time for the next repetition (§3.1): as many announcements as there are within the limit, at random around it.
    fn interval(&mut self) -> Duration {
        let bits = 8 * (self.announced_bytes + self.learned_bytes) as u64;
        let limit = u64::from(self.config.limit_bps.max(1));
        let interval = MIN_INTERVAL.max(Duration::from_secs(bits / limit));
        let micros = interval.total_micros();
        let offset = self.rng.next_u64() % (micros * 2 / 3).max(1);
        Duration::from_micros(micros - micros / 3 + offset)
    }

    /// Writes the next packet to send to the group; returns its length.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        self.now = now;
        if self.free_at > now + BURST {
            return None;
        }
        let first = self.queue.first().copied().filter(|(due, _)| *due <= now);
        let packet = match (self.deletions.front(), first) {
            (Some(packet), _) => packet,
            (None, Some((_, number))) => &self.announced.get(&number)?.packet,
            (None, None) => return None,
        };
        let len = packet.len();
        buffer.get_mut(..len)?.copy_from_slice(packet);
        if self.deletions.pop_front().is_none()
            && let Some((due, number)) = first
        {
            self.queue.remove(&(due, number));
            let next = now + self.interval();
            self.queue.insert((next, number));
            if let Some(announced) = self.announced.get_mut(&number) {
                (announced.due, announced.sent) = (next, Some(now));
            }
        }
        let limit = u64::from(self.config.limit_bps.max(1));
        let takes = Duration::from_micros(len as u64 * 8 * 1_000_000 / limit);
        self.free_at = self.free_at.max(now) + takes;
        self.stats.sent += 1;
        Some(len)
    }

    /// There are no events.
    pub fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout) and `poll_transmit`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let first = self.queue.first().map(|(due, _)| *due);
        let waiting = match self.deletions.is_empty() {
            true => first,
            false => Some(self.now),
        };
        let allowed = waiting.map(|due| match self.free_at > due + BURST {
            true => self.free_at - BURST,
            false => due,
        });
        allowed.into_iter().chain(self.expires).min()
    }
}
