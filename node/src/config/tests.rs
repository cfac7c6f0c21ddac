use super::keys::KEYS;
use super::*;

const GOOD: &str = r#"
[member]
name = "a"
data = "data"
listen = "127.0.0.1:7400"
[token]
module = "embedded"
pin_file = "pin"
[domain]
name = "d"
secret_file = "secret"
"#;

fn parse(text: &str) -> Result<Config, Problem> {
    Config::parse(Path::new("/etc/keyraft/keyraft.toml"), text)
}

/// The good file with one key set to something else (`value` is TOML) or left out.
fn with(section: &str, name: &str, value: Option<&str>) -> String {
    let mut table: toml::Table = GOOD.parse().expect("is TOML");
    let entry = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let inner = entry.as_table_mut().expect("is a section");
    match value {
        None => drop(inner.remove(name)),
        Some(value) => {
            let one: toml::Table = format!("{name} = {value}").parse().expect("is TOML");
            inner.extend(one);
        }
    }
    toml::to_string(&table).expect("writes")
}

#[test]
fn a_small_file_is_enough() {
    let config = parse(GOOD).expect("is good");
    assert_eq!(config.data, Path::new("/etc/keyraft/data"));
    assert_eq!(config.socket, Path::new("/etc/keyraft/data/keyraft.sock"));
    assert_eq!(config.advertise, "127.0.0.1:7400");
    assert_eq!(config.token.module, None);
    assert_eq!(config.token.pin, Some(SecretSource::File("/etc/keyraft/pin".into())));
    assert_eq!(config.timings.heartbeat, limits::RAFT_HEARTBEAT);
}

#[test]
fn the_example_is_a_good_file() {
    let config = parse(&example()).expect("the example is good");
    assert_eq!(config.name, "a");
    for key in KEYS {
        assert!(example().contains(&format!("{} = ", key.name)), "{} is in the example", key.name);
    }
    // Every example that is commented out is a good value too.
    for key in
        KEYS.iter().filter(|k| !k.shown && !k.name.starts_with("pin_") && !k.name.starts_with("secret_"))
    {
        let text = with(key.section, key.name, Some(key.example));
        parse(&text).unwrap_or_else(|e| panic!("{}.{}: {e}", key.section, key.name));
    }
}

/// Every key with a value of a wrong type: the error names the file, the key and what to write.
#[test]
fn a_wrong_type_is_named_for_every_key() {
    for key in KEYS {
        for wrong in ["1.5", "true", "[true]", "{ x = 1 }", "\"\""] {
            let problem = parse(&with(key.section, key.name, Some(wrong))).expect_err(key.name);
            assert_eq!(problem.exit, Exit::Config);
            let full = format!("'{}.{}'", key.section, key.name);
            assert!(problem.what.starts_with("/etc/keyraft/keyraft.toml: "), "{problem}");
            assert!(problem.what.contains(&full), "{wrong}: {problem}");
            assert!(problem.remedy.contains(key.example), "{problem}");
        }
    }
}

#[test]
fn a_missing_key_is_named() {
    for key in KEYS.iter().filter(|k| k.required) {
        let problem = parse(&with(key.section, key.name, None)).expect_err(key.name);
        assert!(problem.what.contains(&format!("'{}.{}' is missing", key.section, key.name)), "{problem}");
        assert!(problem.remedy.contains(key.example), "{problem}");
    }
    assert!(parse("").expect_err("is refused").what.contains("member.name"));
}

#[test]
fn a_token_may_ask_for_the_pin_itself() {
    let library = GOOD.replace("\"embedded\"", "\"/x.so\"");
    let asks = library.replace("pin_file = \"pin\"", "login = \"protected\"");
    assert_eq!(parse(&asks).expect("is good").token.pin, None);
    let both = library.replace("pin_file", "login = \"protected\"\npin_file");
    assert!(parse(&both).expect_err("is refused").what.contains("'token.login'"));
    let embedded = GOOD.replace("pin_file = \"pin\"", "login = \"protected\"");
    assert!(parse(&embedded).expect_err("is refused").what.contains("embedded token"));
    let neither = library.replace("pin_file = \"pin\"", "login = \"pin\"");
    assert!(parse(&neither).expect_err("is refused").what.contains("'token.pin_file' has no source"));
}

