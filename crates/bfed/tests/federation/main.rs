//! Gateways that exchange messages: sessions step by step, routing, trees, whole federations.

mod addresses;
mod changes;
mod clients;
mod costs;
mod discovery;
mod downstream;
mod elected;
mod examined;
mod figures;
mod forgotten;
mod kept;
mod lying;
mod node;
mod nodes;
mod oracle;
mod particular;
mod peerings;
mod requests;
mod restarts;
mod sessions;
mod stage;
mod takeover;
mod transport;
mod trees;
mod upstream;
mod world;
