//! Initialisations of containers, classes of frames, and what a data node gets that subscribes in the middle of a stream.

use bfed::Content;
use bfed::native::{ChannelId, FrameClass, Priority};

use crate::native::priority;

use super::{Hub, Item, Join, Key, Live, longest_frame};

impl Hub {
    /// Gives the data node the bytes that it missed: of a bulk session all since the last key frame, of a real-time session
    /// the initialisation alone, because late frames are dropped on the way.
    pub(super) fn begin_late(&mut self, channel: ChannelId) {
        let live = self.of(channel).and_then(|stream| stream.live.as_ref());
        if let Some(init) = live.and_then(Live::own_init) {
            self.queue(channel, Item::Init(init));
        }
        let Some(Join::Now(mut pieces)) = self
            .of(channel)
            .and_then(|s| s.live.as_ref())
            .map(Live::join)
        else {
            return;
        };
        let content = self.of(channel).map(|stream| stream.content);
        let content = content.unwrap_or_default();
        if content == Content::RealTime {
            pieces.truncate(1);
        }
        let class = FrameClass {
            priority: Priority::Key,
            lifetime: None,
        };
        for mut piece in pieces {
            while !piece.is_empty() {
                let frame = piece.split_to(piece.len().min(longest_frame(content)));
                self.queue(channel, Item::Data(frame, class));
            }
        }
    }

    /// Returns what the source says of the frame that came last.
    pub(super) fn class_of(&self, key: &Key) -> FrameClass {
        let Some(stream) = self.streams.get(key) else {
            return FrameClass::default();
        };
        let live = stream.live.as_ref();
        FrameClass {
            priority: live.map_or(Priority::Normal, |live| priority(live.priority())),
            lifetime: stream.deadline,
        }
    }

    /// Queues something for the data node.
    pub(super) fn queue(&mut self, channel: ChannelId, item: Item) {
        self.received_bytes += item.len();
        self.received.push_back((channel, item));
    }

    /// Queues the initialisation of a flow for the data node, if it has changed.
    pub(super) fn queue_init(&mut self, key: &Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let Some(live) = stream.live.as_mut() else {
            return;
        };
        if let Some(init) = live.take_changed_init() {
            self.counts.long_inits += u64::from(live.is_init_long());
            let listens = stream.listens;
            for channel in listens.into_iter().flatten() {
                self.queue(channel, Item::Init(init.clone()));
            }
        }
    }

    /// Takes the initialisation of a flow of another network. Readers that have got nothing yet begin with it and the next
    /// key frame, unless the stream itself begins now.
    pub(in super::super) fn set_init(&mut self, channel: ChannelId, init: &[u8]) {
        let Some(stream) = self
            .channels
            .get(&channel)
            .and_then(|key| self.streams.get_mut(key))
        else {
            return;
        };
        let Some(live) = stream.live.as_mut() else {
            return;
        };
        if !live.set_init(init) {
            return;
        }
        for id in &stream.readers {
            if let Some(reader) = self.readers.get_mut(id).filter(|reader| reader.is_fresh) {
                reader.waits = true;
            }
        }
    }
}
