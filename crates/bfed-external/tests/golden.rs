//! The bytes of each type of frame, and inputs that are rejected.

use bfed_external::frame::{self, Decoder, FrameError, HEADER_LEN, Header, MAX_BODY_LEN, Type};
use bfed_external::message::{ClientMessage, Wanted};
use proptest::prelude::*;

/// HELLO of a client.
const HELLO: &[u8] =
    b"\x00\x00\x00\x0e\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{\"version\": 1}";
/// DATA on channel 0x0102.
const DATA: &[u8] = b"\x00\x00\x00\x03\x18\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x02abc";
/// JOIN.
const JOIN: &[u8] =
    b"\x00\x00\x00\x1b\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{\"session\":\"bfed://9/news\"}";

fn frames(bytes: &[u8], piece: usize) -> Result<Vec<(Header, Vec<u8>)>, FrameError> {
    let mut decoder = Decoder::default();
    let mut found = Vec::new();
    let mut rest = bytes;
    loop {
        while let Some((header, place)) = decoder.next_frame()? {
            found.push((header, decoder.body(place).to_vec()));
        }
        if rest.is_empty() {
            return Ok(found);
        }
        let space = decoder.space();
        let len = piece.min(rest.len()).min(space.len());
        assert!(len > 0, "a decoder without frames has room");
        space[..len].copy_from_slice(&rest[..len]);
        decoder.filled(len);
        rest = &rest[len..];
    }
}

#[test]
fn frames_have_these_bytes() {
    let wanted = Wanted {
        session: "bfed://9/news".into(),
        token: None,
    };
    for (bytes, kind, channel) in [
        (HELLO, Type::Hello, 0),
        (DATA, Type::Data, 0x102),
        (JOIN, Type::Join, 0),
    ] {
        let [(header, body)] = &frames(bytes, 7).unwrap()[..] else {
            panic!("one frame");
        };
        assert_eq!((header.kind, header.channel), (kind, channel));
        let mut again = Vec::new();
        frame::emit(&mut again, kind, channel, body);
        assert_eq!(again, bytes);
        let message = ClientMessage::parse(kind, channel, body).unwrap();
        match message {
            ClientMessage::Hello(hello) => assert_eq!(hello.version, 1),
            ClientMessage::Data { channel, bytes } => {
                assert_eq!((channel, bytes), (258, &b"abc"[..]));
            }
            ClientMessage::Join(found) => assert_eq!(found, wanted),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn headers_that_are_none() {
    let header: [u8; HEADER_LEN] = *DATA.first_chunk().unwrap();
    for (at, value, why) in [
        (0, 1, FrameError::TooLong),
        (2, 0xff, FrameError::TooLong),
        (4, 0, FrameError::Unknown),
        (4, 15, FrameError::Unknown),
        (4, 35, FrameError::Unknown),
        (5, 1, FrameError::Reserved),
        (7, 1, FrameError::Reserved),
    ] {
        let mut wrong = header;
        wrong[at] = value;
        assert_eq!(Header::parse(&wrong), Err(why), "{at}");
    }
    let longest = Header {
        len: MAX_BODY_LEN,
        kind: Type::Lend,
        channel: u64::MAX,
    };
    assert_eq!(Header::parse(&longest.emit()), Ok(longest));
}

#[test]
fn bodies_that_are_none() {
    for (kind, body) in [
        (Type::Hello, &b""[..]),
        (Type::Hello, b"[1]"),
        (Type::Hello, b"{\"version\": -1}"),
        (Type::Lend, b"{\"addresses\": \"x\"}"),
        (Type::Lend, b"{\"addresses\": [1]}"),
        (Type::Join, b"{\"session\": \"\xff\"}"),
        (Type::Join, b"{\"token\": \"x\"}"),
    ] {
        assert_eq!(ClientMessage::parse(kind, 0, body), Err(FrameError::Body));
    }
    // Deep nesting ends at a limit, not at the end of the stack.
    let deep = [&b"{\"x\":"[..], &b"[".repeat(60_000)].concat();
    assert_eq!(
        ClientMessage::parse(Type::Lend, 0, &deep),
        Err(FrameError::Body)
    );
    assert_eq!(
        ClientMessage::parse(Type::Answer, 0, b"{}"),
        Err(FrameError::Unexpected)
    );
}

proptest! {
    #[test]
    fn any_cut_of_a_stream_gives_the_same_frames(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1000), 0..12),
        piece in 1usize..100_000,
    ) {
        let mut bytes = Vec::new();
        for (number, body) in bodies.iter().enumerate() {
            frame::emit(&mut bytes, Type::Data, number as u64, body);
        }
        let found = frames(&bytes, piece).unwrap();
        prop_assert_eq!(found.len(), bodies.len());
        for ((header, body), sent) in found.iter().zip(&bodies) {
            prop_assert_eq!(body, sent);
            prop_assert_eq!(header.len, sent.len());
        }
    }
}
