// go-redis against the server that HOST, PORT, PROTOCOL, LOGIN, PASSWORD and CA tell of. See run.py.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ctx    = context.Background()
	login  = os.Getenv("LOGIN")
	client = connect()
)

func connect() *redis.Client {
	protocol, _ := strconv.Atoi(os.Getenv("PROTOCOL"))
	options := &redis.Options{
		Addr:            os.Getenv("HOST") + ":" + os.Getenv("PORT"),
		Protocol:        protocol,
		Username:        login,
		Password:        os.Getenv("PASSWORD"),
		MaxRetries:      50,
		MinRetryBackoff: 100 * time.Millisecond,
		MaxRetryBackoff: 100 * time.Millisecond,
		PoolSize:        8,
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

func refused(start string, command ...any) {
	err := client.Do(ctx, command...).Err()
	if err == nil || !strings.HasPrefix(err.Error(), start) {
		panic(fmt.Sprintf("%v: expected %s, found %v", command, start, err))
	}
}

func together(count int, work func(int)) {
	var group sync.WaitGroup
	for number := range count {
		group.Go(func() { work(number) })
	}
	group.Wait()
}

func handshake() {
	same(client.Ping(ctx).Val(), "PONG")
	same(client.ClientID(ctx).Val() > 0, true)
	name := login
	if name == "" {
		name = "default"
	}
	same(client.Do(ctx, "ACL", "WHOAMI").Val(), name)
	info, err := client.ClientInfo(ctx).Result()
	must(err)
	same(strings.HasPrefix(info.LibName, "go-redis"), true)
	same(strings.Contains(client.Info(ctx).Val(), "redis_version"), true)
}

func binary() {
	value := make([]byte, 256)
	for n := range value {
		value[n] = byte(n)
	}
	must(client.Set(ctx, "app:\x00\r\n\xff", value, 0).Err())
	same(client.Get(ctx, "app:\x00\r\n\xff").Val(), string(value))
	must(client.Set(ctx, "app:empty", "", 0).Err())
	found, err := client.Get(ctx, "app:empty").Result()
	must(err)
	same(found, "")
	same(client.Get(ctx, "app:absent").Err(), redis.Nil)
}

func pipeline() {
	pipe := client.Pipeline()
	var gets []*redis.StringCmd
	for n := range 1000 {
		pipe.Set(ctx, fmt.Sprint("app:pipe:", n), n, 0)
		gets = append(gets, pipe.Get(ctx, fmt.Sprint("app:pipe:", n)))
	}
	_, err := pipe.Exec(ctx)
	must(err)
	for n, get := range gets {
		same(get.Val(), strconv.Itoa(n))
	}
}

func transaction() {
	pipe := client.TxPipeline()
	pipe.Set(ctx, "app:a", 1, 0)
	incr, get := pipe.Incr(ctx, "app:a"), pipe.Get(ctx, "app:a")
	_, err := pipe.Exec(ctx)
	must(err)
	same(incr.Val(), int64(2))
	same(get.Val(), "2")
	addOne := func(tx *redis.Tx) error {
		value, err := tx.Get(ctx, "app:watched").Int()
		if err != nil && err != redis.Nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			return pipe.Set(ctx, "app:watched", value+1, 0).Err()
		})
		return err
	}
	together(4, func(int) {
		for range 25 {
			var err error = redis.TxFailedErr
			for errors.Is(err, redis.TxFailedErr) {
				err = client.Watch(ctx, addOne, "app:watched")
			}
			must(err)
		}
	})
	same(client.Get(ctx, "app:watched").Val(), "100")
}

func expiry() {
	must(client.Set(ctx, "app:short", 1, 60*time.Millisecond).Err())
	must(client.Set(ctx, "app:long", 1, 100*time.Second).Err())
	left := client.TTL(ctx, "app:long").Val()
	same(left > 0 && left <= 100*time.Second, true)
	same(client.Persist(ctx, "app:long").Val(), true)
	same(client.TTL(ctx, "app:long").Val(), time.Duration(-1))
	same(client.TTL(ctx, "app:absent").Val(), time.Duration(-2))
	time.Sleep(100 * time.Millisecond)
	same(client.Get(ctx, "app:short").Err(), redis.Nil)
}

func scan() {
	var pairs []any
	for n := range 500 {
		pairs = append(pairs, fmt.Sprint("app:scan:", n), n)
	}
	must(client.MSet(ctx, pairs...).Err())
	found := map[string]bool{}
	keys := client.Scan(ctx, 0, "app:scan:*", 50).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	must(keys.Err())
	same(len(found), 500)
}

func numbers() {
	same(client.Incr(ctx, "app:n").Val(), int64(1))
	same(client.IncrBy(ctx, "app:n", 41).Val(), int64(42))
	same(client.Decr(ctx, "app:n").Val(), int64(41))
	same(client.IncrByFloat(ctx, "app:f", 1.5).Val(), 1.5)
	must(client.MSet(ctx, "app:m1", 1, "app:m2", 2).Err())
	same(client.MGet(ctx, "app:m1", "app:absent", "app:m2").Val(), []any{"1", nil, "2"})
	same(client.Del(ctx, "app:m1", "app:m2").Val(), int64(2))
}

func refusals() {
	must(client.Set(ctx, "app:text", "x", 0).Err())
	refused("ERR value is not an integer or out of range", "INCR", "app:text")
	refused("ERR Esker serves strings: LPUSH", "LPUSH", "app:list", "x")
	refused("ERR wrong number of arguments for 'get' command", "GET")
	if login != "" {
		refused("NOPERM", "GET", "other")
		refused("NOPERM", "FLUSHALL")
	}
}

func large() {
	value := make([]byte, 8<<20)
	_, _ = rand.Read(value)
	must(client.Set(ctx, "app:large", value, 0).Err())
	found, err := client.Get(ctx, "app:large").Bytes()
	must(err)
	same(bytes.Equal(found, value), true)
}

func pool() {
	together(16, func(number int) {
		for n := range 25 {
			key := fmt.Sprint("app:pool:", number)
			must(client.Set(ctx, key, n, 0).Err())
			same(client.Get(ctx, key).Val(), strconv.Itoa(n))
		}
	})
}

func restart() {
	var pairs, expected []any
	var keys []string
	for n := range 100 {
		keys = append(keys, fmt.Sprint("app:kept:", n))
		pairs = append(pairs, keys[n], n)
		expected = append(expected, strconv.Itoa(n))
	}
	must(client.MSet(ctx, pairs...).Err())
	fmt.Println("kill the server")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	same(client.MGet(ctx, keys...).Val(), expected)
	same(client.Incr(ctx, "app:n").Val(), int64(42))
}

func main() {
	for _, check := range []struct {
		name string
		run  func()
	}{
		{"handshake", handshake}, {"binary", binary}, {"pipeline", pipeline}, {"transaction", transaction},
		{"expiry", expiry}, {"scan", scan}, {"numbers", numbers}, {"errors", refusals}, {"large", large},
		{"pool", pool}, {"restart", restart},
	} {
		check.run()
		fmt.Println("ok", check.name)
	}
}
