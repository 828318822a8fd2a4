//! Offloads of an interface: what `ethtool -K` switches, without the program; and its driver.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use thiserror::Error;

use crate::sys;

/// Offloads were not read or switched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// There is no such interface.
    #[error("no such interface: {0}")]
    NoInterface(String),
    /// The interface has no such offload; [`offloads`] lists those that it has.
    #[error("{interface} has no offload called {name}; `ethtool -k {interface}` lists them")]
    Unknown {
        /// The interface.
        interface: String,
        /// The requested value.
        name: String,
    },
    /// The driver keeps it as it is.
    #[error("{interface} does not let {name} be switched")]
    Fixed {
        /// The interface.
        interface: String,
        /// The requested value.
        name: String,
    },
    /// The process lacks a capability.
    #[error("switching offloads needs CAP_NET_ADMIN: run as root, or inside `unshare -Urn`")]
    Privilege,
    /// Anything else.
    #[error("offloads of an interface: {0}")]
    Io(io::Error),
}

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const NAME_LEN: usize = 32;

/// Segmentation and checksums: off, an interface carries packets as a plain wire would.
pub const SEGMENTATION_AND_CHECKSUMS: [&str; 7] = [
    "tx-checksum-ip-generic",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "tx-tcp-segmentation",
    "tx-gso-list",
    "rx-gro",
    "rx-udp-gro-forwarding",
];

struct Device<'a> {
    socket: OwnedFd,
    interface: &'a str,
}

impl Device<'_> {
    /// One command; `words` are its structure, as the kernel lays it out in 32-bit words.
    fn ask(&self, words: &mut [u32]) -> Result<(), OffloadError> {
        if self.interface.len() >= libc::IFNAMSIZ {
            return Err(OffloadError::NoInterface(self.interface.to_owned()));
        }
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(self.interface.bytes()) {
            *to = from as libc::c_char;
        }
        let mut request = libc::ifreq {
            ifr_name: name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: words.as_mut_ptr().cast(),
            },
        };
        // SAFETY: SIOCETHTOOL takes an `ifreq` whose data point at the command's structure. The
        // kernel writes no more than the counts in the structure allow, and the callers below
        // size `words` by these counts; both live through the call.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        sys::check(result)
            .map(|_| ())
            .map_err(|e| match e.raw_os_error() {
                Some(libc::ENODEV) => OffloadError::NoInterface(self.interface.to_owned()),
                Some(libc::EPERM) => OffloadError::Privilege,
                _ => OffloadError::Io(e),
            })
    }

    /// Names of all offloads this kernel knows, by number.
    fn names(&self) -> Result<Vec<String>, OffloadError> {
        // `struct ethtool_sset_info`: command, reserved, mask (u64), then a count a set.
        let mut info = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1_u64 << ETH_SS_FEATURES).to_ne_bytes();
        info[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        info[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        self.ask(&mut info)?;
        let count = info[4].min(1024) as usize;
        // `struct ethtool_gstrings`: command, set, count, then 32 bytes each.
        let mut strings = vec![0; 3 + count * NAME_LEN / 4];
        strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        self.ask(&mut strings)?;
        Ok(strings[3..]
            .chunks_exact(NAME_LEN / 4)
            .map(|words| {
                let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
                let name = bytes.split(|b| *b == 0).next().unwrap_or_default();
                String::from_utf8_lossy(name).into_owned()
            })
            .collect())
    }
}

fn open(interface: &str) -> Result<Device<'_>, OffloadError> {
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(OffloadError::Io)?;
    Ok(Device { socket, interface })
}

/// Returns the name of an interface's driver, such as `veth` or `ixgbe`.
///
/// # Errors
/// [`OffloadError`]: there is no such interface, or its driver does not say.
pub fn driver(interface: &str) -> Result<String, OffloadError> {
    // `struct ethtool_drvinfo`: command, then the name in 32 bytes, then what is not needed here; 196 bytes.
    let mut info = [0; 49];
    info[0] = ETHTOOL_GDRVINFO;
    open(interface)?.ask(&mut info)?;
    let name = info[1..=NAME_LEN / 4]
        .iter()
        .flat_map(|word| word.to_ne_bytes());
    let name: Vec<u8> = name.take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}

/// Returns all offloads of an interface by the kernel's names, and whether they are on.
///
/// # Errors
/// [`OffloadError`]: there is no such interface, or the kernel does not list its features.
pub fn offloads(interface: &str) -> Result<BTreeMap<String, bool>, OffloadError> {
    let device = open(interface)?;
    let names = device.names()?;
    let blocks = names.len().div_ceil(32);
    // `struct ethtool_gfeatures`: command, blocks, then available, requested, active, fixed.
    let mut features = vec![0; 2 + blocks * 4];
    features[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
    device.ask(&mut features)?;
    let is_on = |at: usize| features[2 + at / 32 * 4 + 2] & 1 << (at % 32) != 0;
    let named = names
        .into_iter()
        .enumerate()
        .filter(|(_, name)| !name.is_empty());
    Ok(named.map(|(at, name)| (name, is_on(at))).collect())
}

/// Switches offloads by the kernel's names, and verifies the result.
///
/// # Errors
/// [`OffloadError`]: there is no such interface or feature, the kernel refuses, or a feature did not change.
pub fn switch_offloads(interface: &str, wanted: &[(&str, bool)]) -> Result<(), OffloadError> {
    let device = open(interface)?;
    let names = device.names()?;
    let blocks = names.len().div_ceil(32);
    // `struct ethtool_sfeatures`: command, blocks, then valid, requested.
    let mut features = vec![0; 2 + blocks * 2];
    features[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks as u32]);
    for (name, on) in wanted {
        let at = names
            .iter()
            .position(|n| n == name)
            .ok_or_else(|| OffloadError::Unknown {
                interface: interface.to_owned(),
                name: (*name).to_owned(),
            })?;
        features[2 + at / 32 * 2] |= 1 << (at % 32);
        if *on {
            features[2 + at / 32 * 2 + 1] |= 1 << (at % 32);
        }
    }
    device.ask(&mut features)?;
    let now = offloads(interface)?;
    match wanted.iter().find(|(name, on)| now.get(*name) != Some(on)) {
        None => Ok(()),
        Some((name, _)) => Err(OffloadError::Fixed {
            interface: interface.to_owned(),
            name: (*name).to_owned(),
        }),
    }
}

/// Switches off all of [`SEGMENTATION_AND_CHECKSUMS`] that this kernel knows.
///
/// # Errors
/// As [`switch_offloads`].
pub fn switch_offloads_off(interface: &str) -> Result<(), OffloadError> {
    let known = offloads(interface)?;
    let wanted: Vec<_> = SEGMENTATION_AND_CHECKSUMS
        .iter()
        .filter(|name| known.get(**name) == Some(&true))
        .map(|name| (*name, false))
        .collect();
    switch_offloads(interface, &wanted)
}
