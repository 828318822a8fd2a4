//! The tests of both families with IGMP over IPv4.
#![allow(
    clippy::duplicate_mod,
    reason = "the same tests for each family, which `Addr` names"
)]

pub(crate) type Addr = core::net::Ipv4Addr;

#[path = "common.rs"]
mod common;
#[path = "conformance.rs"]
mod conformance;
#[path = "hostile.rs"]
mod hostile;
#[path = "member.rs"]
mod member;
#[path = "querier.rs"]
mod querier;
#[path = "refused.rs"]
mod refused;

use igmp::wire::{Code, Message, Query};
use igmp::{Member, Storage};

use self::common::*;
use crate::packets::Addresses;

fn v1_query() -> Vec<u8> {
    let query = Query {
        group: ANY,
        max_response: Code(0),
        v3: None,
    };
    whole(host(1, 1), ALL_SYSTEMS, &Message::Query(query))
}

#[test]
fn groups_left_in_silence_take_no_stack() {
    let groups = 200_000;
    let mut m = Member::new(config_of(1), Storage::owned(groups, 0), [3; 32], ms(0));
    m.handle_packet(ms(0), &meta(1), &v1_query()).unwrap();
    for n in 0..groups as u32 {
        m.join(ms(0), Addr::group(n)).unwrap();
    }
    let mut buffer = [0; 1500];
    while m.poll_transmit(ms(0), &mut buffer).is_some() {}
    for n in 0..groups as u32 {
        m.leave(ms(1), Addr::group(n));
    }
    // Version 1 has no leave: nothing of all this is said.
    for at in [1, 5_000, 10_000] {
        assert_eq!(m.poll_transmit(ms(at), &mut buffer), None);
    }
    assert_eq!(m.group_count(), 0);
}

/// RFC 3376 §4: reception of 224.0.0.1 is always enabled, and no message concerns it.
#[test]
fn all_systems_are_joined_without_reports() {
    let mut m = Member::new(config_of(1), Storage::owned(1, 1), [3; 32], ms(0));
    m.join(ms(0), Addr::group(1)).unwrap();
    let mut buffer = [0; 1500];
    while m.poll_transmit(ms(0), &mut buffer).is_some() {}
    let before = m.poll_timeout();
    // The table is full: this group takes no room.
    assert_eq!(m.join(ms(0), ALL_SYSTEMS), Ok(()));
    assert_eq!((m.group_count(), m.poll_timeout()), (1, before));
    assert_eq!(m.poll_transmit(ms(0), &mut buffer), None);
    m.leave(ms(0), ALL_SYSTEMS);
    assert_eq!(m.stats().drops.total(), 0);
}
