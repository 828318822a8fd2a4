//! What sessions are made of: addresses, URLs, frames, answers over HTTP.

mod address;
mod frames;
mod http;
mod url;
