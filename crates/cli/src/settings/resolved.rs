//! Converts the settings to options of the store and of the server. Refuses contradicting settings with
//! one sentence that names both and their origins.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_device::Backend;
use esker_engine::{Compression, Durability, MaxGarbage, OnDeviceLoss, OptionName, Options, WhenFull};
use esker_server::{
    Access, ClientCertificates, Config, Error, KeyspaceEvents, LOGIN_BYTES, Limits, Password, TlsFiles,
    UnixSocket, setting_of,
};

use super::cluster::ClusterSettings;
use super::kind::Value;
use super::layers::{Given, Settings};
use crate::secret;
use crate::terminal::log_filter;

/// Directory of the store if no setting gives its place.
const DIRECTORY_DEFAULT: &str = "./esker-data";

/// Settings whose addresses use TLS.
const TLS_DOORS: [&str; 4] = ["resp-tls", "cluster-replica-resp-tls", "grpc-tls", "http-tls"];

/// The options of `esker serve`.
pub(crate) struct Outcome {
    /// Options of the store.
    pub(crate) options: Options,
    /// Options of the server.
    pub(crate) config: Config,
    /// The directory, or the devices and files, fast first.
    pub(crate) places: Vec<PathBuf>,
    /// The directory, if the store lies in one.
    pub(crate) directory: Option<PathBuf>,
    /// Settings of the node, if the store is one of a cluster.
    pub(crate) cluster: Option<ClusterSettings>,
    /// Number of threads that serve clients.
    pub(crate) workers: usize,
    /// The store's options with the settings that gave them, for error messages.
    pub(crate) spellings: Vec<(OptionName, String)>,
}

