//! Each active service at one relay whose neighbours are played by the test.

#![allow(
    unused_must_use,
    reason = "what a hand does is seen in what the relay does next"
)]

mod election;
mod feedback;
mod hand;
mod hostile;
mod joined;
mod parents;
mod repairs;
mod silence;
mod stalled;
mod status;
mod track_and_repair;
mod upward;
