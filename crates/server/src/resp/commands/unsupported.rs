//! Redis commands for data types and features that Esker does not have. Their error says so, instead of "unknown
//! command".

/// Data types and features, each with the names of its commands.
#[rustfmt::skip]
static ELSEWHERE: [(&str, &[&str]); 9] = [
    ("lists", &[
        "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "lindex", "linsert", "llen", "lmove", "lmpop", "lpop", "lpos",
        "lpush", "lpushx", "lrange", "lrem", "lset", "ltrim", "rpop", "rpoplpush", "rpush", "rpushx", "sort", "sort_ro",
    ]),
    ("hashes", &[
        "hdel", "hexists", "hget", "hgetall", "hincrby", "hincrbyfloat", "hkeys", "hlen", "hmget", "hmset", "hrandfield",
        "hscan", "hset", "hsetnx", "hstrlen", "hvals",
    ]),
    ("sets", &[
        "sadd", "scard", "sdiff", "sdiffstore", "sinter", "sintercard", "sinterstore", "sismember", "smembers",
        "smismember", "smove", "spop", "srandmember", "srem", "sscan", "sunion", "sunionstore",
    ]),
    ("sorted sets", &[
        "bzmpop", "bzpopmax", "bzpopmin", "zadd", "zcard", "zcount", "zdiff", "zdiffstore", "zincrby", "zinter",
        "zintercard", "zinterstore", "zlexcount", "zmpop", "zmscore", "zpopmax", "zpopmin", "zrandmember", "zrange",
        "zrangebylex", "zrangebyscore", "zrangestore", "zrank", "zrem", "zremrangebylex", "zremrangebyrank",
        "zremrangebyscore", "zrevrange", "zrevrangebylex", "zrevrangebyscore", "zrevrank", "zscan", "zscore", "zunion",
        "zunionstore",
    ]),
    ("streams", &[
        "xack", "xadd", "xautoclaim", "xclaim", "xdel", "xgroup", "xinfo", "xlen", "xpending", "xrange", "xread",
        "xreadgroup", "xrevrange", "xsetid", "xtrim",
    ]),
    ("geo", &[
        "geoadd", "geodist", "geohash", "geopos", "georadius", "georadius_ro", "georadiusbymember",
        "georadiusbymember_ro", "geosearch", "geosearchstore",
    ]),
    ("functions", &["fcall", "fcall_ro"]),
    ("cluster", &["restore-asking"]),
    ("replication", &["failover", "psync", "replconf", "replicaof", "slaveof", "sync"]),
];

/// Returns a command's name in lower case and the data type or feature of Redis that it belongs to, such as `lists`.
/// `None` for commands that Esker serves and for unknown names. `name` may be in any case.
pub fn family(name: &[u8]) -> Option<(&'static str, &'static str)> {
    let named = |known: &&&str| known.as_bytes().eq_ignore_ascii_case(name);
    ELSEWHERE.iter().find_map(|(family, names)| Some((*names.iter().find(named)?, *family)))
}

/// Returns the names of all commands that Esker does not have.
pub(in crate::resp) fn names_elsewhere() -> impl Iterator<Item = &'static str> {
    ELSEWHERE.iter().flat_map(|(_, names)| names.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::super::TABLE;
    use super::*;

    #[test]
    fn no_command_is_both_here_and_elsewhere() {
        for name in ELSEWHERE.iter().flat_map(|(_, names)| *names) {
            assert!(TABLE.named(name.as_bytes()).is_none(), "{name}");
            assert!(ELSEWHERE.iter().filter(|(_, names)| names.contains(name)).count() == 1, "{name}");
        }
        assert_eq!(family(b"zAdd"), Some(("zadd", "sorted sets")));
        assert_eq!([family(b""), family(b"lpush "), family(b"get")], [None, None, None]);
    }
}
