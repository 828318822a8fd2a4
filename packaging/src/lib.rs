//! Man pages, shell completions and Debian packages of polycast's programs, all made of the definitions that
//! also make `--help`. `README.md` describes its use and the content of the packages.

mod deb;
mod documents;
mod programs;

pub use deb::{Machine, PACKAGES, Package, build};
pub use documents::write_documents;
pub use programs::{PROGRAMS, Program};
