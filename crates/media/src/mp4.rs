//! Fragmented MP4 (ISO/IEC 14496-12): a unit is a `moof` and the `mdat` after it, with the boxes between the `mdat`
//! before and it.
//!
//! ```text
//! box: | size: 4 | type: 4 | size: 8, if the first is 1 | content |
//! ```

use alloc::vec::Vec;

use crate::boxes::{Fragment, Movie};
use crate::unit::{MAX_INIT, MAX_UNIT, Output, Prefix, Unit};

/// Most bytes of a box that is skipped beside `mdat`.
const MAX_SKIPPED: u64 = 1 << 20;

#[derive(Debug)]
enum State {
    /// The head of a box, at most 16 bytes.
    Head(Vec<u8>),
    /// A box that is read as a whole, and its length.
    Gather(Vec<u8>, usize),
    /// So many bytes of a box; whether it ends a unit.
    Skip(u64, bool),
    /// Looking for the type of a box that a stream can continue with: the last eight bytes.
    Lost(u64),
}

#[derive(Debug)]
pub(crate) struct Mp4 {
    state: State,
    /// Offset of the next byte.
    at: u64,
    /// Offset after the last `mdat` or `moov`.
    open: u64,
    ftyp: Vec<u8>,
    movie: Option<Movie>,
    /// The last `moof`.
    fragment: Option<Fragment>,
}

impl Mp4 {
    pub(crate) fn new() -> Self {
        Mp4 {
            state: State::Head(Vec::new()),
            at: 0,
            open: 0,
            ftyp: Vec::new(),
            movie: None,
            fragment: None,
        }
    }

    pub(crate) fn open_offset(&self) -> u64 {
        self.open
    }

    pub(crate) fn is_in_start(&self) -> bool {
        self.fragment
            .as_ref()
            .is_some_and(|fragment| fragment.is_start)
    }

    /// Forgets the place in the stream, whose next byte has offset 0.
    pub(crate) fn resume(&mut self) {
        self.at = 0;
        self.state = self.lost();
    }

    pub(crate) fn push(&mut self, at: u64, mut bytes: &[u8], out: &mut Output) {
        self.at = at;
        while !bytes.is_empty() {
            let state = core::mem::replace(&mut self.state, State::Lost(0));
            self.state = match state {
                State::Head(head) => self.head(head, &mut bytes),
                State::Gather(mut whole, len) => {
                    let now = self.take(&mut bytes, len - whole.len());
                    whole.extend_from_slice(now);
                    match whole.len() == len {
                        true => self.gathered(&whole, out),
                        false => State::Gather(whole, len),
                    }
                }
                State::Skip(left, ends) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let left = left - self.take(&mut bytes, most).len() as u64;
                    match (left, ends) {
                        (1.., _) => State::Skip(left, ends),
                        (0, true) => self.unit(out),
                        (0, false) => State::Head(Vec::new()),
                    }
                }
                State::Lost(last) => self.search(last, &mut bytes),
            };
        }
    }

    fn take<'b>(&mut self, bytes: &mut &'b [u8], most: usize) -> &'b [u8] {
        let (now, rest) = bytes.split_at(bytes.len().min(most));
        *bytes = rest;
        self.at += now.len() as u64;
        now
    }

    fn lost(&mut self) -> State {
        self.fragment = None;
        self.open = self.at;
        State::Lost(0)
    }

    fn head(&mut self, mut head: Vec<u8>, bytes: &mut &[u8]) -> State {
        let long = head.len() >= 8 && head[..4] == [0, 0, 0, 1];
        let wanted = if long { 16 } else { 8 };
        head.extend_from_slice(self.take(bytes, wanted - head.len()));
        let field = |at: usize| {
            head.get(at..at + 4)?
                .try_into()
                .ok()
                .map(u32::from_be_bytes)
        };
        let (Some(short), Some(name)) = (field(0), head.get(4..8)) else {
            return State::Head(head);
        };
        let size = match (short, field(8).zip(field(12))) {
            (1, None) => return State::Head(head),
            (1, Some((high, low))) => u64::from(high) << 32 | u64::from(low),
            _ => u64::from(short),
        };
        let Some(left) = size.checked_sub(head.len() as u64) else {
            return self.lost();
        };
        match name {
            b"ftyp" | b"moov" | b"moof" if size <= MAX_INIT as u64 => {
                let len = size as usize;
                // An empty box is complete: only `ftyp` may be one, and such a stream is damaged.
                match left {
                    0 => self.lost(),
                    _ => State::Gather(head, len),
                }
            }
            b"mdat" if self.fragment.is_some() && size <= MAX_UNIT => State::Skip(left, true),
            b"ftyp" | b"moov" | b"moof" | b"mdat" => self.lost(),
            name if name.is_ascii() && left <= MAX_SKIPPED => State::Skip(left, false),
            _ => self.lost(),
        }
        .or_next(left)
    }

    fn gathered(&mut self, whole: &[u8], out: &mut Output) -> State {
        let head = if whole[..4] == [0, 0, 0, 1] { 16 } else { 8 };
        let content = &whole[head..];
        match &whole[4..8] {
            b"ftyp" => self.ftyp = whole.to_vec(),
            b"moov" => {
                let Some(movie) = Movie::read(content) else {
                    return self.lost();
                };
                let init = [&self.ftyp[..], whole].concat();
                out.set_init(init, movie.codecs());
                self.movie = Some(movie);
                self.fragment = None;
                self.open = self.at;
            }
            _ => {
                let Some(movie) = &self.movie else {
                    return self.lost();
                };
                self.fragment = Fragment::read(content, movie);
                if self.fragment.is_none() {
                    return self.lost();
                }
            }
        }
        State::Head(Vec::new())
    }

    fn unit(&mut self, out: &mut Output) -> State {
        if let Some(fragment) = self.fragment.take() {
            out.unit(Unit {
                offset: self.open,
                len: self.at - self.open,
                time: fragment.time,
                duration: fragment.duration,
                is_start: fragment.is_start,
                prefix: Prefix::default(),
            });
        }
        self.open = self.at;
        State::Head(Vec::new())
    }

    /// Looks for a box that a stream can continue with.
    fn search(&mut self, mut last: u64, bytes: &mut &[u8]) -> State {
        while !bytes.is_empty() {
            let byte = self.take(bytes, 1)[0];
            last = last << 8 | u64::from(byte);
            let head = last.to_be_bytes();
            let size = last >> 32;
            if matches!(&head[4..], b"ftyp" | b"styp" | b"moof")
                && (9..MAX_INIT as u64).contains(&size)
            {
                self.open = self.at - 8;
                return match &head[4..] {
                    b"styp" => State::Skip(size - 8, false),
                    _ => State::Gather(head.to_vec(), size as usize),
                };
            }
        }
        self.open = self.at;
        State::Lost(last)
    }
}

impl State {
    /// Goes on with the next box if this one has no content to skip.
    fn or_next(self, left: u64) -> State {
        match self {
            // An empty `mdat` ends a unit all the same: that is found with the next byte.
            State::Skip(0, false) if left == 0 => State::Head(Vec::new()),
            state => state,
        }
    }
}
