//! LIVENESS: a data node tells its control node whether it receives from a peer's data nodes.
//!
//! ```text
//! +-------------------------------+
//! |  peer (4)                     |
//! +---------------+---------------+
//! |  state        |
//! +---------------+
//! ```

use crate::types::PeerId;

numbered! {
    /// State of a peer's data nodes.
    State {
        /// No session comes from there or goes there, or none of them has ever answered.
        Unknown = 0 "unknown",
        /// At least one of them sends.
        Alive = 1 "alive",
        /// They used to send, and none does any more.
        Silent = 2 "silent",
    }
}

message! {
    /// A LIVENESS message.
    #[derive(Copy)]
    Repr = Liveness {
        /// The peer.
        peer: PeerId,
        /// State of its data nodes.
        state: State,
    }
}
