//! `esker get`, `put`, `del` and `scan`: access to keys. `get` and `scan` only read, also beside a
//! server; `put` and `del` need a store that no server has open.

use std::io::{BufWriter, Read, Write, stdin, stdout};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use esker_engine::{Blocking, WriteOptions};
use esker_inspect::{Item, Key, StoreView, hex, shown};
use serde_json::json;

use super::exit::{Outcome, failure};
use super::memory::Memory;
use super::place::{Database, KeyForm, Output, Place, database};
use super::watch::Bar;
use crate::made::Made;
use crate::terminal::{Failure, said, say, say_bytes};
use crate::time::now_ms;

/// Prints the value of a key. Exits with 1 if the key is absent.
///
/// The newest record in the log counts. Beside a server, ask the server instead: records that only its memory holds are missing.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker get store greeting\n",
    "  esker get store picture --values raw > picture.png\n",
    "\nExit codes: 0 done; 1 something failed or was not there; 2 the call is wrong."
))]
pub(crate) struct Get {
    #[command(flatten)]
    place: Place,
    /// The key.
    key: String,
    #[command(flatten)]
    form: KeyForm,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    values: Values,
    #[command(flatten)]
    output: Output,
}

/// Puts a key. The store is opened, and closed again when the key is durable.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker put store greeting hello\n",
    "  esker put store session secret --ttl 30m\n",
    "  esker put store picture - < picture.png\n",
    "\nExit codes: 0 done; 1 something failed or was not there; 2 the call is wrong."
))]
pub(crate) struct Put {
    #[command(flatten)]
    place: Place,
    /// The key.
    key: String,
    /// The value; - reads it from stdin.
    value: String,
    #[command(flatten)]
    form: KeyForm,
    #[command(flatten)]
    database: Database,
    /// Time to live of the value, such as 500ms, 30s, 5m or 2h.
    #[arg(long, value_name = "TIME", value_parser = crate::time::parse)]
    ttl: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

/// Deletes keys. Prints the number of keys that existed; exits with 1 if none did.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker del store greeting\n",
    "  esker del store 00ff 00fe --hex\n",
    "\nExit codes: 0 done; 1 something failed or was not there; 2 the call is wrong."
))]
pub(crate) struct Del {
    #[command(flatten)]
    place: Place,
    /// The keys.
    #[arg(required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    form: KeyForm,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    output: Output,
}

/// Prints keys with their values, a line each, in the order of their records in the log. Unreadable records are reported on
/// stderr, and make the exit code 1.
#[derive(Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  esker scan store --prefix user: --limit 10\n",
    "  esker scan store --keys-only | wc -l\n",
    "  esker scan store --database all\n",
    "  esker scan store --json > store.jsonl                     one JSON object a line\n",
    "\nExit codes: 0 done; 1 something failed or was not there; 2 the call is wrong."
))]
pub(crate) struct Scan {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    memory: Memory,
    /// Only keys with this prefix.
    #[arg(long, value_name = "PREFIX", default_value = "")]
    prefix: String,
    #[command(flatten)]
    form: KeyForm,
    /// Keys of the database of this number, or of all.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = one_or_all)]
    database: OneOrAll,
    /// Maximum number of keys.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// No values.
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    values: Values,
    #[command(flatten)]
    output: Output,
}

/// One database, or all (`None`).
type OneOrAll = Option<u8>;

fn one_or_all(text: &str) -> Result<OneOrAll, String> {
    match text {
        "all" => Ok(None),
        text => database(text).map(Some),
    }
}

