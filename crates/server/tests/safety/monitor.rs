//! The right to monitor a server without changing it.

use esker_server::{Right, UserEntry};

use crate::access::with_users;

#[tokio::test]
async fn monitor_user_can_inspect_server_but_not_change_it() {
    let entry = |right| UserEntry { rights: vec![right], ..UserEntry::default() };
    let users = [("mon", entry(Right::Monitor)), ("ann", entry(Right::Read)), ("root", entry(Right::Admin))];
    let (server, _, _, _directory) = with_users(&users).await;
    let refused = async |user: &str, command: &str| {
        let mut client = server.client().await;
        client.send(format!("AUTH {user} {user}\r\n{command}\r\nQUIT\r\n")).await;
        let said = client.rest().await;
        let answer = said.strip_prefix("+OK\r\n").unwrap_or_else(|| panic!("{user}: {said}"));
        answer.starts_with("-NOPERM")
    };
    for (command, mon, ann, root) in [
        ("CONFIG GET maxclients", true, false, true),
        ("CONFIG HELP", true, false, true),
        ("SLOWLOG GET", true, false, true),
        ("SLOWLOG LEN", true, false, true),
        ("LATENCY LATEST", true, false, true),
        ("LATENCY HISTOGRAM", true, false, true),
        ("CLIENT LIST", true, false, true),
        ("LASTSAVE", true, false, true),
        ("INFO", true, true, true),
        ("MEMORY STATS", true, true, true),
        ("DBSIZE", true, true, true),
        ("GET k", false, true, true),
        ("SCAN 0", false, true, true),
        ("SET k v", false, false, true),
        ("CONFIG SET slowlog-max-len 5", false, false, true),
        ("config set slowlog-max-len 5", false, false, true),
        ("CONFIG RESETSTAT", false, false, true),
        ("CONFIG REWRITE", false, false, true),
        ("SLOWLOG RESET", false, false, true),
        ("LATENCY RESET", false, false, true),
        ("CLIENT KILL ID 1000000", false, false, true),
        ("ACL LIST", false, false, true),
        ("FLUSHALL", false, false, true),
    ] {
        for (user, allowed) in [("mon", mon), ("ann", ann), ("root", root)] {
            assert_eq!(refused(user, command).await, !allowed, "{command} by {user}");
        }
    }
    let mut mon = server.client().await;
    mon.ask("AUTH mon mon", "+OK\r\n").await;
    mon.ask("SHUTDOWN", "-NOPERM this user has no permissions to run the 'shutdown' command\r\n").await;
    let set = "-NOPERM this user has no permissions to run the 'config|set' command\r\n";
    mon.ask("MULTI", "+OK\r\n").await;
    mon.ask("CONFIG SET slowlog-max-len 5", set).await;
    mon.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
}
