//! Maps every verb of the table to its function.

use super::object::OnUsage;
use super::{Answer, OnKeys};
use super::{
    acl, bitfield, bits, client, config, connection, counters, databases, describe, dump, expiry,
    hyperloglog, info, keys, lcs, multi, object, observe, pubsub, ranges, script, server, set, strings,
};
use crate::resp::verbs::Verb;
use crate::resp::verbs::table::VERBS;
use crate::service::calls::VERBS_COUNT as COUNT;

/// The way in which a command runs.
#[derive(Clone, Copy)]
pub(in crate::resp) enum Run {
    /// Without waiting.
    Answer(Answer),
    /// Without waiting, after keys were sampled. In a transaction, which does not wait for a sample, the last one is
    /// used.
    Sampled(Answer),
    /// Without waiting, except for SCRIPT LOAD, which waits until the script is compiled.
    Load(Answer),
    /// Without waiting, after a look whether the key exists. In a transaction it runs after the writes of the other
    /// commands.
    Usage(OnUsage),
    /// On a view of its keys, read-only.
    Read(OnKeys),
    /// On a view of its keys, which no other client can write meanwhile.
    Update(OnKeys),
    /// As a script over keys, which no other client can write meanwhile.
    Script,
    /// On its own, because it waits.
    Alone(Alone),
}

/// Commands that wait.
#[derive(Clone, Copy)]
pub(in crate::resp) enum Alone {
    Hello,
    Auth,
    FlushAll,
    FlushOne,
    Swap,
    Scan,
    Keys,
    RandomKey,
    RemoveUsers,
    LoadUsers,
    SaveUsers,
    SetUser,
    Wait,
    WaitAof,
    Watch,
    Exec,
}

/// Returns the way in which a verb runs.
pub(in crate::resp) fn run_of(verb: &'static Verb) -> Run {
    RUNS[verb.index()].1
}

