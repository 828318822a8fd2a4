//! Bytes of packets, descriptions as programs write them, and what is none.

use std::net::IpAddr;

use proptest::prelude::*;
use sap::{
    Description, MAX_MEDIA, MAX_SDP_LEN, Media, Origin, Packet, SdpError, WireError, group_of,
};

/// As VLC announces MPEG-TS over RTP.
const VLC: &str = "v=0\r\no=- 16850462395 16850462395 IN IP4 studio\r\ns=Evening news\r\ni=N/A\r\n\
c=IN IP4 239.255.12.42/4\r\nt=0 0\r\na=tool:vlc 3.0.18\r\na=recvonly\r\na=type:broadcast\r\na=charset:UTF-8\r\n\
m=video 5004 RTP/AVP 33\r\nb=RR:0\r\na=rtpmap:33 MP2T/90000\r\n";

/// Two media, each with its group, and a source (RFC 4570).
const TWO: &str = "v=0\no=jdoe 2890844526 2890842807 IN IP6 2001:db8::1\ns=Seminar\nt=2873397496 2873404696\n\
a=source-filter: incl IN IP4 * 10.0.0.9\nm=audio 49170/2 RTP/AVP 96 97\nc=IN IP4 232.1.2.3/16/2\n\
a=rtpmap:96 opus/48000/2\na=rtpmap:97 PCMU/8000\nm=video 0 RTP/AVP 31\nm=application 4000 udp wb\nc=IN IP4 232.1.2.4/16\n";

fn packet(payload: &str) -> Vec<u8> {
    let source = IpAddr::from([10, 0, 0, 1]);
    let (deletion, hash) = (false, 0x1234);
    Packet {
        deletion,
        hash,
        source,
        payload: payload.as_bytes(),
    }
    .emit()
}

#[test]
fn a_packet_has_these_bytes() {
    let bytes = packet("v=0\r\n");
    assert_eq!(
        bytes,
        b"\x20\x00\x12\x34\x0a\x00\x00\x01application/sdp\0v=0\r\n"
    );
    let parsed = Packet::parse(&bytes).unwrap();
    assert_eq!((parsed.hash, parsed.payload), (0x1234, &b"v=0\r\n"[..]));
    assert_eq!(parsed.emit(), bytes);
    // Without a payload type, with authentication data, of IPv6.
    let old = b"\x20\x02\x12\x34\x0a\x00\x00\x01authdatav=0\r\n";
    assert_eq!(Packet::parse(old).unwrap(), parsed);
    let six = [
        &b"\x34\x00\x00\x01"[..],
        &[0xfe; 16],
        b"o=- 1 1 IN IP6 ::1\r\n",
    ]
    .concat();
    let six = Packet::parse(&six).unwrap();
    assert!(six.deletion && six.source.is_ipv6());
    assert_eq!(Origin::of_deletion(six.payload).unwrap().session, "- 1");
}

#[test]
fn packets_that_are_none() {
    let good = packet("v=0\r\n");
    for (at, value, why) in [
        (0, 0x40, WireError::Version),
        (0, 0x22, WireError::Encoding),
        (0, 0x21, WireError::Encoding),
        (1, 0xff, WireError::Truncated),
        (8, b'x', WireError::PayloadType),
    ] {
        let mut wrong = good.clone();
        wrong[at] = value;
        assert_eq!(Packet::parse(&wrong), Err(why));
    }
    for len in 0..8 {
        assert_eq!(Packet::parse(&good[..len]), Err(WireError::Truncated));
    }
}

#[test]
fn descriptions_of_other_programs_are_understood() {
    let (origin, vlc) = Description::parse(VLC.as_bytes()).unwrap();
    assert_eq!(
        (origin.session.as_str(), origin.version),
        ("- 16850462395", 16_850_462_395)
    );
    assert_eq!(vlc.name, "Evening news");
    let [media] = &vlc.media[..] else { panic!() };
    assert_eq!(media.group, "239.255.12.42:5004".parse().unwrap());
    assert_eq!(
        (media.kind.as_str(), media.protocol.as_str()),
        ("video", "RTP/AVP")
    );
    assert_eq!((media.format.as_str(), media.ttl), ("33", Some(4)));
    let (_, two) = Description::parse(TWO.as_bytes()).unwrap();
    let [audio, board] = &two.media[..] else {
        panic!()
    };
    assert_eq!(audio.rtpmap.as_deref(), Some("opus/48000/2"));
    assert_eq!(audio.source, Some([10, 0, 0, 9].into()));
    assert_eq!(board.group, "232.1.2.4:4000".parse().unwrap());
}

