//! Which settings apply to a domain's name. Pure, immutable, shared.

use super::settings::DomainSettings;

/// One domain section of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRule {
    /// Name with tier, or a pattern in which `*` stands for any characters.
    pub pattern: String,
    /// What it promises.
    pub settings: DomainSettings,
}

/// The configured domains.
#[derive(Clone, Debug)]
pub struct DomainTable {
    /// Looked at in order; a rule that spells the name out goes before any pattern.
    pub rules: Vec<DomainRule>,
    /// What a domain that no rule describes promises.
    pub default: DomainSettings,
    /// Whether such a domain is made when it is first used.
    pub creates_domains: bool,
    /// Most domains made that way or by a pattern: their names come from peers.
    pub max_created_domains: usize,
}

impl Default for DomainTable {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            default: DomainSettings::default(),
            creates_domains: true,
            max_created_domains: 1000,
        }
    }
}

/// What the table says about a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found<'a> {
    /// A rule spells the name out.
    Named(&'a DomainSettings),
    /// A pattern matches, or domains are made on first use.
    Created(&'a DomainSettings),
    /// There is no such domain.
    Nothing,
}

impl DomainTable {
    /// Finds the settings of a domain by its name with tier.
    pub fn find(&self, name: &str) -> Found<'_> {
        if let Some(rule) = self.rules.iter().find(|rule| rule.pattern == name) {
            return Found::Named(&rule.settings);
        }
        let matching = |rule: &&DomainRule| matches(rule.pattern.as_bytes(), name.as_bytes());
        match self.rules.iter().find(matching) {
            Some(rule) => Found::Created(&rule.settings),
            None if self.creates_domains => Found::Created(&self.default),
            None => Found::Nothing,
        }
    }

    /// The settings of a domain whose queues recovery found: they are kept even if no rule describes them any more.
    pub fn of_recovered(&self, name: &str) -> &DomainSettings {
        match self.find(name) {
            Found::Named(settings) | Found::Created(settings) => settings,
            Found::Nothing => &self.default,
        }
    }
}

/// Whether `name` matches `pattern`. **Cost**: linear in the product of their lengths, at worst.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The last star, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        if at < pattern.len() && pattern[at] == b'*' {
            star = Some((at, from));
            at += 1;
        } else if at < pattern.len() && pattern[at] == name[from] {
            at += 1;
            from += 1;
        } else if let Some((back, taken)) = star {
            star = Some((back, taken + 1));
            at = back + 1;
            from = taken + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_expected() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "a.b", true),
            ("a.*", "a.b", true),
            ("a.*", "ab", false),
            ("*.lab", "x.y.lab", true),
            ("*.lab", "x.lab.y", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("**", "x", true),
            ("abc", "abc", true),
            ("abc", "abcd", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn a_spelled_out_name_goes_first_and_nothing_is_made_unless_allowed() {
        let rule = |pattern: &str, max_queues| DomainRule {
            pattern: pattern.into(),
            settings: DomainSettings {
                max_queues,
                ..DomainSettings::default()
            },
        };
        let mut table = DomainTable {
            rules: vec![rule("lab.*", 1), rule("lab.one", 2)],
            ..DomainTable::default()
        };
        let max_queues = |found| match found {
            Found::Named(settings) | Found::Created(settings) => settings.max_queues,
            Found::Nothing => 0,
        };
        assert_eq!(max_queues(table.find("lab.one")), 2);
        assert_eq!(max_queues(table.find("lab.two")), 1);
        assert_eq!(
            max_queues(table.find("other")),
            DomainSettings::default().max_queues
        );
        table.creates_domains = false;
        assert_eq!(table.find("other"), Found::Nothing);
    }
}
