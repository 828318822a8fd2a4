//! Incremental readers of media containers, for servers that pass a live stream on and do not decode it: MPEG-TS
//! (ISO/IEC 13818-1), WebM (Matroska, RFC 9559) and fragmented MP4 (ISO/IEC 14496-12).
//!
//! [`Reader`] takes the bytes of a stream in pieces of any size. It recognises the container and reports the
//! initialisation bytes, and units with their time, their duration and whether a decoder can start there. It holds no
//! payload: units are ranges of the stream, and the caller keeps the bytes that it needs. [`hls`] makes live playlists
//! of units.
//!
//! # Driving the reader
//!
//! ```
//! use media::{Event, Reader};
//!
//! # let (stream, mut started) = (include_bytes!("../tests/samples/h264.ts"), false);
//! let mut reader = Reader::new();
//! for piece in stream.chunks(1316) {
//!     reader.push(piece);
//!     while let Some(event) = reader.poll_event() {
//!         match event {
//!             Event::Init => println!("{} bytes of initialisation", reader.init().len()),
//!             Event::Unit(unit) if unit.is_start => {
//!                 println!("a decoder can start at byte {}", unit.offset);
//!                 # started = true;
//!             }
//!             Event::Unit(_) => {}
//!         }
//!     }
//! }
//! # assert!(started);
//! ```
//!
//! A reader of the stream that arrives late gets [`Reader::init`], the [`Prefix`] of a unit whose `is_start` is set, and
//! the stream from that unit's offset on.
//!
//! # Module layout
//!
//! | module | content |
//! | --- | --- |
//! | `reader` | [`Reader`]: recognises the container |
//! | `ts`, `psi`, `nal` | MPEG-TS: packets and frames; its tables; which pictures are key frames |
//! | `mp4`, `boxes` | fragmented MP4: the stream; the boxes `moov` and `moof` |
//! | `webm`, `ebml` | WebM: the stream; EBML's numbers |
//! | `codecs` | codec strings of RFC 6381 |
//! | [`hls`] | playlists with partial segments |
//! | [`group`] | the header of a group of Media over QUIC |
//!
//! # Units and limits
//!
//! | quantity | bound | at the bound |
//! | --- | --- | --- |
//! | bytes until the container is known | [`MAX_SNIFF`] | the stream is of no known container, and passes unread |
//! | memory of a reader | twice [`MAX_INIT`] for the initialisation, [`MAX_INIT`] for each of its parts and for the box or element that is being read | the reader looks for the next fragment or cluster |
//! | length of a unit | [`MAX_UNIT`] | the same |
//! | tracks that are known | 16 | further ones are ignored |
//! | events that wait | one for each 3 bytes pushed | drain after each push |
//! | duration of a unit | 10 s | the duration is unknown |
//!
//! # Trust
//!
//! Streams are hostile: sizes, counts and times in them are checked before use, and nothing is allocated by a size that a
//! stream names. After damage the reader looks for the next place where it can go on, and reports no unit for what lies
//! between.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod boxes;
mod codecs;
mod ebml;
pub mod group;
pub mod hls;
mod mp4;
mod nal;
mod psi;
mod reader;
mod ts;
mod unit;
mod webm;

pub use proto_core::time::Duration;
pub use reader::{Container, MAX_SNIFF, Reader};
pub use unit::{Event, MAX_INIT, MAX_UNIT, Prefix, Priority, Unit};
