//! `esker serve`: a store behind a RESP port.
//!
//! 1. The options are checked, and the port is taken: both before anything is touched on disk.
//! 2. The store opens, which recovers what it held.
//! 3. One line that begins with `ready` goes to stdout; from here on clients are answered.
//! 4. After SIGTERM or SIGINT commands in flight finish, the store is flushed and closed, and the exit code is 0.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use esker_device::Backend;
use esker_engine::{Durability, Error, ErrorKind, Options, Store};
use esker_server::{Config, Server, Sockets};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, durability, size};

/// Where a store is made if nothing else is said.
const DIRECTORY_DEFAULT: &str = "./esker-data";

/// Options of `esker serve`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Keep the store in files in this directory, ./esker-data if no place is given; its parent must be there.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["fast", "capacity"])]
    dir: Option<PathBuf>,
    /// Block device or file of the fast tier; without --capacity the only tier.
    #[arg(long, value_name = "PATH")]
    fast: Option<PathBuf>,
    /// Block device or file of the capacity tier; without --fast the only tier.
    #[arg(long, value_name = "PATH")]
    capacity: Option<PathBuf>,
    /// Address that answers RESP.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6379", value_parser = address)]
    resp: SocketAddr,
    /// When a write is acknowledged: sync, process, periodic:MS or none.
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = durability::parse)]
    durability: Durability,
    /// Memory for everything: index, buffers, cache [default: 512m].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// How large the fast tier may grow [default: the device, or 1g for a file].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    fast_limit: Option<u64>,
    /// How large the capacity tier or the directory may grow [default: the device, or 256g for a file].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    capacity_limit: Option<u64>,
    /// Indirection unit of the capacity tier, fixed at format [default: what the device reports].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    iu: Option<u64>,
    /// Share of the capacity that users cannot fill, in percent [default: 20].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(5..=50))]
    reserve: Option<u8>,
    /// Format the devices even if they hold something else; all of it is lost.
    #[arg(long)]
    force_format: bool,
    /// How to do input and output.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = ["auto", "uring", "threads"])]
    backend: String,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let found =
        text.to_socket_addrs().map_err(|error| format!("{error}; give HOST:PORT such as 127.0.0.1:6379"))?;
    found.into_iter().next().ok_or_else(|| "the name has no address".to_owned())
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start threads: {error}")))?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> Result<(), Failure> {
    // 1.
    let places = arguments.places();
    for path in &places {
        check_parent(path)?;
    }
    let options = arguments.options()?;
    let config = arguments.config(&places);
    let sockets = Sockets::bind(&config).map_err(|error| Failure::Usage(error.to_string()))?;
    raise_file_limit();
    let mut terminate = on_signal(SignalKind::terminate())?;
    let mut interrupt = on_signal(SignalKind::interrupt())?;

    // 2.
    let store = Store::open(options).await.map_err(|error| open_failure(&error, &places))?;

    // 3.
    let server =
        Server::listen(sockets, config, store.clone()).map_err(|error| Failure::Usage(error.to_string()))?;
    announce(&server, &places, &store);
    let stop = async {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!("{name}: finishing commands in flight");
    };
    server.run(stop).await;

    // 4.
    let closed = async {
        store.flush().await?;
        store.close().await
    };
    closed.await.map_err(|error: Error| Failure::Failed(format!("closing the store failed: {error}")))?;
    tracing::info!("store closed");
    Ok(())
}

impl Arguments {
    /// The directory, or the devices and files, fast first.
    fn places(&self) -> Vec<PathBuf> {
        let places: Vec<_> = [&self.dir, &self.fast, &self.capacity].into_iter().flatten().cloned().collect();
        if places.is_empty() { vec![DIRECTORY_DEFAULT.into()] } else { places }
    }

