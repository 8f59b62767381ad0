#!/bin/sh
# redis-benchmark, with the options it is given, against the server that run.py started. It ends at the first error.
set -u
[ "$PROTOCOL" = 3 ] && set -- "$@" -3
run() { # run name options...
    name=$1
    shift
    if found=$(redis-benchmark "$@" -t ping,set,get,incr,mset -n 2000 -c 20 -r 1000 -q 2>&1); then
        count=$(printf '%s' "$found" | tr '\r' '\n' | grep -c 'requests per second')
        if [ "$count" -eq 6 ]; then # PING comes in two ways
            echo "ok $name"
            return
        fi
    fi
    printf 'FAILED %s: %s\n' "$name" "$found"
    exit 1
}
run single "$@"
run pipelined "$@" -P 16 -d 100
