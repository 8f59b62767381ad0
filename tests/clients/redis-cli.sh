#!/bin/sh
# redis-cli, with the options it is given, against the server that run.py started. See run.py.
set -u
[ "$PROTOCOL" = 3 ] && set -- "$@" -3
cli() { redis-cli --no-auth-warning "$@" 2>&1; }

good() { # good name found expected
    if [ "$2" = "$3" ]; then
        echo "ok $1"
    else
        printf 'FAILED %s: found %s, expected %s\n' "$1" "$2" "$3"
        exit 1
    fi
}

good handshake "$(cli "$@" PING)" PONG
good who "$(cli "$@" ACL WHOAMI)" "${LOGIN:-default}"
good set "$(cli "$@" SET app:k 'v w')" OK
good get "$(cli "$@" GET app:k)" 'v w'
good errors "$(cli "$@" INCR app:k)" 'ERR value is not an integer or out of range'
transaction=$(printf 'MULTI\nINCR app:n\nINCR app:n\nEXEC\n' | cli "$@" | grep -v '^$' | tr '\n' ' ')
good transaction "$transaction" 'OK QUEUED QUEUED 1 2 '
sent=$(seq 1000 | sed 's/.*/SET app:bulk:& &/' | cli "$@" --pipe | tail -1)
good pipe "$sent" 'errors: 0, replies: 1000'
good scan "$(cli "$@" --scan --pattern 'app:bulk:*' | sort -u | wc -l | tr -d ' ')" 1000
large=$(head -c 6000000 /dev/urandom | base64 -w 0)
printf %s "$large" | cli "$@" -x SET app:large >/dev/null
good large "$(cli "$@" GET app:large | cksum)" "$(echo "$large" | cksum)"
if [ -n "$LOGIN" ]; then
    good rights "$(cli "$@" GET other | cut -c 1-6)" NOPERM
fi
echo 'kill the server'
read -r _
good restart "$(cli "$@" GET app:bulk:1000)" 1000
