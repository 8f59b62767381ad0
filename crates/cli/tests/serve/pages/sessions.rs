//! Sessions: the blocks of a page that run one after the other in one shell, with the commands that prepare them.

use super::blocks::{Block, blocks, steps};
use super::shell::Shell;
use super::*;

/// Blocks of one page that run in one shell and directory.
pub(super) struct Session {
    pub(super) page: &'static str,
    parts: &'static [Part],
}

/// A part of a session.
enum Part {
    /// A command that is not on the page.
    Setup(&'static str),
    /// A block by the beginning of its first line. Its commands must succeed.
    Runs(&'static str, Replace),
    /// A block by the beginning of its first line. Its commands must print the output that the page shows.
    Prints(&'static str, Replace),
}

use Part::*;

/// Texts of a page, each with its replacement in the session.
type Replace = &'static [(&'static str, &'static str)];

/// Starts a server at the default port, and waits until it is ready.
const SERVER: Part = Setup("esker serve");

pub(super) const SESSIONS: &[Session] = &[
    Session { page: "docs/start.md", parts: &[Prints("esker serve --log warn", &[])] },
    Session {
        page: "docs/access.md",
        parts: &[
            Setup("mkdir etc && systemctl() { kill -HUP %1; } && export SECRET=abc NEW=def"),
            Setup("echo first | esker user add admin --users etc/users.toml --rights admin"),
            Setup("esker serve --users etc/users.toml"),
            Runs("esker user add ann", &[("/etc/esker/", "etc/")]),
            Setup(
                "export REDISCLI_AUTH=first; redis-cli() { command redis-cli -e -p 6379 --user admin \"$@\"; }",
            ),
            // The rights of the command `esker user` are the server's own, and ann has them from the users file.
            Runs("redis-cli ACL SETUSER ann on", &[]),
        ],
    },
    Session {
        page: "docs/cluster.md",
        parts: &[
            Runs("esker serve --dir a", &[("redis-cli -c", "until_true redis-cli -c")]),
            Runs(
                "esker cluster status --from 127.0.0.1:7001",
                &[("esker cluster status", "until_true esker cluster status")],
            ),
            Runs(
                "esker serve --dir d",
                &[
                    ("esker cluster rebalance", "until_true esker cluster rebalance"),
                    ("esker cluster status", "until_true esker cluster status"),
                ],
            ),
        ],
    },
    Session {
        page: "docs/compatibility.md",
        parts: &[
            SERVER,
            Setup("mkdir -p src scripts appendonlydir"),
            Setup("echo 'client.set(\"a\", 1); r.execute_command(\"GET\", \"a\")' > src/app.py"),
            Setup("echo 'return redis.call(\"INCR\", KEYS[1])' > scripts/limit.lua"),
            Setup(
                "printf '*3\\r\\n$3\\r\\nSET\\r\\n$1\\r\\na\\r\\n$1\\r\\n1\\r\\n' > appendonlydir/appendonly.aof.1.incr.aof",
            ),
            Setup(
                "echo 'file appendonly.aof.1.incr.aof seq 1 type i' > appendonlydir/appendonly.aof.manifest",
            ),
            Setup("redis-cli set a 1"),
            Setup("(sleep 1; redis-cli get a) > asked &"),
            Runs(
                "timeout 60",
                &[
                    ("timeout 60 redis-cli", "timeout 3 redis-cli -p 6379"),
                    ("10.0.0.5", "127.0.0.1"),
                    ("/var/lib/redis/", ""),
                ],
            ),
        ],
    },
    Session {
        page: "docs/operations.md",
        parts: &[
            Prints("esker calc", &[]),
            Runs("esker serve --print-config", &[]),
            Setup("kill %1; wait %1; true"),
            Setup("journalctl() { echo a line; }"),
            Setup("esker serve --dir store --http 9121 --config esker.toml"),
            Runs(
                "esker support",
                &[
                    ("/var/lib/esker/", ""),
                    ("/etc/esker/", ""),
                    ("report.tar.gz --http", "report.tar.gz --from 6379 --http"),
                    ("report.tar.gz --log", "second.tar.gz --from 6379 --log"),
                ],
            ),
            // The first command needs a terminal, and the second one another machine.
            Setup(
                "esker() { case \"$*\" in top | 'top db1'*) ;; top*) shift; command esker top 6379 \"$@\" ;; esac; }",
            ),
            Runs("esker top", &[]),
        ],
    },
    Session {
        page: "docs/operations.md",
        parts: &[
            Setup("mkdir backup"),
            Runs(
                "esker serve --dir ./esker-data --backup-dir",
                &[
                    ("/backup &", "backup"),
                    (
                        "backup take --from 6379",
                        "backup take --from 6379 && redis-cli set a 1 && esker backup take --from 6379",
                    ),
                    ("/backup", "backup"),
                ],
            ),
            Setup("redis-cli set b 2"),
            Setup("esker serve --dir other --resp 127.0.0.1:6390"),
            Runs("esker export keys.jsonl --from 6379", &[]),
            Setup("cp $REPOSITORY/crates/rdb/src/testdata/redis-7.0.15.rdb dump.rdb"),
            Prints("esker import --rdb", &[]),
        ],
    },
];

impl Session {
    /// Returns the beginnings of the blocks that it runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = &'static str> {
        self.parts.iter().filter_map(|part| match part {
            Setup(_) => None,
            Runs(first, _) | Prints(first, _) => Some(*first),
        })
    }

    fn run(&self) {
        let directory = tempfile::tempdir().unwrap();
        let mut shell = Shell::start(directory.path());
        // Other tests run beside this one, and the ports of the page may be taken.
        let ports = ["6379", "6390", "9121", "7001", "7002", "7003", "7004", "8001", "8002", "8003", "8004"];
        let free: Vec<_> = ports.into_iter().zip(cluster::free_ports(ports.len())).collect();
        let here = |text: &str| {
            free.iter().fold(text.to_owned(), |text, (port, free)| text.replace(port, &free.to_string()))
        };
        for line in [
            "export ESKER_MEMORY=256m ESKER_CAPACITY_LIMIT=1g ESKER_LOG=error ESKER_RESP=127.0.0.1:6379",
            "redis-cli() { command redis-cli --no-raw -e -p 6379 \"$@\"; }",
            "until_true() { for try in $(seq 100); do \"$@\" && return; sleep 1; done; return 1; }",
            "echo secret > input",
            concat!("export REPOSITORY=", env!("CARGO_MANIFEST_DIR"), "/../.."),
        ] {
            shell.must_succeed(&here(line));
        }
        let mut servers = 0;
        for part in self.parts {
            let (first, replace, compares) = match part {
                Setup(line) => {
                    shell.must_succeed(&waiting(&here(line), &mut servers));
                    continue;
                }
                Runs(first, replace) => (first, replace, false),
                Prints(first, replace) => (first, replace, true),
            };
            for mut step in steps(&self.block(first)) {
                let of_page = |text: &str| {
                    here(&replace.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)))
                };
                step.command = of_page(&step.command);
                step.output.iter_mut().for_each(|line| *line = of_page(line));
                if compares {
                    shell.run(&step);
                    if let Some(job) = step.command.strip_prefix("kill -9 ") {
                        // A user types the next command later than the end of the process.
                        shell.must_succeed(&format!("wait {job} 2> killed; true"));
                    }
                } else {
                    shell.must_succeed(&waiting(&step.command, &mut servers));
                }
            }
        }
    }

    fn block(&self, first: &str) -> Block {
        let mut found: Vec<_> = blocks(self.page).into_iter().filter(|block| block.begins(first)).collect();
        assert_eq!(found.len(), 1, "{} has one block that begins with '{first}'", self.page);
        found.remove(0)
    }
}

/// Returns a command of which the end can be waited for: a server runs in the background, and is ready.
fn waiting(command: &str, servers: &mut usize) -> String {
    let shows_settings = ["--print-config", "--check-config"].iter().any(|flag| command.contains(flag));
    let serves = command.starts_with("esker serve") && !shows_settings;
    if !serves {
        return format!("{{ {command}\n}} < input");
    }
    *servers += 1;
    let out = format!("server-{servers}");
    format!(
        ": > {out}; {} > {out} &\nuntil grep -q ^ready {out}; do kill -0 $! || break; sleep 0.1; done; grep -q ^ready {out}",
        command.trim_end_matches('&')
    )
}

#[test]
fn every_command_of_the_other_pages_runs_as_shown() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        eprintln!("SKIPPED: redis-cli is not installed");
        return;
    }
    // Several at a time: they mostly wait.
    std::thread::scope(|scope| {
        for session in SESSIONS {
            scope.spawn(|| session.run());
        }
    });
}
