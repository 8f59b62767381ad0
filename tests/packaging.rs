//! Checks the guarantees of the systemd unit beyond its syntax.

use std::collections::BTreeMap;

/// Returns the settings of the unit's `[Service]` section; of repeated settings the last.
fn service() -> BTreeMap<String, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/esker.service");
    let unit = std::fs::read_to_string(path).expect("the unit can be read");
    let lines = unit.lines().skip_while(|line| line.trim() != "[Service]").skip(1);
    let section = lines.take_while(|line| !line.starts_with('['));
    let settings =
        section.filter(|line| !line.starts_with(['#', ';'])).filter_map(|line| line.split_once('='));
    settings.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// The staging file of a store on raw devices lies under `/dev/shm`, and holds writes acknowledged with
/// durability `process`. It must exist when the service is restarted after a kill.
#[test]
fn a_restart_keeps_the_staging_file() {
    let service = service();
    let of = |name: &str| service.get(name).map(String::as_str);
    // By default systemd removes the files of the service's user in /dev/shm whenever the service stops.
    assert_eq!(of("RemoveIPC"), Some("no"));
    // Each of these gives the service a private /dev/shm that is removed when it stops, or removes the
    // files in it.
    for (name, harmless) in [("PrivateIPC", "no"), ("DynamicUser", "no"), ("PrivateTmp", "yes")] {
        assert!(of(name).is_none_or(|value| value == harmless), "{name}={:?}", of(name));
    }
    for name in ["TemporaryFileSystem", "InaccessiblePaths", "RootDirectory", "RootImage"] {
        assert_eq!(of(name), None);
    }
    // The kernel's boot id, without which every staging file is ignored, lies in /proc/sys.
    assert_ne!(of("ProcSubset"), Some("pid"));
}

#[test]
fn the_service_is_started_again_after_it_died() {
    assert_eq!(service().get("Restart").map(String::as_str), Some("on-failure"));
}

/// `/bin/kill` is missing in a minimal Debian; the shell is in every one. The mode of `/etc/esker` is
/// that of the package.
#[test]
fn a_reload_needs_what_every_system_has() {
    let service = service();
    assert_eq!(service.get("ExecReload").map(String::as_str), Some("/bin/sh -c 'kill -HUP ${MAINPID}'"));
    assert_eq!(service.get("ConfigurationDirectoryMode").map(String::as_str), Some("0750"));
}

/// A test of the server checks that the metrics named there exist.
#[test]
fn alert_rules_and_dashboard_can_be_read() {
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/");
    let text = std::fs::read_to_string(format!("{packaging}grafana.json")).expect("it can be read");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    // A row is a heading.
    let is_whole = |panel: &serde_json::Value| match panel["type"].as_str() {
        Some("row") => panel["panels"].as_array().is_some_and(Vec::is_empty),
        _ => panel["targets"][0]["expr"].is_string(),
    };
    assert!(panels.iter().all(is_whole), "{text}");
    let rules = format!("{packaging}alerts.yml");
    match std::process::Command::new("promtool").args(["check", "rules", &rules]).output() {
        Err(error) => eprintln!("SKIPPED: no promtool to check {rules} ({error})"),
        Ok(checked) => assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr)),
    }
}
