//! The value of `--parity`.

use std::str::FromStr;

use ltp_linux::Parity;

/// How the sender repairs; `None`: without parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParityChoice(pub(crate) Option<Parity>);

/// What is wrong with any other value.
const HELP: &str = "use a share of 0% to 100%, \"auto\" or \"off\"";

impl FromStr for ParityChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parity = match text.trim() {
            "off" => None,
            "auto" => Some(Parity::Auto),
            share => {
                let share = share.strip_suffix('%').ok_or(HELP)?;
                match share.trim_end().parse() {
                    Ok(0) => Some(Parity::OnRequest),
                    Ok(share @ 1..=100) => Some(Parity::Percent(share)),
                    _ => return Err(HELP),
                }
            }
        };
        Ok(ParityChoice(parity))
    }
}

#[cfg(test)]
mod tests {
    use super::{HELP, ParityChoice};
    use ltp_linux::Parity;

    #[test]
    fn shares_and_words() {
        let parsed = |text: &str| text.parse().map(|ParityChoice(parity)| parity);
        assert_eq!(parsed("off"), Ok(None));
        assert_eq!(parsed("auto"), Ok(Some(Parity::Auto)));
        assert_eq!(parsed("0%"), Ok(Some(Parity::OnRequest)));
        assert_eq!(parsed("5%"), Ok(Some(Parity::Percent(5))));
        assert_eq!(parsed(" 100 %"), Ok(Some(Parity::Percent(100))));
        for wrong in ["", "5", "101%", "-1%", "2.5%", "on", "%"] {
            assert_eq!(parsed(wrong), Err(HELP), "{wrong}");
        }
    }
}
