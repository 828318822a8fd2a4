//! LTP as a tool on the stage.

use super::super::stage::Stage;
use super::super::stage::play::{Programs, Tool, same_digests};
use super::super::stage::tools::folder;
use crate::prelude::*;
use crate::session::Ip;

/// LTP: `lms-send` and `lms-recv`.
pub(super) struct Ltp {
    /// `--rate`.
    pub(super) rate: &'static str,
    /// Version of IP.
    pub(super) ip: Ip,
    /// Receivers verify the data and discard it instead of storing it.
    pub(super) poured: bool,
}

impl Ltp {
    /// Arguments of both programs.
    fn common(&self) -> [&'static str; 6] {
        let group = match self.ip {
            Ip::V4 => "239.9.2.1:5000",
            Ip::V6 => "[ff15::9:201]:5000",
        };
        ["--json", "--quiet", "--interface", "eth0", "--group", group]
    }
}

impl Tool for Ltp {
    fn name(&self) -> String {
        let ip = match self.ip {
            Ip::V4 => "",
            Ip::V6 => " over IPv6",
        };
        let ending = if self.poured {
            ", verified and poured away"
        } else {
            ""
        };
        format!("LTP{ip}{ending}")
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn receiver(&self, number: usize, copy: &Path) -> Result<Launch> {
        let launch = Launch::carried("lms-recv")
            .named(format!("lms-recv {number}"))
            .args(self.common())
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
            .args(self.common())
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
