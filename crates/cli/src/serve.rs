//! `esker serve`: serves a store on a RESP port.
//!
//! 1. Combine and check the settings, and listen on the ports. Both happen before any file is changed.
//! 2. Open the store, which recovers its content. Meanwhile clients and probes are answered that the
//!    store is loading. SIGTERM or SIGINT ends the process at once with exit code 0: nothing was
//!    acknowledged, and an interrupted start can be repeated at any point.
//! 3. Print one line that begins with `ready` to stdout, and serve clients. SIGHUP reloads the settings,
//!    the users and the certificates, and applies the changes that need no restart.
//! 4. After SIGTERM or SIGINT finish the commands in flight, flush and close the store, and exit with
//!    code 0; a node of a cluster ends likewise after a failed write, with code 1. A second signal, half
//!    a second or more after the first, ends the process at once, as a crash would.

use std::ffi::OsString;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use esker_engine::{Error, ErrorKind, OptionName, Options, Progress, RecoveryStep, StepProgress, Store};
use esker_server::{Config, Control, LogFilter, Server, Sockets, setting_of};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::interval;

use crate::cluster::node::{self, Listening, Member};
use crate::notify;
use crate::settings::{ClusterSettings, Outcome, Places, SETTINGS, Settings, example, explain, names};
use crate::terminal::{Failure, Log, say, start_log};

/// Exit code after a second signal.
const FORCED: i32 = 130;

/// Signals that follow the first within this time count as the same: GNU timeout signals its child and
/// then the child's group.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Interval of progress notifications to the service manager while the store opens.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// State sent to the service manager while clients are served.
const SERVING: &str = "serving";

/// File of a store in a directory. If it exists, the directory holds a store, or one was being made.
const STORE_FILE: &str = "data.esker";

/// Directory made by the file system that may lie beside a new store.
const LOST_AND_FOUND: &str = "lost+found";

const EXAMPLES: &str = "\
Every setting can also be given in the file and as ESKER_NAME in the environment.

Examples:
  esker serve                                                        on 127.0.0.1:6379, in ./esker-data
  esker serve --fast /dev/nvme0n1 --capacity /dev/nvme1n1 --iu 64k   a fast drive in front of a QLC drive
  esker serve --http 9121                                            with metrics and a live page at http://127.0.0.1:9121/
  esker serve --config esker.toml --check-config                     what would hold, and where each value came from

SIGTERM and SIGINT end it, SIGHUP reads settings, users and certificates again. Exit code 0 after a clean end; 1 if something
failed; 2 if the call or its surroundings are wrong and nothing was changed; 130 after a second signal, half a second after the
first or later.";

/// The parsed flags of `esker serve`.
pub(crate) struct Arguments(ArgMatches);

