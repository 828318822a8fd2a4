//! Runs classic BPF programs of [`filter`](crate::filter) in this process, and rewrites them for frames with an Ethernet
//! header: one description of what passes, for the kernel and for where it has no filter.

use libc::sock_filter;

/// Offsets from here on name no byte of the packet.
const ANCILLARY: u32 = 0xfff0_0000;
const PACKET_TYPE: u32 = (-0x1000_i32).cast_unsigned() + 4;
const ETHERNET: u32 = 14;
const ETHERTYPE_AT: u32 = 12;

const LOAD: u16 = 0;
const LOAD_X: u16 = 1;
const STORE: u16 = 2;
const STORE_X: u16 = 3;
const ARITHMETIC: u16 = 4;
const JUMP: u16 = 5;
const RETURN: u16 = 6;

const ABSOLUTE: u16 = 0x20;
const INDIRECT: u16 = 0x40;
const MEMORY: u16 = 0x60;
const LENGTH: u16 = 0x80;
const HEADER_LEN: u16 = 0xa0;

/// The program for packets with an Ethernet header, of this Ethernet type alone.
pub(super) fn after_ethernet(program: &[sock_filter], ethertype: u32) -> Vec<sock_filter> {
    let instruction = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    let mut whole = vec![
        instruction(LOAD | ABSOLUTE | 0x08, 0, ETHERTYPE_AT),
        instruction(JUMP | 0x10, 1, ethertype),
        instruction(RETURN, 0, 0),
    ];
    whole.extend(program.iter().map(|original| {
        let mut moved = *original;
        let reads_packet = matches!(moved.code & 7, LOAD | LOAD_X)
            && matches!(moved.code & 0xe0, ABSOLUTE | INDIRECT | HEADER_LEN);
        if reads_packet && moved.k < ANCILLARY {
            moved.k += ETHERNET;
        }
        moved
    }));
    whole
}

/// Whether the program lets a packet pass. `packet_type` is one of `PACKET_HOST` and the others.
pub(super) fn passes(program: &[sock_filter], packet: &[u8], packet_type: u8) -> bool {
    let mut machine = Machine {
        a: 0,
        x: 0,
        memory: [0; 16],
        packet,
        packet_type,
    };
    machine.run(program).is_some_and(|result| result != 0)
}

struct Machine<'p> {
    a: u32,
    x: u32,
    memory: [u32; 16],
    packet: &'p [u8],
    packet_type: u8,
}

