//! Packets of SAP and descriptions in SDP. Asserts that what is read is written back with the same media, and that a listener
//! stays within its bounds.

use std::net::SocketAddr;

use proto_core::time::{Duration, Instant};
use sap::{Announcer, Config, Description, MAX_MEDIA, Media, Origin, Packet};

/// Packets: a byte says which host, and how much time passes; two bytes how long the packet is.
pub fn packets(bytes: &[u8]) {
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let config = Config {
        max_learned: 8,
        max_per_host: 3,
        ..Config::new(nowhere)
    };
    let mut now = Instant::from_secs(1);
    let mut machine = Announcer::new(config, [1; 32], now);
    let mut rest = bytes;
    while let Some((&[host, high, low], after)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low]) % 5000).min(after.len());
        let (packet, after) = after.split_at(len);
        rest = after;
        now += Duration::from_secs(u64::from(host / 4) * 30);
        machine.handle_timeout(now);
        let from = SocketAddr::from(([10, 0, 0, host % 4], 9875));
        let taken = machine.handle_packet(now, &from, packet);
        assert!(machine.learned().count() <= 8);
        assert!(
            machine
                .learned()
                .filter(|(host, _)| *host == from.ip())
                .count()
                <= 3
        );
        if let Ok(parsed) = Packet::parse(packet) {
            assert_eq!(Packet::parse(&parsed.emit()), Ok(parsed));
            if let Ok((origin, description)) = Description::parse(parsed.payload) {
                assert!((1..=MAX_MEDIA).contains(&description.media.len()));
                let text = description.emit(&origin);
                if let Ok((_, again)) = Description::parse(text.as_bytes()) {
                    assert_eq!(again.media.len(), description.media.len());
                    assert_eq!(again.emit(&origin), text, "a fixed point");
                }
            }
        } else {
            assert!(taken.is_err());
        }
    }
}

/// Announcements, a change and a deletion.
pub fn seeds() -> Vec<Vec<u8>> {
    let at = |text: &str| text.parse().expect("an address");
    let mut audio = Media::new("audio", at("232.1.2.3:5006"), "RTP/AVP", "96");
    audio.rtpmap = Some("opus/48000/2".into());
    audio.source = Some([10, 0, 0, 9].into());
    let video = Media::new("video", at("239.1.2.3:5004"), "udp", "mpeg");
    let six = Media::new("video", at("[ff15::1]:5004"), "RTP/AVP", "33");
    let packet = |id: u32, version, media: Vec<Media>, deletion| {
        let origin = Origin {
            session: format!("- {id}"),
            address: "studio.example".into(),
            version,
        };
        let text = Description::new("news", media).emit(&origin);
        Packet {
            deletion,
            hash: id as u16,
            source: [10, 0, 0, 1].into(),
            payload: text.as_bytes(),
        }
        .emit()
    };
    let framed = |packets: &[Vec<u8>]| {
        let mut seed = Vec::new();
        for (number, packet) in packets.iter().enumerate() {
            seed.push(number as u8 * 5);
            seed.extend_from_slice(&(packet.len() as u16).to_be_bytes());
            seed.extend_from_slice(packet);
        }
        seed
    };
    let one = packet(1, 1, vec![video.clone()], false);
    let two = packet(1, 2, vec![video, audio.clone()], false);
    let gone = packet(1, 2, vec![audio.clone()], true);
    let of_six = packet(2, 1, vec![six], false);
    vec![
        framed(std::slice::from_ref(&one)),
        framed(&[two.clone(), gone.clone()]),
        framed(&[of_six.clone(), one, two, gone]),
        framed(
            &(0..12)
                .map(|id| packet(id, 1, vec![audio.clone()], false))
                .collect::<Vec<_>>(),
        ),
        framed(&[
            b"\x20\x02\x12\x34\x0a\x00\x00\x01authdatav=0\r\n".to_vec(),
            of_six,
        ]),
    ]
}
