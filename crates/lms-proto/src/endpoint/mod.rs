//! The endpoint's side (LMS-API, LMS §6.3): requests, dmcasts and the offer to be a replier.
