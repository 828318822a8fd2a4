//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Subcommand;
use cli::verbs;

use crate::config::{Carrier, Receive, listen};
use crate::status::Show;

const AFTER_HELP: &str = "\
`mcpd OPTIONS` is short for `mcpd run OPTIONS`.

Examples:
  mcpd --new-key /etc/polycast/mcp.key
      creates a key; copy it to every host that takes part (its holders can send)
  mcpd --dir /srv/incoming --key-file /etc/polycast/mcp.key
      receives what holders of that key send, on all addresses, and stores it in /srv/incoming
  mcpd --dir . --once
      receives one copy from this host (without a key only loopback is served), and exits
  mcpd run --config /etc/polycast/mcpd.toml
      runs as a daemon: SIGHUP reads the file again, `mcpd status` shows copies and totals

Files are written as .NAME.mcp-part beside their final places and renamed when their BLAKE3 digest
matches the sender's. Parts of an interrupted copy stay, and the next copy continues from them; to
discard them: find DIR -name '.*.mcp-part' -delete. Without --fsync verified files may be in memory
only, and a power cut may lose them. Names cannot leave DIR, symbolic links in DIR are not followed,
and of the permissions the nine bits rwxrwxrwx are copied.

A key file holds a secret (--new-key), or PEM: this host's certificate, the authority's, and the
private key. With a key, the control connection is TLS 1.3 and both sides are authenticated.

Events of --json, one object a line, on standard output; the field `event` names it:
  listening   address, folder, secure
  refused     peer, reason (it was not authenticated, or made room for others), suppressed
              (events left out since the last one: a flood is only counted)
  offered     copy, peer, name, entries, bytes
  started     copy, held, to_receive (bytes on the data connection), port, group, sealed
  progress    copy, received, held, bytes
  copied      copy, peer, name, bytes, received, digest (BLAKE3 of the whole, names included), seconds
  failed      copy, peer, name, reason, message
  end         result (stopped, copied, failed), exit_code

Exit codes:
  0    stopped by Ctrl-C or SIGTERM while no copy was running; with --config: stopped by a signal;
       with --once: copied and verified
  1    cannot start; with --once: the copy failed
  2    wrong usage: the command line or the configuration
  74   the result could not be written to standard output
  130  stopped by Ctrl-C or SIGTERM during a copy";

/// Receive files and folders that mcp sends to many hosts, verify them, and resume interrupted copies
#[derive(Debug, clap::Parser)]
#[command(name = "mcpd", version, after_long_help = AFTER_HELP, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,

    #[command(flatten)]
    pub(crate) run: RunArgs,

    /// Write a new key to a file that only you can read, and exit
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) new_key: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) log: cli::logging::LogArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Receive until stopped
    Run(RunArgs),
    #[command(flatten)]
    Other(verbs::Verb<Show>),
}

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Run as a daemon with this configuration file, which replaces the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "listen", "dir", "fsync", "once", "key_file", "insecure", "no_encryption", "carrier", "no_relay",
    ])]
    pub(crate) config: Option<PathBuf>,

    /// Address and port to listen on [default: with a key [::]:4139, which includes IPv4; without a key
    /// 127.0.0.1:4139]
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen)]
    listen: Option<SocketAddr>,

    /// Folder to store everything in
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Write every file to the disk before it counts as verified: slower, and safe from power cuts
    #[arg(long)]
    fsync: bool,

    /// Receive one copy and exit
    #[arg(long)]
    pub(crate) once: bool,

    /// Accept only senders that have this key: a secret, or PEM certificates
    #[arg(long, value_name = "F")]
    key_file: Option<PathBuf>,

    /// Without a key, listen on more than loopback: anyone who reaches the port can write to DIR
    #[arg(long, conflicts_with = "key_file")]
    insecure: bool,

    /// Refuse encrypted data: less work, for links without other users
    #[arg(long)]
    no_encryption: bool,

    /// Feed no other hosts of a copy; this host itself may still be fed by others
    #[arg(long)]
    no_relay: bool,

    /// Accept data over this carrier only: udp, or ip (protocol 6; needs CAP_NET_RAW)
    /// [default: over UDP, and over IP if this program has CAP_NET_RAW]
    #[arg(long, value_enum)]
    carrier: Option<Carrier>,

    /// Print one JSON event a line (listed below)
    #[arg(long)]
    pub(crate) json: bool,

    /// Log only warnings and errors (--log warn)
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl RunArgs {
    /// Returns the configuration that the options describe.
    ///
    /// # Errors
    /// Options that cannot work together, or should not.
    pub(crate) fn receive(&self) -> Result<Receive, String> {
        let receive = Receive {
            listen: self.listen,
            dir: self.dir.clone(),
            fsync: self.fsync,
            relay: !self.no_relay,
            carrier: self.carrier,
            key_file: self.key_file.clone(),
            insecure: self.insecure,
            encryption: !self.no_encryption,
        };
        if receive.is_unprotected() {
            return Err(format!(
                "--listen {} without a key would let anyone write to {}: \
                 give --key-file (see --new-key), or --insecure",
                receive.address(),
                self.dir.display()
            ));
        }
        receive
            .check_folder()
            .map_err(|message| format!("--dir: {message}"))?;
        Ok(receive)
    }
}
