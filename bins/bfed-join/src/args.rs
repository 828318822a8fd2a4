//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bfed::SessionName;
use bfed::wire::client::Token;
use bfed_client::{Address, GroupAddress, JoinOptions, MEDIATOR_V4, Url, frames};
use clap::ValueEnum;
use cli::units::{BitRate, ByteSize, duration};

const AFTER_HELP: &str = "\
Examples:
  bfed-join recv bfed://1/239.1.2.3/5004 --output film.ts
      asks the mediators of this IP multicast network and writes the stream until Ctrl-C
  bfed-join recv bfed://1/239.1.2.3/5004 --mediator 10.0.0.1 --mediator http://cdn.example:8080 | mpv -
      asks two networks what the session costs and plays it from the cheaper one
  bfed-join send 'bfed://1/239.1.2.3/5004/?framing=numbered' --input film.ts --rate 20M
      publishes a session in this IP multicast network
  bfed-join exec 'bfed://4/239.1.2.3/5004/?framing=numbered' -- \
          lms-recv --group {group} --source {source} --output incoming/
      receives a file in an LTP network: the gateway sends it to this group while the program runs
  curl http://cdn.example:8081/s/bfed%3A%2F%2F1%2F239.1.2.3%2F5004
      reads a session in an HTTP network without this program

Exit codes:
  0    everything arrived or was sent, or --length, --duration or --idle ended it
  1    failed, or parts of a numbered session are missing (see --late)
  2    wrong usage
       exec: the code of the program, 128 and its signal if one ended it
  3    no route to the session (NO_ROUTE); the message has the reason
  4    no mediator answered
  74   the result could not be written to standard output, whatever else happened
  130  interrupted by Ctrl-C or SIGTERM

Framing: a session whose name has the parameter framing=numbered consists of numbered frames
(docs/wire.md). `send` writes them; `recv` counts missing ones, and knows the end and the digest of the
whole. Other sessions have no end, except where an HTTP server ends them.

Events of --json, one object a line, on standard output (on standard error with --output -); the
field `event` names it:
  cost       mediator, cost: null if it did not answer
  asking     mediator
  joined     mediator, addresses, lifetime_s (0: no expiry)
  redirected from, to, gateway
  refused    reason, retry_after_s: null if the mediator is not asked again
  progress   seconds, bytes, frames, lost; every second
  end        result (complete, duration, idle, incomplete, refused, no_answer, failed, interrupted),
             exit_code, message, seconds, bytes, digest (BLAKE3 of the data), frames, lost, late
             (repeated or out of order), skipped_bytes (outside of frames), datagrams, requests,
             damped (requests left to other clients), moved (changes of address)";

const AFTER_RECV: &str = "\
Mediators (--mediator):
  239.255.98.102:25190   a group: the IP multicast network that this host is in (the default)
  10.0.0.1:25190         a host: a source-specific multicast network; the port may be left out
  http://host:8080       an HTTP network; https is not supported
With several mediators each is asked for the cost first, and the cheapest is used. A mediator that does not
answer within 4 s is left out.

A session that belongs to the network asked (NO_ROUTE, local) is received natively: from its group, or
from the server of the mediator.";

const AFTER_SEND: &str = "\
Other sources: in an IP multicast network any program that sends datagrams to the group, each datagram a
frame; in an HTTP network any PUT of the session's URL: `curl -T FILE http://host:8081/s/NAME`.";

const AFTER_EXEC: &str = "\
In the program's arguments {group} is replaced by the group and its port, {source} by the address of the
host that sends to it, and {address} by both as the mediator names them. The session is kept while the
program runs. After SIGINT or SIGTERM the program has half a second to end by itself, then it gets SIGTERM.

The events of --json are on standard error; standard output is the program's.";

/// Receive a session of the Broadcast Federation, or publish one
#[derive(Debug, clap::Parser)]
#[command(name = "bfed-join", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,

    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Join a session and write its stream
    #[command(after_long_help = AFTER_RECV, max_term_width = 100)]
    Recv(Recv),
    /// Publish a session in the network that owns it
    #[command(after_long_help = AFTER_SEND, max_term_width = 100)]
    Send(Send),
    /// Join a session and run a program that receives it
    #[command(after_long_help = AFTER_EXEC, max_term_width = 100)]
    Exec(Exec),
}

/// Arguments of all verbs.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Session, such as bfed://1/239.1.2.3/5004
    #[arg(value_name = "URL")]
    pub(crate) session: SessionName,

    /// Flow of the session [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) flow: Option<String>,

    /// Interface of groups, by name or by its address [default: by the routes]
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,

    /// Token from the administrator, where the network requires one; other users of this host can see it in the list
    /// of processes
    #[arg(long, value_name = "TOKEN", value_parser = token, conflicts_with = "token_file")]
    pub(crate) token: Option<Token>,

    /// File with such a token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Print one JSON event a line (listed in bfed-join --help)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of verbs that join a session.
#[derive(Debug, clap::Args)]
pub(crate) struct Joining {
    /// Mediator to ask; of several the cheapest is used
    #[arg(long, value_name = "ADDR")]
    pub(crate) mediator: Vec<Address>,

