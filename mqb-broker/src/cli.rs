//! The command line: flags on top of the configuration file, and what each exit code means.

use std::path::PathBuf;

use clap::Parser;
use mqb_core::config::Config;

use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  mqb-broker
      Listens on 127.0.0.1:30114, keeps its data in ./mqb-data, creates any domain on first use.
  mqb-broker --listen 0.0.0.0:30114 --data-dir /var/lib/mqb --durability flush
      For other machines, with data elsewhere; an ACK means written, synced within 100 ms.
  mqb-broker --config mqb.toml --check-config
      Says whether the file can be used, and if not, which line is wrong.
  mqb-broker --config mqb.toml --print-config
      Shows every key with its value and where the value comes from.

Signals:
  SIGTERM, SIGINT   finish what was accepted, flush, exit; a second one exits at once

Exit codes:
  0  stopped in order
  1  could not start or go on: an address in use, a directory in use, an error of the system
  2  wrong usage or configuration
  3  the data directory is damaged or of a newer format";

/// The mqb broker: a durable message broker for BlazingMQ clients.
#[derive(Parser, Debug, Default)]
#[command(name = "mqb-broker", version, about, after_help = EXAMPLES, max_term_width = 110)]
pub struct Args {
    /// TOML file with settings; flags beat it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address for BlazingMQ clients; port 0 takes any [default: 127.0.0.1:30114].
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Address of health checks and metrics; port 0 takes any [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Option<String>,
    /// Directory that holds everything that survives [default: ./mqb-data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// What an ACK means in domains that do not say otherwise: sync, flush or memory [default: sync].
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<String>,
    /// Threads that run sessions and queues; 0: one per core [default: 0].
    #[arg(long, value_name = "N")]
    pub processors: Option<String>,
    /// text or json [default: text].
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// error, warn, info, debug, trace, or directives as in info,mqb_broker::storage=debug [default: info].
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Check the configuration and exit.
    #[arg(long)]
    pub check_config: bool,
    /// Print every key with its value and the source of the value, and exit.
    #[arg(long)]
    pub print_config: bool,
}

impl Args {
    /// The configuration that the file and the flags make together, checked.
    ///
    /// **Errors**: [`Failure::Usage`] with the file and line, or the flag.
    pub fn load(&self) -> Result<Config, Failure> {
        let mut config = Config::default();
        if let Some(path) = &self.config {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::usage(format!("reading configuration {}: {error}", path.display()))
            })?;
            config
                .apply_file(&path.display().to_string(), &text)
                .map_err(Failure::usage)?;
        }
        for (flag, key, value) in self.flags() {
            if let Some(value) = value {
                config
                    .apply_flag(flag, key, value)
                    .map_err(Failure::usage)?;
            }
        }
        config.validate().map_err(Failure::usage)?;
        crate::logging::check_level(&config.log_level)
            .map_err(|problem| Failure::usage(format!("log.level: {problem}")))?;
        Ok(config)
    }

    fn flags(&self) -> [(&'static str, &'static str, &Option<String>); 7] {
        [
            ("--listen", "listen.address", &self.listen),
            ("--http", "http.address", &self.http),
            ("--data-dir", "storage.data_dir", &self.data_dir),
            ("--durability", "defaults.durability", &self.durability),
            ("--processors", "processors", &self.processors),
            ("--log-format", "log.format", &self.log_format),
            ("--log-level", "log.level", &self.log_level),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_well_formed() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    /// The help repeats defaults for people; it must not drift from those of the configuration.
    #[test]
    fn every_flag_sets_a_key_and_names_its_default() {
        use clap::CommandFactory;
        let help = Args::command().render_help().to_string();
        let defaults = mqb_core::config::documentation();
        for (flag, key, _) in Args::default().flags() {
            let (_, default, _) = defaults
                .iter()
                .find(|(path, ..)| path == key)
                .unwrap_or_else(|| panic!("{key}"));
            let default = format!("[default: {}]", default.trim_matches('"'));
            let line = help
                .lines()
                .skip_while(|line| !line.contains(flag))
                .take(3)
                .collect::<String>();
            let squeezed = line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                squeezed.contains(&default),
                "{flag}: {default} is not in {squeezed}"
            );
        }
    }
}
