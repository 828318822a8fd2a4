//! A client that has the key and does as it likes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event,
};

use super::{NAME, secret};

pub(crate) struct Raw {
    socket: UdpSocket,
    endpoint: Endpoint,
    pub(crate) connection: Connection,
    handle: ConnectionHandle,
    pub(crate) events: Vec<Event>,
}

impl Raw {
    /// Begins a handshake; sends nothing yet.
    pub(crate) fn new(to: SocketAddr, alpn: &[u8]) -> Raw {
        let mut tls = rustls::ClientConfig::clone(&secret(1).client);
        tls.alpn_protocols = vec![alpn.to_vec()];
        let tls = QuicClientConfig::try_from(tls).expect("TLS 1.3");
        let client = ClientConfig::new(Arc::new(tls));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let connected = endpoint.connect(Instant::now(), client, to, NAME);
        let (handle, connection) = connected.expect("a connection");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let timeout = Some(Duration::from_millis(2));
        socket.set_read_timeout(timeout).expect("a time limit");
        Raw {
            socket,
            endpoint,
            connection,
            handle,
            events: Vec::new(),
        }
    }

    /// Sends what the connection has to send.
    pub(crate) fn send(&mut self) {
        let mut buffer = Vec::new();
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(answer);
            }
        }
        while let Some(transmit) = self
            .connection
            .poll_transmit(Instant::now(), 1, &mut buffer)
        {
            let bytes = &buffer[..transmit.size];
            self.socket
                .send_to(bytes, transmit.destination)
                .expect("sent");
            buffer.clear();
        }
    }

    /// Sends, receives for a moment, and collects the events.
    pub(crate) fn step(&mut self) {
        self.send();
        let mut bytes = [0; 2_000];
        while let Ok((len, from)) = self.socket.recv_from(&mut bytes) {
            let (now, data) = (Instant::now(), BytesMut::from(&bytes[..len]));
            let mut response = Vec::new();
            let event = self
                .endpoint
                .handle(now, from, None, None, data, &mut response);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
        }
        if self
            .connection
            .poll_timeout()
            .is_some_and(|at| at <= Instant::now())
        {
            self.connection.handle_timeout(Instant::now());
        }
        self.events
            .extend(std::iter::from_fn(|| self.connection.poll()));
        self.send();
    }

    pub(crate) fn is_connected(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|event| matches!(event, Event::Connected))
    }

    /// Returns why the connection was lost, once it was.
    pub(crate) fn lost(&self) -> Option<String> {
        self.events.iter().find_map(|event| match event {
            Event::ConnectionLost { reason } => Some(reason.to_string()),
            _ => None,
        })
    }
}
