//! Blocks of commands that no test runs, with the reason.

/// Page, or a folder of pages with a slash at its end; beginning of the block's first line, empty for all blocks of the page that
/// have no row of their own and are not run; reason.
pub(super) const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "cargo run", "builds the workspace and runs all its tests"),
    ("docs/access.md", "redis-cli --tls", "needs certificates; tls.rs connects with some"),
    ("docs/access.md", "esker top db1", "needs certificates and another machine; tls.rs has both commands"),
    ("docs/benchmarks.md", "", "measures for minutes to hours, some as root"),
    ("docs/benchmarks/", "", "commands of a measurement that has been made"),
    ("docs/cluster.md", "esker cluster backup", "needs two clusters; backups.rs takes and restores a backup"),
    (
        "docs/cluster.md",
        "esker serve --cluster-replica-resp",
        "needs another cluster than the page's first; replicas.rs of the server reads from a replica",
    ),
    ("docs/coarse-iu.md", "", "measures for minutes to hours, some as root on a loop device"),
    ("docs/decisions/", "", "a record: commands of a measurement that has been made"),
    ("docs/esker-bench.md", "", "builds and measures for minutes to hours"),
    ("docs/grpc.md", "pip", "installs packages; tests/clients runs the Python client of gRPC"),
    (
        "docs/moving.md",
        "esker import --from 6379",
        "needs a Redis; moving.rs and tests/moving/run.py follow one",
    ),
    (
        "docs/moving.md",
        "esker import --from 7379",
        "needs a Redis; moving.rs and tests/moving/run.py move keys back",
    ),
    ("docs/moving.md", "python3", "moves a million keys; CI runs it by itself with fewer"),
    ("docs/operations.md", "esker bench", "needs 4 GiB and a minute; tools.rs runs it with less"),
    ("docs/operations.md", "blkdiscard", "needs drives; several_devices.rs adds a device"),
    ("docs/operations.md", "esker device drain", "needs drives; several_devices.rs drains a device"),
    ("docs/operations.md", "useradd", "needs root and systemd; packaging/test-debian installs a service"),
    (
        "docs/operations.md",
        "packaging/build",
        "takes minutes, and needs root or Docker; packages.rs unpacks and runs all packages",
    ),
    ("docs/profiling.md", "", "needs a profiler and minutes"),
    ("docs/start.md", "cargo install", "builds for minutes"),
    ("docs/start.md", "packaging/build", "builds for minutes; packages.rs runs it on a built program"),
    ("docs/start.md", "esker serve --dir", "needs drives"),
    ("docs/upgrade.md", "esker cluster upgrade", "needs two programs; upgrades.rs upgrades a cluster"),
    ("docs/upgrade.md", "esker serve", "needs a store of a later version of the format"),
];
