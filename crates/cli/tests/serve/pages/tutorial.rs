//! The tutorial.

use std::collections::BTreeMap;

use super::blocks::{blocks, steps};
use super::shell::Shell;
use super::*;

#[test]
fn every_command_of_the_tutorial_prints_what_the_page_says() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        eprintln!("SKIPPED: redis-cli is not installed");
        return;
    }
    // Other tests run beside this one, and the ports of the page may be taken.
    let ports = ["6379", "7001", "7002", "7003", "8001", "8002", "8003"];
    let free: BTreeMap<_, _> = ports.into_iter().zip(cluster::free_ports(ports.len())).collect();
    let mut steps: Vec<_> = blocks("docs/tutorial.md").iter().flat_map(steps).collect();
    assert!(steps.len() > 20, "{steps:?}");
    for step in &mut steps {
        for text in std::iter::once(&mut step.command).chain(&mut step.output) {
            for (port, free) in &free {
                *text = text.replace(port, &free.to_string());
            }
            // The page uses the default port, which only the first server has.
            if text.starts_with("redis-cli ") && !text.contains(" -p ") {
                *text = text.replacen("redis-cli", &format!("redis-cli -p {}", free["6379"]), 1);
            }
            if text.starts_with("esker serve --memory") {
                *text = text.replacen("serve", &format!("serve --resp {}", free["6379"]), 1);
            }
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut shell = Shell::start(directory.path());
    steps.iter().for_each(|step| shell.run(step));
}
