//! What a connection remembers of its client between commands.

use std::sync::Arc;

use esker_engine::{Durability, Store, WriteOptions};
use tokio::time::Instant;

use self::queue::{Transaction, Watched};
use self::subscriptions::Subscriptions;
use self::tracking::KeepsKeys;
use super::verbs::Verb;
use super::wire::reply::{Protocol, Replies};
use crate::auth::{User, Users};
use crate::base::address::Address;
use crate::budget::{Refused, Share};
use crate::service::Service;
use crate::service::calls::Tally;
use crate::service::channels::Outbox;
use crate::service::clients::Client;

pub(super) mod audit;
pub(super) mod queue;
pub(in crate::resp) mod refused;
pub(super) mod slow;
pub(in crate::resp) mod subscriptions;
pub(in crate::resp) mod tracking;
pub(super) mod view;

/// Whether the client wants to be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answers {
    #[default]
    On,
    Off,
    /// Not the next command.
    SkipNext,
    /// Not this command.
    Skip,
}

/// State of one client.
pub(crate) struct Session {
    /// Unique in this run of the server.
    pub(crate) id: u64,
    /// The other end of the socket.
    pub(crate) peer: Address,
    /// Who the client speaks for; `None` before it has said so where it must.
    pub(crate) user: Option<Arc<User>>,
    /// The time until which a client without a user must have logged in (`login-timeout`).
    pub(crate) login_by: Option<Instant>,
    /// The database that the client chose; while a script runs, the one that it did.
    database: u8,
    /// What others see of this connection.
    pub(crate) client: Arc<Client>,
    /// The client said goodbye, or must go: nothing after the current command runs.
    pub(crate) leaving: bool,
    pub(crate) answers: Answers,
    /// Commands that wait for EXEC.
    pub(crate) transaction: Option<Transaction>,
    /// What it subscribed to, if anything.
    pub(crate) subscriptions: Option<Subscriptions>,
    /// What it said of keys that it keeps, if it keeps any.
    pub(crate) tracking: Option<KeepsKeys>,
    /// What scripts publish, while some run.
    pub(crate) outbox: Option<Outbox>,
    /// Keys that the transaction had added to the database when the turn of the command that runs came, less those that it had in
    /// the end.
    pub(crate) uncommitted_keys: i64,
    watched: Vec<Watched>,
    watched_bytes: usize,
    /// How writes of this connection are acknowledged; the store's way if `None`.
    pub(crate) durability: Option<Durability>,
    /// The same for the next command that writes.
    pub(crate) durability_next: Option<Option<Durability>>,
    /// Keys that the next group of reads asks for at a time. It shrinks after large values and grows after small ones,
    /// so that neither many small reads wait for each other nor many large ones are in memory at once.
    pub(crate) read_width: usize,
    /// Commands that are to be counted, of the group that runs.
    pub(crate) tally: Tally,
    /// Its part of the memory for clients.
    pub(crate) share: Option<Share>,
    /// What the current batch holds of it without the values that it reads.
    pub(crate) held_bytes: usize,
    /// A command of the current batch waited for memory in vain. The others do not wait: each of them would keep what the
    /// batch holds from other clients, and where all hold a part and wait for more, nobody ever got what it needs.
    pub(crate) waited_in_vain: bool,
}

/// Where `read_width` starts.
const READ_WIDTH: usize = 32;

impl Session {
    pub(crate) fn new(peer: Address, user: Option<Arc<User>>, client: Arc<Client>) -> Session {
        Session {
            id: client.id,
            peer,
            user,
            login_by: None,
            database: 0,
            client,
            leaving: false,
            answers: Answers::On,
            transaction: None,
            subscriptions: None,
            tracking: None,
            outbox: None,
            uncommitted_keys: 0,
            watched: Vec::new(),
            watched_bytes: 0,
            durability: None,
            durability_next: None,
            read_width: READ_WIDTH,
            tally: Tally::default(),
            share: None,
            held_bytes: 0,
            waited_in_vain: false,
        }
    }

    /// The number of the database that commands are about.
    pub(crate) fn database(&self) -> u8 {
        self.database
    }

    /// The number of the database that the next command is about, if it is queued too.
    pub(crate) fn database_of_next(&self) -> u8 {
        self.transaction.as_ref().and_then(Transaction::database).unwrap_or(self.database)
    }

