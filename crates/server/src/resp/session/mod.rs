//! The state of a connection between commands.

use std::sync::Arc;

use esker_engine::{Durability, Store, WriteOptions};
use tokio::time::Instant;

use self::denials::Denials;
use self::queue::{Transaction, Watched};
use self::subscriptions::Subscriptions;
use self::tracking::KeepsKeys;
use super::verb::{Table, Verb};
use super::wire::commands::Command;
use super::wire::reply::{Protocol, Replies};
use crate::auth::{User, Users};
use crate::base::address::Address;
use crate::budget::{Refused, Share};
use crate::service::Service;
use crate::service::calls::Tally;
use crate::service::channels::Outbox;
use crate::service::clients::Client;

pub(super) mod audit;
pub(in crate::resp) mod denials;
pub(super) mod queue;
pub(in crate::resp) mod refused;
mod replica;
pub(super) mod slow;
pub(in crate::resp) mod subscriptions;
pub(in crate::resp) mod tracking;
pub(super) mod view;

pub(crate) use self::replica::ReplicaReads;

/// The reply mode of a client (CLIENT REPLY).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answers {
    #[default]
    On,
    Off,
    /// The next command is not answered.
    SkipNext,
    /// The current command is not answered.
    Skip,
}

/// State of one client.
pub(crate) struct Session {
    /// Unique in this run of the server.
    pub(crate) id: u64,
    /// The commands that the server has.
    pub(in crate::resp) commands: &'static Table,
    /// The remote end of the socket.
    pub(crate) peer: Address,
    /// The user of the connection; `None` until a required login.
    pub(crate) user: Option<Arc<User>>,
    /// Time by which a client without a user must have logged in (`login-timeout`).
    pub(crate) login_by: Option<Instant>,
    /// True if the server is a node of a cluster.
    pub(crate) is_in_cluster: bool,
    /// Set on the address for reads from replicas.
    pub(crate) replica: Option<ReplicaReads>,
    /// The selected database; while a script runs, the one that the script selected.
    database: u8,
    /// The properties of this connection that other connections see.
    pub(crate) client: Arc<Client>,
    /// True if the client said goodbye or must leave: nothing after the current command runs.
    pub(crate) leaving: bool,
    pub(crate) answers: Answers,
    /// Commands queued for EXEC.
    pub(crate) transaction: Option<Transaction>,
    /// The client's subscriptions, if it has any.
    pub(crate) subscriptions: Option<Subscriptions>,
    /// The state of CLIENT TRACKING, if it is on.
    pub(crate) tracking: Option<KeepsKeys>,
    /// Messages published by running scripts.
    pub(crate) outbox: Option<Outbox>,
    /// Refused calls of running scripts.
    pub(crate) denials: Denials,
    /// Correction of DBSIZE. In EXEC: net keys added up to the running command's turn, less net keys added by the
    /// whole transaction, which is already written. In a script: net keys added so far, which are not yet written.
    pub(crate) uncommitted_keys: i64,
    watched: Vec<Watched>,
    watched_bytes: usize,
    /// The durability of writes of this connection; `None` for the store's default.
    pub(crate) durability: Option<Durability>,
    /// The same for the next writing command.
    pub(crate) durability_next: Option<Option<Durability>>,
    /// Keys that the next group of reads looks up together. Shrinks after large values and grows after small ones, so
    /// that small reads do not run one by one and large values do not fill the memory.
    pub(crate) read_width: usize,
    /// True if the answers of the running group need no confirmation by a cluster: all follow from committed writes, or say
    /// that nothing was done.
    pub(crate) is_settled: bool,
    /// True if the running group answers about all keys that this node leads in a cluster.
    pub(crate) asks_about_all: bool,
    /// Commands of the running group that are yet to be counted.
    pub(crate) tally: Tally,
    /// The connection's share of the memory for clients.
    pub(crate) share: Option<Share>,
    /// Bytes of the share that the current batch holds, without the values that it reads.
    pub(crate) held_bytes: usize,
    /// True if a command of the current batch waited for memory in vain. The later ones do not wait: each wait would
    /// keep the batch's memory from other clients, and if every client held a part and waited for more, no client
    /// would ever get enough.
    pub(crate) waited_in_vain: bool,
}

/// Initial `read_width`, in keys.
const READ_WIDTH: usize = 32;

