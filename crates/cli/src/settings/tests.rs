use std::collections::BTreeSet;
use std::ffi::OsString;

use super::kind::Kind;
use super::layers::Origin;
use super::table::Setting;
use super::*;

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("esker.toml");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn from_file(text: &str) -> Result<Settings, String> {
    let (_directory, path) = file(text);
    let mut settings = Settings::defaults();
    settings.read_file(&path).map(|()| settings)
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

#[test]
fn settings_table_is_sorted() {
    let names: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    assert_eq!(names.len(), SETTINGS.len(), "a name twice");
    for setting in SETTINGS {
        assert!(
            setting.default.is_empty() != setting.unset.is_empty(),
            "{}: a default or what is without",
            setting.name
        );
        assert!(setting.meaning.ends_with('.'), "{}", setting.name);
    }
}

#[test]
fn example_file_equals_defaults() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/esker.toml");
    let found = std::fs::read_to_string(path).unwrap();
    assert_eq!(found, example(), "run: esker serve --print-config > docs/esker.toml");
    let defaults = Settings::defaults();
    let active: String = found
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| {
            let name = line.split_once(" = ").map(|(name, _)| name);
            name.and_then(Setting::find).is_some_and(|setting| !setting.default.is_empty())
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let read = from_file(&active).unwrap();
    for setting in SETTINGS.iter().filter(|setting| setting.places == Places::All) {
        let value = |settings: &Settings| settings.get(setting.name).map(|given| given.value.clone());
        assert_eq!(value(&read), value(&defaults), "{}", setting.name);
        assert_eq!(read.explicit(setting.name).is_some(), !setting.default.is_empty(), "{}", setting.name);
    }
}

#[test]
fn flag_precedes_environment_file_and_default() {
    let (_directory, path) = file("memory = \"1g\"\niu = 4096\nconnections = 7\n");
    let mut settings = Settings::defaults();
    settings.read_file(&path).unwrap();
    settings
        .read_environment(variables(&[("ESKER_IU", "8k"), ("ESKER_CONNECTIONS", "8"), ("HOME", "x")]))
        .unwrap();
    settings.flag(Setting::find("connections").unwrap(), "9").unwrap();
    let found = |name: &str| {
        let given = settings.get(name).unwrap();
        (given.text.clone(), given.origin.clone())
    };
    let shown = path.display().to_string();
    assert_eq!(found("memory"), ("1g".to_owned(), Origin::File(shown, 1)));
    assert_eq!(found("iu"), ("8k".to_owned(), Origin::Environment));
    assert_eq!(found("connections"), ("9".to_owned(), Origin::Flag));
    assert_eq!(found("reserve"), ("20".to_owned(), Origin::Default));
    let text = explain(&settings, &settings.outcome().unwrap().config.limits);
    for line in [
        "iu = 8k  [ESKER_IU]",
        "connections = 9  [--connections]",
        "reserve = 20  [default]",
        "esker.toml:1]",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn invalid_file_is_refused_with_line() {
    for (text, expected) in [
        ("\nmemry = \"1g\"", "esker.toml:2: there is no setting 'memry'; did you mean 'memory'?"),
        ("client_memory = 1", "did you mean 'client-memory'?"),
        ("zzz = 1", "there is no setting 'zzz' (see"),
        ("port = 6380", "did you mean 'resp'?"),
        ("maxmemory = \"1g\"", "did you mean 'memory'?"),
        ("memory = 1.5", "memory must be a size"),
        ("memory = \"12q\"", "'12q'"),
        ("connections = 0", "in 1..=1000000"),
        ("reserve = 90", "in 5..=50"),
        ("resp = [\"127.0.0.1:1\", 3]", "resp must be HOST:PORT"),
        ("force-format = true", "only be given as --force-format"),
        ("password = 5\nx", "this is not TOML"),
        ("password = \"\"", "it must be a text, and it is empty"),
        ("dir = \"\"", "it must be a path, and it is empty"),
        ("[limits]\nconnections = 3", "there is no setting 'limits'"),
    ] {
        let error = from_file(text).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert!(error.contains(expected), "{text}: {error}");
    }
    let error = from_file("password = \"hunter2\" oops").err().unwrap();
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn unknown_variables_cause_warning() {
    let mut settings = Settings::defaults();
    let given = variables(&[("ESKER_MEMROY", "1g"), ("ESKER_FORCE_FORMAT", "true"), ("ESKER_HTTP", "")]);
    let warnings = settings.read_environment(given).unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("did you mean 'memory'?"), "{warnings:?}");
    assert!(settings.get("http").is_none());
    let error = settings.read_environment(variables(&[("ESKER_MEMORY", "12q")])).unwrap_err();
    assert!(error.starts_with("ESKER_MEMORY: "), "{error}");
}

#[test]
fn secrets_are_not_shown() {
    let settings = from_file("password = \"hunter2\"").unwrap();
    let text = explain(&settings, &settings.outcome().unwrap().config.limits);
    assert!(text.contains("password = (not shown)") && !text.contains("hunter2"), "{text}");
    let outcome = settings.outcome().unwrap();
    assert!(!format!("{:?}", outcome.config).contains("hunter2"));
}

/// The limits are a third of three quarters of an eighth of `memory`.
#[test]
fn derived_sizes_are_shown() {
    let shown = |text: &str| {
        let settings = from_file(text).unwrap();
        explain(&settings, &settings.outcome().unwrap().config.limits)
    };
    let text = shown("memory = \"256m\"");
    for line in [
        "client-memory = 32.0 MiB (",
        "client-memory-each = 24.0 MiB (",
        "argument-limit = 8.0 MiB (16m, and at most a third of client-memory-each)  [default]",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(shown("memory = \"1g\"").contains("argument-limit = 16m  [default]"));
    assert!(shown("client-memory = \"64m\"").contains("client-memory = 64m  ["));
}

#[test]
fn contradictions_name_both_settings() {
    for (text, expected) in [
        ("dir = \"a\"\nfast = \"b\"", &["dir (", ":1)", "fast (", ":2)", "contradict"] as &[_]),
        ("dir = \"a\"\ncapacity = \"b\"", &["dir (", "capacity ("]),
        ("fast = \"a\"\ncapacity = \"a\"", &["fast (", "capacity (", "same path"]),
        ("fast = \"a\"\ncapacity-limit = \"1g\"", &["capacity-limit (", "needs capacity"]),
        ("fast-limit = \"1g\"", &["fast-limit (", "needs fast"]),
        ("otlp-slower-than = \"1ms\"", &["otlp-slower-than (", "needs otlp-endpoint"]),
        ("otlp-endpoint = \"https://a\"", &["otlp-endpoint (", "plain HTTP", "http://127.0.0.1:4318"]),
        ("fast = \"a\"\niu = \"64k\"", &["iu (", "needs capacity"]),
        ("tls-cert = \"a\"", &["tls-cert (", "needs tls-key"]),
        ("tls-key = \"a\"", &["tls-key (", "needs tls-cert"]),
        ("tls-cert = \"a\"\ntls-key = \"b\"", &["tls-cert (", "needs resp-tls, grpc-tls or http-tls"]),
        ("resp-tls = \"127.0.0.1:1\"", &["resp-tls (", "needs tls-cert"]),
        ("tls-client-auth = \"optional\"", &["needs tls-client-ca"]),
        ("client-memory = \"300m\"", &["client-memory (", "memory (default)"]),
        (
            "client-memory-each = \"76m\"\nclient-memory = \"100m\"",
            &["client-memory-each (", "client-memory ("],
        ),
        ("argument-limit = \"30m\"", &["argument-limit (", "memory (default)"]),
        ("reply-queue = \"100m\"", &["reply-queue (", "reply-queue-limit (default)"]),
        ("resp = \"none\"", &["resp (", "no client could reach"]),
        ("resp = \"0.0.0.0:1\"", &["resp (", "0.0.0.0:1", "password", "allow-unauthenticated"]),
        ("http = \"[::]:1\"", &["http (", "[::]:1"]),
        ("allow-unauthenticated = true\npassword = \"x\"", &["allow-unauthenticated (", "password ("]),
        ("log = \"=:=\"", &["log (", "not a filter"]),
        ("http = \"127.0.0.1:6379\"", &["resp (default)", "http (", "contradict", "127.0.0.1:6379 twice"]),
        ("resp = \"127.0.0.1:1\"\ngrpc = \"127.0.0.1:1\"", &["resp (", ":1)", "grpc (", ":2)", "contradict"]),
        ("resp = \"127.0.0.1:1,127.0.0.1:1\"", &["resp (", "has 127.0.0.1:1 twice"]),
        (
            "resp = \"0.0.0.0:1\"\nhttp = \"localhost:1\"\npassword = \"x\"",
            &["resp (", "http (", "0.0.0.0:1"],
        ),
    ] {
        let error = from_file(text).unwrap().outcome().err().unwrap_or_else(|| panic!("{text} is accepted"));
        for part in expected {
            assert!(error.contains(part), "{text}: {part} in {error}");
        }
    }
}

#[test]
fn safe_settings_are_accepted() {
    let tls = "resp-tls = \"0.0.0.0:1\"\ntls-cert = \"a\"\ntls-key = \"b\"\ntls-client-ca = \"c\"\n";
    for text in [
        "",
        "resp = [\"127.0.0.1:1\", \"[::1]:1\"]",
        "resp = \"0.0.0.0:1\"\npassword = \"x\"",
        "resp = \"0.0.0.0:1\"\nusers = \"users.toml\"",
        "resp = \"0.0.0.0:1\"\nallow-unauthenticated = true",
        tls,
        "resp = []\nresp-tls = \"127.0.0.1:1\"\ntls-cert = \"a\"\ntls-key = \"b\"",
    ] {
        let outcome = from_file(text).unwrap().outcome();
        assert!(outcome.is_ok(), "{text}: {}", outcome.err().unwrap());
    }
    let optional = format!("{tls}tls-client-auth = \"optional\"");
    assert!(
        from_file(&optional).unwrap().outcome().is_err(),
        "certificates that may be left out protect nothing"
    );
}

#[test]
fn impossible_sizes_are_refused() {
    let two = "fast = \"a\"\ncapacity = \"b\"\n";
    for (text, expected) in [
        (
            "memory = \"10m\"",
            "memory (FILE:1) is 10m; it must be at least 101m, which the store needs in addition to client-memory",
        ),
        ("memory = \"16m\"\nusers = \"u\"", "at least 109m"),
        (
            "memory = \"100m\"\nclient-memory = \"20m\"",
            "at least 108m, which the store needs in addition to client-memory (FILE:2)",
        ),
        ("iu = 3", "iu (FILE:1) is 3; it must be a power of two from 4k to 4m"),
        ("iu = \"1g\"", "iu (FILE:1) is 1g; it must be"),
        ("iu = 2048", "from 4k to 4m"),
        // Small tiers have short segments, which need less memory.
        ("capacity-limit = \"129m\"\nmemory = \"36m\"", "memory (FILE:2) is 36m; it must be at least 37m"),
        (&format!("{two}fast-limit = \"16m\"\nmemory = \"34m\""), "at least 35m"),
        (&format!("{two}fast-limit = \"16m\"\niu = \"1m\"\nmemory = \"137m\""), "at least 138m"),
        // Long units have long segments: 24 MiB and six of 64 MiB, and an eighth of the whole for clients.
        (&format!("{two}iu = \"4m\"\nmemory = \"400m\""), "at least 467m"),
        (&format!("{two}memory = \"137m\""), "at least 138m"),
        ("coalesce-for = \"10s\"\nmemory = \"137m\"", "memory (FILE:2) is 137m; it must be at least 138m"),
    ] {
        let (_directory, path) = file(text);
        let mut settings = Settings::defaults();
        settings.read_file(&path).unwrap();
        let error = settings.outcome().err().unwrap_or_else(|| panic!("{text} is accepted"));
        let error = error.replace(&path.display().to_string(), "FILE");
        assert!(error.contains(expected), "{text}: {error}");
    }
    for text in [
        "memory = \"101m\"",
        "capacity-limit = \"129m\"\nmemory = \"37m\"",
        "capacity-limit = \"1k\"",
        "memory = \"109m\"\nusers = \"u\"",
        "iu = 4096",
        &format!("{two}memory = \"138m\""),
        &format!("{two}coalesce-for = \"10s\"\nmemory = \"138m\""),
        "coalesce-for = \"10s\"\nmemory = \"138m\"",
        "coalesce-for = \"0\"\nmemory = \"101m\"",
    ] {
        assert!(from_file(text).unwrap().outcome().is_ok(), "{text}");
    }
}

#[test]
fn clients_get_a_share_of_memory() {
    let limits = |text: &str| from_file(text).unwrap().outcome().unwrap().config.limits;
    let usual = limits("");
    assert_eq!(
        (usual.client_bytes_max, usual.connection_bytes_max, usual.bulk_bytes_max),
        (64 << 20, 48 << 20, 16 << 20)
    );
    assert_eq!(limits("memory = \"120m\"").client_bytes_max, 15 << 20);
    let given = limits("memory = \"1g\"\nclient-memory = \"100m\"\nclient-memory-each = \"30m\"");
    assert_eq!((given.client_bytes_max, given.bulk_bytes_max), (100 << 20, 10 << 20));
    assert!(matches!(Setting::find("memory").unwrap().kind, Kind::Size));
}

#[test]
fn one_core_is_left_to_store_unless_workers_is_set() {
    let workers = |text: &str| from_file(text).unwrap().outcome().unwrap().workers;
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(workers(""), usize::max(cores - 1, 1));
    assert_eq!(workers("workers = 3"), 3);
}

#[test]
fn store_errors_name_existing_settings() {
    use esker_engine::OptionName;
    for option in [
        OptionName::Memory,
        OptionName::FastLimit,
        OptionName::CapacityLimit,
        OptionName::IndirectionUnit,
        OptionName::Reserve,
        OptionName::ForceFormat,
    ] {
        let name = esker_server::setting_of(option);
        assert!(Setting::find(name).is_some(), "{option} is called {name}");
    }
}
