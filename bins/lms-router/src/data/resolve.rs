//! Link addresses of the repliers named in the configuration. Those of neighbours that send IGMP, MLD or
//! LMS-HIER messages are known from their frames.

use std::collections::BTreeMap;

use linux_net::OpenError;
use linux_net::link::{Editor, Neighbour};
use lms_proto::{Duration, Instant};

use super::family::Family;

/// Neighbours stored; packets to further ones are multicast.
const LIMIT: usize = 1024;
/// First and last interval between checks of an unanswered query.
const RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// Lifetime of an answer.
const LIFETIME: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
struct Known {
    link: Option<[u8; 6]>,
    again: Instant,
    pause: Duration,
}

/// Asks the kernel, between batches; the packet path only looks up.
#[derive(Debug)]
pub(crate) struct Resolver<A> {
    editor: Option<Editor>,
    known: BTreeMap<(u32, A), Known>,
    changed: bool,
}

impl<A: Family> Resolver<A> {
    /// `asks`: whether the configuration names neighbours at all.
    pub(crate) fn open(asks: bool) -> Result<Resolver<A>, OpenError> {
        let editor = if asks { Some(Editor::open()?) } else { None };
        Ok(Resolver {
            editor,
            known: BTreeMap::new(),
            changed: false,
        })
    }

    /// Returns the link address of a neighbour, or has it resolved.
    pub(crate) fn find(&mut self, interface: u32, address: A) -> Option<[u8; 6]> {
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
                    self.changed |= known.link != Some(link);
                    *known = Known {
                        link: Some(link),
                        again: now + LIFETIME,
                        pause: RETRY,
                    };
                }
                // A known address stays in use while the kernel asks again.
                Ok(Neighbour::Resolving) => {}
                Err(error) => {
                    self.changed |= known.link.is_some();
                    known.link = None;
                    tracing::debug!(%address, %error, "static replier's link address");
                }
            }
        }
    }

    /// Whether an answer of [`Resolver::find`] changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Only these neighbours are asked for from now on.
    pub(crate) fn keep(&mut self, is_named: impl Fn(A) -> bool) {
        self.known.retain(|(_, address), _| is_named(*address));
        self.changed = true;
    }

    /// Removes an interface and the link addresses on it.
    pub(crate) fn forget(&mut self, interface: u32) {
        self.known.retain(|(index, _), _| *index != interface);
        self.changed = true;
    }
}