impl Session {
    pub(in crate::resp) fn new(
        peer: Address,
        user: Option<Arc<User>>,
        client: Arc<Client>,
        commands: &'static Table,
    ) -> Session {
        Session {
            id: client.id,
            commands,
            peer,
            user,
            login_by: None,
            is_in_cluster: false,
            replica: None,
            database: 0,
            client,
            leaving: false,
            answers: Answers::On,
            transaction: None,
            subscriptions: None,
            tracking: None,
            outbox: None,
            denials: Denials::default(),
            uncommitted_keys: 0,
            watched: Vec::new(),
            watched_bytes: 0,
            durability: None,
            durability_next: None,
            read_width: READ_WIDTH,
            is_settled: false,
            asks_about_all: false,
            tally: Tally::default(),
            share: None,
            held_bytes: 0,
            waited_in_vain: false,
        }
    }

    /// Returns the number of the selected database.
    pub(crate) fn database(&self) -> u8 {
        self.database
    }

    /// Returns the database of the next command, taking a queued SELECT into account.
    pub(crate) fn database_of_next(&self) -> u8 {
        self.transaction.as_ref().and_then(Transaction::database).unwrap_or(self.database)
    }

    /// Returns the selected database.
    pub(crate) fn store<'s>(&self, service: &'s Service) -> &'s Store {
        service.database(self.database)
    }

    /// Selects a database.
    pub(crate) fn enter(&mut self, database: u8) {
        self.database = database;
        self.client.note_database(database);
    }

    /// Resets the session to the state of a new connection.
    pub(crate) fn reset(&mut self, users: &Users, replies: &mut Replies) {
        let (share, held_bytes, waited_in_vain) = (self.share.take(), self.held_bytes, self.waited_in_vain);
        let fresh = Session::new(self.peer.clone(), users.unnamed(), self.client.clone(), self.commands);
        let answers = if self.answers == Answers::Skip { Answers::Skip } else { Answers::On };
        let (is_in_cluster, replica) =
            (self.is_in_cluster, self.replica.as_ref().map(|_| ReplicaReads::default()));
        *self = Session { share, held_bytes, waited_in_vain, answers, is_in_cluster, replica, ..fresh };
        self.client.forget_introduction(self.user.as_ref().map_or("", |user| user.name()));
        self.client.note_queued(None);
        replies.protocol = Protocol::Resp2;
        self.client.note_protocol(2);
        self.client.note_database(0);
    }

    /// Sets the session's share of the memory for clients to `bytes`. Waits if too little is left; after a wait in
    /// vain, further calls in the same batch fail at once instead of waiting.
    pub(crate) async fn hold(&mut self, bytes: usize) -> Result<(), Refused> {
        let held = match &mut self.share {
            Some(share) if self.waited_in_vain => share.hold_now(bytes),
            Some(share) => share.hold(bytes).await,
            None => Ok(()),
        };
        self.waited_in_vain |= held == Err(Refused::UsedUp);
        held
    }

    /// Like [`hold`](Self::hold), but returns false instead of waiting or failing.
    pub(crate) fn try_hold(&mut self, bytes: usize) -> bool {
        self.share.as_mut().is_none_or(|share| share.try_hold(bytes))
    }

    /// Returns the bytes that last from command to command: the transaction, watched keys, subscriptions, prefixes,
    /// and the client's name and library.
    pub(crate) fn kept_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, Transaction::held_bytes);
        let subscribed = self.subscriptions.as_ref().map_or(0, Subscriptions::held_bytes);
        let tracked = self.tracking.as_ref().map_or(0, KeepsKeys::held_bytes);
        queued + self.watched_bytes + subscribed + tracked + self.client.introduced_bytes()
    }

    /// Drops the subscription state once it is empty, so that the client counts as an ordinary one.
    pub(crate) fn forget_subscriptions_if_none(&mut self) {
        self.subscriptions.take_if(|subscriptions| subscriptions.len() == 0 && !subscriptions.monitors());
    }

    /// Returns true if messages arrive in place of answers: the client has subscriptions and speaks RESP2, which
    /// cannot distinguish the two.
    pub(crate) fn hears_only(&self) -> bool {
        let listens = self.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.len() > 0);
        listens && self.client.protocol() == 2
    }

    /// Marks the transaction that is being queued, if any, as failed, because a command was refused.
    pub(crate) fn spoil_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoil();
        }
    }

    pub(crate) fn watch(&mut self, watched: Watched) {
        self.watched_bytes += watched.held_bytes();
        self.watched.push(watched);
    }

    /// Number of keys watched, commands queued and names subscribed to. Freeing each takes about as long as an argument.
    pub(crate) fn kept_len(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |transaction| transaction.commands().len());
        let subscribed = self.subscriptions.as_ref().map_or(0, Subscriptions::len);
        self.watched.len() + queued + subscribed
    }

    /// Frees the watched keys, the transaction and the subscriptions of a client that is leaving.
    pub(crate) fn release_kept(&mut self) {
        self.unwatch();
        self.transaction = None;
        self.subscriptions = None;
    }

    /// Returns the watched keys.
    pub(crate) fn watched_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.watched.iter().map(|watched| &watched.key[..])
    }

    pub(crate) fn watched_len(&self) -> usize {
        self.watched.len()
    }

    /// Ends all watches, and returns them.
    pub(crate) fn unwatch(&mut self) -> Vec<Watched> {
        self.watched_bytes = 0;
        std::mem::take(&mut self.watched)
    }

    /// Acquires memory beyond that of the batch, for values that are about to be read or made.
    pub(crate) async fn hold_also(&mut self, bytes: usize) -> Result<(), Refused> {
        self.hold(self.held_bytes.saturating_add(bytes)).await
    }

    /// Like [`hold_also`](Self::hold_also), but keeps a share that is already large enough. A session that returned
    /// memory which its next command needs would queue for it behind other clients, with unsent answers.
    pub(crate) async fn hold_at_least_also(&mut self, bytes: usize) -> Result<(), Refused> {
        let bytes = self.held_bytes.saturating_add(bytes);
        if self.share.as_ref().is_none_or(|share| share.covers(bytes)) {
            return Ok(());
        }
        self.hold(bytes).await
    }

    /// Like [`hold_at_least_also`](Self::hold_at_least_also), but returns false instead of waiting or failing.
    pub(crate) fn try_hold_at_least_also(&mut self, bytes: usize) -> bool {
        let bytes = self.held_bytes.saturating_add(bytes);
        self.share.as_ref().is_none_or(|share| share.covers(bytes)) || self.try_hold(bytes)
    }

    /// Like [`hold_also`](Self::hold_also), but returns false instead of waiting or failing.
    pub(crate) fn try_hold_also(&mut self, bytes: usize) -> bool {
        self.try_hold(self.held_bytes.saturating_add(bytes))
    }

    /// Returns true if the client may receive messages without a request.
    pub(crate) fn listens(&self) -> bool {
        self.subscriptions.is_some() || self.tracking.is_some() || self.client.listens_for_another()
    }

    /// Returns true if keys that are read now must be remembered for CLIENT TRACKING.
    pub(crate) fn remembers(&self) -> bool {
        self.tracking.as_ref().is_some_and(KeepsKeys::remembers)
    }

    /// Remembers keys for CLIENT TRACKING. Called before they are read, or afterwards if no other client can have
    /// written them since.
    pub(crate) fn remember<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if let Some(tracking) = self.tracking.as_ref().filter(|tracking| tracking.remembers()) {
            tracking.remember(keys);
        }
    }

    /// Remembers the keys of a command that only reads. No other client writes them until the writes of the commands that
    /// run with it are visible.
    pub(in crate::resp) fn remember_read(&self, verb: &Verb, command: Command<'_>) {
        if verb.only_reads() {
            self.remember(verb.keys.of(command).map(|index| command.argument(index)));
        }
    }

    /// Returns true if CLIENT CACHING applies to the next command.
    pub(crate) fn is_caching_given(&self) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.caching)
    }

    /// Sets whether CLIENT CACHING applies to the next command.
    pub(crate) fn give_caching(&mut self, is_given: bool) {
        if let Some(tracking) = &mut self.tracking {
            tracking.caching = is_given;
        }
    }

    /// Ends the effect of CLIENT CACHING after a command, whether it ran or was refused. No CLIENT command ends the
    /// effect, and within a transaction it lasts until EXEC or DISCARD.
    pub(in crate::resp) fn spend_caching(&mut self, verb: Option<&Verb>) {
        if self.transaction.is_none() && verb.is_none_or(|verb| !verb.keeps_caching) {
            self.give_caching(false);
        }
    }

    /// Returns the options of the next write.
    pub(crate) fn write_options(&mut self) -> WriteOptions {
        let durability = self.take_durability();
        WriteOptions { durability, origin: self.id, ..WriteOptions::default() }
    }

    /// Returns the durability of the next write, and clears the one set for a single command.
    pub(crate) fn take_durability(&mut self) -> Option<Durability> {
        self.durability_next.take().unwrap_or(self.durability)
    }
}
