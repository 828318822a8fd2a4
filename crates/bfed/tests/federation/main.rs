//! Gateways that talk to each other: sessions step by step, routing, trees, whole federations.

mod changes;
mod figures;
mod oracle;
mod sessions;
mod stage;
mod takeover;
mod trees;
mod world;
