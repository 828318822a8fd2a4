//! Headers, encapsulation and the router's forwarding path.

/// Runs a check with each carrier of each family.
macro_rules! by_each_carrier {
    ($check:ident) => {
        for by in [
            By::Option(Form::Classic),
            By::Option(Form::Own),
            By::Datagram,
        ] {
            println!("IPv4, {by:?}");
            $check::<Ipv4Addr>(by);
        }
        for by in [By::Option(Form::Own), By::Datagram] {
            println!("IPv6, {by:?}");
            $check::<Ipv6Addr>(by);
        }
    };
}

mod carriers;
mod common;
mod elected;
mod encap;
mod flood;
mod hierarchy;
mod injected;
mod ipv4;
mod look_ahead;
mod memory;
mod mutations;
mod net;
mod no_alloc;
mod policies;
mod prop_forward;
mod refusals;
mod verdicts;
