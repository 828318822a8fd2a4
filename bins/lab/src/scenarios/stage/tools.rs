//! Other file senders, where they are installed.

use super::Stage;
use super::play::{Tool, external};
use crate::prelude::*;

/// The folder of a copy.
pub(crate) fn folder(copy: &Path) -> Result<&Path> {
    copy.parent().context("a copy without a folder")
}

/// uftp, at its full speed or at a rate.
pub(crate) struct Uftp {
    /// Kilobits a second, -1 for as fast as it can.
    pub(crate) rate_kbps: i64,
    /// TFMCC (RFC 4654) finds the rate, from `rate_kbps` on.
    pub(crate) tfmcc: bool,
}

/// Arguments of both programs: the interface, the group of announcements, the socket's buffer.
const UFTP_COMMON: [&str; 6] = ["-I", "eth0", "-M", "239.9.0.1", "-B", "8388608"];

impl Tool for Uftp {
    fn name(&self) -> String {
        "uftp".to_owned()
    }

    fn programs(&self) -> &'static [&'static str] {
        &["uftp", "uftpd"]
    }

    fn receiver(&self, number: usize, copy: &Path) -> Result<Launch> {
        Ok(external("uftpd", &format!("uftpd {number}"))?
            .args(["-d", "-t", "-q"])
            .args(UFTP_COMMON)
            .args(["-U", &format!("0x{number:08x}"), "-D"])
            .arg(folder(copy)?))
    }

    fn sender(&self, stage: &Stage) -> Result<Launch> {
        let hosts: Vec<String> = (1..=stage.receivers.len())
            .map(|number| format!("0x{number:08x}"))
            .collect();
        Ok(external("uftp", "uftp")?
            .args(UFTP_COMMON)
            .args(["-R", &self.rate_kbps.to_string(), "-P", "239.9.1.1"])
            .args(["-C", if self.tfmcc { "tfmcc" } else { "none" }])
            .args(["-Y", "none", "-b", "1464", "-r", "0.01:0.005:0.5"])
            .args(["-H", &hosts.join(",")])
            .arg(&stage.file))
    }

    fn receivers_end(&self) -> bool {
        false
    }
}

#[derive(Default)]
pub(crate) struct Udpcast {
    /// `--max-bitrate`, if any.
    pub(crate) rate: Option<&'static str>,
    /// `--fec`, if any: parity sent with each slice, `INTERLEAVExREDUNDANCY/STRIPE`.
    pub(crate) parity: Option<&'static str>,
}

const UDPCAST_COMMON: [&str; 4] = ["--nokbd", "--no-progress", "--interface", "eth0"];

impl Tool for Udpcast {
    fn name(&self) -> String {
        match self.parity {
            None => "udpcast",
            Some(_) => "udpcast with parity",
        }
        .to_owned()
    }

    fn programs(&self) -> &'static [&'static str] {
        &["udp-sender", "udp-receiver"]
    }

    fn receiver(&self, number: usize, copy: &Path) -> Result<Launch> {
        Ok(external("udp-receiver", &format!("udp-receiver {number}"))?
            .args(UDPCAST_COMMON)
            .arg("--file")
            .arg(copy))
    }

    fn sender(&self, stage: &Stage) -> Result<Launch> {
        let receivers = stage.receivers.len().to_string();
        let parity = self.parity.into_iter().flat_map(|fec| ["--fec", fec]);
        let rate = self
            .rate
            .into_iter()
            .flat_map(|rate| ["--max-bitrate", rate]);
        Ok(external("udp-sender", "udp-sender")?
            .args(UDPCAST_COMMON)
            .args(parity)
            .args(rate)
            .args(["--full-duplex", "--rexmit-hello-interval", "10"])
            .args(["--retries-until-drop", "10000", "--max-wait", "10"])
            .args(["--min-receivers", &receivers, "--file"])
            .arg(&stage.file))
    }

    fn receivers_end(&self) -> bool {
        true
    }
}
