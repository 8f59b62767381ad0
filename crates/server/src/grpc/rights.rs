//! The rights that calls need: those of the RESP commands that a call stands for, on the keys that it names.
//!
//! The table of docs/grpc.md describes this file, and `tests/grpc/rights.rs` tests every call of the service with rules of ACL
//! SETUSER. Two principles decide which commands a call stands for:
//!
//! - Every part of an answer has its command: an entry includes an expiry, so PEXPIRETIME is required in addition to GET.
//! - A call that does several commands in one step requires MULTI and EXEC, and WATCH if it reads keys first.

use bytes::Bytes;
use tonic::Status;

use super::call::Call;
use super::convert::check_key;
use super::error::{no_right, no_right_to_run};
use super::pb;
use super::pb::compare::Target;
use super::pb::compare_and_swap_request::Replacement;
use super::pb::operation::Write;
use super::pb::touch_request::Becomes;
use super::pb::txn_operation::Operation;

/// A request whose rights can be checked. Every request of the service is one.
pub(super) trait Rights {
    /// Fails with `PERMISSION_DENIED` unless the caller may run the commands that the request stands for, may use the database,
    /// and may access the keys that the request names; with `INVALID_ARGUMENT` if one of these is no valid key. In a cluster also
    /// unless this node leads the slots of the keys.
    fn check(&self, call: &Call) -> Result<(), Status>;
}

/// Access of a call to a key.
#[derive(Clone, Copy)]
enum Access {
    Read,
    Write,
    Both,
}

impl Call {
    /// Fails unless the user may run all of these commands.
    fn check_commands(&self, method: &str, commands: &[&'static str]) -> Result<(), Status> {
        // A command that is not in the table is refused to all users.
        let may_run = |command: &str| self.commands.row_of(command).is_some_and(|row| self.user.may_run(row));
        let refused = commands.iter().find(|command| !may_run(command));
        if let Some(command) = refused {
            return Err(no_right_to_run(command, method));
        }
        Ok(())
    }

    fn check_database(&self) -> Result<(), Status> {
        if self.user.may_use(self.database) {
            return Ok(());
        }
        Err(no_right(format!("no right to database {}", self.database)))
    }

    fn check_access(&self, key: &Bytes, access: Access) -> Result<(), Status> {
        check_key(key)?;
        self.check_database()?;
        let (reads, writes) = match access {
            Access::Read => (true, false),
            Access::Write => (false, true),
            Access::Both => (true, true),
        };
        if writes && !self.user.may_write(key) {
            return Err(no_right("no right to write this key"));
        }
        if reads && !self.user.may_read(key) {
            return Err(no_right(match access {
                Access::Both => "no right to read this key, which this write also does",
                _ => "no right to read this key",
            }));
        }
        self.cluster.as_ref().map_or(Ok(()), |cluster| cluster.name(key))
    }
}

/// Returns the access to a written key; includes a read if the previous entry is requested.
fn written(return_previous: bool) -> Access {
    if return_previous { Access::Both } else { Access::Write }
}

/// Returns the commands of a put.
fn putting(return_previous: bool) -> &'static [&'static str] {
    if return_previous { &["set", "pexpiretime"] } else { &["set"] }
}

/// Returns the commands of a delete.
fn deleting(return_previous: bool) -> &'static [&'static str] {
    if return_previous { &["getdel", "pexpiretime"] } else { &["del"] }
}

impl Rights for pb::GetRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        // A range of a value is returned without its expiry.
        let commands: &[_] = if self.range.is_some() { &["getrange"] } else { &["get", "pexpiretime"] };
        call.check_commands("Get", commands)?;
        call.check_access(&self.key, Access::Read)
    }
}

impl Rights for pb::HeadRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("Head", &["strlen", "pexpiretime"])?;
        call.check_access(&self.key, Access::Read)
    }
}

impl Rights for pb::MultiGetRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("MultiGet", &["mget", "pexpiretime"])?;
        self.keys.iter().try_for_each(|key| call.check_access(key, Access::Read))
    }
}

impl Rights for pb::PutRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("Put", putting(self.return_previous))?;
        call.check_access(&self.key, written(self.return_previous))
    }
}

impl Rights for pb::DeleteRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("Delete", deleting(self.return_previous))?;
        call.check_access(&self.key, written(self.return_previous))
    }
}

impl Rights for pb::CompareAndSwapRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        let replaces = match self.replacement {
            Some(Replacement::Delete(_)) => "del",
            Some(Replacement::Put(_)) | None => "set",
        };
        let commands = ["watch", "get", "pexpiretime", "multi", replaces, "exec"];
        call.check_commands("CompareAndSwap", &commands)?;
        call.check_access(&self.key, Access::Both)
    }
}

