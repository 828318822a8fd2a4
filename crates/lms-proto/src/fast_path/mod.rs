//! The fast path: requests and dmcasts of the common shape, decided without the router machine.
//!
//! For drivers that forward below it, such as an XDP program: the machine publishes its state as records
//! ([`Router::fast_path`](crate::Router::fast_path)), the driver keeps them in its own tables ([`Tables`]), and [`request`]
//! and [`dmcast`] decide and edit packets by them: with the rule, the limits, the numbers and the cookies of the machine.
//! Whatever they do not decide is [`Action::Pass`], unchanged, and belongs to the machine.
//!
//! What is decided here:
//!
//! * the option is the only one of its IPv4 header, in either form, and a dmcast has it in its outer header;
//! * the entry is a source tree's, `(S, G)`, and published: under [`Policy::Hierarchy`](crate::router::Policy) or
//!   [`Policy::Static`](crate::router::Policy), where the replier's link address is known;
//! * all interfaces of the entry have numbers below 48, as has the packet's, and the driver can send on the one that the
//!   packet goes to.
//!
//! Token buckets and credit are words of 64 bits that both the driver and the machine change, by compare-and-swap
//! ([`Tables::change`]; [`Router::set_words`](crate::Router::set_words)): the limits hold for both together.
//!
//! Nothing here walks, allocates or panics, and all loops have constant bounds, so that a verifier of BPF can follow.

mod dmcast;
mod publish;
mod records;
mod request;

pub use self::dmcast::dmcast;
pub use self::publish::Changes;
pub use self::records::{Port, PortCounters, Record, Settings, Totals, Words};
pub use self::request::request;

use core::net::Ipv4Addr;

use crate::router::{DropReason, NUMBER_ROTATION};
use crate::rule::Reason;
use crate::table::CREDIT_TICK;
use crate::{Iface, Key, LinkAddr};

/// A time of the machine's clock, in nanoseconds since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// The time.
    pub now_ns: u64,
}

impl Clock {
    #[inline]
    fn now_ns(self) -> i64 {
        self.now_ns.cast_signed()
    }

    #[inline]
    fn tick(self) -> u32 {
        (self.now_ns / (CREDIT_TICK.total_micros() * 1_000)) as u32
    }

    #[inline]
    fn period(self) -> u32 {
        (self.now_ns / (NUMBER_ROTATION.total_micros() * 1_000)) as u32
    }
}

/// How a packet arrived: by an interface, from a link address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The interface.
    pub iface: Iface,
    /// The sender of its frame.
    pub link_source: LinkAddr,
}

/// A word that is changed by compare-and-swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The requests of an entry, by [`Record::slot`].
    Requests(u32),
    /// Its dmcasts.
    Dmcasts(u32),
    /// Its credit.
    Credit(u32),
    /// The wrong numbers that arrived on an interface.
    WrongNumbers(Iface),
    /// The requests of all entries.
    AllRequests,
    /// The dmcasts of all entries.
    AllDmcasts,
}

/// What became of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// It was changed.
    Yes,
    /// The change was refused.
    Refused,
    /// Other processors changed it during every try, or there is no such word.
    Busy,
}

/// What an address is to this router, by the longest prefix among the subnets of its interfaces and its own addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// It lies on the subnet of this interface.
    OnLink(Iface),
    /// It lies on no link of this router.
    Elsewhere,
    /// It is an address of this router, or of several of its links.
    Unclear,
}

/// The tables of a driver.
pub trait Tables {
    /// The limits and secrets.
    fn settings(&self) -> Option<&Settings>;

    /// The record of a source and a group.
    fn record(&self, key: &Key<Ipv4Addr>) -> Option<&Record>;

    /// The record of an interface.
    fn port(&self, iface: Iface) -> Option<&Port>;

    /// What an address is to this router.
    fn whose(&self, address: Ipv4Addr) -> Whose;

    /// The value of a word; 0 where there is none.
    fn read(&self, word: Word) -> u64;

    /// Replaces a word by what `change` makes of it, in one step. Where another processor changes it at the same time, `change`
    /// may be called again, a few times.
    fn change(&self, word: Word, change: impl Fn(u64) -> Option<u64>) -> Changed;
}

/// What is to be done with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is for the machine. Neither packet nor state has changed.
    Pass,
    /// To be dropped, as the machine does, or because a word is busy.
    Drop,
    /// To be sent: a request to the parent.
    ToParent,
    /// To be sent: a request that has turned here.
    Turn,
    /// To be sent: a request from the parent to the replier.
    ToReplier,
    /// To be sent: the packet of a dmcast.
    Dmcast,
}

