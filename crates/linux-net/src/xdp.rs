//! What an interface can do for XDP programs, by the netlink family `netdev` (Linux 6.3 and later).

use std::io;

use crate::netlink::{Message, NLM_F_ACK, Socket, attributes};

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const CAN_SEND: u64 = 4;

/// `struct genlmsghdr`, and its length.
const HEADER: usize = 4;

fn header(command: u8) -> [u8; HEADER] {
    [command, 1, 0, 0]
}

/// Asks the kernel about XDP.
#[derive(Debug)]
pub struct Features {
    socket: Socket,
    family: u16,
}

impl Features {
    /// Opens a netlink socket.
    ///
    /// # Errors
    /// The kernel has no family `netdev`, or no netlink.
    pub fn open() -> io::Result<Features> {
        let mut socket = Socket::open(libc::NETLINK_GENERIC, &[])?;
        let question = Message::new(GENL_ID_CTRL, NLM_F_ACK)
            .fixed(&header(CTRL_CMD_GETFAMILY))
            .attr_name(CTRL_ATTR_FAMILY_NAME, "netdev");
        let answer = find(&mut socket, &question, CTRL_ATTR_FAMILY_ID)?;
        let family = answer.first_chunk().copied().map(u16::from_ne_bytes);
        let family = family.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Features { socket, family })
    }

    /// Returns whether a program that runs in another driver can send on an interface, by the kernel's number. This may
    /// change while the interface is there: a veth can while its peer has a program or GRO.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn can_send(&mut self, interface: u32) -> io::Result<bool> {
        let question = Message::new(self.family, NLM_F_ACK)
            .fixed(&header(NETDEV_CMD_DEV_GET))
            .attr_u32(NETDEV_A_DEV_IFINDEX, interface);
        let answer = find(&mut self.socket, &question, NETDEV_A_DEV_XDP_FEATURES)?;
        let features = answer.first_chunk().copied().map(u64::from_ne_bytes);
        Ok(features.is_some_and(|features| features & CAN_SEND != 0))
    }
}

/// The value of an attribute of an answer, empty where it is missing.
fn find(socket: &mut Socket, question: &Message, wanted: u16) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    socket.query(question, |_, payload| {
        let attributes = attributes(payload.get(HEADER..).unwrap_or_default());
        for (_, data) in attributes.filter(|(kind, _)| *kind == wanted) {
            found = data.to_vec();
        }
    })?;
    Ok(found)
}
