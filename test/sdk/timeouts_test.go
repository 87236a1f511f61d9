package sdk

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/agents"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// TestTimeoutsTellTheTruth has calls of each language run out of time before and after they have left, over a link that is slow, silent and cut,
// and compares what was told with what is there: what was acknowledged is there, what was refused is not, and what is unknown may be.
// Then the client goes on as if nothing had been. MILLRACE_SDK_TIMEOUTS is how many calls.
func TestTimeoutsTellTheTruth(t *testing.T) {
	calls, err := strconv.Atoi(os.Getenv("MILLRACE_SDK_TIMEOUTS"))
	if err != nil {
		t.Skip("MILLRACE_SDK_TIMEOUTS=n makes n calls in each language")
	}
	for _, l := range languages(t) {
		t.Run(l.Name, func(t *testing.T) {
			k := newKills(t, 1, []agents.Language{l})
			k.serve(t.Context())
			defer k.end()
			p := k.agent()
			defer p.Close()
			told := k.adds(p, calls)
			// Which outcomes come is for the link's draws to decide: where one did not, more calls are made.
			for more := 0; more < 40; more++ {
				seen := slices.Collect(maps.Values(told))
				if slices.Contains(seen, "ok") && slices.Contains(seen, "refused") && slices.Contains(seen, "unknown") {
					break
				}
				maps.Copy(told, k.adds(p, 25))
			}
			k.front.Set(proc.Rule{})
			for range 100 { // what is left of the calls would hold these up
				if _, err := p.Ask("add", map[string]any{"job": "after", "args": "1", "timeout_ms": 30_000}, StepWait); err != nil {
					t.Fatalf("after the timeouts: %v\n%s", err, p.Said())
				}
			}
			c := k.client(t.Context())
			defer c.Close() //nolint:errcheck // it only reads
			is := map[string]bool{}
			for _, x := range k.tasks(t.Context(), c) {
				is[x.ID] = true
			}
			count := map[string]int{}
			for id, outcome := range told {
				count[fmt.Sprintf("%s, there: %t", outcome, is[id])]++
				if outcome == "ok" && !is[id] || outcome == "refused" && is[id] {
					t.Errorf("%s was told as %s, and is there: %t", id, outcome, is[id])
				}
			}
			t.Log(count)
			if count["refused, there: false"] == 0 || count["unknown, there: true"] == 0 || count["ok, there: true"] == 0 {
				t.Errorf("not all outcomes were seen: %v", count)
			}
		})
	}
}

// adds makes calls of which many run out of time, and returns what was told of each task.
func (k *kills) adds(p *agents.Agent, calls int) map[string]string {
	told := map[string]string{}
	var mu sync.Mutex
	for done := 0; done < calls; {
		var burst sync.WaitGroup
		for range min(25, calls-done) {
			done++
			id, timeout := millrace.NewID(), 1+k.draw.IntN(150)
			c, err := p.Do("add", map[string]any{"job": "work", "args": "1", "id": id, "timeout_ms": timeout})
			if err != nil {
				k.t.Fatalf("%v\n%s", err, p.Said())
			}
			burst.Go(func() {
				_, err := agents.Answered(c, StepWait)
				outcome := "ok"
				if e, ok := err.(agents.Error); ok { //nolint:errorlint // as Answered returns it
					outcome = fmt.Sprint(e.Fields["outcome"])
				} else if err != nil {
					outcome = err.Error()
				}
				mu.Lock()
				defer mu.Unlock()
				told[id] = outcome
			})
		}
		k.hinder()
		burst.Wait()
	}
	return told
}

// hinder changes what the link does: it is slow, silent one way, cut, or well.
func (k *kills) hinder() {
	switch k.draw.IntN(5) {
	case 0:
		d := time.Duration(k.draw.IntN(40)) * time.Millisecond
		k.front.Set(proc.Rule{Forward: proc.Way{Delay: d}, Back: proc.Way{Delay: d}})
	case 1:
		k.front.Set(proc.Rule{Back: proc.Way{Stall: true}})
	case 2:
		k.front.Set(proc.Rule{Refuse: true})
		k.front.Reset()
	default:
		k.front.Set(proc.Rule{})
		k.front.Reset()
	}
}
