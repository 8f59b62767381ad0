//! The loop of one client: read, run, answer.
//!
//! 1. All complete commands in the input become one batch, up to the pipeline's limit; only a few if memory is
//!    scarce.
//! 2. The batch runs group by group (`run`). While the unsent answers exceed the backlog limit, they are written and
//!    nothing else happens: no further group starts, and no input is read.
//! 3. The task yields to other clients that are ready. Then answers are written as far as the socket accepts them,
//!    and input is read in the same step. Before that, messages to a subscriber are appended to the answers, up to
//!    the backlog limit.
//!
//! Memory (`memory`) is acquired for the input buffer in step 3 and for the commands in step 2. A connection that waits for
//! its client keeps only a small buffer. The watch (`watch`) detects missed time limits. A stop of the server is noticed only
//! in step 3: commands that were read are run and answered.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::poll;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::commands::pubsub::{self, deliver};
use super::run::{self, Batch, work};
use super::session::{Answers, Session};
use super::watch::Watch;
use super::wire::commands::Commands;
use super::wire::frame::{Parser, Unparsed};
use super::wire::transport::{Exchange, IDLE_BYTES_MAX, Transport};
use crate::Limits;
use crate::base::address::Address;
use crate::base::counting::count;
use crate::base::moment::Moment;
use crate::base::shutdown::Stop;
use crate::base::turn::{self, behind_the_others, beside};
use crate::budget::Share;
use crate::service::channels::{Mailbox, Overflown};
use crate::service::{Dropped, Service};

mod dialogue;
mod interrupts;
mod memory;

pub(crate) use dialogue::{Dialogue, Peer};
use interrupts::{Interrupt, Interrupts, interrupts};
use memory::LARGE_BYTES;

/// Maximum number of arguments parsed in one turn.
const PARSED_MAX: usize = 8192;

/// The reason why a connection ended early.
enum Ended {
    /// The socket failed.
    Gone(io::Error),
    /// Ended by CLIENT KILL.
    Killed,
    Dropped(Dropped),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Gone(error)
    }
}

/// Serves one client until it leaves, breaks the protocol or a limit, or the server stops.
pub(crate) async fn serve<S>(
    stream: S,
    peer: Peer,
    share: Share,
    service: &Service,
    stop: Stop,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let dialogue = Dialogue::new(peer, &service.config.limits);
    resume(stream, dialogue, share, service, stop).await
}

/// Like [`serve`], but continues a dialogue that began earlier.
pub(crate) async fn resume<S>(
    stream: S,
    mut dialogue: Dialogue,
    share: Share,
    service: &Service,
    stop: Stop,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _present = service.clients.enter(dialogue.session.client.clone(), &service.channels);
    let address = dialogue.address().clone();
    dialogue.session.share = Some(share);
    dialogue.session.is_in_cluster = service.cluster.is_some();
    if usize::from(dialogue.session.database()) >= service.databases().len() {
        // Selected while the store was opened, before the server was one of a cluster.
        dialogue.session.enter(0);
    }
    let mut conversation = Conversation::new(stream, dialogue, service, stop);
    let served = conversation.serve(&address).await;
    let is_large = conversation.was_large;
    beside(is_large, pin!(async move { drop(conversation) })).await;
    served
}

/// Refreshes the session's user if it was changed or reloaded.
fn follow_users(session: &mut Session, service: &Service) -> Result<(), Ended> {
    if session.user.as_ref().is_some_and(|user| user.is_outdated()) {
        let user = session.user.take();
        session.user = user.and_then(|user| service.users.refresh(&user));
        // Messages arrive without a request, so a client that lost the right to its subscriptions is disconnected.
        if session.user.is_none() || !pubsub::still_may_listen(session) {
            return Err(Ended::Dropped(Dropped::User));
        }
    }
    Ok(())
}

