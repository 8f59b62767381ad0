#!/bin/bash
# Three nodes of Esker, of Redis Cluster (appendfsync always, WAIT 1) and of etcd, and Esker alone, in turn on one machine, with
# one load generator: SET of 256 B and 4 KiB by 64 clients, SET of 256 B by one, GET.
#   tests/speed/cluster_beside_others.sh target/release/esker LOAD DIR     (ROUNDS=3)
# LOAD is a closed-loop generator with the flags below that prints a line of JSON; DIR is emptied. Needs redis-server and etcd.
set -u
E=$(realpath "$1") LOAD=$(realpath "$2") D=$3/cluster-speed; rm -rf "$D"; mkdir -p "$D"
export ESKER_MEMORY=256m ESKER_CAPACITY_LIMIT=2g
up() { case $1 in
 esker) for i in 1 2 3; do a="--join 127.0.0.1:8101"; [ $i = 1 ] && a=--cluster-new; $E serve --dir $D/n$i --resp 127.0.0.1:720$i --cluster 127.0.0.1:810$i --cluster-secret s $a >$D/n$i.log 2>&1 & echo $! >> $D/pids; [ $i = 1 ] && sleep 2; done; for t in $(seq 40); do $E cluster status --from 7201 >/dev/null 2>&1 && break; sleep 0.5; done; sleep 5;;
 alone) $E serve --dir $D/alone --resp 127.0.0.1:7211 > $D/alone.log 2>&1 & echo $! >> $D/pids; sleep 2;;
 etcd) CL="e1=http://127.0.0.1:23801,e2=http://127.0.0.1:23802,e3=http://127.0.0.1:23803"; for i in 1 2 3; do etcd --name e$i --data-dir $D/e$i --listen-client-urls http://127.0.0.1:2379$i --advertise-client-urls http://127.0.0.1:2379$i --listen-peer-urls http://127.0.0.1:2380$i --initial-advertise-peer-urls http://127.0.0.1:2380$i --initial-cluster $CL --initial-cluster-state new --quota-backend-bytes 6442450944 --log-level error > $D/e$i.log 2>&1 & echo $! >> $D/pids; done; sleep 4;;
 redis) for i in 1 2 3 4 5 6; do mkdir -p $D/r$i; redis-server --port 730$i --dir $D/r$i --cluster-enabled yes --cluster-node-timeout 2000 --appendonly yes --appendfsync always --save "" --auto-aof-rewrite-percentage 0 --daemonize no > $D/r$i.log 2>&1 & echo $! >> $D/pids; done; sleep 2; redis-cli --cluster create 127.0.0.1:7301 127.0.0.1:7302 127.0.0.1:7303 127.0.0.1:7304 127.0.0.1:7305 127.0.0.1:7306 --cluster-replicas 1 --cluster-yes > $D/create.log 2>&1; sleep 4;;
 esac; }
down() { for p in $(cat $D/pids 2>/dev/null); do kill -9 $p 2>/dev/null; done; wait 2>/dev/null; rm -rf $D; mkdir -p $D; }
one() { # name args
 n=$1; shift; echo "$n $* $("$LOAD" "$@" 2>&1 | tail -1)"; }
for round in $(seq ${ROUNDS:-3}); do
 for s in esker redis etcd alone; do
  down; up $s
  case $s in esker) k="-kind resp -addrs 127.0.0.1:7201";; alone) k="-kind resp -addrs 127.0.0.1:7211";; redis) k="-kind resp -addrs 127.0.0.1:7301 -wait 1";; etcd) k="-kind etcd -addrs 127.0.0.1:23791,127.0.0.1:23792,127.0.0.1:23793";; esac
  one $s $k -clients 64 -size 256 -secs 6 -warm 2
  [ $s != etcd ] && one $s $k -clients 64 -size 4096 -secs 6 -warm 2
  one $s $k -clients 1 -size 256 -secs 4 -warm 1
  [ $s != redis ] && [ $s != etcd ] && one $s $k -clients 64 -size 256 -secs 4 -warm 1 -verb get
 done
done
down
