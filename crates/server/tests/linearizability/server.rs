//! A server in its own process, so that it can be killed.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use esker_engine::{Durability, Options, Store};
use esker_server::{Addresses, Config, Server};

const DIRECTORY: &str = "ESKER_LINEARIZABILITY_DIRECTORY";
const DURABILITY: &str = "ESKER_LINEARIZABILITY_DURABILITY";

/// In the child process: serves until it is killed.
pub(crate) fn serve_if_asked() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let sync = std::env::var(DURABILITY).is_ok_and(|level| level == "sync");
    let options = Options::directory(Path::new(&directory).join("store"))
        .capacity_limit_bytes(64 << 20)
        .segment_bytes(1 << 20)
        .memory_bytes(128 << 20)
        .durability(if sync { Durability::Sync } else { Durability::Process });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(options).await.unwrap();
        let here = "127.0.0.1:0".parse().unwrap();
        let config = Config { grpc: vec![here], ..Config::resp(here) };
        let server = Server::bind(config, store).unwrap();
        let Addresses { resp, grpc, .. } = server.addresses();
        println!("\nserving {} {}", resp[0], grpc[0]);
        std::io::stdout().flush().unwrap();
        server.run(std::future::pending()).await;
    });
}

pub(crate) struct Hosted {
    process: Child,
    pub(crate) address: Address,
}

/// Addresses of the server.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(crate) resp: SocketAddr,
    pub(crate) grpc: SocketAddr,
}

impl Hosted {
    pub(crate) fn start(directory: &Path, durability: &str) -> Hosted {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["as_server", "--exact", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(DURABILITY, durability)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let serving =
            lines.map(Result::unwrap).find_map(|line| line.strip_prefix("serving ").map(str::to_owned));
        let serving = serving.expect("the server starts");
        let (resp, grpc) = serving.split_once(' ').expect("two addresses");
        let address = Address { resp: resp.parse().unwrap(), grpc: grpc.parse().unwrap() };
        Hosted { process, address }
    }

    /// Sends SIGKILL and waits for the end of the process.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