#[derive(Args)]
struct Values {
    /// How values are printed: text with escapes, hexadecimal digits, or their bytes as they are.
    #[arg(long, value_enum, default_value = "text")]
    values: Form,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Form {
    Text,
    Hex,
    Raw,
}

impl Form {
    fn of(self, value: &[u8]) -> Vec<u8> {
        match self {
            Form::Text => shown(value).into_bytes(),
            Form::Hex => hex(value).into_bytes(),
            Form::Raw => value.to_vec(),
        }
    }
}

fn as_json(item: &Item, with_value: bool) -> serde_json::Value {
    let text = |bytes: &[u8]| json!(Key::named(0, bytes));
    let mut object =
        json!({ "key": text(&item.key), "sequence": item.sequence, "expires_at_ms": item.expires_at_ms });
    if item.database != 0 {
        object["database"] = item.database.into();
    }
    if with_value {
        object["value"] = text(&item.value);
    }
    object
}

pub(crate) fn get(arguments: &Get) -> Result<Outcome, Failure> {
    let key = arguments.form.parse(&arguments.key)?;
    let view = arguments.place.view()?;
    warn_if_open(&view);
    let Some(item) = view.get(arguments.database.number, &key, now_ms(), &Bar::new()).map_err(failure)?
    else {
        return Err(Failure::Failed(format!(
            "there is no key {}",
            Key::named(arguments.database.number, &key)
        )));
    };
    if arguments.output.json {
        super::show::json(&as_json(&item, true))?;
        return Ok(Outcome::Well);
    }
    let mut bytes = arguments.values.values.of(&item.value);
    if arguments.values.values != Form::Raw {
        bytes.push(b'\n');
    }
    say_bytes(&bytes)?;
    Ok(Outcome::Well)
}

fn warn_if_open(view: &StoreView) {
    if !view.is_closed() {
        let what = "the store is not closed: data that is only in memory or in the staging file is not shown";
        let _ = writeln!(std::io::stderr(), "esker: {what}");
    }
}

/// Opens a database of the store for writing. Also returns the files that the opening makes.
fn open(place: &Place, database: &Database) -> Result<(Blocking, Made), Failure> {
    let options = place.view()?.engine_options().map_err(failure)?;
    let paths = place.paths();
    let made = Made::before_store(paths.iter().map(PathBuf::as_path));
    let opened = Blocking::open(options).and_then(|store| store.database(database.number));
    // The staging file may be new, for example after a restore. Its owner is changed at once, because the
    // verb may be killed.
    made.give()?;
    Ok((opened.map_err(|error| failure(error.into()))?, made))
}

/// Closes the store, and changes the owner of the new files.
fn close(store: &Blocking, made: &Made) -> Result<(), Failure> {
    let closed = store.close().map_err(engine);
    closed.and(made.give())
}

fn engine(error: esker_engine::Error) -> Failure {
    failure(error.into())
}

pub(crate) fn put(arguments: &Put) -> Result<Outcome, Failure> {
    let key = arguments.form.parse(&arguments.key)?;
    let mut value = arguments.value.clone().into_bytes();
    if arguments.value == "-" {
        value.clear();
        let read = stdin().read_to_end(&mut value);
        read.map_err(|error| Failure::Failed(format!("the value cannot be read from stdin: {error}")))?;
    }
    let (store, made) = open(&arguments.place, &arguments.database)?;
    let options = WriteOptions { ttl: arguments.ttl, ..WriteOptions::new() };
    let sequence = store.put_with(key, value, options).map_err(engine)?;
    close(&store, &made)?;
    if arguments.output.json {
        super::show::json(&json!({ "sequence": sequence }))?;
    }
    Ok(Outcome::Well)
}

pub(crate) fn del(arguments: &Del) -> Result<Outcome, Failure> {
    let keys: Vec<Vec<u8>> =
        arguments.keys.iter().map(|key| arguments.form.parse(key)).collect::<Result<_, _>>()?;
    let (store, made) = open(&arguments.place, &arguments.database)?;
    let mut deleted = 0;
    for key in keys {
        deleted += u64::from(store.delete(key).map_err(engine)?);
    }
    close(&store, &made)?;
    match arguments.output.json {
        true => super::show::json(&json!({ "deleted": deleted }))?,
        false => say(&format!("{deleted}\n"))?,
    }
    Ok(if deleted == 0 { Outcome::NotWell } else { Outcome::Well })
}

pub(crate) fn scan(arguments: &Scan) -> Result<Outcome, Failure> {
    let prefix =
        if arguments.prefix.is_empty() { Vec::new() } else { arguments.form.parse(&arguments.prefix)? };
    let view = arguments.memory.view(&arguments.place)?;
    warn_if_open(&view);
    let mut out = BufWriter::new(stdout().lock());
    let (mut left, mut outcome, mut broken) = (arguments.limit.unwrap_or(u64::MAX), Outcome::Well, None);
    let bar = Bar::new();
    let mut of_others = 0_u64;
    let scanned = view.scan(None, now_ms(), &bar, |item| {
        let item = match item {
            Ok(item) if arguments.database.is_some_and(|database| database != item.database) => {
                of_others += 1;
                return Ok(ControlFlow::Continue(()));
            }
            Ok(item) if item.key.starts_with(&prefix) => item,
            Ok(_) => return Ok(ControlFlow::Continue(())),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "esker: {error}");
                outcome = Outcome::NotWell;
                return Ok(ControlFlow::Continue(()));
            }
        };
        if left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        left -= 1;
        if let Err(error) = write_item(arguments, &item, &mut out) {
            broken = Some(error);
            return Ok(ControlFlow::Break(()));
        }
        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    scanned.map_err(failure)?;
    if of_others > 0 {
        let what = format!("{of_others} keys of other databases are not shown; see --database all");
        let _ = writeln!(std::io::stderr(), "esker: {what}");
    }
    said(broken.map_or_else(|| out.flush(), Err))?;
    Ok(outcome)
}

fn write_item(arguments: &Scan, item: &Item, out: &mut impl Write) -> std::io::Result<()> {
    if arguments.output.json {
        return writeln!(out, "{}", as_json(item, !arguments.keys_only));
    }
    let database = if arguments.database.is_none() { item.database } else { 0 };
    write!(out, "{}", Key::named(database, &item.key))?;
    if !arguments.keys_only {
        out.write_all(b"\t")?;
        out.write_all(&arguments.values.values.of(&item.value))?;
    }
    out.write_all(b"\n")
}