impl clap::FromArgMatches for Arguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Arguments, clap::Error> {
        Ok(Arguments(matches.clone()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = matches.clone();
        Ok(())
    }
}

impl clap::Args for Arguments {
    fn augment_args(command: Command) -> Command {
        flags(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        flags(command)
    }
}

/// Adds one flag per setting, and three others.
fn flags(command: Command) -> Command {
    let own =
        |name, help| Arg::new(name).long(name).help(help).help_heading("Settings").action(ArgAction::SetTrue);
    let mut command = command
        .after_help(EXAMPLES)
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("PATH")
                .help("File of settings, in TOML [or ESKER_CONFIG]")
                .help_heading("Settings")
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(own("check-config", "Explain every setting and end, or say what is wrong with them"))
        .arg(own("print-config", "Print a file of all settings with their defaults and end"));
    for setting in SETTINGS.iter().filter(|setting| setting.places != Places::Secret) {
        let kind = setting.kind;
        let meaning = setting.meaning.trim_end_matches('.');
        let help = match setting.default {
            "" => format!("{meaning} [default: {}]", setting.unset),
            default => format!("{meaning} [default: {default}]"),
        };
        let mut flag = Arg::new(setting.name)
            .long(setting.name)
            .value_name(kind.placeholder())
            .help(help)
            .help_heading(setting.group)
            .value_parser(move |text: &str| kind.parse(text).map(|_| text.to_owned()));
        if kind.is_list() {
            flag = flag.action(ArgAction::Append);
        }
        if kind.is_switch() {
            flag = flag.num_args(0..=1).require_equals(true).default_missing_value("true");
        }
        command = command.arg(flag);
    }
    command
}

/// Combines the settings from all sources. Also returns warnings about the environment.
fn settings(
    matches: &ArgMatches,
    environment: Vec<(OsString, OsString)>,
) -> Result<(Settings, Vec<String>), String> {
    let mut settings = Settings::defaults();
    let variable = environment.iter().find(|(name, value)| name == "ESKER_CONFIG" && !value.is_empty());
    let file = matches.get_one::<PathBuf>("config").cloned();
    if let Some(file) = file.or_else(|| variable.map(|(_, value)| PathBuf::from(value))) {
        settings.read_file(&file)?;
    }
    let warnings = settings.read_environment(environment)?;
    for setting in SETTINGS.iter().filter(|setting| setting.places != Places::Secret) {
        if let Some(texts) = matches.get_many::<String>(setting.name) {
            let texts: Vec<&str> = texts.map(String::as_str).collect();
            settings.flag(setting, &texts.join(","))?;
        }
    }
    Ok((settings, warnings))
}

pub(crate) fn run(Arguments(matches): &Arguments) -> Result<(), Failure> {
    if matches.get_flag("print-config") {
        return say(&example());
    }
    let (settings, warnings) = settings(matches, std::env::vars_os().collect()).map_err(usage)?;
    let mut outcome = settings.outcome().map_err(usage)?;
    if matches.get_flag("check-config") {
        settings.check_files(&outcome.config).map_err(usage)?;
        let warnings = warnings.iter().map(|warning| format!("\nwarning: {warning}\n"));
        return say(&(explain(&settings, &outcome.config.limits) + &warnings.collect::<String>()));
    }
    let log = start_log(settings.log(), settings.logs_json());
    outcome.config.log = Some(log.clone());
    // Called before threads start and memory is freed.
    esker_device::give_back_freed_memory();
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    settings.check_files(&outcome.config).map_err(usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(outcome.workers)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start threads: {error}")))?;
    runtime.block_on(serve(outcome, Reloading { matches: matches.clone(), settings, log }))
}

fn usage(text: String) -> Failure {
    Failure::Usage(text)
}

async fn serve(outcome: Outcome, reloading: Reloading) -> Result<(), Failure> {
    let Outcome { options, mut config, places, directory, spellings, cluster, .. } = outcome;
    tokio::spawn(notify::stay_alive());
    // Step 1.
    for path in &places {
        check_parent(path)?;
    }
    if let Some(directory) = &directory {
        check_directory(directory)?;
    }
    let mut sockets = Sockets::bind(&config).map_err(|error| Failure::Usage(error.to_string()))?;
    let wire = match &cluster {
        Some(cluster) => Some((node::listen(cluster).await?, cluster.clone())),
        None => None,
    };
    if config.access.allow_unauthenticated {
        tracing::warn!("clients need no password (allow-unauthenticated)");
    }
    raise_file_limit(config.limits.connections_max);
    let mut terminate = on_signal(SignalKind::terminate())?;
    let mut interrupt = on_signal(SignalKind::interrupt())?;
    let hangup = on_signal(SignalKind::hangup())?;

    // Step 2.
    let (store, member) = tokio::select! {
        biased;
        name = ended(&mut terminate, &mut interrupt) => {
            tracing::info!("{name}: ending at once; the store was not open yet, and nothing was acknowledged");
            // Dropping them removes the unix socket.
            drop(sockets);
            std::process::exit(0);
        }
        opened = open(options, wire, &mut sockets, &config) => {
            opened?.map_err(|unopened| unopened.failure(&places, &spellings))?
        }
    };
    config.cluster = member.as_ref().map(Member::view);

    // Step 3.
    let server = Server::on(sockets, config, store.clone());
    announce(&server, &places, &store);
    notify::ready(SERVING);
    let reloading = tokio::spawn(reload(server.control(), store.clone(), hangup, reloading));
    let stop = async {
        tokio::select! {
            name = ended(&mut terminate, &mut interrupt) => tracing::info!("{name}: finishing commands in flight"),
            () = node::store_failed(member.as_ref()) => {}
        }
        notify::stopping();
        node::hand_over(member.as_ref()).await;
    };
    let finish = async {
        server.run(stop).await;
        if let Some(member) = &member {
            member.stop().await;
        }
        // Step 4. A backup whose target does not respond does not delay the stop.
        store.cancel_checkpoint("the server stops");
        let closed = async {
            store.flush().await?;
            store.close().await
        };
        closed.await.map_err(|error: Error| Failure::Failed(format!("closing the store failed: {error}")))
    };
    finish_or_force(finish).await?;
    reloading.abort();
    tracing::info!("store closed");
    Ok(())
}

/// Opens the store, and reports the progress meanwhile to clients and to the service manager.
async fn open(
    options: Options,
    wire: Option<(Listening, ClusterSettings)>,
    sockets: &mut Sockets,
    config: &Config,
) -> Result<Result<(Store, Option<Member>), Unopened>, Failure> {
    let progress = Progress::default();
    let options = options.progress(progress.clone());
    // Opening may block a thread for long, which must not be one of the threads that answer clients
    // meanwhile.
    let runtime = Handle::current();
    let addresses = sockets.addresses();
    let opening = async move {
        let store =
            Store::open(options).await.map_err(|error| Unopened::Store { error, is_node: wire.is_some() })?;
        let Some((wire, settings)) = wire else { return Ok((store, None)) };
        let member = node::join(&store, wire, &settings, &addresses).await.map_err(Unopened::Node)?;
        Ok((store, Some(member)))
    };
    let opening = tokio::task::spawn_blocking(move || runtime.block_on(opening));
    let began = Instant::now();
    let tell = move || recovery(progress.step(), began.elapsed());
    let telling = async {
        let mut turn = interval(TELL_EVERY);
        loop {
            turn.tick().await;
            notify::status(&tell());
        }
    };
    tokio::select! {
        opened = sockets.answer_while(config, tell.clone(), opening) => {
            opened.map_err(|error| Failure::Failed(format!("opening the store failed: {error}")))
        }
        never = telling => never,
    }
}

/// Remedy for a damaged store of a node, which must not accept a loss.
const REPLACE_NODE: &str = "; a node must not accept a loss: remove it (esker cluster remove NODE --dead), and let an empty one join";

/// The reason why a store cannot be served.
enum Unopened {
    Store { error: Error, is_node: bool },
    Node(Failure),
}

impl Unopened {
    fn failure(self, places: &[PathBuf], spellings: &[(OptionName, String)]) -> Failure {
        let (error, is_node) = match self {
            Unopened::Store { error, is_node } => (error, is_node),
            Unopened::Node(failure) => return failure,
        };
        let mut text =
            format!("cannot open the store at {}: {}", names(places), in_settings(&error, spellings));
        if is_node && error.kind() == ErrorKind::Corrupt {
            text.push_str(REPLACE_NODE);
        }
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Locked => Failure::Usage(text),
            _ => Failure::Failed(text),
        }
    }
}

/// Returns the name of the signal that arrived.
async fn ended(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

/// Waits for the end. A second signal, [`SAME_SIGNAL`] or more after the first, ends the process.
async fn finish_or_force(finish: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    // Each stream receives every signal, including the second one.
    let (mut terminate, mut interrupt) =
        (on_signal(SignalKind::terminate())?, on_signal(SignalKind::interrupt())?);
    let force = async {
        ended(&mut terminate, &mut interrupt).await;
        let first = Instant::now();
        loop {
            let name = ended(&mut terminate, &mut interrupt).await;
            if first.elapsed() >= SAME_SIGNAL {
                return name;
            }
        }
    };
    tokio::select! {
        biased;
        finished = finish => finished,
        name = force => {
            tracing::warn!("{name} again: ending at once; acknowledged writes are recovered at the next start");
            std::process::exit(FORCED);
        }
    }
}

/// Returns the progress of recovery in words.
fn recovery(at: StepProgress, took: Duration) -> String {
    let (percent, all, seconds) = (at.percent, at.all, took.as_secs());
    let left = at.remaining.filter(|left| left.as_secs() > 0);
    let left = left.map_or(String::new(), |left| format!(", about {} s left", left.as_secs()));
    let (step, what) = match at.step {
        RecoveryStep::Slots => ("1 of 3", "slots"),
        RecoveryStep::Unsealed => ("2 of 3", "segments without a summary"),
        _ => ("3 of 3", "records"),
    };
    format!("the store is recovering for {seconds} s, step {step}: {percent} % of {all} {what} read{left}")
}

/// State for reloading the settings.
struct Reloading {
    matches: ArgMatches,
    /// The settings in force, except those that need a restart.
    settings: Settings,
    log: Arc<Log>,
}

impl Reloading {
    /// Reloads the settings and applies the changes that need no restart. Returns the changes, or the
    /// reason why nothing changed.
    fn settings(&mut self, control: &Control, store: &Store) -> Result<String, String> {
        let (settings, _) = settings(&self.matches, std::env::vars_os().collect())?;
        settings.outcome()?;
        let [now, later] = settings.changed_since(&self.settings);
        let new = settings.changeable();
        store.set_durability(new.durability).map_err(|error| error.to_string())?;
        self.log.set(new.log)?;
        store.set_compression(new.compression).map_err(|error| error.to_string())?;
        store.set_when_full(new.when_full).map_err(|error| error.to_string())?;
        store.set_background_bytes_per_s(new.background_bytes_per_s);
        store.set_scrub_bytes_per_s(new.scrub_bytes_per_s);
        control.set_connections(new.connections, new.connections_per_address);
        self.settings = settings;
        if !later.is_empty() {
            tracing::warn!("changed, but in effect only after a restart: {}", later.join(", "));
        }
        Ok(now.join(", "))
    }
}

async fn reload(control: Control, store: Store, mut hangup: Signal, mut reloading: Reloading) {
    while hangup.recv().await.is_some() {
        notify::reloading();
        let changed = reloading.settings(&control, &store);
        control.note_settings(changed.is_ok());
        // Users and certificates are reloaded even if the settings are wrong, so that a removed user can
        // no longer log in.
        let files = control.reload().map_err(|error| error.to_string());
        match changed.and_then(|changed| files.map(|()| changed)) {
            Ok(changed) => {
                tracing::info!(changed, "SIGHUP: read settings, users and certificates again");
                notify::ready(SERVING);
            }
            Err(error) => {
                tracing::error!(%error, "SIGHUP: the reload failed; whatever failed to load keeps its previous state");
                notify::ready(&format!(
                    "serving, but the last reload failed, and whatever failed to load keeps its previous state: {error}"
                ));
            }
        }
    }
}

/// Refuses a path whose parent is missing, which is probably a typing error; making the parent would hide
/// it.
pub(crate) fn check_parent(path: &Path) -> Result<(), Failure> {
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

/// Refuses a directory that holds other files, which is probably a typing error too: the store's files
/// would be mixed with them.
pub(crate) fn check_directory(directory: &Path) -> Result<(), Failure> {
    // An unreadable directory is reported by the opening of the store.
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let foreign = names.iter().find(|name| *name != LOST_AND_FOUND);
    match foreign {
        Some(foreign) if !names.iter().any(|name| name == STORE_FILE) => {
            let (directory, foreign) = (directory.display(), foreign.display());
            Err(Failure::Usage(format!(
                "cannot keep a store at {directory}: it holds {foreign}, and no store; give a directory that is empty or \
                 does not exist yet, such as {directory}/esker"
            )))
        }
        _ => Ok(()),
    }
}

/// Returns an error message of the store, with its options replaced by the settings as they were given.
fn in_settings(error: &Error, spellings: &[(OptionName, String)]) -> String {
    error.in_words(|option| {
        let given = spellings.iter().find(|(of, _)| *of == option);
        given.map_or(setting_of(option).to_owned(), |(_, given)| given.clone())
    })
}

/// Prints the one line on stdout. The process that started the server may wait for it, or may have closed
/// stdout.
fn announce(server: &Server, places: &[PathBuf], store: &Store) {
    let shown =
        |addresses: &[SocketAddr]| addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
    let recovery = store.recovery();
    let addresses = server.addresses();
    let if_any = |name: &str, addresses: &[SocketAddr]| {
        if addresses.is_empty() { String::new() } else { format!(" {name}={}", shown(addresses)) }
    };
    let line = format!(
        "ready resp={}{}{}{}{} store={} keys={} recovery_ms={:.1}\n",
        shown(&addresses.resp),
        addresses.unix.map_or_else(String::new, |path| format!(" unix={}", path.display())),
        if_any("replica", &addresses.replica_resp),
        if_any("http", &addresses.http),
        if_any("grpc", &addresses.grpc),
        names(places),
        recovery.keys,
        recovery.duration.as_secs_f64() * 1e3
    );
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
}

fn on_signal(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Failed(format!("cannot handle signals: {error}")))
}

/// Raises the limit of open files: every connection takes a file descriptor, and most shells allow 1024.
fn raise_file_limit(connections: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files; fewer connections will fit");
    }
    // Margin for the files of the store, HTTP, and the runtime.
    let needed = connections as u64 + 128;
    if let Some(most) = limit.maximum.filter(|&most| most < needed) {
        tracing::warn!("connections is {connections}, and the limit of open files is {most}; fewer will fit");
    }
}
