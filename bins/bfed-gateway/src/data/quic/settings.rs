//! Settings of QUIC connections.

use std::sync::Arc;
use std::time::Duration;

use control_stream::links::LinkCredentials;
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig,
    VarInt,
};

/// Received bytes of a stream that may wait to be read. While a session is paused, no more are accepted.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// Sent bytes of a connection that may wait for acknowledgements.
pub(crate) const SEND_WINDOW: u64 = 8 << 20;
/// Bytes of datagrams that wait in a connection to be sent. It is short, so that frames wait in the plane, which drops
/// those that are too late.
pub(crate) const DATAGRAM_BUFFER: usize = 64 << 10;
/// Bytes of received datagrams that wait to be forwarded.
const DATAGRAM_RECEIVE_BUFFER: usize = 1 << 20;
/// Silence after which a connection ends; PROBEs are sent four times a second while sessions use it.
const IDLE: Duration = Duration::from_secs(10);
/// Headers of IPv6 and UDP.
const HEADERS: usize = 48;
/// Packets that QUIC sends without probing the path (RFC 9000 §14).
const FIRST_MTU: usize = 1200;

/// What limits the rate of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Congestion {
    /// BBR: the rate is what arrives, so that single losses do not lower it.
    #[default]
    Bbr,
    /// CUBIC (RFC 9438): each loss lowers the rate.
    Cubic,
}

impl Congestion {
    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Congestion::Bbr => Arc::new(BbrConfig::default()),
            Congestion::Cubic => Arc::new(CubicConfig::default()),
        }
    }
}

/// The configuration of an endpoint and of its connections.
pub(super) struct Settings {
    pub(super) endpoint: EndpointConfig,
    pub(super) server: ServerConfig,
    pub(super) client: ClientConfig,
}

impl Settings {
    pub(super) fn new(
        credentials: LinkCredentials,
        mtu: usize,
        congestion: Congestion,
    ) -> Result<Settings, String> {
        let payload = mtu.saturating_sub(HEADERS).clamp(FIRST_MTU, 65_000);
        let payload = u16::try_from(payload).unwrap_or(u16::MAX);
        let transport = Arc::new(transport(payload, congestion));
        let wrong = |error: &dyn std::fmt::Display| format!("cannot use the key for QUIC: {error}");
        let server = QuicServerConfig::try_from(credentials.server).map_err(|e| wrong(&e))?;
        let client = QuicClientConfig::try_from(credentials.client).map_err(|e| wrong(&e))?;
        let mut server = ServerConfig::with_crypto(Arc::new(server));
        // A data node has one address, by which peers know it.
        server.migration(false);
        server.transport_config(Arc::clone(&transport));
        let mut client = ClientConfig::new(Arc::new(client));
        client.transport_config(transport);
        let mut endpoint = EndpointConfig::default();
        // The bit tells QUIC packets from others.
        endpoint.grease_quic_bit(false);
        endpoint
            .max_udp_payload_size(payload)
            .map_err(|e| wrong(&e))?;
        Ok(Settings {
            endpoint,
            server,
            client,
        })
    }
}

fn transport(payload: u16, congestion: Congestion) -> TransportConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(payload);
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(congestion.factory())
        // The other end may open streams once it has proved its certificate.
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        // Paused sessions leave their bytes unread; they must not stop others.
        .receive_window(VarInt::MAX)
        .send_window(SEND_WINDOW)
        .datagram_send_buffer_size(DATAGRAM_BUFFER)
        .datagram_receive_buffer_size(Some(DATAGRAM_RECEIVE_BUFFER))
        .mtu_discovery_config(Some(discovery))
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok());
    transport
}
