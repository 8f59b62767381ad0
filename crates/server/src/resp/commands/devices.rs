//! DEVICE, an extension of the protocol: the devices of tiers of several devices, and adding and draining one while the store is
//! open. See `docs/operations.md`.

use std::path::PathBuf;

use esker_engine::{Tier, TierDevice};

use super::help;
use crate::auth::Needs;
use crate::resp::session::Session;
use crate::resp::session::audit;
use crate::resp::verb::facts::{Bound, Group, InMulti, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{is, shown};
use crate::resp::wire::reply::Replies;
use crate::service::Service;

const DEVICE: Verb = Verb {
    group: Group::Server,
    needs: Needs::Admin,
    flags: flags::ADMIN,
    in_multi: InMulti::Refused,
    since: env!("CARGO_PKG_VERSION"),
    ..Verb::DEFAULT
};

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "device", arity: -2, flags: flags::NONE, help: HELP,
        summary: "Lists the devices of tiers of several devices, adds and drains them.", ..DEVICE },
    Verb { name: "device|add", arity: 4,
        run: Run::Wait(|command, session, service, replies| Box::pin(add(command, session, service, replies))),
        summary: "Adds a blank device to a tier.", ..DEVICE },
    Verb { name: "device|drain", arity: 3,
        run: Run::Wait(|command, session, service, replies| Box::pin(drain(command, session, service, replies))),
        summary: "Moves the records of a device to the others of its tier, and then removes it.", ..DEVICE },
    Verb { name: "device|help", arity: 2, run: help::RUN, flags: flags::TELL, bound: help::BOUND,
        summary: "Lists the subcommands.", ..DEVICE },
    Verb { name: "device|list", arity: 2, run: Run::Answer(list), needs: Needs::Monitor,
        bound: |_, _, service| Bound::twice(bytes(service)), summary: "Lists the devices.", ..DEVICE },
];

const HELP: &str = "\
ADD <tier> <path>
    Add the blank device at <path> to the tier: fast or capacity.
DRAIN <path>
    Move the records of the device to the others of its tier, and then remove it.
LIST
    Return a line for each device of the tiers of several devices.";

/// Returns the facts about a device, as INFO and DEVICE LIST show them.
pub(super) fn facts(device: &TierDevice) -> String {
    let TierDevice { tier, path, segments_total, segments_used, failure, .. } = device;
    let state = device.state();
    let failure =
        failure.as_ref().map_or(String::new(), |text| format!(",error={}", text.replace(['\r', '\n'], " ")));
    format!(
        "tier={tier},path={path},segments_total={segments_total},segments_used={segments_used},state={state}{failure}"
    )
}

/// Returns the bytes of the facts about all devices, with their framing.
pub(super) fn bytes(service: &Service) -> usize {
    service.store.devices().iter().map(|device| facts(device).len() + 32).sum()
}

fn list(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let devices = service.store.devices();
    replies.array(devices.len());
    devices.iter().for_each(|device| replies.bulk(facts(device).as_bytes()));
}

async fn add(command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    let tier = match command.argument(2) {
        word if is(word, "fast") => Tier::Fast,
        word if is(word, "capacity") => Tier::Capacity,
        word => {
            let word = shown(word, 64);
            return replies.error(&format!("ERR '{word}' is not a tier; it is fast or capacity"));
        }
    };
    let path = path_of(command.argument(3));
    audit::note(session, &format!("DEVICE ADD {} {}", tier.name(), path.display()));
    match service.store.add_device(tier, path).await {
        Ok(()) => replies.simple("OK"),
        Err(error) => replies.store_error(&error),
    }
}

async fn drain(command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    let path = path_of(command.argument(2)).display().to_string();
    audit::note(session, &format!("DEVICE DRAIN {path}"));
    match service.store.drain_device(&path).await {
        Ok(()) => replies.simple("OK"),
        Err(error) => replies.store_error(&error),
    }
}

fn path_of(word: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(word).into_owned())
}
