//! What serves the subscribers: a gateway, or `moq-relay`, each on the server's core.

use crate::prelude::*;
use crate::scenarios::bfed::load::Forwarders;

/// Port of MoQ; the namespace belongs to the scenario: it is free.
const PORT: u16 = 4443;
/// Most subscribers: the gateway's limit of clients.
pub(super) const MAX_SUBSCRIBERS: usize = 4000;

/// A server of Media over QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gateway,
    Relay,
}

impl Kind {
    /// Its name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gateway => "gateway",
            Kind::Relay => "moq-relay",
        }
    }
}

/// Returns `moq-relay`: the file that `MOQ_RELAY` names, else the installed one.
pub(super) fn relay() -> Option<PathBuf> {
    match std::env::var_os("MOQ_RELAY") {
        Some(path) => Some(PathBuf::from(path)).filter(|path| path.is_file()),
        None => installed("moq-relay"),
    }
}

/// Where a server is, and the certificate that it shows.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) url: String,
    pub(super) certificate: PathBuf,
}

impl Place {
    pub(super) fn new(address: Ipv4Addr, certificate: &Path) -> Place {
        Place {
            url: format!("https://{address}:{PORT}/"),
            certificate: certificate.to_owned(),
        }
    }
}

/// Starts a server at a node of the network, on these cores. It shows this certificate, whose key is the second file.
pub(super) fn start(
    kind: Kind,
    network: &Network,
    node: NodeId,
    files: &[PathBuf; 2],
    cores: &[usize],
) -> Result<Forwarders> {
    let address = network.plan().address(node);
    let process = match kind {
        Kind::Gateway => {
            let name = network.plan().name(node).to_owned();
            let text = configuration(address, files);
            let program = ("bfed-gateway", "run");
            let mut daemon = Daemon::start_as(network, program, node, name, &text, cores)?;
            daemon.wait(Duration::from_secs(20))?;
            daemon.process
        }
        Kind::Relay => {
            let program = relay().context("moq-relay is not installed")?;
            let launch = Launch::external(program, kind.name())
                .cores(cores)
                .args(["--server-bind", &format!("{address}:{PORT}")])
                .args(["--auth-public", ""])
                .arg("--tls-cert")
                .arg(&files[0])
                .arg("--tls-key")
                .arg(&files[1]);
            network.start(node, launch)?
        }
    };
    Ok(Forwarders::new(vec![process]))
}

fn configuration(own: Ipv4Addr, [certificate, key]: &[PathBuf; 2]) -> String {
    format!(
        "[gateway]\nnetwork = 1\nnumber = 1\nlisten = \"127.0.0.1:4140\"\n\n\
         [data]\nlisten = \"127.0.0.1:4141\"\nnodes = 1\n\n\
         [network]\nkind = \"moq\"\nlisten = \"127.0.0.1:8081\"\nmediator = \"127.0.0.1:8080\"\n\
         publish = [\"0.0.0.0/0\"]\nmoq-listen = \"{own}:{PORT}\"\nmoq-pin = true\n\
         moq-certificate = \"{}\"\nmoq-key = \"{}\"\n\
         moq-clients = {limit}\nmoq-clients-per-address = {limit}\n",
        certificate.display(),
        key.display(),
        // The source is a client as well.
        limit = MAX_SUBSCRIBERS + 1,
    )
}
