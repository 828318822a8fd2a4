//! Two hosts and a link: on one the engine, on the other the kernel.

use std::cell::Cell;
use std::net::{TcpListener, TcpStream};

use tcpxm_tokio::{Carrier, Config, XmEndpoint, XmListener, XmStream};

use super::segments::Watch;
use crate::prelude::*;

/// The longest that anything may take.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// The port of the kernel's listener, and the first of the engine's: each has another, since an engine
/// keeps its port until the connection of the previous exchange has ended.
const PORT: u16 = 7_000;

/// The role of the engine in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

impl Role {
    pub(super) fn label(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Server => "server",
        }
    }
}

pub(super) struct Stage {
    network: Network,
    engine: NodeId,
    kernel: NodeId,
    port: Cell<u16>,
}

/// Both ends of one connection, and what keeps the engine's.
pub(super) struct Pair {
    pub(super) engine: XmStream,
    pub(super) kernel: TcpStream,
    _endpoint: XmEndpoint,
}

/// The engine's configuration: over IP, with time for a lost handshake.
pub(super) fn config(address: Ipv4Addr, port: u16) -> Config {
    let mut config = Config::new(SocketAddr::new(address.into(), port));
    config.machine.carrier = Carrier::Ip;
    config.machine.user_timeout = tcpxm::Duration::from_secs(60);
    config
}

/// What the kernel's side may wait for.
pub(super) fn patient(stream: TcpStream) -> Result<TcpStream> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

impl Stage {
    pub(super) fn new(shape: Shape, seed: u64) -> Result<Stage> {
        let mut plan = Plan::default();
        let (engine, kernel) = (plan.host("engine"), plan.host("kernel"));
        plan.link(engine, kernel, shape);
        Ok(Stage {
            network: Network::build(plan, seed)?,
            engine,
            kernel,
            port: Cell::new(PORT),
        })
    }

    /// Captures the segments at the engine's end.
    pub(super) fn watch(&self) -> Result<Watch> {
        let address = self.network.plan().address(self.engine);
        Watch::start(&self.network, self.engine, "eth0", address)
    }

    /// The kernel's TCP does without SACK, timestamps and window scaling from now on.
    pub(super) fn switch_kernel_options_off(&self) -> Result<()> {
        self.network.within(self.kernel, || {
            for name in ["tcp_sack", "tcp_timestamps", "tcp_window_scaling"] {
                let path = format!("/proc/sys/net/ipv4/{name}");
                std::fs::write(&path, "0").with_context(|| path)?;
            }
            Ok(())
        })
    }

    pub(super) fn endpoint(
        &self,
        port: u16,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<XmEndpoint> {
        let mut config = config(self.network.plan().address(self.engine), port);
        adjust(&mut config);
        self.network
            .within(self.engine, || Ok(XmEndpoint::open(&config)?))
            .context("the engine's socket")
    }

    pub(super) fn kernel_address(&self) -> SocketAddr {
        SocketAddr::new(self.network.plan().address(self.kernel).into(), PORT)
    }

    /// A listening socket of the kernel's.
    pub(super) fn kernel_listens(&self) -> Result<TcpListener> {
        let address = self.kernel_address();
        self.network
            .within(self.kernel, || Ok(TcpListener::bind(address)?))
            .context("the kernel's listener")
    }

    /// The kernel connects to an endpoint of the engine's.
    pub(super) fn kernel_connects(&self, endpoint: &XmEndpoint) -> Result<TcpStream> {
        let address = endpoint.local_address();
        self.network.within(self.kernel, || {
            Ok(TcpStream::connect_timeout(&address, LIMIT)?)
        })
    }

    pub(super) fn engine_listens(
        &self,
        adjust: impl FnOnce(&mut Config),
    ) -> Result<(XmEndpoint, XmListener)> {
        self.port.set(self.port.get() + 1);
        let endpoint = self.endpoint(self.port.get(), adjust)?;
        let listener = endpoint.listen()?;
        Ok((endpoint, listener))
    }

    /// A connection, opened by the side that the role names.
    pub(super) fn connect(&self, role: Role) -> Result<Pair> {
        self.connect_with(role, |_| {}, |_| Ok(()))
    }

    /// As [`Stage::connect`], with the engine and the kernel's socket set up specially.
    pub(super) fn connect_with(
        &self,
        role: Role,
        adjust: impl FnOnce(&mut Config),
        prepare: impl FnOnce(&TcpListener) -> Result<()>,
    ) -> Result<Pair> {
        match role {
            Role::Client => {
                let listener = self.kernel_listens()?;
                prepare(&listener)?;
                let endpoint = self.endpoint(0, adjust)?;
                let engine = endpoint.connect(self.kernel_address())?;
                let (kernel, _) = listener.accept().context("the kernel accepts")?;
                Ok(Pair {
                    engine,
                    kernel: patient(kernel)?,
                    _endpoint: endpoint,
                })
            }
            Role::Server => {
                let (endpoint, listener) = self.engine_listens(adjust)?;
                let kernel = self.kernel_connects(&endpoint);
                let kernel = kernel.context("the kernel connects")?;
                let engine = listener.wait(Some(LIMIT)).context("the engine accepts")?;
                Ok(Pair {
                    engine,
                    kernel: patient(kernel)?,
                    _endpoint: endpoint,
                })
            }
        }
    }
}
