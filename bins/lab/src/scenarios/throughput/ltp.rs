//! LTP as a tool on the stage.

use super::super::stage::Stage;
use super::super::stage::play::{Programs, Tool, same_digests};
use super::super::stage::tools::folder;
use crate::prelude::*;

/// LTP: `lms-send` and `lms-recv`.
pub(super) struct Ltp {
    /// `--rate`.
    pub(super) rate: &'static str,
    /// Receivers verify the data and discard it instead of storing it.
    pub(super) poured: bool,
}

/// Arguments of both programs.
const LTP_COMMON: [&str; 6] = [
    "--json",
    "--quiet",
    "--interface",
    "eth0",
    "--group",
    "239.9.2.1:5000",
];

impl Tool for Ltp {
    fn name(&self) -> String {
        if self.poured {
            "LTP, verified and poured away"
        } else {
            "LTP"
        }
        .to_owned()
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn receiver(&self, number: usize, copy: &Path) -> Result<Launch> {
        let launch = Launch::carried("lms-recv")
            .named(format!("lms-recv {number}"))
            .args(LTP_COMMON)
            .arg("--output");
        if self.poured {
            return Ok(launch.arg("-").stdout_null());
        }
        Ok(launch.arg(folder(copy)?))
    }

    fn ready(&self) -> Option<&'static str> {
        Some("waiting")
    }

    fn sender(&self, stage: &Stage) -> Result<Launch> {
        let receivers = stage.receivers.len().to_string();
        Ok(Launch::carried("lms-send")
            .args(LTP_COMMON)
            .args(["--rate", self.rate, "--no-digest", "--ttl", "1"])
            .args(["--receivers", &receivers])
            .arg(&stage.file))
    }

    fn receivers_end(&self) -> bool {
        true
    }

    fn verify(&self, stage: &Stage, programs: &Programs, copies: &[PathBuf]) -> Result<()> {
        same_digests(programs)?;
        if self.poured {
            Ok(())
        } else {
            stage.compare(copies)
        }
    }
}