    /// The database that commands are about.
    pub(crate) fn store<'s>(&self, service: &'s Service) -> &'s Store {
        service.database(self.database)
    }

    /// Commands are about another database from now on.
    pub(crate) fn enter(&mut self, database: u8) {
        self.database = database;
        self.client.note_database(database);
    }

    /// As a new connection would be.
    pub(crate) fn reset(&mut self, users: &Users, replies: &mut Replies) {
        let (share, held_bytes, waited_in_vain) = (self.share.take(), self.held_bytes, self.waited_in_vain);
        let fresh = Session::new(self.peer.clone(), users.unnamed(), self.client.clone());
        let answers = if self.answers == Answers::Skip { Answers::Skip } else { Answers::On };
        *self = Session { share, held_bytes, waited_in_vain, answers, ..fresh };
        self.client.forget_introduction(self.user.as_ref().map_or("", |user| user.name()));
        self.client.note_queued(None);
        replies.protocol = Protocol::Resp2;
        self.client.note_protocol(2);
        self.client.note_database(0);
    }

    /// Makes the part of the memory for clients so large; waits if too little is left, once for each batch.
    pub(crate) async fn hold(&mut self, bytes: usize) -> Result<(), Refused> {
        let held = match &mut self.share {
            Some(share) if self.waited_in_vain => share.hold_now(bytes),
            Some(share) => share.hold(bytes).await,
            None => Ok(()),
        };
        self.waited_in_vain |= held == Err(Refused::UsedUp);
        held
    }

    /// As [`hold`](Self::hold), but says `false` where that would wait or refuse.
    pub(crate) fn try_hold(&mut self, bytes: usize) -> bool {
        self.share.as_mut().is_none_or(|share| share.try_hold(bytes))
    }

    /// Memory that lasts from command to command: the transaction, the watched keys, the subscriptions, prefixes, and what
    /// the client is called.
    pub(crate) fn kept_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, Transaction::held_bytes);
        let subscribed = self.subscriptions.as_ref().map_or(0, Subscriptions::held_bytes);
        let tracked = self.tracking.as_ref().map_or(0, KeepsKeys::held_bytes);
        queued + self.watched_bytes + subscribed + tracked + self.client.introduced_bytes()
    }

    /// A client without subscriptions is one like any other.
    pub(crate) fn forget_subscriptions_if_none(&mut self) {
        self.subscriptions.take_if(|subscriptions| subscriptions.len() == 0 && !subscriptions.monitors());
    }

    /// Whether messages come where answers would: it subscribed, and speaks RESP2, which cannot tell the two apart.
    pub(crate) fn hears_only(&self) -> bool {
        let listens = self.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.len() > 0);
        listens && self.client.protocol() == 2
    }

    /// A command was refused, which spoils the transaction that is being queued, if there is one.
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

    pub(crate) fn watched_len(&self) -> usize {
        self.watched.len()
    }

    /// Watches nothing any more; what was watched.
    pub(crate) fn unwatch(&mut self) -> Vec<Watched> {
        self.watched_bytes = 0;
        std::mem::take(&mut self.watched)
    }

    /// Takes memory beside that of the batch, for values that are about to be read or made.
    pub(crate) async fn hold_also(&mut self, bytes: usize) -> Result<(), Refused> {
        self.hold(self.held_bytes.saturating_add(bytes)).await
    }

    /// As [`hold_also`](Self::hold_also), but keeps what there is if that is enough: whoever gave back what the next command
    /// needs again would wait for it behind others, with answers that nobody takes.
    pub(crate) async fn hold_at_least_also(&mut self, bytes: usize) -> Result<(), Refused> {
        let bytes = self.held_bytes.saturating_add(bytes);
        if self.share.as_ref().is_none_or(|share| share.covers(bytes)) {
            return Ok(());
        }
        self.hold(bytes).await
    }

    /// As [`hold_at_least_also`](Self::hold_at_least_also), but says `false` where that would wait or refuse.
    pub(crate) fn try_hold_at_least_also(&mut self, bytes: usize) -> bool {
        let bytes = self.held_bytes.saturating_add(bytes);
        self.share.as_ref().is_none_or(|share| share.covers(bytes)) || self.try_hold(bytes)
    }

    /// As [`hold_also`](Self::hold_also), but says `false` where that would wait or refuse.
    pub(crate) fn try_hold_also(&mut self, bytes: usize) -> bool {
        self.try_hold(self.held_bytes.saturating_add(bytes))
    }

    /// Whether it is told something without asking.
    pub(crate) fn listens(&self) -> bool {
        self.subscriptions.is_some() || self.tracking.is_some() || self.client.listens_for_another()
    }

    /// Whether keys that it reads now are to be remembered.
    pub(crate) fn remembers(&self) -> bool {
        self.tracking.as_ref().is_some_and(KeepsKeys::remembers)
    }

    /// It is about to read keys; or has read them, and nobody else can have written them since.
    pub(crate) fn remember<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if let Some(tracking) = self.tracking.as_ref().filter(|tracking| tracking.remembers()) {
            tracking.remember(keys);
        }
    }

    /// Whether CLIENT CACHING was called for the next command.
    pub(crate) fn is_caching_given(&self) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.caching)
    }

    /// Whether it is to be so from now on.
    pub(crate) fn give_caching(&mut self, is_given: bool) {
        if let Some(tracking) = &mut self.tracking {
            tracking.caching = is_given;
        }
    }

    /// A command is over, whatever became of it: CLIENT CACHING was called for it, unless it is CLIENT itself, or of the
    /// transaction that it was called for.
    pub(crate) fn spend_caching(&mut self, verb: Option<&Verb>) {
        if self.transaction.is_none() && verb.is_none_or(|verb| verb.name != "client") {
            self.give_caching(false);
        }
    }

    /// How the next write is made.
    pub(crate) fn write_options(&mut self) -> WriteOptions {
        let durability = self.take_durability();
        WriteOptions { durability, origin: self.id, ..WriteOptions::default() }
    }

    /// How the next write is acknowledged.
    pub(crate) fn take_durability(&mut self) -> Option<Durability> {
        self.durability_next.take().unwrap_or(self.durability)
    }
}