impl Rights for pb::IncrementRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        let adds = match self.by {
            None => "incr",
            Some(by) if by < 0 => "decrby",
            Some(_) => "incrby",
        };
        call.check_commands("Increment", &[adds, "pexpiretime"])?;
        if self.initial.is_some() {
            call.check_commands("Increment with initial", &["set"])?;
        }
        if self.expiry.is_some() {
            call.check_commands("Increment with expiry", &["pexpireat"])?;
        }
        call.check_access(&self.key, Access::Both)
    }
}

impl Rights for pb::TouchRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        let command = match self.becomes {
            Some(Becomes::Persistent(_)) => "persist",
            Some(Becomes::Expiry(_)) | None => "pexpireat",
        };
        call.check_commands("Touch", &[command])?;
        call.check_access(&self.key, Access::Write)
    }
}

impl Rights for pb::BatchRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("Batch", &["multi", "exec"])?;
        let mut writes = self.operations.iter().filter_map(|operation| operation.write.as_ref());
        if writes.clone().any(|write| matches!(write, Write::Put(_))) {
            call.check_commands("Batch with a put", putting(false))?;
        }
        if writes.clone().any(|write| matches!(write, Write::Delete(_))) {
            call.check_commands("Batch with a delete", deleting(false))?;
        }
        writes.try_for_each(|write| {
            let (Write::Put(pb::operation::Put { key, .. }) | Write::Delete(key)) = write;
            call.check_access(key, Access::Write)
        })
    }
}

impl Rights for pb::TxnRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("Txn", &["multi", "exec"])?;
        if !self.compares.is_empty() {
            call.check_commands("Txn with comparisons", &["watch"])?;
        }
        for compare in &self.compares {
            let command = match compare.target {
                Some(Target::Value(_)) => "get",
                _ => "exists",
            };
            call.check_commands("Txn with this comparison", &[command])?;
            call.check_access(&compare.key, Access::Read)?;
        }
        let operations = self.success.iter().chain(&self.failure);
        operations.filter_map(|operation| operation.operation.as_ref()).try_for_each(|operation| {
            match operation {
                Operation::Get(get) => {
                    let reads = if get.without_value { "strlen" } else { "get" };
                    call.check_commands("Txn with a get", &[reads, "pexpiretime"])?;
                    call.check_access(&get.key, Access::Read)
                }
                Operation::Put(put) => {
                    call.check_commands("Txn with a put", putting(put.return_previous))?;
                    call.check_access(&put.key, written(put.return_previous))
                }
                Operation::Delete(delete) => {
                    call.check_commands("Txn with a delete", deleting(delete.return_previous))?;
                    call.check_access(&delete.key, written(delete.return_previous))
                }
            }
        })
    }
}

/// A scan returns only keys that the caller may read.
impl Rights for pb::ScanRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        let reads = if self.keys_only { "strlen" } else { "get" };
        call.check_commands("Scan", &["scan", reads, "pexpiretime"])?;
        call.check_database()
    }
}

/// The rights of a watch, which outlives its request.
#[derive(Clone, Copy)]
pub(super) struct WatchRights {
    names_keys: bool,
    names_prefixes: bool,
    with_values: bool,
}

impl WatchRights {
    pub(super) fn of(request: &pb::WatchRequest) -> WatchRights {
        let names_keys = !request.keys.is_empty();
        WatchRights {
            names_keys,
            // A watch without keys and prefixes covers all keys, like an empty prefix.
            names_prefixes: !request.prefixes.is_empty() || !names_keys,
            with_values: request.with_values,
        }
    }

    pub(super) fn check(self, call: &Call) -> Result<(), Status> {
        call.check_commands("Watch", &["pexpiretime"])?;
        for (needs, what, command) in [
            (self.names_keys, "Watch of keys", "subscribe"),
            (self.names_prefixes, "Watch of prefixes", "psubscribe"),
            (self.with_values, "Watch with values", "get"),
        ] {
            if needs {
                call.check_commands(what, &[command])?;
            }
        }
        call.check_database()
    }
}

/// A watch of a prefix returns only changes of keys that the caller may read.
impl Rights for pb::WatchRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        WatchRights::of(self).check(call)?;
        self.keys.iter().try_for_each(|key| call.check_access(key, Access::Read))
    }
}

impl Rights for pb::upload_request::Head {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("Upload", putting(false))?;
        call.check_access(&self.key, Access::Write)
    }
}

impl Rights for pb::DownloadRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("Download", &["get", "pexpiretime"])?;
        call.check_access(&self.key, Access::Read)
    }
}

/// Stats are of the server, not of a database.
impl Rights for pb::StatsRequest {
    fn check(&self, call: &Call) -> Result<(), Status> {
        call.check_commands("Stats", &["info"])
    }
}
