//! `CLUSTER ESKER COPY`: the steps of a copy of a group, by which `esker cluster backup` works.

use esker_cluster::view::{CopyPart, CopyStep};

use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::cluster::Cluster;

/// Usual bytes of an answer; one with a longer value is longer.
pub(super) const PART_BYTES: usize = 4 << 20;

fn step_of(command: Command<'_>) -> Result<(u8, CopyStep), String> {
    let number = |at: usize| {
        let text = std::str::from_utf8(command.argument(at)).ok();
        text.and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| error_text::NOT_AN_INTEGER.to_owned())
    };
    if command.len() < 5 {
        return Err("ERR wrong number of arguments for 'ESKER COPY'".into());
    }
    let group = parse_integer(command.argument(3)).and_then(|group| u8::try_from(group).ok());
    let group = group.ok_or(error_text::NOT_AN_INTEGER)?;
    let word = command.argument(4);
    let step = match command.len() {
        5 if is(word, "begin") => CopyStep::Begin,
        7 if is(word, "keys") => CopyStep::Keys { copy: number(5)?, cursor: number(6)? },
        7 if is(word, "log") => CopyStep::Log { copy: number(5)?, after: number(6)? },
        _ => {
            return Err(format!(
                "ERR 'ESKER COPY {group} {}' is no step; they are BEGIN, KEYS <copy> <cursor>, LOG <copy> <after>",
                shown(word, 64)
            ));
        }
    };
    Ok((group, step))
}

/// Answers a step with the copy, its index, the last index of the log, the next cursor or null, 1 if the group was cleared, the number
/// of changes, and the changes.
pub(super) async fn copy(command: Command<'_>, cluster: &Cluster, replies: &mut Replies) {
    let (group, step) = match step_of(command) {
        Ok(step) => step,
        Err(error) => return replies.error(&error),
    };
    let CopyPart { copy, index, last_index, next, is_cleared, count, changes } =
        match cluster.view.copy(group, step).await {
            Ok(part) => part,
            Err(why) => return replies.error(&format!("ERR {why}")),
        };
    replies.array(7);
    // As texts: a number of RESP is signed.
    for number in [copy, index, last_index] {
        replies.bulk(number.to_string().as_bytes());
    }
    match next {
        Some(next) => replies.bulk(next.to_string().as_bytes()),
        None => replies.null(),
    }
    replies.integer(is_cleared.into());
    replies.bulk(count.to_string().as_bytes());
    replies.value(&changes);
}
