//! Logs: tracing, as text or JSON, on standard error.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The logging options of every program.
#[derive(Debug, Clone, clap::Args)]
pub struct LogArgs {
    /// Level of logs on standard error: off, error, warn, info, debug, trace, or levels of
    /// modules, such as `ltp=debug,info` [default: $POLYCAST_LOG, else warn (daemons: info)]
    #[arg(long, value_name = "LEVEL", global = true, help_heading = "Logging")]
    pub log: Option<String>,
    /// Format of log lines
    #[arg(
        long,
        value_name = "FORMAT",
        global = true,
        default_value = "text",
        help_heading = "Logging"
    )]
    pub log_format: Format,
}

impl LogArgs {
    /// Starts logging; `default` is the level without `--log` and `POLYCAST_LOG`.
    ///
    /// # Errors
    /// The filter is invalid; the message says which part.
    pub fn init(&self, default: &str) -> Result<(), String> {
        let text = match &self.log {
            Some(text) => text.clone(),
            None => std::env::var("POLYCAST_LOG").unwrap_or_else(|_| default.to_owned()),
        };
        let filter: Targets = text
            .parse()
            .map_err(|error| format!("invalid log filter \"{text}\": {error}"))?;
        let layer = fmt::layer()
            .with_writer(BesideBar)
            .with_ansi(io::stderr().is_terminal());
        let registry = tracing_subscriber::registry().with(filter);
        // A second program in the same process keeps the logger of the first.
        let _ = match self.log_format {
            Format::Text => registry.with(layer.with_target(false)).try_init(),
            Format::Json => registry.with(layer.json()).try_init(),
        };
        Ok(())
    }
}

/// Standard error; hides the progress bar while a line is written.
struct BesideBar;

impl<'a> MakeWriter<'a> for BesideBar {
    type Writer = BesideBar;

    fn make_writer(&'a self) -> BesideBar {
        BesideBar
    }
}

impl Write for BesideBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A line that cannot be written is lost; tracing would panic on an error.
        let _ = crate::progress::suspend(|| io::stderr().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
