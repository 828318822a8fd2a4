//! Events for the application, from bits in the control blocks: at most one of each kind, so that nothing grows
//! when events are not polled.

use super::Endpoint;
use crate::event::{ConnId, Event, GroupId, Target};
use crate::pcb::{Note, Pcb};
use crate::store::Store;

impl<S: Store> Endpoint<S> {
    pub(super) fn next_event(&mut self) -> Option<Event> {
        while let Some(index) = self.with_events.front() {
            let Some(pcb) = self.pcbs.get_mut(index) else {
                self.with_events.pop();
                continue;
            };
            if let Some(event) = event_of(index, pcb) {
                return Some(event);
            }
            self.with_events.pop();
            self.sync(index);
        }
        while let Some(&index) = self.groups_with_events.front() {
            if let Some(event) = self.group_event(index) {
                return Some(event);
            }
            self.groups_with_events.pop_front();
        }
        None
    }

    fn group_event(&mut self, index: u32) -> Option<Event> {
        let session = self.sessions.get_mut(index)?;
        let generation = session.generation;
        let id = GroupId { index, generation };
        let group = session.group.as_mut()?;
        if core::mem::take(&mut group.ready_due) {
            return Some(Event::GroupReady { group: id });
        }
        if core::mem::take(&mut group.writable_due) {
            return Some(Event::Writable {
                target: Target::Group(id),
            });
        }
        if group.closed.take() {
            if session.present == 0 {
                self.remove_session(index);
            }
            return Some(Event::GroupClosed { group: id });
        }
        None
    }
}

/// Returns the next event of a control block.
fn event_of(index: u32, pcb: &mut Pcb) -> Option<Event> {
    let connection = ConnId {
        index,
        generation: pcb.generation,
    };
    let source = pcb.key.remote;
    if pcb.take_note(Note::Connected) {
        return Some(Event::Connected { connection });
    }
    if pcb.take_note(Note::Incoming) {
        return Some(Event::Incoming {
            port: pcb.key.local_port,
        });
    }
    if pcb.take_note(Note::Join)
        && let Some(group) = pcb.multicast.group
    {
        return Some(Event::Join {
            connection,
            group,
            source,
        });
    }
    if pcb.take_note(Note::Mode) {
        let mode = pcb.multicast.mode;
        return Some(Event::ModeChanged { connection, mode });
    }
    if pcb.take_note(Note::Detached) {
        return Some(Event::Detached { connection });
    }
    if pcb.take_note(Note::Readable) && pcb.receive.data.readable() > 0 {
        return Some(Event::Readable { connection });
    }
    if pcb.take_note(Note::Writable) {
        return Some(Event::Writable {
            target: connection.into(),
        });
    }
    if pcb.take_note(Note::Finished) {
        return Some(Event::Finished { connection });
    }
    if pcb.take_note(Note::Delivered) {
        return Some(Event::Delivered { connection });
    }
    if pcb.take_note(Note::Leave)
        && let Some(group) = pcb.multicast.group.take()
    {
        return Some(Event::Leave {
            connection,
            group,
            source,
        });
    }
    if pcb.closed.take() {
        return Some(Event::Closed {
            connection,
            remote: pcb.remote(),
            failure: pcb.failure(),
        });
    }
    None
}