    fn options(&self) -> Result<Options, Failure> {
        let usage = |text: &str| Err(Failure::Usage(format!("{text} (see esker serve --help)")));
        if self.fast_limit.is_some() && self.fast.is_none() {
            return usage(
                "--fast-limit needs --fast; for a directory or --capacity alone use --capacity-limit",
            );
        }
        let mut options = match (&self.dir, &self.fast, &self.capacity) {
            (None, Some(fast), Some(capacity)) if fast == capacity => {
                return usage("--fast and --capacity name the same path; give each tier its own");
            }
            (None, Some(fast), Some(capacity)) => Options::fast_and_capacity(fast, capacity),
            (None, Some(_), None) if self.capacity_limit.is_some() => {
                return usage(
                    "--capacity-limit needs --capacity or a directory; for --fast alone use --fast-limit",
                );
            }
            (None, Some(_), None) if self.iu.is_some() => {
                return usage("--iu is about the capacity tier, and --fast alone has none");
            }
            (None, Some(fast), None) => Options::fast_only(fast),
            (None, None, Some(capacity)) => Options::capacity_only(capacity),
            (dir, ..) => Options::directory(dir.as_deref().unwrap_or(Path::new(DIRECTORY_DEFAULT))),
        };
        options = options.durability(self.durability).force_format(self.force_format).backend(
            match &*self.backend {
                "uring" => Backend::Uring,
                "threads" => Backend::Threads,
                _ => Backend::Auto,
            },
        );
        if let Some(bytes) = self.memory {
            options = options.memory_bytes(bytes);
        }
        if let Some(bytes) = self.fast_limit {
            options = options.fast_limit_bytes(bytes);
        }
        if let Some(bytes) = self.capacity_limit {
            options = options.capacity_limit_bytes(bytes);
        }
        if let Some(bytes) = self.iu {
            options = options.indirection_unit_bytes(bytes);
        }
        if let Some(percent) = self.reserve {
            options = options.reserve_percent(percent);
        }
        Ok(options)
    }

    fn config(&self, places: &[PathBuf]) -> Config {
        if !self.resp.ip().is_loopback() {
            tracing::warn!(address = %self.resp, "other machines can reach this address, and there are no passwords");
        }
        let fsync = if self.durability == Durability::Sync { "always" } else { "everysec" };
        let mut config = Config::resp(self.resp);
        config.settings = vec![
            ("dir".to_owned(), names(places)),
            ("bind".to_owned(), self.resp.ip().to_string()),
            ("appendfsync".to_owned(), fsync.to_owned()),
        ];
        config
    }
}

/// A path whose parent is missing is a typing error; making the parent would hide it.
fn check_parent(path: &Path) -> Result<(), Failure> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => return Ok(()),
    };
    if parent.is_dir() {
        return Ok(());
    }
    let (path, parent) = (path.display(), parent.display());
    Err(Failure::Usage(format!("cannot keep a store at {path}: there is no directory {parent}")))
}

fn open_failure(error: &Error, places: &[PathBuf]) -> Failure {
    let text = format!("cannot open the store at {}: {error}", names(places));
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Locked => Failure::Usage(text),
        _ => Failure::Failed(text),
    }
}

fn names(places: &[PathBuf]) -> String {
    places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
}

/// The one line on stdout. Who started the server may wait for it, and may have closed stdout instead.
fn announce(server: &Server, places: &[PathBuf], store: &Store) {
    let addresses: Vec<_> = server.addresses().iter().map(SocketAddr::to_string).collect();
    let recovery = store.recovery();
    let line = format!(
        "ready resp={} store={} keys={} recovery_ms={:.1}\n",
        addresses.join(","),
        names(places),
        recovery.keys,
        recovery.duration.as_secs_f64() * 1e3
    );
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
}

fn on_signal(kind: SignalKind) -> Result<tokio::signal::unix::Signal, Failure> {
    signal(kind).map_err(|error| Failure::Failed(format!("cannot handle signals: {error}")))
}

/// Every connection takes a file descriptor, and shells mostly allow 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files; fewer connections will fit");
    }
}
