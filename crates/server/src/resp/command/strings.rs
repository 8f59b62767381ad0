//! SET and MSET. GET and MGET are plans without a body: see `run`.

use bytes::Bytes;
use esker_engine::{Batch, Condition, Error, ErrorKind, Store, WriteOptions};

use super::number::parse_integer;
use super::{Alone, Plan, is, syntax_error, wrong_arguments};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::service::wall_clock_ms;

/// Tries of a SET that reads before it writes, against others who change the key in between.
const SWAP_ATTEMPTS_MAX: usize = 1000;

/// What a SET asks for beside key and value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SetOptions {
    condition: Condition,
    expires_at_ms: Option<u64>,
    keep_expiry: bool,
    get: bool,
}

pub(super) fn plan_set(command: Command<'_>) -> Plan {
    if command.len() == 3 {
        return Plan::Write(WriteOptions::default());
    }
    let options = match set_options(command) {
        Ok(options) => options,
        Err(refused) => return refused,
    };
    if options.get || options.keep_expiry {
        return Plan::Alone(Alone::Swap(options));
    }
    let SetOptions { condition, expires_at_ms, .. } = options;
    let options = WriteOptions { condition, expires_at_ms, ..WriteOptions::default() };
    if condition == Condition::Always { Plan::Write(options) } else { Plan::WriteIf(options) }
}

pub(super) fn plan_mset(command: Command<'_>) -> Plan {
    if command.len().is_multiple_of(2) {
        return Plan::Refuse(wrong_arguments("mset"));
    }
    Plan::Write(WriteOptions::default())
}

fn set_options(command: Command<'_>) -> Result<SetOptions, Plan> {
    let mut options = SetOptions::default();
    let mut expiry = None;
    let mut arguments = command.arguments(3);
    while let Some(word) = arguments.next() {
        let conditional = options.condition != Condition::Always;
        let timed = expiry.is_some() || options.keep_expiry;
        let unit = ["ex", "px", "exat", "pxat"].into_iter().find(|unit| is(word, unit));
        if is(word, "nx") && !(conditional && options.condition != Condition::IfAbsent) {
            options.condition = Condition::IfAbsent;
        } else if is(word, "xx") && !(conditional && options.condition != Condition::IfPresent) {
            options.condition = Condition::IfPresent;
        } else if is(word, "get") {
            options.get = true;
        } else if is(word, "keepttl") && expiry.is_none() {
            options.keep_expiry = true;
        } else if let (Some(unit), false) = (unit, timed) {
            expiry = Some((unit, arguments.next().ok_or_else(syntax_error)?));
        } else {
            return Err(syntax_error());
        }
    }
    if let Some((unit, amount)) = expiry {
        options.expires_at_ms = Some(expiry_ms(unit, amount)?);
    }
    Ok(options)
}

/// When a value expires, in milliseconds since the Unix epoch.
fn expiry_ms(unit: &str, amount: &[u8]) -> Result<u64, Plan> {
    let amount = parse_integer(amount)
        .ok_or_else(|| Plan::Refuse("ERR value is not an integer or out of range".to_owned()))?;
    let scale = if unit.starts_with("ex") { 1000 } else { 1 };
    let base = if unit.ends_with("at") { 0 } else { wall_clock_ms() as i64 };
    let at = amount.checked_mul(scale).and_then(|ms| ms.checked_add(base));
    match at {
        Some(at) if amount > 0 => Ok(at as u64),
        _ => Err(Plan::Refuse("ERR invalid expire time in 'set' command".to_owned())),
    }
}

/// A SET without conditions, or an MSET as one batch.
pub(crate) async fn write(store: &Store, command: Command<'_>, options: WriteOptions) -> Result<(), Error> {
    if is(command.verb(), "set") {
        return store.put_with(command.owned(1), command.owned(2), options).await.map(drop);
    }
    let mut batch = Batch::new();
    for index in (1..command.len()).step_by(2) {
        batch.put(command.owned(index), command.owned(index + 1));
    }
    store.write_with(batch, options).await
}

/// A SET with NX or XX: whether it happened.
pub(crate) async fn write_if(
    store: &Store,
    command: Command<'_>,
    options: WriteOptions,
) -> Result<bool, Error> {
    match store.put_with(command.owned(1), command.owned(2), options).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
        Err(error) => Err(error),
    }
}

/// A SET with GET or KEEPTTL.
pub(crate) async fn swap(store: &Store, command: Command<'_>, options: SetOptions, replies: &mut Replies) {
    match try_swap(store, command, options).await {
        Ok(Some(Swap { old, written })) => match (options.get, written) {
            (true, _) => replies.bulk_or_null(old.as_deref()),
            (false, true) => replies.simple("OK"),
            (false, false) => replies.null(),
        },
        Ok(None) => {
            replies.error(&format!("BUSY the key changed {SWAP_ATTEMPTS_MAX} times during the command"));
        }
        Err(error) => replies.store_error(&error),
    }
}

struct Swap {
    old: Option<Bytes>,
    written: bool,
}

/// Reads the entry, and writes only if it is still that one; again if it is not. `None` if it never was.
async fn try_swap(store: &Store, command: Command<'_>, options: SetOptions) -> Result<Option<Swap>, Error> {
    let (key, value) = (command.owned(1), command.owned(2));
    for _ in 0..SWAP_ATTEMPTS_MAX {
        let found = store.get_entry(&key).await?;
        let version = found.as_ref().map(|entry| entry.version);
        let kept = found.as_ref().and_then(|entry| entry.expires_at_ms).filter(|_| options.keep_expiry);
        let old = found.map(|entry| entry.value);
        let holds = match options.condition {
            Condition::IfAbsent => old.is_none(),
            Condition::IfPresent => old.is_some(),
            _ => true,
        };
        if !holds {
            return Ok(Some(Swap { old, written: false }));
        }
        let unchanged = WriteOptions {
            expires_at_ms: kept.or(options.expires_at_ms),
            condition: version.map_or(Condition::IfAbsent, Condition::IfVersion),
            ..WriteOptions::default()
        };
        match store.put_with(key.clone(), value.clone(), unchanged).await {
            Ok(_) => return Ok(Some(Swap { old, written: true })),
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
