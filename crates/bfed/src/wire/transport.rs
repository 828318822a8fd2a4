//! How the data nodes of two gateways send to each other: agreed in [`OPEN`](super::open), told to data nodes in
//! [`ALLOCATE`](super::allocate).

numbered! {
    /// Transport between data nodes.
    Transport {
        /// UDP with TFRC for real-time sessions, TCP for bulk: neither encrypted nor authenticated.
        Plain = 1 "plain",
        /// QUIC: datagrams for real-time sessions, a stream for each flow of a bulk session.
        Quic = 2 "quic",
    }
}