impl Settings {
    /// Returns the paths of a list.
    fn paths(&self, name: &str) -> Vec<PathBuf> {
        self.get(name).map_or(Vec::new(), |given| match &given.value {
            Value::Paths(paths) => paths.clone(),
            other => unreachable!("{name} is a list of paths in the table, and not {other:?}"),
        })
    }

    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(|given| match &given.value {
            Value::Path(path) => path.clone(),
            other => unreachable!("{name} is a path in the table, and not {other:?}"),
        })
    }

    pub(super) fn bytes(&self, name: &str) -> Option<u64> {
        self.get(name).map(|given| match given.value {
            Value::Size(bytes) => bytes,
            ref other => unreachable!("{name} is a size in the table, and not {other:?}"),
        })
    }

    pub(super) fn count(&self, name: &str) -> usize {
        match self.get(name).map(|given| &given.value) {
            Some(&Value::Count(count)) => count as usize,
            other => unreachable!("{name} is a number that is given or has a default, and not {other:?}"),
        }
    }

    pub(super) fn time(&self, name: &str) -> Option<Duration> {
        match self.get(name).map(|given| &given.value) {
            Some(&Value::Time(time)) => Some(time).filter(|time| !time.is_zero()),
            other => unreachable!("{name} is a time with a default in the table, and not {other:?}"),
        }
    }

    pub(super) fn switch(&self, name: &str) -> bool {
        matches!(self.get(name).map(|given| &given.value), Some(Value::Switch(true)))
    }

    pub(super) fn addresses(&self, name: &str) -> Vec<SocketAddr> {
        match self.get(name).map(|given| &given.value) {
            Some(Value::Addresses(addresses)) => addresses.clone(),
            None => Vec::new(),
            other => unreachable!("{name} is a list of addresses in the table, and not {other:?}"),
        }
    }

    pub(super) fn word(&self, name: &str) -> Option<&str> {
        self.get(name).map(|given| given.text.as_str())
    }

    /// Returns the parts of a list separated by commas.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        let parts = self.word(name).into_iter().flat_map(|text| text.split(','));
        parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    pub(super) fn compression(&self) -> Compression {
        match self.get("compression").map(|given| &given.value) {
            Some(&Value::Compression(compression)) => compression,
            other => unreachable!("compression is one in the table, and not {other:?}"),
        }
    }

    fn max_garbage(&self) -> MaxGarbage {
        match self.get("max-garbage").map(|given| &given.value) {
            Some(&Value::MaxGarbage(bound)) => bound,
            other => unreachable!("max-garbage is one in the table, and not {other:?}"),
        }
    }

    pub(super) fn durability(&self) -> Durability {
        match self.get("durability").map(|given| &given.value) {
            Some(&Value::Durability(durability)) => durability,
            other => unreachable!("durability is one in the table, and not {other:?}"),
        }
    }

    /// Returns the policy for writes to a full store.
    pub(super) fn when_full(&self) -> WhenFull {
        let word = self.word("when-full").expect("it has a default");
        esker_server::when_full_of(word).expect("the table has these words only")
    }

    /// Returns the log filter.
    pub(crate) fn log(&self) -> &str {
        self.word("log").expect("log has a default")
    }

    /// Returns true if the log format is JSON.
    pub(crate) fn logs_json(&self) -> bool {
        self.word("log-format") == Some("json")
    }

    /// Returns the options of the store and the server, or the first contradiction.
    pub(crate) fn outcome(&self) -> Result<Outcome, String> {
        if log_filter(self.log()).is_none() {
            let given = self.get("log").expect("log has a default");
            return Err(format!(
                "{given}: '{}' is not a filter such as info or warn,esker_server=debug",
                given.text
            ));
        }
        self.check_places()?;
        self.check_sizes()?;
        self.check_tls()?;
        let limits = self.limits()?;
        let config = self.config(limits)?;
        // Passwords of a file are verified one at a time, so memory for one suffices.
        let login_bytes = if config.access.users.is_some() { LOGIN_BYTES } else { 0 } as u64;
        let server_bytes = (config.limits.client_bytes_max as u64).saturating_add(login_bytes);
        self.check_memory(server_bytes, login_bytes)?;
        let cluster = self.cluster()?;
        let mut options = self.options(server_bytes);
        if cluster.is_some() {
            options = options.group_log_segments(self.group_log_segments());
        }
        let (places, directory) = (self.places(), self.directory());
        let (workers, spellings) = (self.workers(), self.spellings());
        Ok(Outcome { options, config, places, directory, cluster, workers, spellings })
    }

    /// Reads the files of users and of TLS as the start does. Returns an error that names the setting of
    /// an unusable file.
    pub(crate) fn check_files(&self, config: &Config) -> Result<(), String> {
        config.check_files().map_err(|error| {
            let path = match &error {
                Error::Users { path, .. } | Error::Tls { path, .. } => path,
                _ => return error.to_string(),
            };
            let names = ["users", "tls-cert", "tls-key", "tls-client-ca"];
            let given = names.iter().find(|name| self.path(name).as_ref() == Some(path));
            match given.and_then(|name| self.get(name)) {
                Some(given) => format!("{given}: {error}"),
                None => error.to_string(),
            }
        })
    }

    fn workers(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        match self.get("workers") {
            Some(_) => self.count("workers"),
            None => (cores - 1).max(1),
        }
    }

    /// Refuses two settings that exclude each other.
    pub(super) fn exclude(&self, one: &str, other: &str, why: &str) -> Result<(), String> {
        match (self.explicit(one), self.explicit(other)) {
            (Some(one), Some(other)) => Err(contradict(one, other, why)),
            _ => Ok(()),
        }
    }

    /// Refuses a setting that has no effect without another.
    pub(super) fn require(&self, one: &str, other: &str, why: &str) -> Result<(), String> {
        match (self.explicit(one), self.explicit(other)) {
            (Some(one), None) => Err(format!("{one} needs {other}: {why}")),
            _ => Ok(()),
        }
    }

    fn check_places(&self) -> Result<(), String> {
        let why = "a store is in a directory, or on one or two devices";
        self.exclude("dir", "fast", why)?;
        self.exclude("dir", "capacity", why)?;
        self.require("fast-limit", "fast", "for a directory or capacity alone use capacity-limit")?;
        if let (Some(fast), Some(capacity)) = (self.get("fast"), self.get("capacity")) {
            let fast_paths = self.paths("fast");
            if self.paths("capacity").iter().any(|path| fast_paths.contains(path)) {
                return Err(contradict(fast, capacity, "they name the same path; give each tier its own"));
            }
        } else if self.get("fast").is_some() {
            self.require("capacity-limit", "capacity", "for fast alone use fast-limit")?;
            self.require("iu", "capacity", "fast alone has no capacity tier")?;
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<(), String> {
        self.require("tls-cert", "tls-key", "a certificate is of no use without its key")?;
        self.require("tls-key", "tls-cert", "a key is of no use without its certificate")?;
        for name in TLS_DOORS {
            if !self.addresses(name).is_empty() {
                self.require(name, "tls-cert", "TLS needs a certificate")?;
            }
        }
        self.require("tls-client-ca", "tls-cert", "it is about TLS, which needs a certificate")?;
        self.require(
            "tls-client-auth",
            "tls-client-ca",
            "certificates cannot be checked without their authority",
        )?;
        match self.explicit("tls-cert") {
            Some(given) if TLS_DOORS.iter().all(|name| self.addresses(name).is_empty()) => {
                Err(format!("{given} needs resp-tls, grpc-tls or http-tls: no address speaks TLS"))
            }
            _ => Ok(()),
        }
    }

    fn limits(&self) -> Result<Limits, String> {
        let memory = self.bytes("memory").expect("memory has a default");
        let clients = self.bytes("client-memory").unwrap_or(memory / 8);
        let each = self.bytes("client-memory-each").unwrap_or(clients / 4 * 3);
        let argument = self.bytes("argument-limit").expect("argument-limit has a default");
        let (soft, hard) = (self.bytes("reply-queue"), self.bytes("reply-queue-limit"));
        let pair = |one: &str, other: &str| (self.get(one), self.get(other));
        let contradiction = match () {
            () if clients > memory / 2 => {
                (pair("client-memory", "memory"), "clients may have half of it at most")
            }
            () if each > clients / 4 * 3 => (
                pair("client-memory-each", "client-memory"),
                "one client cannot have more than three quarters, because a quarter is reserved for new clients",
            ),
            () if self.explicit("argument-limit").is_some() && argument > each / 3 => {
                // The first of these that has a value determines the limit of one client.
                let bound = ["client-memory-each", "client-memory", "memory"];
                let bound = bound.into_iter().find_map(|name| self.get(name));
                (
                    (self.get("argument-limit"), bound),
                    "one client must be able to hold three such arguments: as input, as read from the store, as an answer",
                )
            }
            () if soft > hard => {
                (pair("reply-queue", "reply-queue-limit"), "the soft limit is above the hard one")
            }
            () => ((None, None), ""),
        };
        if let ((Some(one), Some(other)), why) = contradiction {
            return Err(contradict(one, other, why));
        }
        let usize_of = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Limits {
            connections_max: self.count("connections"),
            connections_per_address_max: self.count("connections-per-address"),
            client_bytes_max: usize_of(clients),
            connection_bytes_max: usize_of(each),
            arguments_max: self.count("arguments"),
            bulk_bytes_max: usize_of(argument.min(each / 3)),
            inline_bytes_max: usize_of(self.bytes("inline-limit").expect("inline-limit has a default")),
            pipeline_max: self.count("pipeline"),
            backlog_bytes_max: usize_of(soft.expect("reply-queue has a default")),
            backlog_bytes_hard: usize_of(hard.expect("reply-queue-limit has a default")),
            reply_wait: self.time("reply-timeout"),
            command_wait: self.time("command-timeout"),
            login_wait: self.time("login-timeout"),
            idle_wait: self.time("idle-timeout"),
            keepalive: self.time("tcp-keepalive"),
            memory_wait: self.time("memory-timeout").unwrap_or(Duration::from_millis(1)),
            script_time: self.time("script-time-limit").unwrap_or(Duration::from_millis(1)),
            script_bytes_max: usize_of(self.bytes("script-memory").expect("script-memory has a default")),
            tracking_keys_max: self.count("tracking-table-max-keys"),
            drain_delay: self.time("drain-delay").unwrap_or_default(),
            closing_wait: self.time("drain-timeout").unwrap_or_default(),
            ..Limits::default()
        })
    }

    fn config(&self, limits: Limits) -> Result<Config, String> {
        let tls = match (self.path("tls-cert"), self.path("tls-key")) {
            (Some(certificate), Some(key)) => Some(TlsFiles {
                certificate,
                key,
                clients: self.path("tls-client-ca").map(|authorities| ClientCertificates {
                    authorities,
                    required: self.word("tls-client-auth") != Some("optional"),
                }),
            }),
            _ => None,
        };
        self.exclude("password", "password-file", "give the password in one of them")?;
        let config = Config {
            resp: self.addresses("resp"),
            resp_tls: self.addresses("resp-tls"),
            replica_resp: self.addresses("cluster-replica-resp"),
            replica_resp_tls: self.addresses("cluster-replica-resp-tls"),
            unix: self.unix_socket()?,
            http: self.addresses("http"),
            http_tls: self.addresses("http-tls"),
            http_hosts: self.names("http-hosts"),
            grpc: self.addresses("grpc"),
            grpc_tls: self.addresses("grpc-tls"),
            access: Access {
                password: self.password()?,
                users: self.path("users"),
                allow_unauthenticated: self.switch("allow-unauthenticated"),
            },
            tls,
            limits,
            databases: if self.get("cluster").is_some() { 1 } else { self.count("databases") as u8 },
            backup_dir: self.path("backup-dir"),
            drive_log: self.path("drive-log"),
            traces: self.traces()?,
            keyspace_events: self.keyspace_events()?,
            settings: self.shown(),
            log: None,
            cluster: None,
        };
        if config.access.allow_unauthenticated {
            let why = "a password excludes access without one";
            self.exclude("allow-unauthenticated", "password", why)?;
            self.exclude("allow-unauthenticated", "password-file", why)?;
            self.exclude("allow-unauthenticated", "users", why)?;
        }
        if config.resp.is_empty() && config.resp_tls.is_empty() && config.unix.is_none() {
            let given = self.get("resp").expect("resp has a default");
            return Err(format!(
                "{given} is none, and there is neither resp-tls nor unix-socket: no client could reach the store"
            ));
        }
        for (name, addresses) in config.addresses() {
            if let Some(address) = config.exposed(name, &addresses) {
                let given = self.get(name).expect("its addresses were given");
                return Err(format!(
                    "{given} has {address}, which other machines can reach without a password: set password or users, or \
                     allow it with allow-unauthenticated"
                ));
            }
        }
        if let Some([(one, at), (other, also)]) = config.clash() {
            let given = |name| self.get(name).expect("its addresses were given");
            let why = if at == also {
                format!("{at} twice")
            } else {
                format!("{at} and {also}, of which one has the other")
            };
            return Err(match one == other {
                true => format!("{} has {why}", given(one)),
                false => contradict(given(one), given(other), &format!("together they have {why}")),
            });
        }
        Ok(config)
    }

    fn unix_socket(&self) -> Result<Option<UnixSocket>, String> {
        self.require("unix-socket-mode", "unix-socket", "there is no socket without it")?;
        let mode = match self.get("unix-socket-mode").map(|given| &given.value) {
            Some(&Value::Mode(mode)) => mode,
            other => {
                unreachable!("unix-socket-mode is a mode with a default in the table, and not {other:?}")
            }
        };
        Ok(self.path("unix-socket").map(|path| UnixSocket { path, mode }))
    }

    /// Returns the password of the user `default`, from the setting `password` or `password-file`.
    fn password(&self) -> Result<Option<Password>, String> {
        if let Some(given) = self.get("password") {
            return Ok(Some(Password::new(&given.text)));
        }
        let Some(given) = self.get("password-file") else { return Ok(None) };
        let password = secret::read(Path::new(&given.text)).map_err(|error| format!("{given}: {error}"))?;
        Ok(Some(Password::new(&password)))
    }

    fn keyspace_events(&self) -> Result<KeyspaceEvents, String> {
        let Some(given) = self.get("notify-keyspace-events") else { return Ok(KeyspaceEvents::default()) };
        given.text.parse().map_err(|error| format!("{given}: {error}"))
    }

    /// Returns the additional parameters of `CONFIG GET`, besides the server's own.
    fn shown(&self) -> Vec<(String, String)> {
        let bind: Vec<_> = self.addresses("resp").iter().map(|address| address.ip().to_string()).collect();
        let policy = self.word("when-full").expect("it has a default");
        vec![
            ("dir".to_owned(), super::names(&self.places())),
            ("bind".to_owned(), bind.join(" ")),
            ("maxmemory-policy".to_owned(), policy.to_owned()),
        ]
    }

    /// Returns the store's options with the settings that gave them.
    fn spellings(&self) -> Vec<(OptionName, String)> {
        let given = |option| {
            let name = setting_of(option);
            (option, self.get(name).map_or(name.to_owned(), Given::to_string))
        };
        let (memory, text) = given(OptionName::Memory);
        vec![
            (memory, format!("{text} minus the memory of clients")),
            given(OptionName::FastLimit),
            given(OptionName::CapacityLimit),
            given(OptionName::IndirectionUnit),
            given(OptionName::Reserve),
            (OptionName::ForceFormat, "--force-format".to_owned()),
            given(OptionName::OnDeviceLoss),
        ]
    }

    fn places(&self) -> Vec<PathBuf> {
        let on_devices = ["fast", "capacity"].iter().flat_map(|name| self.paths(name));
        let places: Vec<_> = self.path("dir").into_iter().chain(on_devices).collect();
        if places.is_empty() { vec![DIRECTORY_DEFAULT.into()] } else { places }
    }

    fn directory(&self) -> Option<PathBuf> {
        let on_devices = self.get("fast").is_some() || self.get("capacity").is_some();
        if on_devices { None } else { self.places().pop() }
    }

    fn options(&self, server_bytes: u64) -> Options {
        let (mut fast, mut capacity) = (self.paths("fast").into_iter(), self.paths("capacity").into_iter());
        let mut options = match (self.path("dir"), fast.next(), capacity.next()) {
            (None, Some(fast), Some(capacity)) => Options::fast_and_capacity(fast, capacity),
            (None, Some(fast), None) => Options::fast_only(fast),
            (None, None, Some(capacity)) => Options::capacity_only(capacity),
            (dir, ..) => Options::directory(dir.as_deref().unwrap_or(Path::new(DIRECTORY_DEFAULT))),
        };
        options = fast.fold(options, Options::add_fast);
        options = capacity.fold(options, Options::add_capacity);
        options = self.paths("drain").into_iter().fold(options, Options::drain);
        let memory = self.bytes("memory").expect("memory has a default");
        options = options
            .on_device_loss(match self.word("on-device-loss") {
                Some("serve") => OnDeviceLoss::Serve,
                _ => OnDeviceLoss::Stop,
            })
            .memory_bytes(memory - server_bytes)
            .durability(self.durability())
            .coalesce_for(self.time("coalesce-for").unwrap_or_default())
            .compression(self.compression())
            .when_full(self.when_full())
            .reserve_percent(self.count("reserve") as u8)
            .max_garbage(self.max_garbage())
            .force_format(self.switch("force-format"))
            .accept_loss(self.switch("accept-loss"))
            .backend(match self.word("backend") {
                Some("uring") => Backend::Uring,
                Some("threads") => Backend::Threads,
                _ => Backend::Auto,
            });
        if let Some(bytes) = self.bytes("fast-limit") {
            options = options.fast_limit_bytes(bytes);
        }
        if let Some(bytes) = self.bytes("capacity-limit") {
            options = options.capacity_limit_bytes(bytes);
        }
        if let Some(bytes) = self.bytes("segment-size") {
            options = options.segment_bytes(bytes);
        }
        if let Some(bytes) = self.bytes("iu") {
            options = options.indirection_unit_bytes(bytes);
        }
        if let Some(bytes) = self.bytes("background-limit") {
            options = options.background_bytes_per_s(bytes);
        }
        if let Some(bytes) = self.bytes("scrub-limit") {
            options = options.scrub_bytes_per_s(bytes);
        }
        options
    }
}

fn contradict(one: &Given, other: &Given, why: &str) -> String {
    format!("{one} and {other} contradict each other: {why}")
}
