// Clients of a cluster that speaks the Redis protocol, or of etcd. Prints a line of JSON.
//
// They are a closed loop, or with -rate an open one: each request has a time at which it is due, and its latency counts from
// there. The leaders of the slots are read by CLUSTER SLOTS, and learned from MOVED. With -marks each line of the input ends a
// window: its figures are printed, and the next one begins. The end of the input ends the program.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	kind    = flag.String("kind", "resp", "resp | etcd")
	addrs   = flag.String("addrs", "", "host:port,...")
	clients = flag.Int("clients", 64, "")
	size    = flag.Int("size", 256, "")
	keys    = flag.Int("keys", 100000, "")
	secs    = flag.Int("secs", 8, "")
	warm    = flag.Int("warm", 2, "")
	wait    = flag.Int("wait", 0, "WAIT n after each SET")
	verb    = flag.String("verb", "set", "set | get")
	rate    = flag.Float64("rate", 0, "requests per second of all clients; 0: a closed loop")
	skip    = flag.String("skip", "", "first-last: slots of which no keys are used")
	marks   = flag.Bool("marks", false, "windows end at lines of the input")
)

func crc16(b []byte) uint16 {
	var c uint16
	for _, x := range b {
		c ^= uint16(x) << 8
		for i := 0; i < 8; i++ {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x1021
			} else {
				c <<= 1
			}
		}
	}
	return c
}

type conn struct {
	c net.Conn
	r *bufio.Reader
}

func dial(a string) *conn {
	c, err := net.Dial("tcp", a)
	if err != nil {
		panic(err)
	}
	return &conn{c, bufio.NewReaderSize(c, 1<<16)}
}
func (c *conn) reply() (any, error) {
	l, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	l = strings.TrimRight(l, "\r\n")
	switch l[0] {
	case '+', ':':
		return l[1:], nil
	case '-':
		return nil, fmt.Errorf("%s", l[1:])
	case '$':
		n, _ := strconv.Atoi(l[1:])
		if n < 0 {
			return nil, nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(c.r, b)
		return string(b[:n]), err
	case '*':
		n, _ := strconv.Atoi(l[1:])
		out := make([]any, 0, n)
		for i := 0; i < n; i++ {
			v, err := c.reply()
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
	return nil, fmt.Errorf("odd %q", l)
}

func enc(b []byte, args ...string) []byte {
	b = append(b, fmt.Sprintf("*%d\r\n", len(args))...)
	for _, a := range args {
		b = append(b, fmt.Sprintf("$%d\r\n", len(a))...)
		b = append(b, a...)
		b = append(b, '\r', '\n')
	}
	return b
}

func main() {
	flag.Parse()
	as := strings.Split(*addrs, ",")
	val := make([]byte, *size)
	rand.New(rand.NewSource(1)).Read(val)
	v := string(val)
	var slot [16384]string
	if *kind == "resp" {
		c := dial(as[0])
		c.c.Write(enc(nil, "CLUSTER", "SLOTS"))
		r, err := c.reply()
		if err != nil {
			for i := range slot {
				slot[i] = as[0]
			}
		} else {
			for _, e := range r.([]any) {
				x := e.([]any)
				lo, _ := strconv.Atoi(x[0].(string))
				hi, _ := strconv.Atoi(x[1].(string))
				m := x[2].([]any)
				for i := lo; i <= hi; i++ {
					slot[i] = m[0].(string) + ":" + m[1].(string)
				}
			}
		}
	}
	var skipFirst, skipLast = 1, 0
	if *skip != "" {
		fmt.Sscanf(*skip, "%d-%d", &skipFirst, &skipLast)
	}
	var slots sync.RWMutex
	var cls []*clientv3.Client
	if *kind == "etcd" {
		for i := 0; i < 8; i++ {
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + as[i%len(as)]}, DialTimeout: 5 * time.Second})
			if err != nil {
				panic(err)
			}
			cls = append(cls, c)
		}
	}
	lat := make([][]time.Duration, *clients)
	errs := make([]int, *clients)
	locks := make([]sync.Mutex, *clients)
	var wg sync.WaitGroup
	begin := time.Now().Add(time.Duration(*warm) * time.Second)
	end := begin.Add(time.Duration(*secs) * time.Second)
	if *marks {
		end = begin.Add(24 * time.Hour)
	}
	for w := 0; w < *clients; w++ {
		wg.Add(1)
		go func(w int) {
			defer wg.Done()
			rng := rand.New(rand.NewSource(int64(w)))
			cs := map[string]*conn{}
			var buf []byte
			due := time.Now()
			for {
				t := time.Now()
				if *rate > 0 {
					due = due.Add(time.Duration(rng.ExpFloat64() * float64(*clients) / *rate * 1e9))
					time.Sleep(time.Until(due))
					t = due
				}
				if t.After(end) {
					return
				}
				k := fmt.Sprintf("key:%012d", rng.Intn(*keys))
				at := int(crc16([]byte(k)) & 16383)
				if at >= skipFirst && at <= skipLast {
					continue
				}
				var err error
			again:
				if *kind == "resp" {
					slots.RLock()
					a := slot[at]
					slots.RUnlock()
					c := cs[a]
					if c == nil {
						c = dial(a)
						cs[a] = c
					}
					if *verb == "get" {
						buf = enc(buf[:0], "GET", k)
					} else {
						buf = enc(buf[:0], "SET", k, v)
					}
					if *wait > 0 {
						buf = enc(buf, "WAIT", strconv.Itoa(*wait), "1000")
					}
					c.c.Write(buf)
					_, err = c.reply()
					if err != nil && strings.HasPrefix(err.Error(), "MOVED ") {
						slots.Lock()
						slot[at] = strings.Fields(err.Error())[2]
						slots.Unlock()
						if *wait > 0 {
							c.reply()
						}
						goto again
					}
					if *wait > 0 {
						var r any
						r, err = c.reply()
						if s, ok := r.(string); ok && s == "0" {
							err = fmt.Errorf("wait 0")
						}
					}
				} else if *verb == "get" {
					_, err = cls[w%len(cls)].Get(context.Background(), k)
				} else {
					_, err = cls[w%len(cls)].Put(context.Background(), k, v)
				}
				locks[w].Lock()
				if err != nil {
					errs[w]++
					if errs[w] > 1000 {
						fmt.Fprintln(os.Stderr, err)
						locks[w].Unlock()
						return
					}
				} else if t.After(begin) {
					lat[w] = append(lat[w], time.Since(t))
				}
				locks[w].Unlock()
			}
		}(w)
	}
	since := begin
	if *marks {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			show(lat, errs, locks, time.Since(since))
			since = time.Now()
		}
		return
	}
	wg.Wait()
	show(lat, errs, locks, time.Duration(*secs)*time.Second)
}

// show prints the figures of a window, and empties it.
func show(lat [][]time.Duration, errs []int, locks []sync.Mutex, lasted time.Duration) {
	var all []time.Duration
	e := 0
	for w := range lat {
		locks[w].Lock()
		all = append(all, lat[w]...)
		e += errs[w]
		lat[w], errs[w] = nil, 0
		locks[w].Unlock()
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	q := func(p float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return float64(all[int(float64(len(all)-1)*p)].Microseconds()) / 1000
	}
	fmt.Printf("{\"kind\":%q,\"verb\":%q,\"clients\":%d,\"size\":%d,\"per_s\":%.0f,\"p50_ms\":%.2f,\"p99_ms\":%.2f,\"longest_ms\":%.2f,\"errors\":%d}\n", *kind, *verb, *clients, *size, float64(len(all))/lasted.Seconds(), q(.5), q(.99), q(1), e)
}
