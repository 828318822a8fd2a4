//! The configuration of each process.

use std::fmt::Write as _;

use super::{Federation, Kind, Part, cluster_secret, secret};
use crate::prelude::*;

impl Kind {
    /// Its section of a gateway's configuration; data processes are numbered.
    fn section(self, interface: &str, own: Ipv4Addr, part: Part) -> String {
        // Data nodes on several hosts have different pools.
        let number = match part {
            Part::Data(_, number) => number,
            _ => 0,
        };
        match self {
            Kind::Ip => format!(
                "kind = \"ip\"\ninterface = \"{interface}\"\ngroups = \"239.255.{}.0/20\"\n\
                 export = [\"224.0.0.0/4\"]\n",
                16 * number
            ),
            Kind::Ssm => {
                format!(
                    "kind = \"ssm\"\ninterface = \"{interface}\"\ngroups = \"232.98.0.0/16\"\n\
                     export = [\"232.0.0.0/8\"]\n"
                )
            }
            Kind::Http | Kind::Moq => {
                let (kind, moq) = match self {
                    Kind::Moq => ("moq", moq(own)),
                    _ => ("http", String::new()),
                };
                format!(
                    "kind = \"{kind}\"\nlisten = \"{own}:8081\"\nmediator = \"{own}:8080\"\n\
                     publish = [\"0.0.0.0/0\"]\n{moq}"
                )
            }
        }
    }
}

/// The listener for MoQ, with a certificate that the scenario has made.
fn moq(own: Ipv4Addr) -> String {
    let scratch = Path::new(SCRATCH).display();
    format!(
        "moq-listen = \"{own}:8082\"\nmoq-pin = true\n\
         moq-certificate = \"{scratch}/certificate.pem\"\nmoq-key = \"{scratch}/key.pem\"\n"
    )
}

impl Federation {
    pub(super) fn configuration(&self, part: Part) -> Result<String> {
        let at = part.island();
        let island = &self.islands[at];
        let (node, kind) = (self.node(part), island.design.kind);
        let own = self.on_lan(at, node);
        let lan = self.network.plan().interface_on(node, island.lan);
        let lan = lan.context("a process off its island")?;
        let mut text = format!(
            "[gateway]\nnetwork = {}\nnumber = 1\nkey-file = \"{}\"\nmulti-source = {}\n{}\n",
            at + 1,
            secret().display(),
            kind == Kind::Ip,
            island.design.keys,
        );
        if !matches!(part, Part::Data(..)) {
            text += "listen = \"0.0.0.0:4140\"\n";
            self.peers(at, &mut text)?;
        }
        text += &format!("\n[network]\n{}\n", kind.section(&lan, own, part));
        match part {
            Part::All(_) => text += &format!("[data]\nlisten = \"{own}:4141\"\nnodes = 1\n"),
            Part::Control(_, number) => {
                text += &format!(
                    "[cluster]\nlisten = \"{own}:4142\"\nkey-file = \"{}\"\n",
                    cluster_secret().display()
                );
                if let Some(etcd) = &self.etcd {
                    text += &format!("[etcd]\n{etcd}name = \"{}\"\n", number + 1);
                }
            }
            Part::Data(_, number) => {
                let controls = self.parts(at).into_iter();
                let controls = controls.filter(|part| matches!(part, Part::Control(..)));
                let calls: Vec<String> = controls
                    .map(|control| format!("\"{}:4142\"", self.on_lan(at, self.node(control))))
                    .collect();
                text += &format!(
                    "[data]\nlisten = \"{own}:4141\"\nnodes = 1\nfirst-node = {}\n\
                     [cluster]\ncontrol = [{}]\nkey-file = \"{}\"\n",
                    number + 1,
                    calls.join(", "),
                    cluster_secret().display()
                );
            }
        }
        Ok(text + self.more)
    }

    /// `[[peer]]` for each peering of an island's gateway.
    fn peers(&self, at: usize, text: &mut String) -> Result<()> {
        for (peering, link) in &self.peerings {
            let Some(other) = peering.from(at) else {
                continue;
            };
            let head = self.node(self.parts(other)[0]);
            let address = match head == self.islands[other].gateway {
                true => self.network.plan().address_on(head, *link),
                false => Some(self.on_lan(other, head)),
            };
            let address = address.context("a gateway off its link")?;
            write!(
                text,
                "[[peer]]\nnetwork = {}\nnumber = 1\naddress = \"{address}:4140\"\ncost = {}\n",
                other + 1,
                peering.cost
            )?;
            // Its data nodes are on the island, not at the end of the link.
            let nodes = self
                .parts(other)
                .into_iter()
                .map(|part| format!("\"{}\"", self.on_lan(other, self.node(part))));
            let nodes: Vec<String> = nodes.collect();
            writeln!(text, "data-prefixes = [{}]", nodes.join(", "))?;
        }
        Ok(())
    }
}
