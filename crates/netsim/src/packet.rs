//! Packets in flight: bytes stored once, reference counts, reused buffers.

/// Index of a packet in the [`Store`]. Each copy in flight owns one reference.
pub(crate) type PacketId = u32;

/// No packet.
pub(crate) const NONE: PacketId = u32::MAX;

#[derive(Clone, Copy)]
struct Head {
    references: u32,
    len_bytes: u32,
}

/// All packets in flight.
#[derive(Default)]
pub(crate) struct Store {
    heads: Vec<Head>,
    bytes: Vec<Vec<u8>>,
    free: Vec<PacketId>,
}

/// Buffers above this capacity are not kept for later packets.
const KEEP_BYTES: usize = 16 * 1024;

impl Store {
    /// Stores a copy of `bytes` with one reference.
    pub(crate) fn insert(&mut self, bytes: &[u8]) -> PacketId {
        let len_bytes = u32::try_from(bytes.len()).expect("a packet is shorter than 4 GiB");
        let head = Head {
            references: 1,
            len_bytes,
        };
        if let Some(id) = self.free.pop() {
            self.heads[id as usize] = head;
            self.bytes[id as usize].extend_from_slice(bytes);
            return id;
        }
        let id = PacketId::try_from(self.heads.len()).expect("fewer than 2^32 packets in flight");
        assert_ne!(id, NONE, "fewer than 2^32 packets in flight");
        self.heads.push(head);
        self.bytes.push(bytes.to_vec());
        id
    }

    pub(crate) fn retain(&mut self, id: PacketId) {
        self.heads[id as usize].references += 1;
    }

    pub(crate) fn release(&mut self, id: PacketId) {
        let head = &mut self.heads[id as usize];
        head.references -= 1;
        if head.references == 0 {
            let buffer = &mut self.bytes[id as usize];
            buffer.clear();
            if buffer.capacity() > KEEP_BYTES {
                *buffer = Vec::new();
            }
            self.free.push(id);
        }
    }

    pub(crate) fn len_bytes(&self, id: PacketId) -> u32 {
        self.heads[id as usize].len_bytes
    }

    /// Empty while [`Store::lend`] has lent the bytes out.
    pub(crate) fn bytes(&self, id: PacketId) -> &[u8] {
        &self.bytes[id as usize]
    }

    /// Takes the bytes out while a node reads them; the caller keeps a reference.
    pub(crate) fn lend(&mut self, id: PacketId) -> Vec<u8> {
        std::mem::take(&mut self.bytes[id as usize])
    }

    pub(crate) fn give_back(&mut self, id: PacketId, bytes: Vec<u8>) {
        self.bytes[id as usize] = bytes;
    }

    /// Returns the number of packets in flight.
    pub(crate) fn live(&self) -> usize {
        self.heads.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_after_its_last_reference() {
        let mut store = Store::default();
        let a = store.insert(b"abc");
        store.retain(a);
        store.release(a);
        assert_eq!(store.bytes(a), b"abc");
        store.release(a);
        assert_eq!(store.live(), 0);
        let b = store.insert(b"de");
        assert_eq!((b, store.bytes(b), store.len_bytes(b)), (a, &b"de"[..], 2));
    }

    #[test]
    fn lent_bytes_come_back() {
        let mut store = Store::default();
        let a = store.insert(b"abc");
        let lent = store.lend(a);
        assert_eq!((&lent[..], store.len_bytes(a)), (&b"abc"[..], 3));
        store.give_back(a, lent);
        assert_eq!(store.bytes(a), b"abc");
    }
}
