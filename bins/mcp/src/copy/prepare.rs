//! The agreement on the ports of the data connection (TCP-XM §3.4): a suggestion is sent with the offer, and
//! repeated to hosts that cannot use it.

use std::net::SocketAddr;

use mcp_control::limits::MAX_SUGGESTIONS;
use mcp_control::wire::hello::Prepared;
use mcp_control::wire::plan::DataKey;
use mcp_control::{Failed, Reason};

use super::Copy;
use crate::data::{Options, Reservation};
use crate::host::Command;
use crate::member::Member;

/// Suggested ports (RFC 6335 §6: dynamic ports).
pub(super) const FIRST_PORT: u16 = 49_152;

/// The sender's end of a data connection that is prepared while hosts answer.
#[derive(Debug)]
pub(super) struct Source {
    options: Options,
    /// The port that is suggested to all hosts.
    destination: u16,
    key: Option<[u8; 32]>,
    reservation: Option<Reservation>,
    /// The addresses of this host that it was reserved for.
    locals: Vec<SocketAddr>,
}

impl Source {
    pub(super) fn new(options: &Options) -> anyhow::Result<Source> {
        let key = options.sealed.then(linux_net::process::random);
        Ok(Source {
            options: options.clone(),
            destination: random_port()?,
            key: key.transpose()?,
            reservation: None,
            locals: Vec::new(),
        })
    }

    /// Returns the key of the data connection, if it is sealed.
    pub(super) fn key(&self) -> Option<[u8; 32]> {
        self.key
    }

    /// Suggests a data connection to a host that is reached from `local`. `None` where no port can be reserved:
    /// the error is reported once all hosts are known.
    fn suggest(&mut self, local: SocketAddr) -> Option<Prepared> {
        let first = self.locals.first().copied().unwrap_or(local);
        if first.is_ipv4() != local.is_ipv4() {
            return None;
        }
        self.locals.push(local);
        let fits = |reserved: &Reservation| reserved.fits(&[local]);
        if !self.reservation.as_ref().is_some_and(fits) {
            self.reservation = Reservation::new(&self.options, &self.locals).ok();
        }
        let reservation = self.reservation.as_ref()?;
        Some(Prepared {
            carrier: reservation.carrier(),
            source: reservation.port(),
            destination: self.destination,
            key: self.key.map(DataKey),
        })
    }

    /// Hands out the reserved port, if hosts that are reached from these addresses can be sent to from there.
    fn take(&mut self, locals: &[SocketAddr]) -> Option<Reservation> {
        self.reservation
            .take()
            .filter(|reserved| reserved.fits(locals))
    }
}

/// Returns a random port to suggest.
fn random_port() -> std::io::Result<u16> {
    let seed = linux_net::process::random::<32>()?;
    Ok(u16::from_be_bytes([seed[0], seed[1]]) | FIRST_PORT)
}

impl Copy {
    /// Returns the suggestion for the data connection that a host gets with the offer.
    pub(super) fn prepare(&mut self, index: usize, local: SocketAddr) -> Option<Prepared> {
        let prepared = self.source.as_mut()?.suggest(local);
        self.members[index].prepared = prepared.map(|prepared| prepared.source);
        prepared
    }

    /// Fails the hosts that are reached over another version of IP than the first: the data goes to all hosts
    /// in one group. Returns this host's addresses on the other connections.
    async fn same_version(&mut self) -> Vec<SocketAddr> {
        let taking = |member: &&Member| member.streams() && !member.is_over();
        let locals = self.members.iter().filter(taking);
        let mut locals: Vec<SocketAddr> = locals.filter_map(|m| m.local).collect();
        let Some(ipv6) = locals.first().map(SocketAddr::is_ipv6) else {
            return locals;
        };
        locals.retain(|local| local.is_ipv6() == ipv6);
        let version = |ipv6: bool| if ipv6 { "IPv6" } else { "IPv4" };
        let text = format!(
            "is reached over {}, and the data goes over {}: copy to it in a run of its own",
            version(!ipv6),
            version(ipv6)
        );
        let other = |member: &Member| member.local.is_some_and(|local| local.is_ipv6() != ipv6);
        for member in self.members.iter().filter(taking).filter(|m| other(m)) {
            member.command(Command::Fail(Failed::new(Reason::NoPort, None, &text)));
        }
        self.wait(|member| !member.streams() || !other(member))
            .await;
        locals
    }

    /// Agrees on a port that is free on all hosts that receive data (TCP-XM §3.4), and reserves one to send
    /// from.
    pub(super) async fn agree(&mut self, options: &Options) -> anyhow::Result<Reservation> {
        let locals = self.same_version().await;
        let prepared = self.source.as_mut();
        let prepared =
            prepared.and_then(|source| Some((source.destination, source.take(&locals)?)));
        let (mut destination, reservation) = match prepared {
            Some(prepared) => prepared,
            None => (random_port()?, Reservation::new(options, &locals)?),
        };
        let source = reservation.port();
        for number in 0..MAX_SUGGESTIONS {
            for member in self
                .members
                .iter_mut()
                .filter(|m| m.streams() && !m.is_over())
            {
                member.listens = number == 0 && member.prepared == Some(source);
                if member.listens {
                    // It was suggested with the offer, and the answer may be here.
                    continue;
                }
                member.port = None;
                member.command(Command::Suggest {
                    carrier: options.carrier,
                    source,
                    destination,
                });
            }
            self.wait(|member| !member.streams() || member.port.is_some())
                .await;
            if self.interrupted {
                break;
            }
            let alive = self.members.iter().filter(|m| m.streams() && !m.is_over());
            let mut others = alive.filter_map(|m| m.port.filter(|port| !port.0));
            match others.next() {
                None => break,
                Some((_, port)) => destination = port,
            }
        }
        let failed = Failed::new(Reason::NoPort, None, "");
        for member in self.members.iter().filter(|m| m.streams()) {
            if member.port.is_some_and(|(confirmed, _)| !confirmed) {
                member.command(Command::Fail(failed.clone()));
            }
        }
        self.wait(|member| !member.streams() || member.port.is_none_or(|(confirmed, _)| confirmed))
            .await;
        Ok(reservation)
    }
}
