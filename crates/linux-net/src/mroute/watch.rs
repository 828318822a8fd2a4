use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use super::Route;
use crate::error::{Capability, OpenError, ReceiveError};
use crate::family::Family;
use crate::follow::{Event, Follower, Mirror};
use crate::netlink::{Message, NLM_F_DUMP, Socket, attributes, u32_of};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTNH_F_UNRESOLVED: u32 = 32;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;

/// How to follow multicast routes.
#[derive(Clone, Debug)]
pub struct WatcherConfig {
    /// Routing table. `None`: the one that routing daemons without VRFs use, 253 for IPv4 and 254 for IPv6.
    pub table: Option<u32>,
    /// Most routes to follow (about 150 bytes each); those past it are ignored and counted.
    pub max_routes: usize,
}

impl Default for WatcherConfig {
    /// The default table, 131,072 routes.
    fn default() -> Self {
        Self {
            table: None,
            max_routes: 1 << 17,
        }
    }
}

impl WatcherConfig {
    fn table_of<A: Family>(&self) -> u32 {
        self.table.unwrap_or(A::TABLE)
    }
}

/// A change of the kernel's multicast routes.
pub type MrouteEvent<A = Ipv4Addr> = Event<Route<A>>;

/// Source and group.
type Key<A> = (A, A);
type Routes<A> = BTreeMap<Key<A>, Route<A>>;

/// Follows the kernel's multicast routes of one version of IP, which any program may set, and changes none.
///
/// Events come in order; when the kernel had to drop notifications the watcher reads the table
/// again and reports the difference. The kernel sends no notification when an interface of a
/// route vanishes: call [`resync`](Self::resync) when one does. Needs no privileges.
#[derive(Debug)]
pub struct Watcher<A: Family = Ipv4Addr> {
    follower: Follower<Key<A>, Route<A>>,
    config: WatcherConfig,
    ignored: Ignored,
}

/// Routes passed over.
#[derive(Clone, Copy, Debug, Default)]
struct Ignored {
    /// New ones in notifications while the table was full.
    notified: u64,
    /// Those left out of the last reading.
    read: u64,
}

/// A route in a message, and whether it is usable: unresolved ones only wait for a decision.
struct Parsed<A> {
    table: u32,
    usable: bool,
    route: Route<A>,
}

/// `struct rtmsg` and its attributes.
fn parse<A: Family>(payload: &[u8]) -> Option<Parsed<A>> {
    let (header, rest) = payload.split_first_chunk::<12>()?;
    if header[0] != A::NETLINK.0 {
        return None;
    }
    let flags = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let mut table = u32::from(header[4]);
    let (mut source, mut group, mut input) = (None, None, None);
    let mut outputs = Vec::new();
    for (kind, data) in attributes(rest) {
        match kind {
            RTA_SRC => source = A::from_octets(data),
            RTA_DST => group = A::from_octets(data),
            RTA_IIF => input = u32_of(data),
            RTA_TABLE => table = u32_of(data)?,
            RTA_MULTIPATH => outputs.extend(next_hops(data)),
            _ => {}
        }
    }
    Some(Parsed {
        table,
        usable: flags & RTNH_F_UNRESOLVED == 0 && input.is_some(),
        route: Route {
            source: source.unwrap_or(A::UNSPECIFIED),
            group: group?,
            input: input.unwrap_or(0),
            outputs,
        },
    })
}

/// `struct rtnexthop`: length, flags, hops (here: a threshold on the TTL), interface.
fn next_hops(mut rest: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<8>()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let interface = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        if len < 8 {
            return None;
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(interface)
    })
}

impl Watcher {
    /// Starts to follow the routes of IPv4. Those that exist come first, as [`MrouteEvent::Added`].
    ///
    /// # Errors
    /// [`OpenError`] when the netlink socket cannot be opened.
    pub fn open(config: &WatcherConfig) -> Result<Self, OpenError> {
        Self::open_for(config)
    }
}

impl<A: Family> Watcher<A> {
    /// Starts to follow the routes of either version of IP, as [`Watcher::open`] does.
    ///
    /// # Errors
    /// As [`Watcher::open`].
    pub fn open_for(config: &WatcherConfig) -> Result<Self, OpenError> {
        let open = |groups: &[u32]| {
            Socket::open(libc::NETLINK_ROUTE, groups).map_err(OpenError::from(
                "netlink socket for multicast routes",
                Capability::NetAdmin,
            ))
        };
        let mut watcher = Self {
            follower: Follower::new(open(&[A::NETLINK.1])?, open(&[])?),
            config: config.clone(),
            ignored: Ignored::default(),
        };
        watcher.resync().map_err(|e| OpenError::Io {
            what: "listing multicast routes",
            source: std::io::Error::other(e),
        })?;
        Ok(watcher)
    }

    /// Returns the next change; `None` when there is none at the moment. After an error the state may
    /// be stale; the next call reads the table again.
    ///
    /// # Errors
    /// [`ReceiveError`] when notifications were lost or the table cannot be read.
    pub fn next_event(&mut self) -> Result<Option<MrouteEvent<A>>, ReceiveError> {
        let Self {
            follower,
            config,
            ignored,
        } = self;
        let Ignored { notified, read } = ignored;
        follower.next(
            |mirror, kind, payload| *notified += u64::from(!apply(mirror, config, kind, payload)),
            |socket| {
                let (routes, left_out) = dump(socket, config)?;
                *read = left_out;
                Ok(routes)
            },
        )
    }

