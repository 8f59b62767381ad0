// Checks histories of clients with porcupine, a checker that knows nothing of the one in
// crates/server/tests/linearizability: a second opinion.
//
// A history is a file of JSON lines, an operation each. Keys that transactions tie together are checked together.
// An operation without replies was interrupted by a kill: it happened before that or never.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
)

const keys = 6

// Values that are set are this far apart; what INCR makes of one stays below the next.
const apart = 1_000_000

// What a key holds; nil is nothing.
type value = *int64

type step struct {
	Key      int    `json:"key"`
	Action   string `json:"action"`
	Value    value  `json:"value"`
	Expected value  `json:"expected"`
}

// The text of an answer, so that two of them can be compared.
type operation struct {
	Client   int               `json:"client"`
	Invoked  int64             `json:"invoked"`
	Returned int64             `json:"returned"`
	Steps    []step            `json:"steps"`
	Replies  []json.RawMessage `json:"replies"`
}

// What each key holds; 0 is nothing, as no value is 0.
type state [keys]int64

func same(a value, b int64) bool {
	if a == nil {
		return b == 0
	}
	return *a == b
}

func holds(v int64) string {
	if v == 0 {
		return `{"value":null}`
	}
	return fmt.Sprintf(`{"value":%d}`, v)
}

func number(n int64) string { return fmt.Sprintf(`{"number":%d}`, n) }

// One step on what its key holds: what it holds then, and the answer.
func (s step) run(now int64) (int64, string) {
	const ok = `"ok"`
	switch s.Action {
	case "get":
		return now, holds(now)
	case "set":
		return *s.Value, ok
	case "set_new":
		if now != 0 {
			return now, holds(0)
		}
		return *s.Value, ok
	case "set_known":
		if now == 0 {
			return now, holds(0)
		}
		return *s.Value, ok
	case "swap":
		return *s.Value, holds(now)
	case "take":
		return 0, holds(now)
	case "del":
		if now == 0 {
			return 0, number(0)
		}
		return 0, number(1)
	case "incr":
		return now + 1, number(now + 1)
	case "exchange":
		if !same(s.Expected, now) {
			return now, `"aborted"`
		}
		return *s.Value, ok
	case "vanish":
		if now >= *s.Value && now < *s.Value+apart {
			return 0, ok
		}
		return now, ok
	}
	panic("unknown action " + s.Action)
}

// The states that an operation may lead to.
func apply(before state, o operation) []any {
	after, right := before, true
	for at, s := range o.Steps {
		var answer string
		after[s.Key], answer = s.run(after[s.Key])
		right = right && (o.Replies == nil || string(o.Replies[at]) == answer)
	}
	switch {
	case o.Replies == nil:
		return []any{before, after}
	case right:
		return []any{after}
	}
	return nil
}

func read(path string) ([]operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []operation
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o operation
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(history)+1, err)
		}
		history = append(history, o)
	}
	return history, lines.Err()
}

// For each key one of those that operations tie it to, the same for all of them.
func groups(history []operation) [keys]int {
	var of [keys]int
	for key := range of {
		of[key] = key
	}
	for _, o := range history {
		for _, s := range o.Steps {
			one, other := of[o.Steps[0].Key], of[s.Key]
			for key := range of {
				if of[key] == other {
					of[key] = one
				}
			}
		}
	}
	return of
}

func check(history []operation, limit time.Duration) error {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(before, input, _ any) []any { return apply(before.(state), input.(operation)) },
	}
	model := nondeterministic.ToModel()
	of := groups(history)
	for group := 0; group < keys; group++ {
		var operations []porcupine.Operation
		for at, o := range history {
			if of[o.Steps[0].Key] == group {
				// What clients do overlaps what vanishes meanwhile, so each operation is a client's of its own.
				operations = append(operations, porcupine.Operation{ClientId: at, Input: o, Call: o.Invoked, Return: o.Returned})
			}
		}
		switch porcupine.CheckOperationsTimeout(model, operations, limit) {
		case porcupine.Illegal:
			return fmt.Errorf("keys with %d are not linearizable", group)
		case porcupine.Unknown:
			return fmt.Errorf("keys with %d: no answer in %v", group, limit)
		}
	}
	return nil
}

func main() {
	failed := false
	paths, _ := filepath.Glob(filepath.Join(os.Args[1], "*.jsonl"))
	for _, path := range paths {
		history, err := read(path)
		if err == nil {
			err = check(history, 2*time.Minute)
		}
		if err != nil {
			failed = true
			fmt.Printf("%s: %v\n", path, err)
			continue
		}
		fmt.Printf("%s: %d operations are linearizable\n", filepath.Base(path), len(history))
	}
	if failed || len(paths) == 0 {
		os.Exit(1)
	}
}
