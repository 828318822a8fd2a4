//! `bfed-gateway token`: keys, and tokens of clients. Works on files, not on a running gateway.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bfed::authorise::{NamePattern, Right};
use bfed::{BnNum, Prefix};
use bfed_token::{Claims, MAX_LIFETIME_S, SigningKey};
use clap::{Args, Subcommand, ValueEnum};
use cli::units::duration;

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Create a key that signs tokens, and print the public key for `tokens.keys`
    Key {
        /// File for the secret key; it must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the public key of a secret key
    Public {
        /// File with the secret key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Sign a token and print it
    Issue(Issue),
}

/// The claims of a token.
#[derive(Debug, Args)]
pub(crate) struct Issue {
    /// File with the secret key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// Number of the network whose clients may present the token
    #[arg(long, value_name = "NUMBER", value_parser = network)]
    network: BnNum,

    /// Sessions: a pattern such as bfed://7/239.1.*
    #[arg(long, value_name = "PATTERN")]
    sessions: NamePattern,

    /// What the client may do; repeat for both
    #[arg(long, value_enum, default_value = "join")]
    right: Vec<ClientRight>,

    /// How long the token counts, up to 400 days
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires: Duration,

    /// Addresses that may present it, such as 192.0.2.0/24 [default: any]
    #[arg(long, value_name = "PREFIX")]
    client: Option<Prefix>,

    /// Name of the client, for people
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
}

/// Rights that a token grants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ClientRight {
    /// Receive the sessions
    Join,
    /// Be their source
    Publish,
}

impl From<ClientRight> for Right {
    fn from(right: ClientRight) -> Right {
        match right {
            ClientRight::Join => Right::Join,
            ClientRight::Publish => Right::Publish,
        }
    }
}

fn network(text: &str) -> Result<BnNum, String> {
    let number = text.parse().ok().and_then(BnNum::new);
    number.ok_or_else(|| "not a network's number, from 1 on".to_owned())
}

/// Runs a verb; returns the line to print.
pub(crate) fn run(verb: TokenVerb) -> Result<String, String> {
    match verb {
        TokenVerb::Key { out } => {
            let key = SigningKey::generate().map_err(|error| error.to_string())?;
            write_secret(&out, &key.to_secret_text())?;
            public(&key)
        }
        TokenVerb::Public { key } => public(&read(&key)?),
        TokenVerb::Issue(issue) => issue.run(),
    }
}

fn public(key: &SigningKey) -> Result<String, String> {
    key.verifying_key()
        .map(|key| key.to_string())
        .map_err(|error| error.to_string())
}

/// Writes a file that only its owner may read.
fn write_secret(path: &Path, text: &str) -> Result<(), String> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{text}"));
    written.map_err(|error| format!("cannot create {}: {error}", path.display()))
}

fn read(path: &Path) -> Result<SigningKey, String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("cannot read the key {}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    text.trim_end().parse().map_err(|error| failed(&error))
}

impl Issue {
    fn run(self) -> Result<String, String> {
        let lifetime = self.expires.as_secs();
        if !(1..=MAX_LIFETIME_S).contains(&lifetime) {
            return Err("--expires: write a time from 1s to 400 days (9600h)".to_owned());
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(|_| "the clock is before 1970")?;
        let now = now.as_secs();
        let mut rights: Vec<Right> = self.right.into_iter().map(Right::from).collect();
        rights.dedup();
        let mut claims = Claims::new(self.sessions, rights, now, now + lifetime);
        claims.client = self.client;
        claims.subject = self.subject;
        let token = read(&self.key)?.issue(self.network, &claims);
        token
            .map(|token| token.as_str().to_owned())
            .map_err(|error| error.to_string())
    }
}
