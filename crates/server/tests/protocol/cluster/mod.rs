//! The server as a node of a cluster, which the tests direct. Texts are those of redis-server 7.0 with `--cluster-enabled`.

use std::sync::Arc;

use esker_server::Config;

use crate::client::{Running, plain};
use crate::running::cluster::Directed;

mod admin;
mod lists;
mod messages;
mod reads;
mod replicas;
mod scans;
mod slots;

/// Starts a server of the cluster of [`Directed`].
async fn start_with(config: Config) -> (Running, Arc<Directed>) {
    let cluster = Directed::new();
    let server = Running::start(Config { cluster: Some(cluster.clone()), ..config }).await;
    (server, cluster)
}

async fn start() -> (Running, Arc<Directed>) {
    start_with(plain()).await
}
