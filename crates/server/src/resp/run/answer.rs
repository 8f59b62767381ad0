//! Answers of commands that work on no key, and answers that a client does not want.

use std::pin::pin;

use super::work;
use crate::base::turn::beside;
use crate::resp::session::{Answers, Session};
use crate::resp::verb::facts::Bound;
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

/// Answers a command that waits for memory first: for its answer and for temporary data. Returns false if too little
/// is left while earlier answers are unsent. Those have to be sent first, so that a client which does not take its
/// answers is detected, and holds no memory while it waits for more.
pub(super) async fn answer_alone(
    verb: &'static Verb,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) -> bool {
    let bound = (verb.bound)(command, session, service);
    let bytes = bound.beside + replies.growth(bound.answer);
    if replies.unsent_bytes() > 0 && !session.try_hold_at_least_also(bytes) {
        return false;
    }
    match session.hold_at_least_also(bytes).await {
        Ok(()) => answer_within(bound, verb, command, session, service, replies).await,
        Err(refused) => replies.error(&format!("ERR cannot answer: {refused}")),
    }
    true
}

/// Answers a command that works on no key. An answer is built in memory: a few bytes can request a long one, and a
/// transaction can request very many. So an answer that exceeds its bound is replaced by an error.
pub(super) async fn answer_within(
    bound: Bound,
    verb: &'static Verb,
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    if let Run::WaitBounded(wait) = verb.run {
        return wait(command, session, service, replies).await;
    }
    let us = work::of_command(verb, command)
        + work::of_release(verb, session)
        + bound.answer / work::ANSWER_BYTES_A_US;
    let answered = async {
        let start = replies.mark();
        replies.limit(bound.answer);
        verb.answer(command, session, service, replies);
        if replies.unlimit() {
            replies.cut(start);
            replies.error(&format!("ERR cannot answer: it would take more than {} bytes", bound.answer));
        }
    };
    beside(work::is_long(us), pin!(answered)).await;
}

/// Removes the answers of a group for a client that does not want them (CLIENT REPLY).
pub(super) struct Mute {
    before: Answers,
    mark: usize,
}

impl Mute {
    pub(super) fn begin(session: &mut Session, replies: &Replies) -> Mute {
        if session.answers == Answers::SkipNext {
            session.answers = Answers::Skip;
        }
        Mute { before: session.answers, mark: replies.mark() }
    }

    /// Keeps the answers up to `mark`.
    pub(super) fn from(self, mark: usize) -> Mute {
        Mute { mark, ..self }
    }

    /// Removes the answers, unless the group itself switched answers on. `is_done`: false if the group has to run again.
    pub(super) fn end(self, is_done: bool, session: &mut Session, replies: &mut Replies) {
        if self.before != Answers::On && session.answers != Answers::On {
            replies.cut(self.mark);
        }
        if is_done && session.answers == Answers::Skip {
            session.answers = Answers::On;
        }
    }
}
