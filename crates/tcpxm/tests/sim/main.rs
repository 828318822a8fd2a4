//! Endpoints in virtual time, over links that misbehave.

mod common;
mod group;
mod stragglers;
mod unicast;
