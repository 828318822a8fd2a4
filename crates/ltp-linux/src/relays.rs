//! DyRAM relays: their events, and the time without one.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ltp::relayed::AttachmentEvent;

/// No relay serves a transfer that needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRelay {
    /// The relays that were tried.
    pub relays: Vec<SocketAddr>,
    /// The relay that refused last, if one did.
    pub refused: Option<SocketAddr>,
    /// Time without a relay.
    pub elapsed: Duration,
}

impl fmt::Display for NoRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        if let Some(relay) = self.refused {
            return write!(
                f,
                "no relay accepted this host for {seconds:.1} s: {relay} refused, it is full or shutting \
                 down (its log and `dyram-relay status` say more)"
            );
        }
        let names: Vec<String> = self.relays.iter().map(ToString::to_string).collect();
        write!(
            f,
            "no relay answered for {seconds:.1} s: is dyram-relay of the same release running at {}, is its \
             UDP port open, does it see this host's own address?",
            names.join(" or ")
        )
    }
}

impl std::error::Error for NoRelay {}

/// The time during which no relay has served this transfer.
#[derive(Debug)]
pub(crate) struct Absence {
    relays: Vec<SocketAddr>,
    since: Option<Instant>,
    refused: Option<SocketAddr>,
}

impl Absence {
    /// Creates it before any of these relays has answered.
    pub(crate) fn new(relays: Vec<SocketAddr>) -> Self {
        Absence {
            relays,
            since: Some(Instant::now()),
            refused: None,
        }
    }

    /// Logs an event of the attachment, and remembers a relay that refused.
    pub(crate) fn handle_event(&mut self, event: AttachmentEvent) {
        match event {
            AttachmentEvent::Attached(relay) => {
                tracing::info!(event = "relay_attached", peer = %relay, "the relay serves this host");
            }
            AttachmentEvent::Lost(relay) => {
                tracing::warn!(event = "relay_lost", peer = %relay, "relay lost, trying the next one");
            }
            AttachmentEvent::Refused(relay) => {
                tracing::warn!(event = "relay_refused", peer = %relay, "relay refused, trying the next one");
                self.refused = Some(relay);
            }
        }
    }

    /// Sets whether a relay serves this transfer now.
    pub(crate) fn update(&mut self, attached: bool) {
        if attached {
            (self.since, self.refused) = (None, None);
        } else if self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    /// Returns the error once there has been no relay for that time.
    pub(crate) fn error(&self, limit: Duration) -> Option<NoRelay> {
        let elapsed = self.since?.elapsed();
        (elapsed >= limit).then(|| NoRelay {
            relays: self.relays.clone(),
            refused: self.refused,
            elapsed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_is_an_error_once_it_is_long_enough() {
        let relay: SocketAddr = "127.0.0.1:7".parse().expect("address");
        let mut absence = Absence::new(vec![relay]);
        assert_eq!(absence.error(Duration::from_secs(3600)), None);
        let says = |absence: &Absence, word: &str| {
            let error = absence.error(Duration::ZERO).expect("an error").to_string();
            assert!(error.contains(word), "{error}");
        };
        says(&absence, "127.0.0.1:7");
        absence.handle_event(AttachmentEvent::Refused(relay));
        says(&absence, "refused");
        absence.update(true);
        assert_eq!(absence.error(Duration::ZERO), None);
        absence.update(false);
        says(&absence, "no relay answered");
    }
}