/// The verdict on a packet. All fields are always there: of a value that is there in some cases only, a compiler for BPF
/// would make registers that the verifier refuses to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What the machine would do. Where the packet is to be sent, it is edited.
    pub action: Action,
    /// Why it is to be dropped all the same, or by the machine; [`Refusal::None`]: it is not.
    pub refusal: Refusal,
    /// The interface to send it on; of a packet that is too long for it, too.
    pub iface: Iface,
    /// Destination of its frame.
    pub link: LinkAddr,
    /// Bytes to be taken off the packet's start.
    pub strip: u16,
    /// Length of what is left in bytes; what follows is padding of the frame.
    pub len: u16,
}

impl Verdict {
    /// A packet for the machine.
    pub const PASS: Verdict = Verdict {
        action: Action::Pass,
        refusal: Refusal::None,
        iface: Iface::UNSET,
        link: LinkAddr([0; 6]),
        strip: 0,
        len: 0,
    };

    #[inline(always)]
    fn drop(refusal: Refusal) -> Verdict {
        Verdict {
            action: Action::Drop,
            refusal,
            ..Verdict::PASS
        }
    }

    /// A packet that a limit drops: one of the machine's, or one behind its verdict `action`.
    #[inline(always)]
    fn limited(action: Action, refusal: Refusal) -> Verdict {
        let by_machine = !matches!(refusal, Refusal::AllRequests | Refusal::AllDmcasts);
        Verdict {
            action: if by_machine { Action::Drop } else { action },
            ..Verdict::drop(refusal)
        }
    }

    #[inline(always)]
    fn too_long(action: Action, iface: Iface) -> Verdict {
        Verdict {
            action,
            iface,
            ..Verdict::drop(Refusal::TooLong)
        }
    }
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Why a packet is dropped: the reasons of the machine ([`DropReason`]) that come up here, and the driver's own.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Refusal {
            /// It is not dropped.
            None,
            $($(#[$doc])* $name,)*
            /// The limit on requests of all groups.
            AllRequests,
            /// The limit on dmcasts of all groups.
            AllDmcasts,
            /// Longer than the MTU of the interface that it goes to.
            TooLong,
            /// Other processors changed the same word during every try.
            Busy,
        }

        impl Refusal {
            /// All, by number.
            pub const ALL: &[Refusal] = &[
                Refusal::None,
                $(Refusal::$name,)*
                Refusal::AllRequests,
                Refusal::AllDmcasts,
                Refusal::TooLong,
                Refusal::Busy,
            ];

            /// The reason as the machine counts it; `None` for the driver's own.
            pub fn reason(self) -> Option<DropReason> {
                match self {
                    $(Refusal::$name => Some(DropReason::$name),)*
                    _ => None,
                }
            }
        }
    };
}

refusals! {
    /// See [`DropReason::NotInEntry`].
    NotInEntry,
    /// See [`DropReason::TurnedFromBelow`].
    TurnedFromBelow,
    /// See [`DropReason::UnturnedFromParent`].
    UnturnedFromParent,
    /// See [`DropReason::NoReplier`].
    NoReplier,
    /// See [`DropReason::NoParent`].
    NoParent,
    /// See [`DropReason::TtlExpired`].
    TtlExpired,
    /// See [`DropReason::RequestRate`].
    RequestRate,
    /// See [`DropReason::NotOnTree`].
    NotOnTree,
    /// See [`DropReason::NoCredit`].
    NoCredit,
    /// See [`DropReason::WrongNumberRate`].
    WrongNumberRate,
    /// See [`DropReason::NotDownstream`].
    NotDownstream,
    /// See [`DropReason::Cookie`].
    Cookie,
    /// See [`DropReason::InnerTtlExpired`].
    InnerTtlExpired,
    /// See [`DropReason::DmcastRate`].
    DmcastRate,
}

impl From<Reason> for Refusal {
    #[inline(always)]
    fn from(reason: Reason) -> Refusal {
        match reason {
            Reason::TurnedFromBelow => Refusal::TurnedFromBelow,
            Reason::NoReplier => Refusal::NoReplier,
            Reason::UnturnedFromParent => Refusal::UnturnedFromParent,
            Reason::NotInEntry => Refusal::NotInEntry,
        }
    }
}

/// The Ethernet address of a group (RFC 1112 §6.4).
#[inline]
fn group_link(group: Ipv4Addr) -> LinkAddr {
    let [_, b, c, d] = group.octets();
    LinkAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

/// Changes a word.
#[inline(always)]
fn take<T: Tables>(
    tables: &T,
    word: Word,
    refusal: Refusal,
    change: impl Fn(u64) -> Option<u64>,
) -> Refusal {
    match tables.change(word, change) {
        Changed::Yes => Refusal::None,
        Changed::Refused => refusal,
        Changed::Busy => Refusal::Busy,
    }
}
