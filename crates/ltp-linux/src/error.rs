//! Errors of a transfer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use linux_net::{JoinError, OpenError, ReceiveError, SendError};
use ltp::{ConfigError, Failure};

use crate::interface::InterfaceError;
use crate::relays::NoRelay;
use crate::send::Unconfirmed;
use crate::version::OtherVersion;

/// What to check where nothing was heard.
const NO_SENDER: &str =
    "is it running, is the interface the right one, is its TTL large enough, is the key the same?";

/// Why a transfer did not begin or did not end well.
///
/// The text is for people; where the system gave the reason, `source()` has it, so print the chain (as `anyhow` does).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface leads to the group.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A socket cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The sockets of an LMS endpoint cannot be opened, for another reason than missing privileges.
    #[error("LMS endpoint")]
    Lms(#[source] OpenError),
    /// The group cannot be joined.
    #[error("{purpose}")]
    Join {
        /// Why it is joined.
        purpose: &'static str,
        /// The kernel's answer.
        source: JoinError,
    },
    /// The kernel refused something else.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A socket can no longer be received from.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// Packets are longer than the interface carries: lower [`SendConfig::mtu`](crate::SendConfig::mtu).
    #[error("lower the MTU of the transfer")]
    PacketTooBig(#[source] SendError),
    /// The address of the group is not a multicast address.
    #[error("{0} is not a multicast address ({range})", range = if .0.is_ipv4() { "224.0.0.0 to 239.255.255.255" } else { "ff00::/8" })]
    NotMulticast(IpAddr),
    /// The group is link-local: its packets never pass a router.
    #[error("{0} is reserved for {range}", range = if .0.is_ipv4() {
        "routing protocols (224.0.0.0 to 224.0.0.255)"
    } else {
        "protocols of the link (ff01::/16 and ff02::/16)"
    })]
    LinkLocal(IpAddr),
    /// A field of the configuration is out of bounds; says which.
    #[error("{0}")]
    Config(&'static str),
    /// The name of the content is longer than the protocol carries.
    #[error("the name is too long for the protocol: give a shorter one")]
    NameTooLong,
    /// The configuration contradicts itself.
    #[error(transparent)]
    Machine(#[from] ConfigError),
    /// No relay serves the transfer.
    #[error(transparent)]
    NoRelay(#[from] NoRelay),
    /// Everything was sent, but not confirmed by every receiver.
    #[error(transparent)]
    Unconfirmed(#[from] Unconfirmed),
    /// [`Cancel::cancel`](crate::Cancel::cancel) was called.
    #[error("canceled")]
    Canceled,
    /// The content to send cannot be read.
    #[error("cannot read {name}")]
    Source {
        /// The path of the file, or what kind of source it is.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The content changed or could not be read while it was sent.
    #[error("cannot send {name}: {reason}")]
    Content {
        /// The path of the file, or what kind of source it is.
        name: String,
        /// What happened to it.
        reason: String,
    },
    /// No sender was heard within [`ReceiveConfig::connect_timeout`](crate::ReceiveConfig::connect_timeout).
    #[error(
        "no sender was heard on {group} for {:.1} s: {}",
        waited.as_secs_f64(),
        other_version.map_or(NO_SENDER.to_owned(), |other| other.to_string())
    )]
    NoSender {
        /// The group.
        group: SocketAddr,
        /// Time since the receiver started.
        waited: Duration,
        /// A host that was heard, but speaks another version.
        other_version: Option<OtherVersion>,
    },
    /// The transfer failed, and the content is incomplete.
    #[error(transparent)]
    Incomplete(Box<Incomplete>),
    /// The path where the file should stand is a folder.
    #[error("{} is a folder: give the file another name", .0.display())]
    IsFolder(PathBuf),
    /// The file cannot be created, written or renamed in this folder.
    #[error("{}", crate::output::explain(source, folder))]
    Output {
        /// The folder.
        folder: PathBuf,
        /// Length of the content in bytes, where space for it was being reserved.
        wanted: Option<u64>,
        /// The system's answer.
        source: io::Error,
    },
    /// The writer of a stream failed; the bytes before were written.
    #[error("cannot write the stream")]
    Write(#[source] io::Error),
    /// The content is longer than the buffer for it may become.
    #[error("the content is longer than {0} bytes")]
    TooLong(usize),
}

impl Error {
    /// Names why a group was to be joined.
    pub(crate) fn join(purpose: &'static str) -> impl FnOnce(JoinError) -> Error {
        move |source| Error::Join { purpose, source }
    }

    /// Names what the kernel refused.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}

/// A content that will never be whole.
#[derive(Debug)]
#[non_exhaustive]
pub struct Incomplete {
    /// Why.
    pub failure: Failure,
    /// The medium's answer where that failed, in words.
    pub storage: Option<String>,
    /// No relay served the transfer at the end.
    pub no_relay: Option<NoRelay>,
    /// Ranges of bytes that are missing, at most 1,000 of them; an end of `u64::MAX` is unknown.
    pub missing: Vec<(u64, u64)>,
    /// Length of the content in bytes, if known.
    pub length: Option<u64>,
}

impl std::fmt::Display for Incomplete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.storage {
            Some(why) => f.write_str(why)?,
            None => write!(f, "{}", self.failure)?,
        }
        if let Some(no_relay) = &self.no_relay {
            write!(f, "; {no_relay}")?;
        }
        if let Some(ranges) = name_ranges(&self.missing) {
            write!(f, "; missing {ranges}")?;
            if let Some(length) = self.length {
                write!(f, " of {length}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Incomplete {}

/// Ranges that a message names.
const MAX_NAMED: usize = 8;

/// `bytes 0-99, 200-299 and 3 more ranges`; `None` when nothing is missing.
fn name_ranges(missing: &[(u64, u64)]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let named: Vec<String> = missing
        .iter()
        .take(MAX_NAMED)
        .map(|&(start, end)| match end {
            u64::MAX => format!("{start} to the end"),
            end => format!("{start}-{}", end - 1),
        })
        .collect();
    let more = missing.len().saturating_sub(MAX_NAMED);
    let rest = match more {
        0 => String::new(),
        1 => " and 1 more range".to_owned(),
        more => format!(" and {more} more ranges"),
    };
    Some(format!("bytes {}{rest}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::name_ranges;

    #[test]
    fn ranges_are_named_as_people_count() {
        assert_eq!(name_ranges(&[]), None);
        assert_eq!(name_ranges(&[(0, 100)]).as_deref(), Some("bytes 0-99"));
        assert_eq!(
            name_ranges(&[(0, 1), (64, u64::MAX)]).as_deref(),
            Some("bytes 0-0, 64 to the end")
        );
        let many: Vec<(u64, u64)> = (0..11).map(|n| (n * 10, n * 10 + 5)).collect();
        assert!(name_ranges(&many).is_some_and(|text| text.ends_with("70-74 and 3 more ranges")));
    }
}
