#!/usr/bin/env bash
# Three nodes of Esker, of Redis Cluster (appendfsync always, WAIT 1, with three replicas) and of etcd, and Esker alone, in turn on
# one machine, with one load generator: SET of 256 B and 4 KiB by 64 clients, SET of 256 B by one, GET of 256 B by 64.
#   ROUNDS=3 tests/speed/cluster_beside_others.sh target/release/esker DIR
# DIR gets a directory for the stores, which is removed. Needs redis-server, etcd and Go: https://go.dev/doc/install
set -u
esker=$(realpath "$1")
stores=$(realpath "$2")/cluster-speed
load=$stores/load
rm -rf "$stores"
mkdir -p "$stores"
(cd "$(dirname "$0")/cluster_load" && go build -o "$load" .) || exit 1
export ESKER_MEMORY=256m ESKER_CAPACITY_LIMIT=2g

# Starts a program in the background.
begin() {
    local log=$1
    shift
    "$@" >"$stores/$log.log" 2>&1 &
    echo $! >>"$stores/pids"
}

begin_esker() {
    for node in 1 2 3; do
        local way=(--join 127.0.0.1:8101)
        [ $node = 1 ] && way=(--cluster-new)
        begin esker$node "$esker" serve --dir "$stores/n$node" --resp 127.0.0.1:720$node --cluster 127.0.0.1:810$node \
            --cluster-secret s "${way[@]}"
        [ $node = 1 ] && sleep 2
    done
    until "$esker" cluster status --from 7201 >/dev/null 2>&1; do sleep 0.5; done
    # The leaders spread over the nodes.
    sleep 5
}

begin_alone() {
    begin alone "$esker" serve --dir "$stores/alone" --resp 127.0.0.1:7211
    sleep 2
}

begin_etcd() {
    local all="e1=http://127.0.0.1:23801,e2=http://127.0.0.1:23802,e3=http://127.0.0.1:23803"
    for node in 1 2 3; do
        local clients=http://127.0.0.1:2379$node peers=http://127.0.0.1:2380$node
        begin etcd$node etcd --name e$node --data-dir "$stores/e$node" --listen-client-urls $clients --advertise-client-urls $clients \
            --listen-peer-urls $peers --initial-advertise-peer-urls $peers --initial-cluster "$all" --initial-cluster-state new \
            --quota-backend-bytes 6442450944 --log-level error
    done
    sleep 4
}

begin_redis() {
    for node in 1 2 3 4 5 6; do
        mkdir -p "$stores/r$node"
        begin redis$node redis-server --port 730$node --dir "$stores/r$node" --cluster-enabled yes --cluster-node-timeout 2000 \
            --appendonly yes --appendfsync always --save "" --auto-aof-rewrite-percentage 0
    done
    sleep 2
    redis-cli --cluster create 127.0.0.1:730{1..6} --cluster-replicas 1 --cluster-yes >"$stores/create.log" 2>&1
    sleep 4
}

end() {
    kill -9 $(cat "$stores/pids" 2>/dev/null) 2>/dev/null
    wait 2>/dev/null
    find "$stores" -mindepth 1 ! -name load -delete
}

measure() {
    local name=$1
    shift
    echo "$name $("$load" "$@" 2>&1 | tail -1)"
}

trap end EXIT
for ((round = 0; round < ${ROUNDS:-3}; round++)); do
    for name in esker redis etcd alone; do
        end
        "begin_$name"
        case $name in
        esker) of=(-kind resp -addrs 127.0.0.1:7201) ;;
        alone) of=(-kind resp -addrs 127.0.0.1:7211) ;;
        redis) of=(-kind resp -addrs 127.0.0.1:7301 -wait 1) ;;
        etcd) of=(-kind etcd -addrs 127.0.0.1:23791,127.0.0.1:23792,127.0.0.1:23793) ;;
        esac
        measure $name "${of[@]}" -clients 64 -size 256 -secs 6 -warm 2
        [ $name = etcd ] || measure $name "${of[@]}" -clients 64 -size 4096 -secs 6 -warm 2
        measure $name "${of[@]}" -clients 1 -size 256 -secs 4 -warm 1
        case $name in esker | alone) measure $name "${of[@]}" -clients 64 -size 256 -secs 4 -warm 1 -verb get ;; esac
    done
done
