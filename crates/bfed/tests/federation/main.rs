//! Gateways that exchange messages: sessions step by step, routing, trees, whole federations.

mod addresses;
mod changes;
mod examined;
mod figures;
mod forgotten;
mod lying;
mod node;
mod oracle;
mod sessions;
mod stage;
mod takeover;
mod trees;
mod world;