    /// Reads the kernel's table and queues the differences.
    ///
    /// # Errors
    /// [`ReceiveError`] when the table cannot be read.
    pub fn resync(&mut self) -> Result<(), ReceiveError> {
        let (config, ignored) = (&self.config, &mut self.ignored.read);
        self.follower.read(|socket| {
            let (routes, left_out) = dump(socket, config)?;
            *ignored = left_out;
            Ok(routes)
        })
    }

    /// The routes as known now, by source and group.
    pub fn routes(&self) -> impl Iterator<Item = &Route<A>> {
        self.follower.mirror.table().values()
    }

    /// Routes passed over because [`WatcherConfig::max_routes`] were known: each time one was
    /// notified, and those that the last reading of the whole table left out.
    pub fn ignored(&self) -> u64 {
        self.ignored.notified + self.ignored.read
    }
}

/// The kernel's table, and how many routes of it are too many.
fn dump<A: Family>(
    socket: &mut Socket,
    config: &WatcherConfig,
) -> Result<(Routes<A>, u64), ReceiveError> {
    let mut rtmsg = [0; 12];
    rtmsg[0] = A::NETLINK.0;
    let request = Message::new(RTM_GETROUTE, NLM_F_DUMP).fixed(&rtmsg);
    let start = || (Routes::new(), 0_u64);
    socket
        .dump(&request, start, |(routes, ignored), kind, payload| {
            let parsed = parse(payload)
                .filter(|p| kind == RTM_NEWROUTE && p.table == config.table_of::<A>() && p.usable);
            let Some(Parsed { route, .. }) = parsed else {
                return;
            };
            let key = (route.source, route.group);
            if routes.len() < config.max_routes || routes.contains_key(&key) {
                routes.insert(key, route);
            } else {
                *ignored += 1;
            }
        })
        .map_err(ReceiveError::Io)
}

/// Applies one notification; returns `false` when the table is full.
fn apply<A: Family>(
    mirror: &mut Mirror<Key<A>, Route<A>>,
    config: &WatcherConfig,
    kind: u16,
    payload: &[u8],
) -> bool {
    let Some(parsed) = parse(payload).filter(|p| p.table == config.table_of::<A>()) else {
        return true;
    };
    let key = (parsed.route.source, parsed.route.group);
    if kind == RTM_DELROUTE || !parsed.usable {
        mirror.remove(key);
    } else if kind == RTM_NEWROUTE {
        if !mirror.table().contains_key(&key) && mirror.table().len() >= config.max_routes {
            return false;
        }
        mirror.set(key, parsed.route);
    }
    true
}

impl<A: Family> AsFd for Watcher<A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.follower.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// The route from interface 5 to 6 and 7, of the default table.
    fn message<A: Family>(source: &[u8], group: &[u8]) -> Vec<u8> {
        let bits = 8 * source.len() as u8;
        let mut bytes = vec![
            A::NETLINK.0,
            bits,
            bits,
            0,
            A::TABLE as u8,
            17,
            0,
            5,
            0,
            0,
            0,
            0,
        ];
        for (kind, address) in [(RTA_SRC, source), (RTA_DST, group)] {
            bytes.extend((4 + address.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(address);
        }
        bytes.extend([8, 0, 3, 0]);
        bytes.extend(5_u32.to_ne_bytes());
        bytes.extend([20, 0, 9, 0]);
        for output in [6_u32, 7] {
            bytes.extend([8, 0, 0, 1]);
            bytes.extend(output.to_ne_bytes());
        }
        bytes
    }

    fn check<A: Family>(whole: &[u8], source: A, group: A) {
        let parsed = parse::<A>(whole).unwrap();
        assert!(parsed.usable);
        let route = Route {
            source,
            group,
            input: 5,
            outputs: vec![6, 7],
        };
        assert_eq!(parsed.route, route);
        for len in 0..whole.len() {
            let cut = parse::<A>(&whole[..len]);
            assert!(cut.is_none_or(|cut| cut.route.outputs.len() <= 2), "{len}");
        }
        for bit in 0..whole.len() * 8 {
            let mut broken = whole.to_vec();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(parse::<A>(&broken).is_none_or(|p| p.route.outputs.len() <= whole.len()));
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_route_is_read_and_hostile_bytes_are_survived() {
        let (source, group) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(239, 1, 2, 3));
        let whole = message::<Ipv4Addr>(&source.octets(), &group.octets());
        check(&whole, source, group);
        assert!(parse::<Ipv6Addr>(&whole).is_none());
        let (source, group): (Ipv6Addr, Ipv6Addr) =
            ("fd00::1".parse().unwrap(), "ff3e::1234".parse().unwrap());
        let whole = message::<Ipv6Addr>(&source.octets(), &group.octets());
        check(&whole, source, group);
        assert!(parse::<Ipv4Addr>(&whole).is_none());
    }
}
