//! The states of a connection.

/// Connection state (RFC 9293 §3.3.2). LISTEN belongs to the listener, not to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// SYN sent, no answer yet.
    SynSent,
    /// SYN received and sent, not acknowledged yet.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We have closed, the FIN is not acknowledged yet.
    FinWait1,
    /// We have closed, the FIN is acknowledged; the other side still sends.
    FinWait2,
    /// The other side has closed; we still send.
    CloseWait,
    /// Both have closed at the same time; our FIN is not acknowledged yet.
    Closing,
    /// The other side closed first, then we; our FIN is not acknowledged yet.
    LastAck,
    /// Both FINs are acknowledged; late segments are still answered.
    TimeWait,
    /// Nothing is left.
    Closed,
}

impl State {
    /// Whether both sides have agreed on sequence numbers.
    #[must_use]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Whether the other side may still send data.
    #[must_use]
    pub const fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether data may be sent to the other side.
    #[must_use]
    pub const fn may_send(self) -> bool {
        matches!(self, State::Established | State::CloseWait)
    }

    /// Whether data or a FIN of ours may be unacknowledged.
    pub(crate) const fn sends(self) -> bool {
        matches!(
            self,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck
        )
    }

    /// The state after our FIN was sent.
    pub(crate) const fn after_fin_sent(self) -> State {
        match self {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        }
    }

    /// The state after our FIN was acknowledged.
    pub(crate) const fn after_fin_acked(self) -> State {
        match self {
            State::FinWait1 => State::FinWait2,
            State::Closing => State::TimeWait,
            State::LastAck => State::Closed,
            other => other,
        }
    }

    /// The state after the other side's FIN was received in order.
    pub(crate) const fn after_fin_received(self) -> State {
        match self {
            State::SynReceived | State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            other => other,
        }
    }
}
