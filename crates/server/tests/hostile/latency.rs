//! Latency of honest clients beside attackers, compared with their latency alone.

use std::time::{Duration, Instant};

use crate::attack::Attack;
use crate::honest::{Honest, Served};
use crate::seconds;
use crate::server::{self, Hosted};

/// Maximum ratio of an honest client's 99th percentile beside attackers to that without them.
const RATIO_MAX: f64 = 2.0;

/// Latency below which the result depends on the machine, which attackers and clients share with the server, rather than on the
/// server.
const NOISE: Duration = Duration::from_millis(5);

/// Serves honest clients for a time, beside attackers or alone.
fn serve(server: &Hosted, attacks: &[Attack], time: Duration) -> [Served; 2] {
    let honest = [Honest::start(server.resp), Honest::start_grpc(server.grpc)];
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for attack in attacks {
            scope.spawn(|| attack.run(server, until));
        }
        std::thread::sleep(time);
    });
    honest.map(Honest::stop)
}

#[test]
#[ignore = "takes minutes, on a machine that has nothing else to do"]
fn p99_of_honest_clients_beside_each_attack() {
    server::raise_file_limit();
    let mut slow = Vec::new();
    println!("{:<18} {:>10} {:>10} {:>6}   {:>10} {:>10} {:>6}", "p99 in us", "RESP", "", "", "gRPC", "", "");
    let only = std::env::var("ESKER_HOSTILE_ATTACK").ok();
    for attack in Attack::ALL {
        if only.as_ref().is_some_and(|only| *only != format!("{attack:?}")) {
            continue;
        }
        // A new server, without traces of previous attacks.
        let server = Hosted::start();
        serve(&server, &[], seconds(5) / 5);
        let alone = serve(&server, &[], seconds(5)).map(|served| served.percentile(99));
        let beside = serve(&server, &[attack], seconds(5)).map(|served| served.percentile(99));
        let mut line = format!("{:<18}", format!("{attack:?}"));
        for (client, (alone, beside)) in ["RESP", "gRPC"].iter().zip(alone.into_iter().zip(beside)) {
            let ratio = beside.as_secs_f64() / alone.as_secs_f64();
            line += &format!(" {:>10} {:>10} {ratio:>6.2}  ", alone.as_micros(), beside.as_micros());
            if ratio > RATIO_MAX && beside > NOISE {
                slow.push(format!("{attack:?}: {client} {alone:?} alone, {beside:?} beside it"));
            }
        }
        println!("{}", line.trim_end());
        server.stop();
    }
    assert!(
        slow.is_empty(),
        "honest clients waited more than {RATIO_MAX} times as long:\n{}",
        slow.join("\n")
    );
}
