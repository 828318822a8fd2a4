//! Numbers that a forger must not guess.

use core::fmt;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto_core::time::Instant;
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use siphasher::sip::SipHasher24;

use crate::pcb::Key;
use crate::seq::Seq;

/// Keys of the hashes that initial sequence numbers and timestamps come from.
pub(super) struct Secrets {
    sequence: [u8; 16],
    stamp: [u8; 16],
}

impl Secrets {
    pub(super) fn new(rng: &mut ChaCha12Rng) -> Self {
        let mut secrets = Self {
            sequence: [0; 16],
            stamp: [0; 16],
        };
        rng.fill_bytes(&mut secrets.sequence);
        rng.fill_bytes(&mut secrets.stamp);
        secrets
    }

    /// RFC 6528 §3: a hash of the connection plus a clock of 4 microseconds, so that a later
    /// connection between the same ports starts above an earlier one.
    pub(super) fn isn(&self, key: &Key, now: Instant) -> Seq {
        let hash = hash(&self.sequence, key, true);
        Seq((hash as u32).wrapping_add((now.total_micros() / 4) as u32))
    }

    /// An offset of the timestamp clock for each peer address (RFC 7323 §5.4): later connections to the same
    /// peer have later timestamps, and peers do not learn our uptime.
    pub(super) fn stamp_base(&self, key: &Key) -> u32 {
        hash(&self.stamp, key, false) as u32
    }
}

/// Without the secrets.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

fn hash(secret: &[u8; 16], key: &Key, with_ports: bool) -> u64 {
    let mut hasher = SipHasher24::new_with_key(secret);
    match key.remote {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    if with_ports {
        hasher.write(&key.local_port.to_be_bytes());
        hasher.write(&key.remote_port.to_be_bytes());
        hasher.write(&key.outer_port.to_be_bytes());
    }
    hasher.finish()
}

/// A random port of the dynamic range (RFC 6056 §3.2).
pub(super) fn random_port(rng: &mut ChaCha12Rng) -> u16 {
    49152 + (rng.next_u32() % 16384) as u16
}

/// A random group: administratively scoped, or for one source.
pub(super) fn random_group(rng: &mut ChaCha12Rng, ipv4: bool, source_specific: bool) -> IpAddr {
    let random = rng.next_u32();
    match (ipv4, source_specific) {
        // 239.192.0.0/14 (RFC 2365 §6.2).
        (true, false) => Ipv4Addr::from(0xefc0_0000 | (random & 0x0003_ffff)).into(),
        // 232.1.0.0 to 232.255.255.255 (RFC 4607 §9: 232.0.0.0/24 is not for use).
        (true, true) => {
            let high = 1 + (random >> 16) % 255;
            Ipv4Addr::from(0xe800_0000 | (high << 16) | (random & 0xffff)).into()
        }
        // ff18: organisation-local, transient; ff3e: global, source-specific (RFC 3306, RFC 4607).
        (false, scoped_or_not) => {
            let prefix = if scoped_or_not { 0xff3e } else { 0xff18 };
            let id = random | 0x8000_0000;
            Ipv6Addr::new(prefix, 0, 0, 0, 0, 0, (id >> 16) as u16, id as u16).into()
        }
    }
}
