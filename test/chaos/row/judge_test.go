package row

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/check/checktest"
	millrace "github.com/millrace/millrace/sdk/go"
)

// One delayed task and one of a worker that is gone, both handed over as they should be; each case spoils one thing.
func TestWhatIsNotHandedOverIsFound(t *testing.T) {
	begin := time.Now()
	for name, c := range map[string]struct {
		spoil func(l *loaded)
		says  string // empty: nothing is wrong
	}{
		"all is well":          {func(*loaded) {}, ""},
		"a delayed task lost":  {func(l *loaded) { delete(l.seen, "delayed") }, "was never delivered"},
		"a delayed task early": {func(l *loaded) { l.seen["delayed"] = delivery{at: begin} }, "early"},
		"a delayed task late":  {func(l *loaded) { l.seen["delayed"] = delivery{at: begin.Add(time.Hour)} }, "late"},
		"a lease forgotten":    {func(l *loaded) { delete(l.seen, "dropped") }, "not delivered again"},
		"a lease cut short": {func(l *loaded) {
			l.seen["dropped"] = delivery{begin, 8, 2}
		}, "before its lease ended"},
		"a token that restarts": {func(l *loaded) {
			l.seen["dropped"] = delivery{begin.Add(time.Minute), 7, 2}
		}, "had token 7 in attempt 1, and then 7"},
		"an attempt burnt": {func(l *loaded) {
			l.seen["dropped"] = delivery{begin.Add(time.Minute), 9, 3}
		}, "in attempt 3"},
	} {
		l := &loaded{
			due:     map[string]dueAt{"delayed": {begin.Add(5 * time.Second), begin.Add(6 * time.Second)}},
			dropped: map[string]millrace.Claimed{"dropped": {ID: "dropped", Token: 7, Attempt: 1, LeaseUntil: begin.Add(30 * time.Second)}},
			seen: map[string]delivery{
				"delayed": {at: begin.Add(7 * time.Second)}, "dropped": {begin.Add(31 * time.Second), 8, 2},
			},
		}
		c.spoil(l)
		h := &handover{o: newOutcome()}
		h.judge(l)
		said := ""
		for _, err := range h.o.Errors {
			said += err.Error()
		}
		if (c.says == "") != (said == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: %q, want %q", name, said, c.says)
		}
	}
}

func TestAnAnswerOfANodeThatIsCutOffIsFound(t *testing.T) {
	call := func(client int, kind checktest.AccessKind, outcome check.Outcome, begin, end int64) checktest.Access {
		return checktest.Access{Client: client, Key: "k", Kind: kind, Value: "v", Invoke: begin, Return: end, Outcome: outcome}
	}
	for name, c := range map[string]struct {
		call  checktest.Access
		found bool
	}{
		"a read that it answers":                    {call(2, checktest.Read, check.OK, 110, 120), true},
		"a write that it answers":                   {call(2, checktest.Write, check.OK, 110, 120), true},
		"a swap that it judges":                     {call(2, checktest.Swap, check.Refused, 110, 120), true},
		"a write that it refuses":                   {call(2, checktest.Write, check.Refused, 110, 120), false},
		"a read that it answers after it is healed": {call(2, checktest.Read, check.OK, 110, 220), false},
		"a read from before":                        {call(2, checktest.Read, check.OK, 90, 120), false},
		"a read at another node":                    {call(3, checktest.Read, check.OK, 110, 120), false},
	} {
		r := &clusterRun{l: &linear{nodeOf: map[int]int{2: 1, 3: 2}}, isolations: []isolation{{node: 1, begin: 100, end: 200}}}
		r.l.history = []checktest.Access{call(2, checktest.Write, check.Unknown, 105, 190), c.call}
		if got := r.answeredAlone(); got.Broke("answered") != c.found || got.Invalid != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTheNextAcknowledgedWriteBeganAfterTheFault(t *testing.T) {
	l := &linear{more: make(chan struct{}), nodeOf: map[int]int{}}
	l.acked = []ack{{node: 0, invoke: 50, took: 120}, {node: 2, invoke: 110, took: 130}, {node: 0, invoke: 140, took: 150}}
	if d, err := l.nextOK(t.Context(), 100, false); err != nil || d != 30 {
		t.Errorf("by anybody after %d, %v", d, err)
	}
	if d, err := l.nextOK(t.Context(), 100, true); err != nil || d != 50 {
		t.Errorf("by a client that roams after %d, %v", d, err)
	}
}

func TestAKeyOfTheRegistersIsReplacedBeforeASearchGetsLong(t *testing.T) {
	l := &linear{more: make(chan struct{}), nodeOf: map[int]int{}, begin: time.Now()}
	l.keys[0].key = "first"
	for range keyCalls - 1 {
		l.note(checktest.Access{Key: "first", Kind: checktest.Read, Outcome: check.OK}, 0)
	}
	if l.keys[0].key != "first" {
		t.Error("it is replaced early")
	}
	l.note(checktest.Access{Key: "first", Kind: checktest.Read, Outcome: check.OK}, 0)
	second := l.keys[0].key
	if second == "first" {
		t.Error("it is not replaced after many calls")
	}
	for range keyOpen {
		l.note(checktest.Access{Key: second, Kind: checktest.Write, Outcome: check.Unknown}, 0)
	}
	if l.keys[0].key == second {
		t.Error("it is not replaced after many calls of unknown end")
	}
}

func TestAWindowOfRegistersEndsWithKeysThatNoOtherHas(t *testing.T) {
	l := &linear{more: make(chan struct{}), nodeOf: map[int]int{}, begin: time.Now()}
	l.renew()
	before := l.keys
	for range checktest.WindowCalls - 1 {
		l.note(checktest.Access{Kind: checktest.Read, Outcome: check.OK}, 0)
	}
	l.note(checktest.Access{Kind: checktest.Read, Outcome: check.Unknown}, 0) // says nothing
	if l.window != 0 || l.keys != before {
		t.Errorf("window %d, keys %v", l.window, l.keys)
	}
	l.note(checktest.Access{Kind: checktest.Read, Outcome: check.OK}, 0)
	l.note(checktest.Access{Window: 0, Kind: checktest.Read, Outcome: check.OK}, 0) // began before
	if l.window != 1 || l.judged != 0 {
		t.Errorf("window %d with %d calls", l.window, l.judged)
	}
	for i := range l.keys {
		if l.keys[i].key == before[i].key {
			t.Errorf("key %s is of two windows", l.keys[i].key)
		}
	}
}