impl Machine<'_> {
    /// Returns the program's result; `None`, which refuses the packet, when a load lies outside the packet or an
    /// instruction is unknown.
    fn run(&mut self, program: &[sock_filter]) -> Option<u32> {
        let mut at = 0;
        // Jumps lead forwards, so this ends.
        loop {
            let instruction = program.get(at)?;
            at += 1;
            let (code, k) = (instruction.code, instruction.k);
            match code & 7 {
                LOAD => self.a = self.load(code, k)?,
                LOAD_X => self.x = self.load(code, k)?,
                STORE => *self.memory.get_mut(k as usize)? = self.a,
                STORE_X => *self.memory.get_mut(k as usize)? = self.x,
                ARITHMETIC => self.a = self.compute(code, k)?,
                JUMP if code & 0xf0 == 0 => at += k as usize,
                JUMP => {
                    let taken = match self.holds(code, k)? {
                        true => instruction.jt,
                        false => instruction.jf,
                    };
                    at += usize::from(taken);
                }
                RETURN => return Some(if code & 0x18 == 0x10 { self.a } else { k }),
                _ if code & 0xf8 == 0x80 => self.a = self.x,
                _ => self.x = self.a,
            }
        }
    }

    fn load(&self, code: u16, k: u32) -> Option<u32> {
        let at = match code & 0xe0 {
            0 => return Some(k),
            ABSOLUTE if k == PACKET_TYPE => return Some(self.packet_type.into()),
            ABSOLUTE => k,
            INDIRECT => self.x.checked_add(k)?,
            MEMORY => return self.memory.get(k as usize).copied(),
            LENGTH => return u32::try_from(self.packet.len()).ok(),
            HEADER_LEN => return Some(u32::from(self.packet.get(k as usize)? & 0x0f) * 4),
            _ => return None,
        };
        let bytes = self.packet.get(at as usize..)?;
        match code & 0x18 {
            0x00 => bytes.first_chunk().map(|b| u32::from_be_bytes(*b)),
            0x08 => bytes.first_chunk().map(|b| u16::from_be_bytes(*b).into()),
            0x10 => bytes.first().map(|b| (*b).into()),
            _ => None,
        }
    }

    fn operand(&self, code: u16, k: u32) -> u32 {
        if code & 8 == 0 { k } else { self.x }
    }

    fn compute(&self, code: u16, k: u32) -> Option<u32> {
        let (a, b) = (self.a, self.operand(code, k));
        Some(match code & 0xf0 {
            0x00 => a.wrapping_add(b),
            0x10 => a.wrapping_sub(b),
            0x20 => a.wrapping_mul(b),
            0x30 => a.checked_div(b)?,
            0x40 => a | b,
            0x50 => a & b,
            0x60 => a.checked_shl(b)?,
            0x70 => a.checked_shr(b)?,
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(b)?,
            0xa0 => a ^ b,
            _ => return None,
        })
    }

    fn holds(&self, code: u16, k: u32) -> Option<bool> {
        let (a, b) = (self.a, self.operand(code, k));
        Some(match code & 0xf0 {
            0x10 => a == b,
            0x20 => a > b,
            0x30 => a >= b,
            0x40 => a & b != 0,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter;

    const HOST: u8 = libc::PACKET_HOST;

    fn request() -> Vec<u8> {
        let mut packet = vec![0x49, 0, 0, 39, 0, 0, 0, 0, 1, 17, 0, 0];
        packet.extend([10, 0, 0, 1, 239, 1, 2, 3]);
        packet.extend([138, 16, 255, 255, 0, 0, 0, 0, 10, 0, 0, 9, 239, 1, 2, 3]);
        packet.extend(b"nak");
        packet
    }

    #[test]
    fn the_router_s_filter_runs_here_with_and_without_ethernet_header() {
        let program = filter::router(true, &[], &[]);
        let framed = after_ethernet(&program, 0x0800);
        let frame = |ethertype: u16, packet: &[u8]| {
            let mut frame = vec![2; 12];
            frame.extend(ethertype.to_be_bytes());
            frame.extend(packet);
            frame
        };
        let mut plain = request();
        plain[20] = 7;
        let mut igmp = request();
        igmp[9] = 2;
        let cases = [
            (request(), HOST, true),
            (request(), libc::PACKET_MULTICAST, true),
            (request(), libc::PACKET_OUTGOING, false),
            (request(), libc::PACKET_OTHERHOST, false),
            (plain, HOST, false),
            (igmp, HOST, true),
        ];
        for (packet, kind, expected) in cases {
            assert_eq!(passes(&program, &packet, kind), expected);
            let whole = frame(0x0800, &packet);
            assert_eq!(passes(&framed, &whole, kind), expected);
            assert!(!passes(&framed, &frame(0x86dd, &packet), kind));
            for len in 0..20 {
                assert!(!passes(&program, &packet[..len], kind) || len > 9);
            }
        }
    }

    #[test]
    fn no_instruction_and_no_packet_panics() {
        let instruction = |code, k| sock_filter {
            code,
            jt: 0,
            jf: 0,
            k,
        };
        for code in 0..=u16::MAX {
            let program = [
                instruction(code, 31),
                instruction(code, 1),
                instruction(RETURN, 1),
            ];
            for packet in [&[][..], &[0xff; 40]] {
                let _ = passes(&program, packet, HOST);
            }
        }
        assert!(!passes(&[], &[0; 40], HOST), "a program without an end");
    }
}
