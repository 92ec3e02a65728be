use super::*;

fn parsed(text: &str) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    config.apply_file("mqb.toml", text)?;
    config.validate()?;
    Ok(config)
}

fn problem(text: &str) -> String {
    parsed(text).expect_err("must be refused").to_string()
}

#[test]
fn what_is_printed_is_read_back_as_the_same() {
    let text = "processors = 3\n[listen]\naddress = \"0.0.0.0:1\"\n[defaults]\nttl = \"5m\"\n[[domain]]\nname = \"a.*\"\ndurability = \"memory\"\n";
    let config = parsed(text).unwrap();
    let again = parsed(&config.print()).unwrap();
    assert_eq!(
        config.print().lines().count(),
        again.print().lines().count()
    );
    assert_eq!(again.processors, 3);
    assert_eq!(again.defaults, config.defaults);
    assert_eq!(again.domains, config.domains);
    assert_eq!(again.storage, config.storage);
    assert_eq!(again.limits, config.limits);
}

#[test]
fn each_value_names_its_source() {
    let mut config = parsed("\n[storage]\nsegment_size = \"8MiB\"\n").unwrap();
    config
        .apply_flag("--processors", "processors", "2")
        .unwrap();
    let printed = config.print();
    assert!(
        printed.contains("segment_size = \"8MiB\"  # file, line 3"),
        "{printed}"
    );
    assert!(
        printed.contains("processors = 2  # command line"),
        "{printed}"
    );
    assert!(
        printed.contains("cache_size = \"216MiB\"  # default"),
        "{printed}"
    );
}

#[test]
fn unknown_keys_name_the_line_and_the_nearest_key() {
    assert_eq!(
        problem("\n[defaults]\ndurabilty = \"sync\"\n"),
        "mqb.toml:3: unknown key `durabilty`, did you mean `durability`?"
    );
    assert_eq!(
        problem("[storage]\n\ndatadir = \"x\"\n"),
        "mqb.toml:3: unknown key `storage.datadir`, did you mean `storage.data_dir`?"
    );
    assert_eq!(
        problem("[storag]\na = 1\n"),
        "mqb.toml:1: unknown section `storag`, did you mean `storage`?"
    );
    assert!(problem("zzzzzzzzzzzzzzz = 1\n").contains("--print-config"));
    assert!(
        problem("[[domain]]\nname = \"a\"\nttll = \"1s\"\n")
            .contains("mqb.toml:3: unknown key `ttll`, did you mean `ttl`?")
    );
}

#[test]
fn values_of_the_wrong_kind_or_range_are_refused_with_the_line() {
    assert_eq!(
        problem("processors = \"two\"\n"),
        "mqb.toml:1: processors: expected a whole number, found a string"
    );
    assert_eq!(
        problem("processors = -1\n"),
        "mqb.toml:1: processors: -1 is out of range: 0 to 65535"
    );
    assert!(problem("[storage]\nsync_interval = \"10\"\n").contains("100ms, 30s"));
    assert!(problem("[storage]\nsegment_size = \"1MB\"\n").contains("64KiB"));
    assert!(problem("[storage]\nsegment_size = \"99999999999GiB\"\n").contains("not a size"));
    assert!(problem("[defaults]\ndurability = \"fsync\"\n").contains("sync, flush or memory"));
    assert!(problem("[[domain]]\ndurability = \"sync\"\n").contains("needs a `name`"));
    assert!(
        problem("[[domain]]\nname = \"a\"\n[[domain]]\nname = \"a\"\n").contains("named twice")
    );
    assert!(problem("[domains]\nauto_create = false\n").contains("no queue could ever be opened"));
    assert!(problem("a = [\n").starts_with("mqb.toml:"));
}

#[test]
fn the_exact_rule_beats_a_pattern_and_the_first_pattern_wins() {
    let config = parsed(
        "[[domain]]\nname = \"a.*\"\nmax_messages = 1\n[[domain]]\nname = \"a.b\"\nmax_messages = 2\n[[domain]]\nname = \"*\"\nmax_messages = 3\n",
    )
    .unwrap();
    let max = |name| config.domain(name).map(|domain| domain.max_messages);
    assert_eq!(max("a.x"), Some(1));
    assert_eq!(max("a.b"), Some(2));
    assert_eq!(max("z"), Some(3));
}

#[test]
fn without_auto_create_only_named_domains_exist() {
    let config = parsed("[domains]\nauto_create = false\n[[domain]]\nname = \"a\"\n").unwrap();
    assert!(config.domain("a").is_some());
    assert!(config.domain("b").is_none());
}

#[test]
fn patterns_match_any_run_of_characters_at_each_star() {
    let matches = |pattern: &str, name: &str| NamePattern::parse(pattern).unwrap().matches(name);
    assert!(matches("a.*.z", "a.b.c.z"));
    assert!(matches("*", ""));
    assert!(matches("*b*", "abc"));
    assert!(matches("a*a", "aa"));
    assert!(!matches("a*a", "a"));
    assert!(!matches("a.*.z", "a.z"));
    assert!(!matches("ab", "abc"));
    assert!(NamePattern::parse("a b").is_err());
}

#[test]
fn sizes_and_durations_read_back_as_written() {
    for text in ["0B", "4096B", "64KiB", "1MiB", "3GiB"] {
        let size = Size::parse(text).unwrap();
        assert_eq!(Size::parse(&size.to_string()).unwrap(), size);
    }
    assert_eq!(Size::parse("4096").unwrap().to_string(), "4KiB");
    for text in ["0", "1ms", "1500ms", "30s", "5m", "12h", "7d"] {
        assert_eq!(format_duration(parse_duration(text).unwrap()), text);
    }
    for text in ["", "s", "1", "1 week", "-1s", "99999999999999999999s"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn every_key_has_a_distinct_path_and_documentation() {
    let documentation = documentation();
    let mut paths: Vec<_> = documentation.iter().map(|(path, ..)| path).collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), documentation.len());
    assert!(documentation.iter().all(|(_, _, doc)| doc.ends_with('.')));
}

#[test]
fn a_flag_beats_the_file_and_reaches_domains_that_do_not_say_otherwise() {
    let mut config = parsed(
        "[defaults]\ndurability = \"flush\"\n[[domain]]\nname = \"a\"\n[[domain]]\nname = \"b\"\ndurability = \"sync\"\n",
    )
    .unwrap();
    config
        .apply_flag("--durability", "defaults.durability", "memory")
        .unwrap();
    let durability = |name| config.domain(name).map(|domain| domain.durability);
    assert_eq!(durability("other"), Some(Durability::Memory));
    assert_eq!(durability("a"), Some(Durability::Memory));
    assert_eq!(durability("b"), Some(Durability::Sync));
    let error = config
        .apply_flag("--durability", "defaults.durability", "fsync")
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "--durability: `fsync` is no durability; choose sync, flush or memory"
    );
}

#[test]
fn modes_that_do_not_exist_yet_are_refused_by_name() {
    assert_eq!(
        problem("[[domain]]\nname = \"a\"\nmode = \"fanout\"\n"),
        "mqb.toml:3: mode: mode `fanout` is not available in this version; only priority is"
    );
}
