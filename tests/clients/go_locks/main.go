// Libraries on go-redis: the locks of redislock and redsync, and the limiter of redis_rate. See run.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var (
	ctx    = context.Background()
	client = connect()
	locker = redislock.New(client)
)

func connect() *redis.Client {
	protocol, _ := strconv.Atoi(os.Getenv("PROTOCOL"))
	options := &redis.Options{
		Addr:     os.Getenv("HOST") + ":" + os.Getenv("PORT"),
		Protocol: protocol,
		Username: os.Getenv("LOGIN"),
		Password: os.Getenv("PASSWORD"),
	}
	if file := os.Getenv("CA"); file != "" {
		pem, err := os.ReadFile(file)
		must(err)
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(pem)
		options.TLSConfig = &tls.Config{RootCAs: authorities, ServerName: "localhost"}
	}
	return redis.NewClient(options)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func same(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("expected %.200v, found %.200v", expected, found))
	}
}

func is(found, expected error) {
	if !errors.Is(found, expected) {
		panic(fmt.Sprintf("expected %v, found %v", expected, found))
	}
}

func together(count int, work func(int)) {
	var group sync.WaitGroup
	for number := range count {
		group.Go(func() { work(number) })
	}
	group.Wait()
}

// alone is work that must not be done by two at once.
func alone(inside *atomic.Int32) {
	same(inside.Add(1), int32(1))
	time.Sleep(time.Millisecond)
	inside.Add(-1)
}

func redislockHolder() {
	lock, err := locker.Obtain(ctx, "app:lock", time.Minute, &redislock.Options{Metadata: "printer"})
	must(err)
	same(lock.Metadata(), "printer")
	same(client.Get(ctx, "app:lock").Val(), lock.Token()+"printer")
	_, err = locker.Obtain(ctx, "app:lock", time.Minute, nil)
	is(err, redislock.ErrNotObtained)
	// Somebody else's lock is neither released nor refreshed, nor has it a time to live.
	must(client.Set(ctx, "app:lock", "of somebody else", time.Minute).Err())
	is(lock.Release(ctx), redislock.ErrLockNotHeld)
	is(lock.Refresh(ctx, time.Hour, nil), redislock.ErrNotObtained)
	left, err := lock.TTL(ctx)
	must(err)
	same(left, time.Duration(0))
	same(client.Get(ctx, "app:lock").Val(), "of somebody else")
	must(client.Del(ctx, "app:lock").Err())
}

func redislockTimes() {
	lock, err := locker.Obtain(ctx, "app:lock", time.Minute, nil)
	must(err)
	must(lock.Refresh(ctx, time.Hour, nil))
	left, err := lock.TTL(ctx)
	must(err)
	same(left > time.Minute && left <= time.Hour, true)
	must(lock.Release(ctx))
	short, err := locker.Obtain(ctx, "app:lock", 100*time.Millisecond, nil)
	must(err)
	wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)}
	later, err := locker.Obtain(ctx, "app:lock", time.Minute, wait)
	must(err)
	is(short.Release(ctx), redislock.ErrLockNotHeld)
	must(later.Release(ctx))
}

func redislockTogether() {
	var inside atomic.Int32
	wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(2 * time.Millisecond)}
	together(20, func(int) {
		lock, err := locker.Obtain(ctx, "app:lock", time.Minute, wait)
		must(err)
		alone(&inside)
		must(lock.Release(ctx))
	})
}

func redsyncLock() {
	sync := redsync.New(goredis.NewPool(client))
	one := sync.NewMutex("app:mutex", redsync.WithExpiry(time.Minute))
	other := sync.NewMutex("app:mutex", redsync.WithTries(1))
	must(one.Lock())
	if other.Lock() == nil {
		panic("two hold one mutex")
	}
	if done, _ := other.Unlock(); done {
		panic("a mutex was unlocked by one who did not hold it")
	}
	extended, err := one.Extend()
	must(err)
	unlocked, err := one.Unlock()
	must(err)
	same([]bool{extended, unlocked}, []bool{true, true})
	var inside atomic.Int32
	together(20, func(int) {
		mutex := sync.NewMutex("app:mutex", redsync.WithTries(10_000), redsync.WithRetryDelay(2*time.Millisecond))
		must(mutex.Lock())
		alone(&inside)
		_, err := mutex.Unlock()
		must(err)
	})
}

func redisRate() {
	limiter := redis_rate.NewLimiter(client)
	var allowed atomic.Int32
	together(20, func(int) {
		found, err := limiter.Allow(ctx, "app:ann", redis_rate.PerHour(5))
		must(err)
		allowed.Add(int32(found.Allowed))
	})
	same(allowed.Load(), int32(5))
	found, err := limiter.AllowAtMost(ctx, "app:bob", redis_rate.PerHour(5), 8)
	must(err)
	same([]int{found.Allowed, found.Remaining}, []int{5, 0})
	same(found.ResetAfter > 59*time.Minute && found.ResetAfter <= time.Hour, true)
	must(limiter.Reset(ctx, "app:bob"))
	found, err = limiter.Allow(ctx, "app:bob", redis_rate.PerHour(5))
	must(err)
	same([]int{found.Allowed, found.Remaining}, []int{1, 4})
}

func main() {
	for _, check := range []struct {
		name string
		run  func()
	}{
		{"redislock_holder", redislockHolder}, {"redislock_times", redislockTimes},
		{"redislock_together", redislockTogether}, {"redsync", redsyncLock}, {"redis_rate", redisRate},
	} {
		check.run()
		fmt.Println("ok", check.name)
	}
}
