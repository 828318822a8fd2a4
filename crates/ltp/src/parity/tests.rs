//! Blocks that are cut, lose packets, and are restored.

use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::{Encoder, NotRestored, Packets, Put, Shelf, longest_data, shard_len};
use crate::Geometry;
use crate::geometry::low_bits;
use crate::store::StoreError;
use crate::wire::Seq;
use crate::wire::parity::PARITY_HEADER_LEN;

fn geometry(exponent: u8, packet_len: u16) -> Geometry {
    Geometry::for_packet_len(exponent, packet_len, Seq(0)).expect("geometry")
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// The payloads of a block's packets, padded.
fn payloads(geometry: &Geometry, bytes: &[u8]) -> Vec<Vec<u8>> {
    let len = usize::from(geometry.payload_len());
    let padded = |part: &[u8]| {
        let mut payload = part.to_vec();
        payload.resize(len, 0);
        payload
    };
    bytes.chunks(len).map(padded).collect()
}

/// The payloads of a block, and those that were restored.
struct Lossy {
    sent: Vec<Vec<u8>>,
    written: Vec<Option<Vec<u8>>>,
}

impl Packets for Lossy {
    fn read(&mut self, index: u32, payload: &mut [u8]) -> Result<(), StoreError> {
        payload.copy_from_slice(&self.sent[index as usize]);
        Ok(())
    }

    fn write(&mut self, index: u32, payload: &[u8]) -> Result<(), StoreError> {
        self.written[index as usize] = Some(payload.to_vec());
        Ok(())
    }
}

/// Restores a block whose packets outside `received` are lost, with these parity packets.
fn restore(
    geometry: &Geometry,
    bytes: &[u8],
    received: u64,
    parity: &[(u8, Vec<u8>)],
) -> Result<bool, NotRestored> {
    let sent = payloads(geometry, bytes);
    let mut shelf = Shelf::new(64);
    shelf.begin(geometry);
    for (index, shard) in parity {
        assert_eq!(shelf.put(7, *index, shard), Put::Held);
    }
    let mut packets = Lossy {
        written: vec![None; sent.len()],
        sent,
    };
    shelf.restore(7, (packets.sent.len() as u32, received), &mut packets)?;
    let Lossy { sent, written } = packets;
    let is_right = |index: usize| match received & 1 << index {
        0 => written[index].as_ref() == Some(&sent[index]),
        _ => written[index].is_none(),
    };
    Ok((0..sent.len()).all(is_right) && shelf.is_empty())
}

fn parity(encoder: &mut Encoder, geometry: &Geometry, count: usize) -> Vec<(u8, Vec<u8>)> {
    let mut shard = vec![0; shard_len(geometry.payload_len())];
    let mut next = || {
        let index = encoder.next(7, &mut shard).expect("parity");
        (index, shard.clone())
    };
    (0..count).map(|_| next()).collect()
}

proptest! {
    #[test]
    fn as_many_parity_packets_as_were_lost_restore_a_block(
        exponent in 10u8..18,
        packet_len in 80u16..1500,
        cut in any::<prop::sample::Index>(),
        lost in any::<u64>(),
        seed in any::<u64>(),
    ) {
        let Some(geometry) = Geometry::for_packet_len(exponent, packet_len, Seq(0)) else {
            return Ok(());
        };
        let bytes = content(1 + cut.index(geometry.block_len()));
        let packets = bytes.len().div_ceil(usize::from(geometry.payload_len())) as u32;
        let received = low_bits(packets) & !lost;
        let missing = (packets - received.count_ones()) as usize;
        prop_assume!(missing > 0);
        let mut encoder = Encoder::new(&geometry, seed).expect("encoder");
        prop_assert!(encoder.load(7, packets, &bytes));
        let all = parity(&mut encoder, &geometry, missing);
        prop_assert_eq!(restore(&geometry, &bytes, received, &all), Ok(true));
        let few = &all[1..];
        prop_assert_eq!(restore(&geometry, &bytes, received, few), Err(NotRestored::Code));
    }
}

#[test]
fn parity_is_not_repeated_before_all_of_it_was_sent() {
    let geometry = geometry(16, 1436);
    let packets = geometry.packets_per_block();
    for seed in [0, 99] {
        let mut encoder = Encoder::new(&geometry, seed).expect("encoder");
        assert!(encoder.load(7, packets, &content(geometry.block_len())));
        let mut sent: Vec<u8> = parity(&mut encoder, &geometry, packets as usize)
            .iter()
            .map(|(index, _)| *index)
            .collect();
        let first = sent[0];
        let again = parity(&mut encoder, &geometry, 1)[0].0;
        assert_eq!(again, first, "it begins anew");
        sent.sort_unstable();
        let all: Vec<u8> = (0..packets as u8).collect();
        assert_eq!(sent, all);
    }
}

#[test]
fn what_was_sent_is_known_after_the_parity_gave_way_to_that_of_other_blocks() {
    let geometry = geometry(16, 1436);
    let packets = geometry.packets_per_block();
    let bytes = content(geometry.block_len());
    let mut encoder = Encoder::new(&geometry, 0).expect("encoder");
    assert!(encoder.load(7, packets, &bytes));
    let first = parity(&mut encoder, &geometry, 3);
    for block in 8..40 {
        assert!(encoder.load(block, packets, &bytes));
    }
    assert!(!encoder.holds(7));
    assert!(encoder.holds(39));
    assert!(encoder.load(7, packets, &bytes));
    let next = parity(&mut encoder, &geometry, 1);
    assert_eq!((first[2].0, next[0].0), (2, 3));
}

#[test]
fn bytes_of_another_length_are_refused() {
    let geometry = geometry(16, 1436);
    let mut encoder = Encoder::new(&geometry, 0).expect("encoder");
    let packets = geometry.packets_per_block();
    assert!(!encoder.load(7, packets, &content(100)));
    assert!(!encoder.load(7, 0, &[]));
    assert_eq!(encoder.next(7, &mut [0; 4]), None);
}

#[test]
fn a_full_shelf_prefers_the_oldest_blocks() {
    let mut shelf = Shelf::new(2);
    shelf.begin(&geometry(16, 1436));
    assert_eq!(shelf.put(5, 0, &[0; 2]), Put::Held);
    assert_eq!(shelf.put(9, 0, &[0; 2]), Put::Held);
    assert_eq!(shelf.put(9, 0, &[0; 2]), Put::Duplicate);
    assert_eq!(shelf.put(9, 1, &[0; 2]), Put::Full);
    assert_eq!(shelf.put(6, 1, &[0; 2]), Put::Instead(9));
    assert_eq!([5, 6, 9].map(|block| shelf.count(block)), [1, 1, 0]);
    assert_eq!(shelf.put(7, 1, &[0; 2]), Put::Full);
    shelf.remove(5);
    assert_eq!(shelf.put(u32::MAX, 1, &[0; 2]), Put::Held);
    assert_eq!(shelf.count(u32::MAX), 1, "block numbers wrap around");
}

#[test]
fn the_first_request_of_a_block_is_known() {
    let mut encoder = Encoder::new(&geometry(16, 1436), 0).expect("encoder");
    let first = [0, 7, 7, 0, 1024 + 7, 7].map(|block| encoder.is_first_request(block));
    assert_eq!(first, [true, true, false, false, true, true]);
}

#[test]
fn parity_of_the_longest_data_packet_fits() {
    for max_packet_len in 30..2000 {
        let payload = longest_data(max_packet_len) - crate::wire::data::DATA_HEADER_LEN as u16;
        let len = (PARITY_HEADER_LEN + shard_len(payload)) as u16;
        assert!(len <= max_packet_len, "{max_packet_len}");
        assert!(len + 2 > max_packet_len, "{max_packet_len}");
    }
}
