package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// effectsOf prints what a completion did.
func (s *script) effectsOf(w words) string {
	e, ok, err := Effects(s.tx, testPartition, idOf(w.name()))
	switch {
	case err != nil:
		return err.Error() + "\n"
	case !ok:
		return "unknown\n"
	case e.Index == 0:
		return "none\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "at %s token=%d count=%d checked=%d\n", since(e.At), e.Token, e.Count, e.Checked)
	for _, one := range e.Ops {
		key := string(one.Key)
		if id, err := core.ParseTaskID(key); err == nil {
			key = nameOf(id)
		}
		fmt.Fprintf(&b, "  %s %s %s\n", one.Op.Name(), one.Space, key)
	}
	return b.String()
}

// A completion of many effects, or of long ones, keeps a list of a bounded size, and counts all.
func TestTheListOfEffectsIsBounded(t *testing.T) {
	long := strings.Repeat("k", 10_000)
	c := &core.Commit{Conditions: []*core.KVCheck{{Keyspace: "ks", Key: []byte("c")}}}
	for range 1000 {
		c.Ops = append(c.Ops, &core.KVPut{Keyspace: strings.Repeat("s", 200), Key: []byte(long)})
	}
	c.Ops = append(c.Ops, &core.TaskComplete{Task: idOf("a")})
	e := core.EffectsOf(c, 7)
	e.Index, e.At, e.Token = 3, 4, 5
	if e.Count != 1000 || len(e.Ops) != core.MaxEffects || e.Checked != 1 || e.Rev != 7 || e.Ops[0].Rev != 7 || !e.Ops[0].Long {
		t.Errorf("listed %d of %d ops at revision %d, %d conditions", len(e.Ops), e.Count, e.Rev, e.Checked)
	}
	b := appendEffects(nil, &e)
	if len(b) > effectBytes+1024 {
		t.Errorf("the record has %d bytes", len(b))
	}
	got, err := decodeEffects(b)
	if err != nil || got.Count != 1000 || len(got.Ops) == 0 || got.Token != 5 || string(got.Conditions[0].Key) != "c" {
		t.Errorf("read as %+v, %v", got, err)
	}
}

// A completion that does nothing else keeps no list, and under entries of an older format none does.
func TestACompletionWithoutEffectsKeepsNoList(t *testing.T) {
	for _, format := range []uint16{core.FormatOperate - 1, core.FormatOperate} {
		w := newWorld(t, Options{Heads: 4})
		w.c.Format = format
		w.do(&core.TaskCreate{ID: idOf("a"), Queue: "mail"})
		w.do(&core.TaskCreate{ID: idOf("b"), Queue: "mail"})
		given := w.do(claimOp(2, "mail")).res.Assigned
		w.do(&core.TaskComplete{Task: given[0].Task, Token: given[0].Token})
		w.commit(&core.TaskComplete{Task: given[1].Task, Token: given[1].Token}, &core.TaskCreate{ID: idOf("c"), Queue: "mail"})
		rows := 0
		from, to := keys.QueueRange(testPartition)
		if err := w.tx.Scan(from, to, func(key, _ []byte) bool {
			if row, _ := keys.DecodeQueue(key); row.Record == keys.RecordTaskEffects {
				rows++
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: 1}[format == core.FormatOperate]; rows != want {
			t.Errorf("format %d: %d lists of effects, want %d", format, rows, want)
		}
	}
}

// why prints why a task is where it is.
func (s *script) why(w words) string {
	y, ok, err := Why(s.tx, testPartition, idOf(w.name()), s.c.Stamp)
	switch {
	case err != nil:
		return err.Error() + "\n"
	case !ok:
		return "unknown\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s since %s, ahead %d exact=%v\n", y.State, y.Queue, since(y.Since), y.Ahead, y.Exact)
	for _, r := range y.Reasons {
		fmt.Fprintf(&b, "  %s %q %q", r.Code, r.Object, r.Note)
		if r.Until != 0 {
			fmt.Fprintf(&b, " until %s", since(r.Until))
		}
		if r.Limit > 0 {
			fmt.Fprintf(&b, " limit %d", r.Limit)
		}
		if len(r.HeldBy) > 0 {
			fmt.Fprintf(&b, " held by %s", strings.Join(r.HeldBy, " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// What is told to be ahead of a task is what a grant takes before it, under any priorities and any aging.
func TestAsManyAreAheadAsAreTakenBefore(t *testing.T) {
	for _, aging := range []core.Millis{-1, 0, 1, 1000, 3_600_000} {
		w := newWorld(t, Options{Heads: 4})
		w.do(&core.QueueSet{Queue: "mail", IfVersion: -1, Config: core.QueueConfig{Aging: aging}})
		const tasks = 40
		for i := range tasks {
			w.do(&core.TaskCreate{ID: numbered(i), Queue: "mail", Priority: uint8(i * 7 % 10)})
			if i%3 == 0 {
				w.c.Stamp = w.c.Stamp.Add(700)
			}
		}
		want, named := map[core.TaskID]uint64{}, map[core.TaskID][]string{}
		for i := range tasks {
			y, ok, err := Why(w.tx, testPartition, numbered(i), w.c.Stamp)
			if err != nil || !ok || !y.Exact {
				t.Fatal(y, ok, err)
			}
			want[numbered(i)] = y.Ahead
			if y.Ahead > 0 {
				named[numbered(i)] = y.Reasons[0].HeldBy
			}
		}
		taken := map[string]bool{}
		for i := range uint64(tasks) {
			given := w.do(claimOp(1, "mail")).res.Assigned
			if len(given) != 1 || want[given[0].Task] != i {
				t.Errorf("aging %d: task %d was taken as number %d", aging, want[given[0].Task], i)
			}
			by := named[given[0].Task]
			if len(by) != min(int(i), core.MaxHolders) || slices.ContainsFunc(by, func(id string) bool { return !taken[id] }) {
				t.Errorf("aging %d: task %d is held up by %q", aging, i, by)
			}
			taken[given[0].Task.String()] = true
		}
	}
}