    /// Kind of the network that this host is in, if no mediator is named
    #[arg(long, value_enum, default_value = "ip")]
    pub(crate) kind: Kind,

    /// Host that gets the token beside the mediators, such as a server that they name [repeatable]
    #[arg(long, value_name = "HOST")]
    pub(crate) token_host: Vec<String>,

    /// Keep asking for this time while no mediator answers or there is no route to the session
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub(crate) connect_timeout: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Recv {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) joining: Joining,

    /// File for the stream; - is standard output
    #[arg(long, short, value_name = "FILE|-", default_value = "-")]
    pub(crate) output: PathBuf,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// End after this many bytes
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<ByteSize>,

    /// End when no data has arrived for this time, after the first
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle: Option<Duration>,

    /// Accept that frames of a numbered session, or its beginning, are missing
    #[arg(long)]
    pub(crate) late: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) joining: Joining,

    /// Program to run and its arguments, after --
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Send {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Server of an HTTP network, http://host:port [default: the session's group]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<Url>,

    /// File to send; - is standard input
    #[arg(long, value_name = "FILE|-", default_value = "-")]
    pub(crate) input: PathBuf,

    /// Bits of payload a second
    #[arg(long, value_name = "RATE", default_value = "10M")]
    pub(crate) rate: BitRate,

    /// Bytes of payload in a frame; 1316 are seven packets of an MPEG transport stream
    #[arg(long, value_name = "BYTES", default_value_t = 1316,
        value_parser = clap::value_parser!(u16).range(1..=frames::MAX_PAYLOAD as i64))]
    pub(crate) frame: u16,

    /// TTL of datagrams
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,
}

/// Kinds of native networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// IP multicast: the mediator is on its well-known group
    Ip,
    /// LTP over IP multicast: the mediator is on the same group
    Ltp,
    /// Source-specific multicast: name its mediator
    Ssm,
    /// HTTP: name its mediator
    Http,
}

impl Args {
    /// Returns the contradictions between arguments that are each valid.
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.verb {
            Verb::Recv(args) => args.common.check().and_then(|()| args.joining.check()),
            Verb::Exec(args) => args.common.check().and_then(|()| args.joining.check()),
            Verb::Send(args) => args.common.check().and_then(|()| args.check()),
        }
    }
}

fn token(text: &str) -> Result<Token, String> {
    Token::new(text).ok_or_else(|| {
        "not a token: one is at most 1024 printable characters without spaces".to_owned()
    })
}

impl Common {
    fn check(&self) -> Result<(), String> {
        match &self.flow {
            Some(flow) if !self.session.flows().any(|name| name == flow) => {
                let names: Vec<&str> = self.session.flows().collect();
                let names = names.join(", ");
                Err(format!("--flow {flow}: the session has {names}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the token of the arguments.
    pub(crate) fn token(&self) -> Result<Option<Token>, String> {
        let Some(path) = &self.token_file else {
            return Ok(self.token.clone());
        };
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("--token-file: cannot read {shown}: {error}"))?;
        token(text.trim_end())
            .map(Some)
            .map_err(|why| format!("--token-file: {shown} is {why}"))
    }

    /// Returns the number of the flow, from 0.
    pub(crate) fn flow(&self) -> usize {
        let mut flows = self.session.flows();
        let wanted = |name: &str| self.flow.as_deref().is_none_or(|flow| flow == name);
        flows.position(wanted).unwrap_or(0)
    }
}

impl Joining {
    fn check(&self) -> Result<(), String> {
        if self.mediator.is_empty() && !matches!(self.kind, Kind::Ip | Kind::Ltp) {
            return Err(
                "--kind: name the mediator with --mediator; only IP multicast networks have a \
                 well-known one"
                    .into(),
            );
        }
        let is_group = |mediator: &&Address| matches!(mediator, Address::Group(_));
        if self.mediator.iter().filter(is_group).count() > 1 {
            return Err("--mediator: this host is in one IP multicast network at most".into());
        }
        Ok(())
    }

    /// Returns the mediators to ask: those named, or the well-known group.
    pub(crate) fn mediators(&self) -> Vec<Address> {
        match self.mediator.is_empty() {
            true => vec![Address::Group(MEDIATOR_V4)],
            false => self.mediator.clone(),
        }
    }

    /// Returns the options to join a session with.
    pub(crate) fn options(&self, common: &Common) -> Result<JoinOptions, String> {
        let mut options = JoinOptions::new(common.session.clone());
        options.mediators = self.mediators();
        options.flow = common.flow();
        options.interface.clone_from(&common.interface);
        options.connect_timeout = self.connect_timeout;
        options.token = common.token()?;
        options.token_hosts.clone_from(&self.token_host);
        Ok(options)
    }
}

impl Recv {
    pub(crate) fn to_stdout(&self) -> bool {
        self.output.as_os_str() == "-"
    }
}

impl Send {
    fn check(&self) -> Result<(), String> {
        let common = &self.common;
        let is_group = GroupAddress::of_flow(&common.session, common.flow()).is_ok();
        match self.server.is_some() || is_group {
            true => Ok(()),
            false => Err(
                "send: the session's native name is not a group; name the server of an HTTP \
                 network with --server http://host:port"
                    .into(),
            ),
        }
    }
}
