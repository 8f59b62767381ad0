// ClusterClient of go-redis with the cluster that NODES names, and PROTOCOL. See run.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ctx    = context.Background()
	client = connect()
	input  = bufio.NewReader(os.Stdin)
)

func connect() *redis.ClusterClient {
	protocol, _ := strconv.Atoi(os.Getenv("PROTOCOL"))
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:        strings.Split(os.Getenv("NODES"), ","),
		Protocol:     protocol,
		MaxRedirects: 20,
	})
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

func fails(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		panic(fmt.Sprintf("expected %s, found %v", text, err))
	}
}

// Asks the runner for a fault, and waits for its end.
func ask(words string, slot int64) {
	fmt.Println(words, slot)
	_, err := input.ReadString('\n')
	must(err)
}

func together(count int, work func(int)) {
	var group sync.WaitGroup
	for number := range count {
		group.Go(func() { work(number) })
	}
	group.Wait()
}

func topology() {
	var masters atomic.Int32
	must(client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		masters.Add(1)
		return node.Ping(ctx).Err()
	}))
	same(masters.Load(), int32(3))
	same(strings.Contains(client.ClusterInfo(ctx).Val(), "cluster_state:ok"), true)
	shards, err := client.ClusterShards(ctx).Result()
	must(err)
	same(len(shards), 3)
	same(client.ClusterKeySlot(ctx, "{a}").Val(), client.ClusterKeySlot(ctx, "a").Val())
}

func keys() {
	for n := range 300 {
		must(client.Set(ctx, fmt.Sprint("app:", n), n, 0).Err())
	}
	for n := range 300 {
		same(client.Get(ctx, fmt.Sprint("app:", n)).Val(), fmt.Sprint(n))
	}
	same(client.Del(ctx, "app:7").Val(), int64(1))
	same(client.Get(ctx, "app:7").Err(), redis.Nil)
	must(client.MSet(ctx, "{tag}a", 1, "{tag}b", 2).Err())
	same(client.MGet(ctx, "{tag}a", "{tag}b").Val(), []any{"1", "2"})
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
		same(get.Val(), fmt.Sprint(n))
	}
}

func transaction() {
	pipe := client.TxPipeline()
	pipe.Set(ctx, "{tag}n", 1, 0)
	pipe.Incr(ctx, "{tag}n")
	last := pipe.Get(ctx, "{tag}n")
	_, err := pipe.Exec(ctx)
	must(err)
	same(last.Val(), "2")
	together(3, func(int) {
		for range 10 {
			addOne("{tag}watched")
		}
	})
	same(client.Get(ctx, "{tag}watched").Val(), "30")
}

// Adds one to a number in a transaction, again if another did so meanwhile.
func addOne(key string) {
	for {
		err := client.Watch(ctx, func(tx *redis.Tx) error {
			value, err := tx.Get(ctx, key).Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				return pipe.Set(ctx, key, value+1, 0).Err()
			})
			return err
		}, key)
		if !errors.Is(err, redis.TxFailedErr) {
			must(err)
			return
		}
	}
}

func scripts() {
	text := "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incr', KEYS[1])"
	script := redis.NewScript(text)
	for n := range 30 {
		found, err := script.Run(ctx, client, []string{fmt.Sprint("app:script:", n)}, n).Int()
		must(err)
		same(found, n+1)
	}
	fails(client.Eval(ctx, "return 1", []string{"app:1", "app:2"}).Err(), "CROSSSLOT")
}

func scan() {
	must(client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.FlushAll(ctx).Err() }))
	for n := range 500 {
		must(client.Set(ctx, fmt.Sprint("app:scan:", n), n, 0).Err())
	}
	var lock sync.Mutex
	found := map[string]bool{}
	must(client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		keys := node.Scan(ctx, 0, "app:scan:*", 50).Iterator()
		for keys.Next(ctx) {
			lock.Lock()
			found[keys.Val()] = true
			lock.Unlock()
		}
		return keys.Err()
	}))
	same(len(found), 500)
	same(client.DBSize(ctx).Val(), int64(500))
}

func expiry() {
	for n := range 20 {
		must(client.Set(ctx, fmt.Sprint("app:short:", n), 1, 60*time.Millisecond).Err())
	}
	time.Sleep(100 * time.Millisecond)
	for n := range 20 {
		same(client.Get(ctx, fmt.Sprint("app:short:", n)).Err(), redis.Nil)
	}
}

// Publishes until a message arrives.
func hears(listener *redis.PubSub, publish func() error) {
	defer listener.Close()
	for range 100 {
		must(publish())
		select {
		case message := <-listener.Channel():
			same(message.Payload, "hello")
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	panic("no message arrives")
}

func messages() {
	hears(client.SSubscribe(ctx, "app:shard"), func() error { return client.SPublish(ctx, "app:shard", "hello").Err() })
	hears(client.Subscribe(ctx, "app:channel"), func() error { return client.Publish(ctx, "app:channel", "hello").Err() })
}

func moved() {
	for n := range 20 {
		must(client.Set(ctx, fmt.Sprint("{moved}", n), n, 0).Err())
	}
	ask("transfer the slot", client.ClusterKeySlot(ctx, "moved").Val())
	for n := range 20 {
		same(client.Get(ctx, fmt.Sprint("{moved}", n)).Val(), fmt.Sprint(n))
	}
	same(client.Incr(ctx, "{moved}0").Val(), int64(1))
}

// Writes until the end; returns what was acknowledged, and the first error of each key that has an open outcome.
func write(number int, ends *atomic.Bool, late *atomic.Int64) (map[string]int, []error) {
	acknowledged, problems := map[string]int{}, []error{}
	for count := 1; !ends.Load(); count++ {
		key := fmt.Sprintf("app:kill:%d:%d", number, count%100)
		if err := client.Set(ctx, key, count, 0).Err(); err != nil {
			problems = append(problems, err)
			delete(acknowledged, key)
			continue
		}
		acknowledged[key] = count
		late.Store(time.Now().UnixNano())
	}
	return acknowledged, problems
}

func kill() {
	var ends atomic.Bool
	var late [4]atomic.Int64
	var acknowledged [4]map[string]int
	var problems [4][]error
	var group sync.WaitGroup
	for number := range 4 {
		group.Go(func() { acknowledged[number], problems[number] = write(number, &ends, &late[number]) })
	}
	time.Sleep(500 * time.Millisecond)
	ask("kill the leader of the slot", client.ClusterKeySlot(ctx, "app:kill:0:1").Val())
	since := time.Now().UnixNano()
	for number := range 4 {
		for late[number].Load() < since {
			time.Sleep(100 * time.Millisecond)
		}
	}
	ends.Store(true)
	group.Wait()
	for number := range 4 {
		for key, count := range acknowledged[number] {
			same(client.Get(ctx, key).Val(), fmt.Sprint(count))
		}
		fmt.Printf("   %d errors reached writer %d: %.200v\n", len(problems[number]), number, problems[number])
	}
}

func main() {
	checks := []struct {
		name string
		run  func()
	}{
		{"topology", topology}, {"keys", keys}, {"pipeline", pipeline}, {"transaction", transaction}, {"scripts", scripts},
		{"scan", scan}, {"expiry", expiry}, {"messages", messages}, {"moved", moved}, {"kill", kill},
	}
	for _, check := range checks {
		check.run()
		fmt.Println("ok", check.name)
	}
}
