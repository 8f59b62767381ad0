//! `esker support`: collects the facts for a bug report in one archive, without keys, values and secrets.
//!
//! - `server`: answers of a running server, over RESP.
//! - `http`: its metrics.
//! - `machine`: the machine, the settings, the store's layout and its device.
//! - `redact`: removes the data of users from the lines of a log.
//!
//! A part that cannot be collected is named in `missing.txt`: an archive of a server that does not run is made too.

mod http;
mod machine;
mod redact;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use self::http::Http;
use crate::client::Login;
use crate::new_file::NewFile;
use crate::terminal::{Failure, note, say};
use crate::time::now_ms;

/// Default time limit for accepting a connection and for every answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Directory of all files in the archive.
const FOLDER: &str = "esker-support";

/// Collects settings, metrics, layout, log and versions in one archive for a bug report.
///
/// The archive has no keys, values or passwords: texts in quotes are removed from the log, and the values of secret settings
/// are never read. It has paths, addresses, and names of users.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker support report.tar.gz                                  of the server on 127.0.0.1:6379
  esker support report.tar.gz --http 127.0.0.1:9121 --store /var/lib/esker/store --config /etc/esker/esker.toml
  journalctl -u esker -o cat | esker support report.tar.gz --log - --from 10.0.0.7:6379 --user admin

Each source is optional; missing.txt in the archive names those that could not be read. Look at it before you send it.
Exit code 0 if the archive was written; 1 if it could not be; 2 if the call is wrong.")]
pub(crate) struct Arguments {
    /// The archive to make; its name must be free.
    #[arg(value_name = "FILE.tar.gz")]
    archive: PathBuf,
    /// RESP address of the server: HOST:PORT, or a port of this machine.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6379")]
    from: String,
    #[command(flatten)]
    login: Login,
    /// Address of the server's setting http, for its metrics: HOST:PORT, or a port of this machine. With a password it must be
    /// on this machine, because HTTP is not encrypted.
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// File of settings.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// The store: its directory, or the file or block device of a tier. It is only read.
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Another file or block device of the store. May be given several times.
    #[arg(long, value_name = "PATH", requires = "store")]
    peer: Vec<PathBuf>,
    /// The server's log, of which the last mebibyte is read; - is stdin.
    #[arg(long, value_name = "PATH")]
    log: Option<PathBuf>,
}

/// The collected files, and the reasons for which others are missing.
#[derive(Debug, Default)]
struct Collected {
    files: Vec<(String, Vec<u8>)>,
    missing: Vec<String>,
}

impl Collected {
    /// Adds a file, or the reason why it is missing.
    fn add(&mut self, name: &str, content: Result<impl Into<Vec<u8>>, String>) {
        match content {
            Ok(content) => self.files.push((name.to_owned(), content.into())),
            Err(why) => self.missing.push(format!("{name}: {}", redact::line(&why))),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let http =
        arguments.http.as_deref().map(|given| Http::new(given, &arguments.login, PATIENCE)).transpose()?;
    let file = NewFile::create(&arguments.archive)?;
    let mut collected = Collected::default();
    machine::collect(arguments, &mut collected);
    server::collect(arguments, http.as_ref(), &mut collected);
    collected.missing.iter().for_each(|missing| note(&format!("left out: {missing}\n")));
    let missing = collected.missing.iter().map(|missing| format!("{missing}\n")).collect::<String>();
    collected.add("missing.txt", Ok(missing));
    let failed = |error| Failure::Failed(format!("cannot write {}: {error}", arguments.archive.display()));
    write(&collected.files, file.writer()?).map_err(failed)?;
    file.keep()?;
    say(&format!("{}: {} files\n", arguments.archive.display(), collected.files.len()))
}

fn write(files: &[(String, Vec<u8>)], to: std::fs::File) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(to, Compression::default()));
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now_ms() / 1000);
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), &content[..])?;
    }
    archive.into_inner()?.finish().map(drop)
}
