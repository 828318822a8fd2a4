//! Loads.
use lms_xdp::{FastPath, Limits};
#[test]
fn loads() {
    let limits = Limits {
        groups: 100,
        interfaces: 8,
    };
    match FastPath::load(limits) {
        Ok(_) => {}
        Err(error) => {
            let mut e: &dyn std::error::Error = &error;
            let mut text = error.to_string();
            while let Some(s) = e.source() {
                text += &format!(": {s}");
                e = s;
            }
            let n = text.len();
            panic!(
                "{}\n ... {}",
                &text[..n.min(600)],
                &text[n.saturating_sub(3000)..]
            );
        }
    }
}
