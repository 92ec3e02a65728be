//! From a TOML document to settings, with the line of each problem.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, KEYS, Raw, default_path, rule_path};
use super::{Config, ConfigError, DomainConfig, DomainRule, NamePattern, Source};

/// Where we are in the file.
struct Document<'a> {
    file: &'a str,
    text: &'a str,
}

impl Document<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
    }

    fn error(&self, at: usize, problem: impl Into<String>) -> ConfigError {
        ConfigError::File {
            file: self.file.into(),
            line: self.line(at),
            problem: problem.into(),
        }
    }
}

pub(super) fn apply(config: &mut Config, file: &str, text: &str) -> Result<(), ConfigError> {
    let document = Document { file, text };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        document.error(at, error.message())
    })?;
    let table = table.into_inner();
    // Defaults first: the rules start from them, wherever in the file they stand.
    for (key, value) in &table {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("domain", _) => {}
            ("defaults", DeValue::Table(inner)) => apply_defaults(config, &document, inner)?,
            (_, DeValue::Table(inner)) => apply_section(config, &document, key, inner)?,
            (name, value) => apply_key(config, &document, name, key.span().start, value)?,
        }
    }
    if let Some(rules) = table.get("domain") {
        apply_rules(config, &document, rules)?;
    }
    Ok(())
}

fn apply_section(
    config: &mut Config,
    document: &Document<'_>,
    section: &Spanned<std::borrow::Cow<'_, str>>,
    table: &DeTable<'_>,
) -> Result<(), ConfigError> {
    let name = section.get_ref().as_ref();
    let prefix = format!("{name}.");
    if !KEYS.iter().any(|key| key.path.starts_with(&prefix)) {
        let known = KEYS
            .iter()
            .filter_map(|key| key.path.split_once('.'))
            .map(|(section, _)| section);
        let problem = keys::unknown(name, known.chain(["defaults", "domain"]));
        return Err(document.error(section.span().start, problem.replacen("key", "section", 1)));
    }
    for (key, value) in table {
        apply_key(
            config,
            document,
            &format!("{prefix}{}", key.get_ref()),
            key.span().start,
            value.get_ref(),
        )?;
    }
    Ok(())
}

fn apply_key(
    config: &mut Config,
    document: &Document<'_>,
    path: &str,
    at: usize,
    value: &DeValue<'_>,
) -> Result<(), ConfigError> {
    let key = keys::find(path).map_err(|problem| document.error(at, problem))?;
    (key.set)(config, Raw::File(value))
        .map_err(|problem| document.error(at, format!("{path}: {problem}")))?;
    config.sources.insert(
        key.path.into(),
        Source::File {
            line: document.line(at),
        },
    );
    Ok(())
}

fn apply_defaults(
    config: &mut Config,
    document: &Document<'_>,
    table: &DeTable<'_>,
) -> Result<(), ConfigError> {
    for (key, value) in table {
        let path = set_domain_key(&mut config.defaults, document, key, value.get_ref())?;
        config.sources.insert(
            default_path(path),
            Source::File {
                line: document.line(key.span().start),
            },
        );
    }
    Ok(())
}

fn set_domain_key(
    target: &mut DomainConfig,
    document: &Document<'_>,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &DeValue<'_>,
) -> Result<&'static str, ConfigError> {
    let (name, at) = (key.get_ref().as_ref(), key.span().start);
    let known = keys::find_domain(name).map_err(|problem| document.error(at, problem))?;
    (known.set)(target, Raw::File(value))
        .map_err(|problem| document.error(at, format!("{name}: {problem}")))?;
    Ok(known.path)
}

fn apply_rules(
    config: &mut Config,
    document: &Document<'_>,
    rules: &Spanned<DeValue<'_>>,
) -> Result<(), ConfigError> {
    let at = rules.span().start;
    let Some(array) = rules.get_ref().as_array() else {
        return Err(document.error(at, "`domain` is a list: write [[domain]]"));
    };
    for rule in array.iter() {
        let at = rule.span().start;
        let Some(table) = rule.get_ref().as_table() else {
            return Err(document.error(at, "each [[domain]] is a table"));
        };
        let name = table
            .get("name")
            .and_then(|name| name.get_ref().as_str())
            .ok_or_else(|| {
                document.error(
                    at,
                    "a [[domain]] needs a `name`: a domain, or a pattern with `*`",
                )
            })?;
        let name = NamePattern::parse(name).map_err(|problem| document.error(at, problem))?;
        if config.domains.iter().any(|other| other.name == name) {
            return Err(document.error(at, format!("domain `{}` is named twice", name.as_str())));
        }
        let mut rule = DomainRule {
            name,
            config: config.defaults.clone(),
        };
        for (key, value) in table {
            if key.get_ref() != "name" {
                let path = set_domain_key(&mut rule.config, document, key, value.get_ref())?;
                let source = Source::File {
                    line: document.line(key.span().start),
                };
                config.sources.insert(rule_path(&rule, path), source);
            }
        }
        config.domains.push(rule);
    }
    Ok(())
}
