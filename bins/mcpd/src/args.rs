//! The command line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use linux_net::{Capability, privileges};
use mcp_control::PORT;
use mcp_control::wire::hello::Capabilities;
use nix::unistd::{AccessFlags, access};

const AFTER_HELP: &str = "\
Examples:
  mcpd --new-key /etc/polycast/mcp.key
      makes a key; copy it to every host that takes part (it is all that one needs to send)
  mcpd --dir /srv/incoming --key-file /etc/polycast/mcp.key
      receives what holders of that key send, on every address, and keeps it in /srv/incoming
  mcpd --dir . --once
      receives one copy from this very host (without a key nobody else is listened to), and ends

Files are written under hidden names beside their places (.NAME.mcp-part) and get their names when
their BLAKE3 digest is the sender's. What an interrupted copy has brought stays there, and the next
one goes on from it; to give it up: find DIR -name '.*.mcp-part' -delete. Without --fsync verified
files are in memory at first, and a power cut may lose them. Names cannot leave DIR, symbolic links
in DIR are not followed, and of permissions the nine bits rwxrwxrwx are taken over.

A key file holds a secret (--new-key), or PEM: this host's certificate, then the authority's, and the
private key. With a key, the control connection is TLS 1.3 and both sides prove who they are.

Events of --json, one object a line, on standard output; the field `event` names it:
  listening   address, folder, secure
  refused     peer, reason (it could not prove that it may be here, or had to make room), untold
              (others since the last one: a flood is only counted)
  offered     copy, peer, name, entries, bytes
  started     copy, held, to_receive (bytes on the data connection), port, group, sealed
  progress    copy, received, held, bytes
  copied      copy, peer, name, bytes, received, digest (BLAKE3 of the whole, names included), seconds
  failed      copy, peer, name, reason, message
  end         result (stopped, copied, failed), exit_code

Exit codes:
  0    stopped by Ctrl-C or SIGTERM with no copy under way; with --once: copied and verified
  1    cannot start; with --once: the copy failed
  2    wrong usage
  74   the result could not be written to standard output, whatever else happened
  130  stopped by Ctrl-C or SIGTERM in the middle of a copy";

/// Receives files and folders that mcp sends to many hosts, verifies them, and goes on where an
/// interrupted copy ended.
#[derive(Debug, clap::Parser)]
#[command(name = "mcpd", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// Address and port to listen on [default: with a key [::]:4139, which is IPv4 too, without a key
    /// 127.0.0.1:4139]
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,

    /// Folder to store everything in
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Have every file on the disk (fsync) before it counts as verified: slower, and safe from power
    /// cuts
    #[arg(long)]
    pub(crate) fsync: bool,

    /// Take one copy, and end after it
    #[arg(long)]
    pub(crate) once: bool,

    /// Take only senders that have this key: a secret, or PEM certificates
    #[arg(long, value_name = "F")]
    pub(crate) key_file: Option<PathBuf>,

    /// Without a key, listen on more than loopback: whoever reaches the port can write to DIR
    #[arg(long, conflicts_with = "key_file")]
    pub(crate) insecure: bool,

    /// Refuse data that is sealed: less work, on links that nobody else can write to
    #[arg(long)]
    pub(crate) no_aead: bool,

    /// Take data over this alone: udp, or ip (protocol 6, without UDP around it; needs CAP_NET_RAW)
    /// [default: over UDP, and over IP where this program has CAP_NET_RAW]
    #[arg(long, value_enum)]
    pub(crate) carrier: Option<Carrier>,

    /// Write a new key to a file that only you can read, and end
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) new_key: Option<PathBuf>,

    /// Print one JSON event a line (they are listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// Log only what goes wrong (--log warn)
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

/// How data travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    /// In UDP
    Udp,
    /// In IP
    Ip,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, PORT)),
        Err(_) => Err("write an address and a port, such as 10.0.0.1:4139 or [::]:4139".into()),
    }
}

impl Args {
    /// Where to listen.
    pub(crate) fn address(&self) -> SocketAddr {
        let open = self.key_file.is_some() || self.insecure;
        let address: IpAddr = if open {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        };
        self.listen.unwrap_or(SocketAddr::new(address, PORT))
    }

    /// What can carry the data here.
    pub(crate) fn carriers(&self) -> Result<Capabilities, String> {
        match (self.carrier, privileges::has(Capability::NetRaw)) {
            (Some(Carrier::Udp), _) | (None, false) => Ok(Capabilities::UDP),
            (Some(Carrier::Ip), true) => Ok(Capabilities::IP),
            (None, true) => Ok(Capabilities::UDP.with(Capabilities::IP)),
            (Some(Carrier::Ip), false) => Err(
                "--carrier ip needs CAP_NET_RAW: run as root, or grant it with \
                 `setcap cap_net_raw+ep` on this program, or take --carrier udp"
                    .to_owned(),
            ),
        }
    }

    /// Combinations that cannot work, or should not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let address = self.address();
        let open = self.key_file.is_some() || self.insecure;
        if !open && !address.ip().is_loopback() {
            return Err(format!(
                "--listen {address} without a key would let everybody write to {}: \
                 give --key-file (see --new-key), or --insecure if you mean it",
                self.dir.display()
            ));
        }
        match self.dir.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let writes = AccessFlags::W_OK | AccessFlags::X_OK;
                access(&self.dir, writes).map_err(|error| {
                    format!("--dir {}: cannot write there: {error}", self.dir.display())
                })
            }
            Ok(_) => Err(format!("--dir {} is not a folder", self.dir.display())),
            Err(error) => Err(format!("--dir {}: {error}", self.dir.display())),
        }
    }
}
