//! Endpoints in virtual time, over links that misbehave.

mod alternatives;
mod bbr;
mod beside;
mod common;
mod flows;
mod group;
mod hostile;
mod keyed;
mod liars;
mod losses;
mod path;
mod rates;
mod stragglers;
mod unicast;
