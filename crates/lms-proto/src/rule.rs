//! The forwarding rule for requests, a pure function over one entry.