#[test]
fn what_is_written_is_what_players_read() {
    let mut media = Media::new(
        "video",
        "239.255.0.1:5004".parse().unwrap(),
        "RTP/AVP",
        "33",
    );
    media.ttl = Some(16);
    media.rtpmap = Some("MP2T/90000".into());
    let mut news = Description::new("News\r\nm=evil 1 udp x", vec![media]);
    news.federated = Some("bfed://1/239.1.2.3/5004".into());
    let origin = Origin {
        session: "- 7".into(),
        address: "10.0.0.1".into(),
        version: 2,
    };
    let text = news.emit(&origin);
    assert_eq!(
        text,
        "v=0\r\no=- 7 2 IN IP4 10.0.0.1\r\ns=Newsm=evil 1 udp x\r\nc=IN IP4 239.255.0.1/16\r\nt=0 0\r\n\
         a=tool:polycast\r\na=type:broadcast\r\na=x-bfed:bfed://1/239.1.2.3/5004\r\nm=video 5004 RTP/AVP 33\r\n\
         a=rtpmap:33 MP2T/90000\r\n"
    );
    let (again, parsed) = Description::parse(text.as_bytes()).unwrap();
    assert_eq!((again, &parsed.media), (origin, &news.media));
}

#[test]
fn descriptions_that_cannot_be_used() {
    let of = |rest: &str| format!("v=0\r\no=- 1 1 IN IP4 h\r\ns=x\r\nc=IN IP4 239.1.1.1\r\n{rest}");
    let many = of(&"m=video 1 udp x\r\n".repeat(MAX_MEDIA + 1));
    let long = of(&format!(
        "m=video 1 udp x\r\ni={}\r\n",
        "x".repeat(MAX_SDP_LEN)
    ));
    let token = of(&format!("m={} 1 udp x\r\n", "x".repeat(65)));
    for (text, why) in [
        ("", SdpError::Line),
        ("v=1\r\n", SdpError::Line),
        (
            "v=0\r\ns=x\r\nc=IN IP4 239.1.1.1\r\nm=video 1 udp x\r\n",
            SdpError::Line,
        ),
        (&of(""), SdpError::Media),
        (&of("m=video 0 udp x\r\n"), SdpError::Media),
        (&of("m=video 70000 udp x\r\n"), SdpError::Line),
        (&of("m=video 1 udp\r\n"), SdpError::Line),
        (
            &of("m=video 1 udp x\r\nc=IN IP4 10.0.0.1\r\n"),
            SdpError::Address,
        ),
        (&many, SdpError::Media),
        (&long, SdpError::Text),
        (&token, SdpError::Text),
    ] {
        assert_eq!(
            Description::parse(text.as_bytes()).map(|_| ()),
            Err(why),
            "{text}"
        );
    }
    assert_eq!(
        Description::parse(b"v=0\r\n\xff").map(|_| ()),
        Err(SdpError::Text)
    );
}

#[test]
fn each_scope_has_its_group() {
    for (group, expected) in [
        ("239.255.1.2", "239.255.255.255:9875"),
        ("239.193.1.2", "239.195.255.255:9875"),
        ("224.2.200.1", "224.2.127.254:9875"),
        ("239.1.2.3", "224.2.127.254:9875"),
        ("ff15::1", "[ff05::2:7ffe]:9875"),
        ("ff3e::8000:1", "[ff0e::2:7ffe]:9875"),
    ] {
        assert_eq!(group_of(group.parse().unwrap()), expected.parse().unwrap());
    }
}

proptest! {
    #[test]
    fn damage_is_refused_or_read_and_written_back(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        which in any::<bool>(),
    ) {
        let mut bytes = if which { VLC } else { TWO }.as_bytes().to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Ok((origin, description)) = Description::parse(&bytes) {
            let text = description.emit(&origin);
            let (_, again) = Description::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(again.media.len(), description.media.len());
        }
    }
}