/// A client and the state of its connection.
struct Conversation<'a, S> {
    service: &'a Service,
    transport: Transport<S>,
    session: Session,
    parser: Parser,
    commands: Commands,
    /// The limits before the login.
    narrow: Limits,
    /// True if the parser has the limits of `narrow`.
    is_narrow: bool,
    watch: Watch,
    /// True once the connection has held more than [`LARGE_BYTES`]: then dropping it may take long.
    was_large: bool,
    /// True once the log has reported an over-long command of this connection.
    told_too_long: bool,
    /// Kept from command to command: a new task for every command would cost as much as a short command.
    interrupts: Interrupts,
    stop: Stop,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Conversation<'a, S> {
    fn new(stream: S, dialogue: Dialogue, service: &'a Service, stop: Stop) -> Conversation<'a, S> {
        let Dialogue { mut session, mut parser, input, replies } = dialogue;
        let limits = &service.config.limits;
        let narrow = limits.before_login();
        let is_narrow = session.user.is_none();
        parser.set_limits(if is_narrow { &narrow } else { limits });
        parser.pause_after(PARSED_MAX);
        let watch = Watch::new(limits, is_narrow);
        session.login_by = watch.login_by();
        let (transport, commands) = (Transport::new(stream, input, replies), Commands::default());
        let interrupts = interrupts(session.client.clone(), stop.clone(), &service.users);
        Conversation {
            service,
            transport,
            session,
            parser,
            commands,
            narrow,
            is_narrow,
            watch,
            was_large: false,
            told_too_long: false,
            interrupts,
            stop,
        }
    }

    fn limits(&self) -> &Limits {
        if self.is_narrow { &self.narrow } else { &self.service.config.limits }
    }

    /// Serves the client until its end, and sends it the answers that are left.
    async fn serve(&mut self, address: &Address) -> io::Result<()> {
        let ended = self.talk().await;
        let session = &mut self.session;
        beside(work::is_long_release(session), pin!(async { session.release_kept() })).await;
        let (transport, service) = (&mut self.transport, self.service);
        match ended {
            Ok(()) => {}
            Err(Ended::Killed) => return Ok(()),
            Err(Ended::Gone(error)) => return Err(error),
            Err(Ended::Dropped(why)) => {
                service.counters.count_dropped(why);
                tracing::debug!(%why, %address, "connection dropped");
                match why {
                    // The error itself is among the answers already.
                    Dropped::Protocol => {}
                    Dropped::SlowReader | Dropped::ReplyQueue => return Ok(()),
                    _ => transport.replies.error(&format!("ERR {why}")),
                }
            }
        }
        transport.replies.count_errors(&service.counters.errors);
        let goodbye = async {
            while transport.replies.unsent_bytes() > 0 {
                transport.exchange(false, service).await?;
                turn::pause().await;
            }
            transport.stream.shutdown().await
        };
        timeout(service.config.limits.closing_wait, goodbye).await?
    }

    async fn talk(&mut self) -> Result<(), Ended> {
        while !self.session.leaving && !self.session.client.is_killed() {
            self.look_at_user()?;
            // 1.
            self.commands.clear();
            let most = self.batch_max();
            let (consumed, parsed) = self.parser.parse(&mut self.transport.input, &mut self.commands, most);
            let more = self.commands.len() >= most;
            let left = self.transport.input.len() - consumed;
            let is_paused = self.parser.is_paused();
            let is_partial = left > 0 && !more || self.parser.is_passing();
            // Skipped bytes belong to an over-long command that began earlier.
            let begins = consumed > 0 && !(self.parser.is_passing() && self.commands.is_empty());
            self.watch.parsed(begins, is_partial);

            // 2.
            if !self.commands.is_empty() {
                count(&self.service.counters.commands, self.commands.len() as u64);
                let data = self.transport.take(consumed);
                let is_long = work::has_long_arguments(&self.commands);
                beside(is_long, pin!(self.run(data))).await?;
            } else {
                drop(self.transport.take(consumed));
            }
            match parsed {
                Ok(()) => {}
                // Commands after QUIT are not read.
                Err(_) if self.session.leaving => break,
                Err(Unparsed::TooLong(why)) => {
                    self.refuse(&why);
                    continue;
                }
                Err(Unparsed::Broken(why)) => {
                    self.transport.replies.error(&why);
                    return Err(Ended::Dropped(Dropped::Protocol));
                }
            }

            // A login changes the limits of memory and time.
            self.look_at_user()?;
            // 3. Step 2 left no more unsent bytes than the backlog limit, so input may be read.
            if self.session.leaving {
                break;
            }
            if !self.deliver().await? {
                break;
            }
            if (more || is_paused) && left > 0 {
                tokio::task::yield_now().await;
                continue;
            }
            if self.transport.replies.unsent_bytes() > 0 {
                behind_the_others().await;
            } else {
                turn::pause().await;
            }
            // A client that sends without pause never reaches the waits in `read`, so interrupts are checked here.
            if self.interrupts.is_finished() {
                let interrupt = (&mut self.interrupts).await;
                if !self.goes_on_after(interrupt.unwrap_or(Interrupt::Stopped))? {
                    break;
                }
            }
            if !self.read().await? {
                break;
            }
        }
        Ok(())
    }

    /// Answers a command that is too long to run.
    fn refuse(&mut self, why: &str) {
        let session = &mut self.session;
        if !std::mem::replace(&mut self.told_too_long, true) {
            let user = session.user.as_ref().map_or("", |user| user.name());
            tracing::warn!(peer = %session.peer, user, "refused a command; further ones of this connection are not logged: {why}");
        }
        session.spoil_transaction();
        session.spend_caching(None);
        if session.answers == Answers::On {
            self.transport.replies.error(why);
            self.transport.replies.take_errors();
        }
        if session.answers == Answers::SkipNext {
            session.answers = Answers::On;
        }
    }

    /// Refreshes the user if it was changed or reloaded, and the limits if the client logged in or out.
    fn look_at_user(&mut self) -> Result<(), Ended> {
        follow_users(&mut self.session, self.service)?;
        let is_narrow = self.session.user.is_none();
        if is_narrow != self.is_narrow {
            self.is_narrow = is_narrow;
            self.parser.set_limits(if is_narrow { &self.narrow } else { &self.service.config.limits });
            self.watch.logged_in(&self.service.config.limits, !is_narrow);
            self.session.login_by = self.watch.login_by();
        }
        Ok(())
    }

    async fn run(&mut self, data: Bytes) -> Result<(), Ended> {
        let work = self.batch_bytes(data.len());
        let held = self.held() + work;
        self.session.held_bytes = held;
        if !self.session.try_hold(held) {
            self.session.hold(held).await.map_err(|_| Ended::Dropped(Dropped::Memory))?;
        }

        let limits = if self.is_narrow { &self.narrow } else { &self.service.config.limits };
        let mut batch = Batch::new(&self.commands, data);
        let began = Moment::now();
        self.service.counters.rate.add(self.service.age_at(began), self.commands.len() as u64);
        let mut now = began;
        while !batch.is_done() && !self.session.leaving {
            follow_users(&mut self.session, self.service)?;
            let (replies, before) = (&mut self.transport.replies, batch.position());
            now = run::next(&mut batch, now, &mut self.session, self.service, replies).await;
            self.transport.replies.count_errors(&self.service.counters.errors);
            self.session.held_bytes = self.held() + work;
            self.was_large |= self.session.held_bytes > LARGE_BYTES;
            let unsent = self.transport.replies.unsent_bytes();
            if unsent > limits.backlog_bytes_hard {
                return Err(Ended::Dropped(Dropped::ReplyQueue));
            }
            // A command that did not run waits for memory that the answers before it hold.
            let most = if batch.position() == before { 0 } else { limits.backlog_bytes_max };
            if unsent <= most {
                now = turn::pause_at(now).await;
                continue;
            }
            let (client, mut reloads) = (self.session.client.clone(), self.service.users.reloads());
            while self.transport.replies.unsent_bytes() > most {
                follow_users(&mut self.session, self.service)?;
                tokio::select! {
                    biased;
                    exchanged = self.transport.exchange(false, self.service) => { exchanged?; }
                    () = client.killed() => return Err(Ended::Killed),
                    Ok(()) = reloads.changed() => {}
                    () = self.watch.tick() => {
                        let budget = &self.service.budget;
                        self.watch.check(&self.transport, true, budget).map_err(Ended::Dropped)?;
                    }
                }
                // Without a pause, a client that reads its answers at once would be written to without end.
                turn::pause().await;
                // The wait for the client does not count as running time of the next command.
                now = Moment::now();
            }
        }
        self.session.waited_in_vain = false;
        self.service.counters.batch_times.observe(now - began);
        Ok(())
    }

    /// Reads more input, and writes answers meanwhile. Returns false if the client or the server ends the
    /// conversation.
    async fn read(&mut self) -> Result<bool, Ended> {
        let room_max = if self.is_narrow { IDLE_BYTES_MAX } else { usize::MAX };
        let room = self.transport.room(self.parser.missing_bytes(self.transport.input.len()), room_max);
        let (now, peak) = self.transport.held_after(room);
        let others = self.held() - self.transport.held_bytes();
        if !self.session.try_hold(peak + others) && !self.wait_for_memory(peak + others).await? {
            return Ok(false);
        }
        beside(self.transport.grows_long(room), pin!(async { self.transport.make_room(room) })).await;
        if peak > now {
            let held = self.held();
            let _ = self.session.try_hold(held) || self.session.hold(held).await.is_ok();
        }
        if self.transport.held_bytes() > IDLE_BYTES_MAX || others > IDLE_BYTES_MAX {
            // Memory is returned only if no input has arrived yet.
            let first = {
                let exchange = pin!(self.transport.exchange(true, self.service));
                poll!(exchange)
            };
            match first {
                Poll::Ready(exchanged) => return Ok(self.note(exchanged?)),
                Poll::Pending => {
                    let is_large = self.session.held_bytes > LARGE_BYTES;
                    let trimmed = async {
                        self.transport.trim();
                        if self.parser.is_between_commands() {
                            self.commands = Commands::default();
                            self.parser.trim();
                        }
                    };
                    beside(is_large, pin!(trimmed)).await;
                    let held = self.held();
                    let _ = self.session.hold(held).await;
                }
            }
        }
        loop {
            // A subscriber that does not take its messages is not read from until it does.
            let mailbox = self.session.listens().then(|| self.session.client.mailbox.clone());
            let waits = mailbox.is_some() && self.has_backlog();
            // More messages arrived than the backlog could take, and the mailbox announces each message only once.
            let has_more = |mailbox: &Arc<Mailbox>| !matches!(mailbox.next_bytes(), Ok(None));
            if !waits && mailbox.as_ref().is_some_and(has_more) {
                return Ok(true);
            }
            let arrived = async {
                match &mailbox {
                    Some(mailbox) if waits => mailbox.overflows().await,
                    Some(mailbox) => tokio::select! {
                        () = mailbox.arrived() => {}
                        () = mailbox.overflows() => {}
                    },
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                exchanged = self.transport.exchange(!waits, self.service) => return Ok(self.note(exchanged?)),
                interrupt = &mut self.interrupts => {
                    if !self.goes_on_after(interrupt.unwrap_or(Interrupt::Stopped))? {
                        return Ok(false);
                    }
                }
                () = arrived => return Ok(true),
                () = self.watch.tick() => {
                    if self.session.subscriptions.is_some() || self.session.client.listens_for_another() {
                        // A subscriber may be silent for any time.
                        self.watch.listens();
                    }
                    let budget = &self.service.budget;
                    self.watch.check(&self.transport, waits, budget).map_err(Ended::Dropped)?;
                }
            }
        }
    }

    /// Appends messages to the answers, up to the backlog limit. Returns false if the server ends the conversation.
    async fn deliver(&mut self) -> Result<bool, Ended> {
        let mailbox = self.session.client.mailbox.clone();
        while self.session.listens() {
            let next = mailbox.next_bytes().map_err(|Overflown| Ended::Dropped(Dropped::ReplyQueue))?;
            let Some(bytes) = next.filter(|_| !self.has_backlog()) else { break };
            let wanted = self.held() + self.transport.replies.growth(bytes);
            if !self.session.try_hold(wanted) && !self.wait_for_memory(wanted).await? {
                return Ok(false);
            }
            if let Some(letter) = self.service.channels.take(&mailbox) {
                deliver(&letter, &self.session, &mut self.transport.replies);
            }
            turn::pause().await;
        }
        Ok(true)
    }

    /// Returns true if the unsent answers exceed the backlog limit, so that the client has to take some first.
    fn has_backlog(&self) -> bool {
        self.transport.replies.unsent_bytes() > self.limits().backlog_bytes_max
    }

    /// Handles an interrupt of a wait. Returns true if the conversation continues.
    fn goes_on_after(&mut self, interrupt: Interrupt) -> Result<bool, Ended> {
        match interrupt {
            Interrupt::Killed => Err(Ended::Killed),
            Interrupt::Stopped => Ok(false),
            Interrupt::Users | Interrupt::Told => {
                self.interrupts =
                    interrupts(self.session.client.clone(), self.stop.clone(), &self.service.users);
                self.look_at_user()?;
                Ok(true)
            }
        }
    }

    /// Notes an exchange for the watch. Returns false if the client closed its side.
    fn note(&mut self, exchanged: Exchange) -> bool {
        match exchanged {
            Exchange::Read(bytes) => self.watch.read(bytes),
            Exchange::Wrote => {}
            Exchange::End => return false,
        }
        true
    }
}