/// The function of each verb, in the order of the table of verbs.
#[rustfmt::skip]
static RUNS: [(&str, Run); COUNT] = [
    ("append", Run::Update(ranges::append)),
    ("decr", Run::Update(counters::decr)),
    ("decrby", Run::Update(counters::decrby)),
    ("get", Run::Read(strings::get)),
    ("getdel", Run::Update(strings::getdel)),
    ("getex", Run::Update(strings::getex)),
    ("getrange", Run::Read(ranges::getrange)),
    ("getset", Run::Update(strings::getset)),
    ("incr", Run::Update(counters::incr)),
    ("incrby", Run::Update(counters::incrby)),
    ("incrbyfloat", Run::Update(counters::incrbyfloat)),
    ("lcs", Run::Read(lcs::lcs)),
    ("mget", Run::Read(strings::mget)),
    ("mset", Run::Update(strings::mset)),
    ("msetnx", Run::Update(strings::msetnx)),
    ("psetex", Run::Update(strings::psetex)),
    ("set", Run::Update(set::set)),
    ("setex", Run::Update(strings::setex)),
    ("setnx", Run::Update(strings::setnx)),
    ("setrange", Run::Update(ranges::setrange)),
    ("strlen", Run::Read(ranges::strlen)),
    ("substr", Run::Read(ranges::getrange)),
    ("bitcount", Run::Read(bits::bitcount)),
    ("bitfield", Run::Update(bitfield::bitfield)),
    ("bitfield_ro", Run::Read(bitfield::bitfield_ro)),
    ("bitop", Run::Update(bits::bitop)),
    ("bitpos", Run::Read(bits::bitpos)),
    ("getbit", Run::Read(bits::getbit)),
    ("setbit", Run::Update(bits::setbit)),
    ("pfadd", Run::Update(hyperloglog::pfadd)),
    ("pfcount", Run::Update(hyperloglog::pfcount)),
    ("pfmerge", Run::Update(hyperloglog::pfmerge)),
    ("copy", Run::Update(keys::copy)),
    ("del", Run::Update(keys::delete)),
    ("dump", Run::Read(dump::dump)),
    ("exists", Run::Read(keys::exists)),
    ("expire", Run::Update(expiry::expire)),
    ("expireat", Run::Update(expiry::expireat)),
    ("expiretime", Run::Read(expiry::expiretime)),
    ("keys", Run::Alone(Alone::Keys)),
    ("move", Run::Update(databases::move_key)),
    ("object", Run::Answer(object::object)),
    ("object|encoding", Run::Read(object::encoding)),
    ("object|freq", Run::Usage(object::freq)),
    ("object|idletime", Run::Usage(object::idletime)),
    ("object|refcount", Run::Read(object::refcount)),
    ("persist", Run::Update(expiry::persist)),
    ("pexpire", Run::Update(expiry::pexpire)),
    ("pexpireat", Run::Update(expiry::pexpireat)),
    ("pexpiretime", Run::Read(expiry::pexpiretime)),
    ("pttl", Run::Read(expiry::pttl)),
    ("randomkey", Run::Alone(Alone::RandomKey)),
    ("rename", Run::Update(keys::rename)),
    ("renamenx", Run::Update(keys::renamenx)),
    ("restore", Run::Update(dump::restore)),
    ("scan", Run::Alone(Alone::Scan)),
    ("touch", Run::Read(keys::exists)),
    ("ttl", Run::Read(expiry::ttl)),
    ("type", Run::Read(keys::type_of)),
    ("unlink", Run::Update(keys::delete)),
    ("wait", Run::Alone(Alone::Wait)),
    ("waitaof", Run::Alone(Alone::WaitAof)),
    ("discard", Run::Answer(multi::discard)),
    ("exec", Run::Alone(Alone::Exec)),
    ("multi", Run::Answer(multi::multi)),
    ("unwatch", Run::Answer(multi::unwatch)),
    ("watch", Run::Alone(Alone::Watch)),
    ("eval", Run::Script),
    ("eval_ro", Run::Script),
    ("evalsha", Run::Script),
    ("evalsha_ro", Run::Script),
    ("script", Run::Load(script::script)),
    ("function", Run::Answer(server::function)),
    ("auth", Run::Alone(Alone::Auth)),
    ("client", Run::Answer(client::client)),
    ("echo", Run::Answer(connection::echo)),
    ("hello", Run::Alone(Alone::Hello)),
    ("ping", Run::Answer(connection::ping)),
    ("quit", Run::Answer(connection::quit)),
    ("reset", Run::Answer(connection::reset)),
    ("select", Run::Answer(databases::select)),
    ("psubscribe", Run::Answer(pubsub::psubscribe)),
    ("publish", Run::Answer(pubsub::publish)),
    ("pubsub", Run::Answer(pubsub::pubsub)),
    ("punsubscribe", Run::Answer(pubsub::punsubscribe)),
    ("spublish", Run::Answer(pubsub::spublish)),
    ("ssubscribe", Run::Answer(pubsub::ssubscribe)),
    ("subscribe", Run::Answer(pubsub::subscribe)),
    ("sunsubscribe", Run::Answer(pubsub::sunsubscribe)),
    ("unsubscribe", Run::Answer(pubsub::unsubscribe)),
    ("acl", Run::Answer(acl::acl)),
    ("acl|deluser", Run::Alone(Alone::RemoveUsers)),
    ("acl|load", Run::Alone(Alone::LoadUsers)),
    ("acl|save", Run::Alone(Alone::SaveUsers)),
    ("acl|setuser", Run::Alone(Alone::SetUser)),
    ("bgsave", Run::Answer(server::bgsave)),
    ("cluster", Run::Answer(server::cluster)),
    ("command", Run::Answer(describe::command)),
    ("config", Run::Answer(config::config)),
    ("dbsize", Run::Answer(keys::dbsize)),
    ("debug", Run::Answer(server::debug)),
    ("flushall", Run::Alone(Alone::FlushAll)),
    ("flushdb", Run::Alone(Alone::FlushOne)),
    ("info", Run::Sampled(info::info)),
    ("lastsave", Run::Answer(server::lastsave)),
    ("latency", Run::Answer(observe::latency)),
    ("monitor", Run::Answer(pubsub::monitor)),
    ("role", Run::Answer(server::role)),
    ("shutdown", Run::Answer(server::shutdown)),
    ("slowlog", Run::Answer(observe::slowlog)),
    ("swapdb", Run::Alone(Alone::Swap)),
    ("time", Run::Answer(server::time)),
    ("memory", Run::Answer(observe::memory)),
    ("module", Run::Answer(server::module)),
    ("memory|usage", Run::Read(keys::memory_usage)),
    ("post", Run::Answer(connection::http)),
    ("host:", Run::Answer(connection::http)),
];

/// The build fails unless both tables name the same verbs in the same order.
const _: () = {
    let mut index = 0;
    while index < COUNT {
        let (fact, run) = (VERBS[index].name.as_bytes(), RUNS[index].0.as_bytes());
        assert!(fact.len() == run.len());
        let mut at = 0;
        while at < fact.len() {
            assert!(fact[at] == run[at]);
            at += 1;
        }
        index += 1;
    }
};
