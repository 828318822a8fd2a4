//! DyRAM packets: ANEP header, services.

use dyram::packets;
use dyram::wire::{Body, Packet, Repr};

pub fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::new_checked(bytes) else {
        return;
    };
    let repr = Repr::parse(&packet);
    if let Body::Nack(nack) = repr.body {
        assert!(packets(repr.sequence, nack.mask).count() <= 65);
    }
    let mut out = vec![0; repr.buffer_len()];
    let len = repr.emit(&mut out);
    assert_eq!(len, out.len());
    let again = Packet::new_checked(&out[..]).expect("what is written parses");
    assert_eq!(Repr::parse(&again), repr);
}
