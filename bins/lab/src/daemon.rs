//! Daemons in a network, each with a configuration file and a status socket of its own.

use crate::prelude::*;

/// A running `lms-router`, `dyram-relay` or `bfed-gateway`.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// Where it runs.
    pub(crate) node: NodeId,
    /// Its name in files, logs and messages.
    pub(crate) name: String,
    program: &'static str,
    verb: &'static str,
    cores: Vec<usize>,
    config: PathBuf,
    pub(crate) process: Process,
}

impl Daemon {
    /// Starts one that needs no name: the first argument is its verb, and the node's name is its own.
    pub(crate) fn start(
        network: &Network,
        program: &'static str,
        node: NodeId,
        sections: &str,
    ) -> Result<Daemon> {
        let name = network.plan().name(node).to_owned();
        Daemon::start_as(network, (program, "run"), node, name, sections, &[])
    }

    /// Starts a program with a verb in a node, confined to these cores, if any. Its configuration has these sections
    /// and `[daemon]`.
    pub(crate) fn start_as(
        network: &Network,
        (program, verb): (&'static str, &'static str),
        node: NodeId,
        name: String,
        sections: &str,
        cores: &[usize],
    ) -> Result<Daemon> {
        let folder = Path::new(SCRATCH).join(program);
        std::fs::create_dir_all(&folder)?;
        let config = folder.join(format!("{name}.toml"));
        let socket = config.with_extension("sock");
        let text = format!("{sections}\n[daemon]\nsocket = \"{}\"\n", socket.display());
        std::fs::write(&config, text)?;
        let launch = launch((program, verb), &name, &config, cores);
        Ok(Daemon {
            process: network.start(node, launch)?,
            node,
            name,
            program,
            verb,
            cores: cores.to_vec(),
            config,
        })
    }

    /// Starts it again; stops it first if it still runs.
    pub(crate) fn restart(&mut self, network: &Network) -> Result<()> {
        if self.process.ended().is_none() {
            self.process.stop(Duration::from_secs(60))?;
        }
        let program = (self.program, self.verb);
        let launch = launch(program, &self.name, &self.config, &self.cores);
        self.process = network.start(self.node, launch)?;
        self.wait(Duration::from_secs(20))
    }

    pub(crate) fn wait(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while let Err(error) = self.status("overview") {
            if self.process.ended().is_some() || Instant::now() > end {
                bail!(
                    "{} does not come up: {error:#}\n{}",
                    self.name,
                    self.process.tail()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Queries its status socket.
    pub(crate) fn status(&self, show: &str) -> Result<Value> {
        let socket = self.config.with_extension("sock");
        let answer = daemon_kit::client::query(&socket, self.program, &json!({"show": show}));
        answer.with_context(|| format!("{} on {}", self.program, self.name))
    }

    pub(crate) fn counters(&self) -> Result<Value> {
        self.status("counters")
    }

    /// `lms-router`'s entry of a group, or null.
    pub(crate) fn group(&self, group: &str) -> Result<Value> {
        let all = self.status("groups")?;
        let mut entries = all["groups"].as_array().into_iter().flatten();
        let entry = entries.rfind(|entry| entry["group"] == group);
        Ok(entry.cloned().unwrap_or_default())
    }
}

fn launch((program, verb): (&str, &str), name: &str, config: &Path, cores: &[usize]) -> Launch {
    Launch::carried(program)
        .named(format!("{program} on {name}"))
        .args([verb, "--config"])
        .arg(config)
        .cores(cores)
}
