#![cfg(feature = "alloc")]

use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::*;
use crate::config::SenderConfig;
use crate::store::{HeapRing, NullStore};

const BLOCK: usize = 1_024;
const PAYLOAD: usize = 205;
const FIRST: u32 = u32::MAX - 6;

/// Blocks of 1 KiB in five packets, of which the last has one byte of padding.
fn config() -> SenderConfig {
    let mut config = SenderConfig::new((Ipv4Addr::new(239, 1, 2, 3), 5_000).into());
    config.block_exponent = 10;
    config.max_packet_len = (PAYLOAD + crate::wire::data::DATA_HEADER_LEN) as u16;
    config.first_sequence = FIRST;
    config
}

fn content<S: Store>(store: S, length: Option<u64>) -> Content<S> {
    let mut config = config();
    config.length = length;
    let exponent = config.block_exponent;
    let geometry = Geometry::for_packet_len(exponent, config.max_packet_len, Seq(FIRST))
        .expect("five packets");
    assert_eq!(geometry.packets_per_block(), 5);
    assert_eq!(usize::from(geometry.payload_len()), PAYLOAD);
    Content::new(&config, store, geometry)
}

/// A stream through a ring of four blocks.
fn stream() -> Content<HeapRing> {
    content(HeapRing::new(4 * BLOCK), None)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Sends that many packets.
fn send<S: Store>(content: &mut Content<S>, packets: u32) {
    for _ in 0..packets {
        assert!(content.has_data());
        if content.advance() {
            content.begin_block();
        }
    }
}

#[test]
fn a_stream_overwrites_nothing_that_is_to_be_sent_or_lacked() {
    let mut stream = stream();
    assert_eq!(stream.room(None), 4 * BLOCK as u64);
    stream.append(&bytes(3 * BLOCK + 5)).expect("there is room");
    assert_eq!(stream.room(None), BLOCK as u64 - 5);
    stream.append(&bytes(BLOCK - 5)).expect("there is room");
    assert_eq!(stream.room(None), 0);
    send(&mut stream, 9);
    assert_eq!(stream.room(None), BLOCK as u64, "one block was sent whole");
    assert_eq!(stream.room(Some(0)), 0);
    send(&mut stream, 1);
    assert_eq!(stream.room(Some(1)), BLOCK as u64);
    assert_eq!(stream.room(Some(7)), 2 * BLOCK as u64, "no more than sent");
    stream.finish();
    assert_eq!(stream.room(None), 0);
}

#[test]
fn a_stream_ends_at_the_most_blocks_of_a_session() {
    let most = Geometry::MAX_BLOCKS << 10;
    let mut whole = content(NullStore, None);
    assert_eq!(whole.room(None), most);
    whole.append(&[0; 2_000]).expect("there is room");
    assert_eq!(whole.room(None), most - 2_000);
    let mut stream = stream();
    stream.skip_to(Geometry::MAX_BLOCKS - 4);
    assert_eq!(stream.room(None), most);
    stream.skip_to(Geometry::MAX_BLOCKS - 3);
    assert_eq!(stream.room(None), most);
    // More than that was written before.
    let mut stream = self::stream();
    stream.append(&bytes(2 * BLOCK)).expect("there is room");
    assert_eq!(stream.room(None), 2 * BLOCK as u64);
}

/// A ring that takes no bytes across the end of a block.
struct Blocks(HeapRing);

impl Store for Blocks {
    fn capacity(&self) -> Option<u64> {
        self.0.capacity()
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        assert!(offset as usize % BLOCK + bytes.len() <= BLOCK);
        self.0.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.0.read(offset, out)
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        self.0.block(offset, len)
    }
}

#[test]
fn bytes_are_written_block_by_block_round_the_ring() {
    let mut stream = content(Blocks(HeapRing::new(2 * BLOCK)), None);
    let bytes = bytes(4 * BLOCK);
    stream.append(&bytes[..1_000]).expect("there is room");
    stream.append(&bytes[1_000..2_048]).expect("there is room");
    stream.append(&[]).expect("nothing");
    // What is longer than a block is written in parts, over the end of the ring too.
    stream.append(&bytes[2_048..2_500]).expect("a ring");
    stream.append(&bytes[2_500..]).expect("a ring");
    assert_eq!(stream.written(), 4 * BLOCK as u64);
    assert_eq!(stream.store().0.as_bytes(), &bytes[2 * BLOCK..]);
    assert_eq!(stream.oldest_block(), 2);
}

#[test]
fn packets_of_a_stream_are_sent_whole_until_its_end() {
    let mut stream = stream();
    assert!(!stream.has_data());
    stream.append(&bytes(PAYLOAD - 1)).expect("there is room");
    assert!(!stream.has_data());
    stream.append(&bytes(1)).expect("there is room");
    send(&mut stream, 1);
    assert!(!stream.has_data());
    stream
        .append(&bytes(BLOCK - PAYLOAD))
        .expect("there is room");
    send(&mut stream, 4);
    assert_eq!(stream.position(), (1, 0));
    assert!(!stream.has_data(), "the last packet of a block is shorter");
    stream.append(&bytes(PAYLOAD + 1)).expect("there is room");
    assert!(!stream.is_sent());
    send(&mut stream, 1);
    assert!(!stream.has_data());
    stream.finish();
    assert_eq!(stream.length(), Some((BLOCK + PAYLOAD + 1) as u64));
    assert_eq!(stream.blocks(), Some(2));
    assert!(!stream.is_sent());
    assert!(stream.has_data(), "the rest, padded");
    assert!(stream.advance(), "the last of its block");
    assert!(stream.is_sent());
    assert!(!stream.has_data());
}

#[test]
fn blocks_begin_with_their_first_packet_and_end_with_their_last() {
    let mut content = content(NullStore, Some(3 * BLOCK as u64));
    assert_eq!((content.blocks_begun(), content.blocks_sent()), (0, 0));
    assert!(!content.advance());
    assert_eq!(content.position(), (0, 1));
    assert_eq!((content.blocks_begun(), content.blocks_sent()), (1, 0));
    for _ in 0..3 {
        assert!(!content.advance());
    }
    assert!(content.advance(), "five packets");
    content.begin_block();
    assert_eq!((content.blocks_begun(), content.blocks_sent()), (1, 1));
    assert_eq!((content.next(), content.position()), (5, (1, 0)));
    assert_eq!(content.sent_len(), BLOCK as u64);
    send(&mut content, 1);
    assert_eq!(content.sent_len(), (BLOCK + PAYLOAD) as u64);
    send(&mut content, 9);
    assert_eq!(content.sent_len(), 3 * BLOCK as u64);
}

#[test]
fn the_oldest_block_is_the_first_that_is_stored_whole() {
    let mut stream = stream();
    assert_eq!((stream.oldest_block(), stream.oldest()), (0, 0));
    stream.append(&bytes(4 * BLOCK)).expect("there is room");
    assert_eq!(stream.oldest_block(), 0);
    send(&mut stream, 13);
    stream.append(&bytes(BLOCK + 1)).expect("there is room");
    assert_eq!(stream.oldest_block(), 2, "a byte of block 1 is gone");
    assert_eq!(stream.oldest(), 10);
    let mut stream = self::stream();
    for _ in 0..2 {
        stream.append(&bytes(4 * BLOCK)).expect("a ring");
    }
    assert_eq!(stream.oldest(), 0, "nothing was sent");
    let mut whole = content(NullStore, Some(100 * BLOCK as u64));
    send(&mut whole, 300);
    assert_eq!((whole.oldest_block(), whole.oldest()), (0, 0));
}

#[test]
fn requests_are_clipped_to_what_was_sent_and_is_stored() {
    let requested = |content: &Content<HeapRing>, lo: u32, hi: u32| {
        let (lo, hi) = (FIRST.wrapping_add(lo), FIRST.wrapping_add(hi));
        let masks = content.requested(&request::Range { lo, hi })?;
        Ok(masks.collect::<Vec<_>>())
    };
    let mut stream = stream();
    assert_eq!(requested(&stream, 0, 3), Err(Error::RequestUnsent));
    stream.append(&bytes(4 * BLOCK)).expect("there is room");
    send(&mut stream, 13);
    assert_eq!(requested(&stream, 2, 2), Ok(vec![(0, 0b00100)]));
    let all = vec![(0, 0b11111), (1, 0b11111), (2, 0b00111)];
    assert_eq!(requested(&stream, 0, 12), Ok(all.clone()));
    assert_eq!(requested(&stream, 0, 99), Ok(all));
    assert_eq!(requested(&stream, 13, 14), Err(Error::RequestUnsent));
    stream.append(&bytes(BLOCK + 1)).expect("there is room");
    assert_eq!(requested(&stream, 3, 9), Err(Error::RequestNotStored));
    assert_eq!(requested(&stream, 3, 10), Ok(vec![(2, 0b00001)]));
    assert_eq!(requested(&stream, 11, 12), Ok(vec![(2, 0b00110)]));
    assert_eq!(stream.number(FIRST.wrapping_add(12)), Some(12));
    assert_eq!(stream.sequence(12), Seq(FIRST.wrapping_add(12)));
}

#[test]
fn payloads_are_padded_with_zeros_at_the_end_of_a_block_and_of_the_content() {
    let bytes = bytes(BLOCK + 300);
    let mut whole = content(HeapRing::whole(bytes.clone()), Some(bytes.len() as u64));
    let mut payload = [0xee; PAYLOAD];
    whole.read(0, 4, &mut payload).expect("it is there");
    assert_eq!(payload[..204], bytes[820..1_024]);
    assert_eq!(payload[204], 0);
    let mut payload = [0xee; PAYLOAD];
    whole.read(1, 1, &mut payload).expect("it is there");
    assert_eq!(payload[..95], bytes[BLOCK + PAYLOAD..]);
    assert_eq!(payload[95..], [0; 110]);
    let (offset, block) = whole.block(1).expect("it is there");
    assert_eq!((offset, block), (1_024, &bytes[BLOCK..]));
}

#[test]
fn a_content_that_is_continued_at_a_block_counts_from_there() {
    let mut whole = content(NullStore, Some(3 * BLOCK as u64 + 10));
    assert_eq!(whole.blocks(), Some(4));
    whole.skip_to(2);
    assert_eq!((whole.next(), whole.position()), (10, (2, 0)));
    assert_eq!((whole.blocks_begun(), whole.blocks_sent()), (2, 2));
    assert_eq!(whole.sent_len(), 2 * BLOCK as u64);
    // All receivers have everything.
    whole.skip_to(4);
    assert_eq!(whole.next(), 16);
    assert!(whole.is_sent() && !whole.has_data());
    assert_eq!(whole.sent_len(), 3 * BLOCK as u64 + 10);
}
