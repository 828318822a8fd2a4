//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use bfed::SessionName;
use bfed_client::{Address, GroupAddress, MEDIATOR_V4, frames};
use clap::ValueEnum;
use cli::units::{BitRate, ByteSize, duration};

const AFTER_HELP: &str = "\
Examples:
  bfed-join bfed://1/239.1.2.3/5004 --output film.ts
      asks the mediators of this IP multicast network and writes the stream until Ctrl-C
  bfed-join bfed://1/239.1.2.3/5004 --mediator 10.0.0.1 --mediator http://cdn.example:8080 | mpv -
      asks two networks what the session costs, takes the cheaper one, and plays it
  bfed-join --send 'bfed://1/239.1.2.3/5004/?framing=numbered' --input film.ts --rate 20M
      is the source of a session in this IP multicast network
  curl http://cdn.example:8081/s/bfed%3A%2F%2F1%2F239.1.2.3%2F5004
      reads a session in an HTTP network without this program

Mediators (--mediator):
  239.255.98.102:25190   a group: the IP multicast network that this host is in (the default)
  10.0.0.1:25190         a host: a source-specific multicast network; the port may be left out
  http://host:8080       an HTTP network; https is not spoken
Several are asked for the cost first, and the cheapest is taken; who does not answer within 4 s is
left out.

A session that belongs to the network asked (NO_ROUTE, local) is received natively: from its group, or
from the server of the mediator.

A source in an IP multicast network is any program that sends to the group: each datagram is a frame. In
an HTTP network it is any PUT of the session's URL: `curl -T FILE http://host:8081/s/NAME`.

Framing: a session whose name has the parameter framing=numbered consists of numbered frames
(docs/wire.md), which --send writes: missing ones are counted, and the end is known with the digest of
the whole. Other sessions are written as they come; they end with --length, --idle or --duration, or
where an HTTP server ends them.

Events of --json, one object a line, on standard output (on standard error with --output -); the
field `event` names it:
  cost       mediator, cost: null if it did not answer
  asking     mediator
  joined     mediator, addresses, lifetime_s (0: for ever)
  redirected from, to, gateway
  refused    reason, again_s: when it will be asked again, or null
  progress   seconds, bytes, frames, lost; every second
  end        result (complete, duration, idle, incomplete, refused, no_answer, failed, interrupted),
             exit_code, message, seconds, bytes, digest (BLAKE3 of what was written), frames, lost,
             late (repeated or out of order), skipped_bytes (no frames), datagrams, requests,
             damped (requests left to others), moved (new addresses)

Exit codes:
  0    everything arrived, or --length, --duration or --idle ended it
  1    failed, or parts of a numbered session are missing (see --late)
  2    wrong usage
  3    no way to the session (NO_ROUTE); the message has the reason
  4    no mediator answered
  74   the result could not be written to standard output, whatever else happened
  130  interrupted by Ctrl-C or SIGTERM";

/// Joins a session of the Broadcast Federation and writes its stream; or is its source.
#[derive(Debug, clap::Parser)]
#[command(name = "bfed-join", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// The session, such as bfed://1/239.1.2.3/5004
    #[arg(value_name = "URL")]
    pub(crate) session: SessionName,

    /// Whom to ask for it; several: the cheapest is taken
    #[arg(long, value_name = "ADDR")]
    pub(crate) mediator: Vec<Address>,

    /// Kind of the network that this host is in, where no mediator is named
    #[arg(long, value_enum, default_value = "ip")]
    pub(crate) kind: Kind,

    /// File for the stream, written as it comes; - is standard output
    #[arg(long, short, value_name = "FILE|-", default_value = "-")]
    pub(crate) output: PathBuf,

    /// Which of the session's flows [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) flow: Option<String>,

    /// Interface of groups, by name or by its address [default: where the routes lead]
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,

    /// End after so long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// End after so many bytes
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<ByteSize>,

    /// End when nothing came for so long, once something did
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle: Option<Duration>,

    /// Keep asking for so long while nobody answers or there is no way to the session
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub(crate) wait: Duration,

    /// Of a numbered session: missing parts, and a beginning that was missed, are no failure
    #[arg(long)]
    pub(crate) late: bool,

    /// Be the session's source, in the network that owns it
    #[arg(long)]
    pub(crate) send: bool,

    /// With --send: what to send; - is standard input
    #[arg(long, value_name = "FILE|-", default_value = "-", requires = "send")]
    pub(crate) input: PathBuf,

    /// With --send: bits of payload a second
    #[arg(long, value_name = "RATE", default_value = "10M", requires = "send")]
    pub(crate) rate: BitRate,

    /// With --send: bytes of payload in a frame; 1316 are seven packets of an MPEG transport stream
    #[arg(long, value_name = "BYTES", default_value_t = 1316, requires = "send",
        value_parser = clap::value_parser!(u16).range(1..=frames::MAX_PAYLOAD as i64))]
    pub(crate) frame: u16,

    /// With --send: routers that datagrams may pass, plus one
    #[arg(long, value_name = "N", default_value_t = 16, requires = "send",
        value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,

    /// Print one JSON event a line (they are listed below)
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

/// Kinds of native networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// IP multicast: the mediator is on its well-known group
    Ip,
    /// Source-specific multicast: name its mediator
    Ssm,
    /// HTTP: name its mediator
    Http,
}

impl Args {
    /// Combinations that cannot work.
    pub(crate) fn check(&self) -> Result<(), String> {
        let specific = |mediator: &Address| matches!(mediator, Address::Group(_));
        if let Some(flow) = &self.flow
            && !self.session.flows().any(|name| name == flow)
        {
            let names: Vec<&str> = self.session.flows().collect();
            return Err(format!(
                "--flow {flow}: the session has {}",
                names.join(", ")
            ));
        }
        if self.send {
            return self.check_send();
        }
        if self.mediator.is_empty() && self.kind != Kind::Ip {
            return Err(
                "--kind: name the mediator with --mediator; only IP multicast networks \
                have it at a well-known place"
                    .into(),
            );
        }
        if self.mediator.iter().filter(|one| specific(one)).count() > 1 {
            return Err("--mediator: this host is in one IP multicast network at most".into());
        }
        Ok(())
    }

    fn check_send(&self) -> Result<(), String> {
        match &self.mediator[..] {
            [] => self.group().map(|_| ()).ok_or_else(|| {
                "--send: the session's native name is no group; name the server of an HTTP network \
                 with --mediator http://host:port"
                    .into()
            }),
            [Address::Http(_)] => Ok(()),
            _ => Err(
                "--send: in networks of groups no mediator is asked; in an HTTP network name \
                its server, http://host:port"
                    .into(),
            ),
        }
    }

    /// Whom to ask, if nobody was named: the well-known group.
    pub(crate) fn mediators(&self) -> Vec<Address> {
        match self.mediator.is_empty() {
            true => vec![Address::Group(MEDIATOR_V4)],
            false => self.mediator.clone(),
        }
    }

    /// Number of the flow, from 0.
    pub(crate) fn flow(&self) -> usize {
        let mut flows = self.session.flows();
        let wanted = |name: &str| self.flow.as_deref().is_none_or(|flow| flow == name);
        flows.position(wanted).unwrap_or(0)
    }

    /// The session's own group, if it is one's in its network.
    pub(crate) fn group(&self) -> Option<GroupAddress> {
        GroupAddress::of_flow(&self.session, self.flow()).ok()
    }

    pub(crate) fn to_stdout(&self) -> bool {
        !self.send && self.output.as_os_str() == "-"
    }
}
