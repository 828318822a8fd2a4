//! Link addresses of neighbours that were never heard: repliers named in the configuration. Those
//! that speak (IGMP, LMS-HIER) are known from their own frames.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use linux_net::OpenError;
use linux_net::link::{Editor, Neighbour};
use lms_proto::{Duration, Instant};

/// Neighbours remembered; more are multicast to.
const LIMIT: usize = 1024;
/// How soon an unanswered question is looked at again, at first and at last.
const RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// How long an answer is believed.
const BELIEF: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
struct Known {
    link: Option<[u8; 6]>,
    again: Instant,
    pause: Duration,
}

/// Asks the kernel, between batches; the packet path only looks up.
#[derive(Debug)]
pub(crate) struct Resolver {
    editor: Option<Editor>,
    known: BTreeMap<(u32, Ipv4Addr), Known>,
}

impl Resolver {
    /// `asks`: whether the configuration names neighbours at all.
    pub(crate) fn open(asks: bool) -> Result<Resolver, OpenError> {
        let editor = if asks { Some(Editor::open()?) } else { None };
        Ok(Resolver {
            editor,
            known: BTreeMap::new(),
        })
    }

    /// The link address of a neighbour, if it is known; else it will be asked for.
    pub(crate) fn find(&mut self, interface: u32, address: Ipv4Addr) -> Option<[u8; 6]> {
        if let Some(known) = self.known.get(&(interface, address)) {
            return known.link;
        }
        if self.known.len() < LIMIT {
            let known = Known {
                link: None,
                again: Instant::ZERO,
                pause: RETRY,
            };
            self.known.insert((interface, address), known);
        }
        None
    }

    /// When [`Resolver::ask`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.editor.as_ref()?;
        self.known.values().map(|known| known.again).min()
    }

    /// Requests link addresses that are unknown or have expired.
    pub(crate) fn ask(&mut self, now: Instant) {
        let Some(editor) = &mut self.editor else {
            return;
        };
        for ((interface, address), known) in &mut self.known {
            if known.again > now {
                continue;
            }
            known.again = now + known.pause;
            known.pause = (known.pause * 2).min(LAST_RETRY);
            match editor.neighbour(*interface, *address) {
                Ok(Neighbour::Known(link)) => {
                    *known = Known {
                        link: Some(link),
                        again: now + BELIEF,
                        pause: RETRY,
                    };
                }
                // What was known still serves while the kernel asks again.
                Ok(Neighbour::Asked) => {}
                Err(error) => {
                    known.link = None;
                    tracing::debug!(%address, %error, "static replier's link address");
                }
            }
        }
    }

    /// Only these neighbours are asked for from now on.
    pub(crate) fn keep(&mut self, is_named: impl Fn(Ipv4Addr) -> bool) {
        self.known.retain(|(_, address), _| is_named(*address));
    }

    /// Removes an interface and the link addresses on it.
    pub(crate) fn forget(&mut self, interface: u32) {
        self.known.retain(|(index, _), _| *index != interface);
    }
}
