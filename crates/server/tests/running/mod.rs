//! A server with its own store, shared by all test binaries; specific requests are in the binaries, beside their clients.
#![allow(dead_code, reason = "no binary needs all of it")]

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) mod cluster;

use esker_device::{Runtime, Threads};
use esker_engine::{Options, Store};
use esker_server::{Addresses, Config, Control, Server};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Timeout that only a hanging test exceeds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Running {
    pub(crate) resp: Vec<SocketAddr>,
    pub(crate) replica_resp: Vec<SocketAddr>,
    pub(crate) grpc: Vec<SocketAddr>,
    pub(crate) http: Vec<SocketAddr>,
    pub(crate) control: Control,
    pub(crate) store: Store,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    _directory: TempDir,
}

/// Returns an address with a free port.
pub(crate) fn here() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

impl Running {
    pub(crate) async fn start(config: Config) -> Running {
        Running::start_on(Threads::new(2).unwrap(), config).await
    }

    pub(crate) async fn start_on(runtime: Arc<dyn Runtime>, config: Config) -> Running {
        Running::start_with(|options| options.runtime(runtime), config).await
    }

    /// Starts a server on a store with modified options.
    pub(crate) async fn start_with(with: impl FnOnce(Options) -> Options, config: Config) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::directory(directory.path().join("store")).memory_bytes(128 << 20);
        let store = Store::open(with(options)).await.unwrap();
        let server = Server::bind(config, store.clone()).unwrap();
        let (addresses, control) = (server.addresses(), server.control());
        let Addresses { resp, replica_resp, http, grpc, .. } = addresses;
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.run(async {
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        }));
        Running {
            resp,
            replica_resp,
            grpc,
            http,
            control,
            store,
            stop: Some(stop),
            server,
            _directory: directory,
        }
    }

    /// Requests the stop of the server, without waiting for it.
    pub(crate) fn ask_to_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn stopped(self) {
        timeout(PATIENCE, self.server).await.expect("the server stops").unwrap();
    }
}