/// Values of the right type that cannot be: (section, key, value, the key that is blamed, part of the remedy).
#[test]
fn wrong_values_are_named() {
    let long = format!("\"{}\"", "x".repeat(300));
    let deep = format!("\"/{}\"", "x".repeat(120));
    let cases = [
        ("member", "nmae", "\"a\"", "member.nmae", "name, data, listen"),
        ("membre", "name", "\"a\"", "membre", "member, token"),
        ("member", "name", long.as_str(), "member.name", "shorter"),
        ("member", "name", "\"a\\nb\"", "member.name", "plain"),
        ("member", "listen", "\"localhost\"", "member.listen", "0.0.0.0:7400"),
        ("member", "listen", "\"0.0.0.0:7400\"", "member.advertise", "host:port"),
        ("member", "metrics", "\"9464\"", "member.metrics", "127.0.0.1:9464"),
        ("member", "advertise", "\"a\"", "member.advertise", "a.example.net:7400"),
        ("member", "advertise", "\"a:0\"", "member.advertise", "a.example.net:7400"),
        ("member", "advertise", "\"a b:1\"", "member.advertise", "a.example.net:7400"),
        ("member", "socket", deep.as_str(), "member.socket", "shorter"),
        ("token", "pin_env", "\"PIN\"", "token.pin_file", "exactly one"),
        ("domain", "secret_env", "\"S\"", "domain.secret_file", "exactly one"),
        ("domain", "name", long.as_str(), "domain.name", "shorter"),
        ("token", "residency", "\"disk\"", "token.residency", "\"token\", \"session\""),
        ("token", "label", "\"123456789012345678901234567890123\"", "token.label", "shorter"),
        ("token", "environment", "{ \"A=B\" = \"x\" }", "token.environment", "NAME"),
        ("log", "format", "\"xml\"", "log.format", "\"text\", \"json\""),
        ("log", "filter", "\"a=b=c\"", "log.filter", "module=level"),
        ("timings", "heartbeat_ms", "0", "timings.heartbeat_ms", "10 to 10000"),
        ("timings", "heartbeat_ms", "100", "timings.election_min_ms", "200 or more"),
        ("timings", "election_max_ms", "150", "timings.election_max_ms", "151 or more"),
    ];
    for (section, name, value, blamed, remedy) in cases {
        let problem = parse(&with(section, name, Some(value))).expect_err(name);
        assert!(problem.what.contains(&format!("'{blamed}'")), "{section}.{name}: {problem}");
        assert!(problem.remedy.contains(remedy), "{section}.{name}: {problem}");
    }
}

#[test]
fn a_secret_needs_a_source_with_a_plain_name() {
    let problem = parse(&with("token", "pin_file", None)).expect_err("is refused");
    assert!(problem.what.contains("'token.pin_file' has no source"), "{problem}");
    let text = with("token", "pin_file", None);
    for (line, key) in
        [("pin_env = \"A=B\"", "token.pin_env"), ("pin_credential = \"../x\"", "token.pin_credential")]
    {
        let problem = parse(&text.replace("[token]", &format!("[token]\n{line}"))).expect_err(key);
        assert!(problem.what.contains(key), "{problem}");
    }
    let both = format!("{GOOD}\n").replace("[token]", "[token]\nlabel = \"l\"\nserial = \"s\"");
    assert!(parse(&both).expect_err("is refused").what.contains("token.serial"));
}

#[test]
fn broken_toml_names_the_line() {
    let problem = parse("[member]\nname = \n").expect_err("is refused");
    assert!(problem.what.contains("/etc/keyraft/keyraft.toml: line 2"), "{problem}");
    assert!(problem.remedy.contains("config example"), "{problem}");
}

#[test]
fn a_missing_file_names_the_remedies() {
    let problem = Config::load(Path::new("/nonexistent/keyraft.toml")).expect_err("is refused");
    assert_eq!(problem.exit, Exit::Config);
    assert!(problem.remedy.contains("KEYRAFT_MEMBER_CONFIG"), "{problem}");
}
