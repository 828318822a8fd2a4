//! Peers that speak other versions ("How formats evolve" in `docs/wire.md`).

use mcp_control::limits::MAX_FRAME_LEN;
use mcp_control::wire::hello::{Capabilities, Hello, Welcome};
use mcp_control::wire::{Message, ParseError};
use mcp_control::*;

use crate::common::*;

/// A server's answer to a HELLO, and its event.
fn greet(lowest: u8, highest: u8) -> (Vec<u8>, Option<ServerEvent>) {
    let now = Instant::from_secs(1);
    let mut server = Server::new(ServerConfig::new(Capabilities::UDP), now);
    let hello = Hello {
        lowest,
        highest,
        capabilities: Capabilities(0xffff),
        prepared: None,
    };
    let mut frame = vec![0; hello.buffer_len()];
    hello.emit(&mut frame);
    // A field that a later version appended.
    frame[7] += 4;
    frame.extend([0xde, 0xad, 0xbe, 0xef]);
    assert!(server.handle_bytes(now, &mut &frame[..]));
    let mut answer = vec![0; MAX_FRAME_LEN];
    let sent = server.poll_transmit(now, &mut answer).expect("an answer");
    answer.truncate(sent.len);
    (answer, server.poll_event())
}

#[test]
fn a_client_that_also_speaks_a_later_version_is_served() {
    let (answer, event) = greet(1, 3);
    assert_eq!(
        Welcome::parse(&answer).map(|welcome| welcome.version),
        Ok(1)
    );
    assert_eq!(event, None);
}

#[test]
fn both_sides_learn_which_versions_have_nothing_in_common() {
    for (lowest, highest, theirs) in [(2, 2, "version 2"), (2, 5, "versions 2 to 5")] {
        let (answer, event) = greet(lowest, highest);
        let text = format!(
            "mcp speaks {theirs} of the control protocol, mcpd version 1: install the same release of \
             polycast on both"
        );
        let expected = Failed::new(Reason::Protocol, None, &text);
        assert_eq!(Failed::parse(&answer), Ok(expected.clone()));
        let side = Side::Here;
        let here = ServerEvent::Failed {
            failed: expected.clone(),
            side,
        };
        assert_eq!(event, Some(here));
        let mut client = Client::new(client_config(), manifest(), Instant::from_secs(1));
        assert!(client.handle_bytes(Instant::from_secs(1), &mut &answer[..]));
        assert_eq!(
            client.poll_event(),
            Some(ClientEvent::Failed {
                failed: expected,
                side: Side::Peer
            })
        );
        assert!(client.is_ended());
    }
}

#[test]
fn a_frame_of_another_version_ends_the_copy_of_either_side() {
    let now = Instant::from_secs(1);
    let frame = [2, 0x11, 0, 0, 0, 0, 0, 0];
    let reason = ParseError::Version.to_string();
    let mut server = Server::new(udp(), now);
    assert!(!server.handle_bytes(now, &mut &frame[..]));
    let Some(ServerEvent::Failed { failed, .. }) = server.poll_event() else {
        panic!("it goes on");
    };
    assert_eq!((failed.reason, &failed.text), (Reason::Protocol, &reason));
    assert_eq!(server.stats().malformed, 1);
    let mut client = Client::new(client_config(), manifest(), now);
    assert!(!client.handle_bytes(now, &mut &frame[..]));
    let Some(ClientEvent::Failed { failed, .. }) = client.poll_event() else {
        panic!("it goes on");
    };
    assert_eq!((failed.reason, &failed.text), (Reason::Protocol, &reason));
}

/// The server may not choose what the client does not speak.
#[test]
fn a_welcome_of_another_version_is_refused() {
    let mut pair = Pair::new(client_config(), udp());
    let welcome = Welcome {
        version: 2,
        capabilities: Capabilities::UDP,
        max_entries: 10,
        max_bytes: 1 << 30,
    };
    let mut frame = vec![0; welcome.buffer_len()];
    welcome.emit(&mut frame);
    let refused = pair.client.handle_packet(pair.now, &(), &frame);
    assert_eq!(refused, Err(Error::Contradiction));
}
