package queue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

func errorSamples() []sample {
	group := core.ErrorGroup{Kind: "send", Code: "E", Message: "m", Count: 300, First: epoch, Last: epoch + 5, Sample: []core.TaskID{idOf("t"), idOf("u")}}
	group.Trend[0], group.Trend[23] = 7, 200
	state := errorState{groups: 3, other: true, due: epoch, cursor: 1 << 60, oldest: epoch + 1}
	return []sample{
		of("error group", appendErrorGroup(nil, &group), fmt.Sprint(group), func(b []byte) (string, error) {
			g, err := decodeErrorGroup(b)
			return fmt.Sprint(g), err
		}),
		of("error state", appendErrors(nil, "mail", &state), state, func(b []byte) (errorState, error) {
			name, s, err := decodeErrors(b)
			if name != "mail" {
				s = errorState{}
			}
			return s, err
		}),
	}
}

// errorGroups prints groups of errors. Hours without errors are not shown: 0 is the current hour, 1 the one before.
func (s *script) errorGroups(w words) string {
	q := core.ErrorQuery{Queue: w.str("queue", ""), Kind: w.str("kind", ""), Span: w.span("span")}
	page, err := Errors(s.tx, testPartition, q, s.c.Stamp)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for i := range page.Groups {
		g := &page.Groups[i]
		names, trend := make([]string, len(g.Sample)), ""
		for i, id := range g.Sample {
			names[i] = nameOf(id)
		}
		for i, n := range g.Trend {
			if n > 0 {
				trend = fmt.Sprintf(" %d:%d", core.ErrorHours-1-i, n) + trend
			}
		}
		fmt.Fprintf(&b, "%s %s/%s %q %q count=%d %s to %s trend=[%s] %v\n",
			orText(g.Fingerprint.String(), core.OtherErrors), g.Queue, g.Kind, g.Code, g.Message, g.Count, since(g.First), since(g.Last), strings.TrimSpace(trend), names)
	}
	return orText(b.String(), "none\n")
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Fingerprints are shown to clients, who keep them: they stay as they are.
func TestFingerprintsStayAsTheyAre(t *testing.T) {
	for _, c := range []struct {
		kind string
		e    core.TaskError
		want string
	}{
		{"mail", core.TaskError{Code: "E"}, "8daeacefd7e97e6e"},
		{"mail", core.TaskError{Code: "E", Message: "any", Stack: "any"}, "8daeacefd7e97e6e"},
		{"mail", core.TaskError{Message: "order 7 of 12"}, "160650d7f8d8cb11"},
		{"mail", core.TaskError{Message: "order 81 of 345"}, "160650d7f8d8cb11"},
		{"send", core.TaskError{Message: "order 81 of 345"}, "f6f0a992ad270ce5"},
		{"mail", core.TaskError{}, "0ac25764f75559c4"},
	} {
		if got := fingerprintOf(c.kind, &c.e).String(); got != c.want {
			t.Errorf("kind %q, %+v: %s, want %s", c.kind, c.e, got, c.want)
		}
	}
	// A code is not taken for a message, nor the end of a kind for the begin of a code.
	a, b := core.TaskError{Code: "m"}, core.TaskError{Message: "m"}
	if fingerprintOf("k", &a) == fingerprintOf("k", &b) || fingerprintOf("kc", &b) == fingerprintOf("k", &core.TaskError{Code: "cm"}) {
		t.Error("different errors have one fingerprint")
	}
	long := strings.Repeat("x", fingerprintBytes)
	c, d := core.TaskError{Message: long + "a"}, core.TaskError{Message: long + "b"}
	if fingerprintOf("k", &c) != fingerprintOf("k", &d) {
		t.Error("messages that differ late are two errors")
	}
}

func TestFingerprintsReadBack(t *testing.T) {
	for _, f := range []core.Fingerprint{1, 0xabcdef, 1<<64 - 1} {
		if got, ok := core.ParseFingerprint(f.String()); !ok || got != f {
			t.Errorf("%s reads as %s, %v", f, got, ok)
		}
	}
	for _, bad := range []string{"", "0", "0000000000000000", "abc", "ABCDEF0123456789", "+bcdef0123456789", "abcdef01234567890", "other"} {
		if got, ok := core.ParseFingerprint(bad); ok {
			t.Errorf("%q reads as %s", bad, got)
		}
	}
}

// failEach creates tasks of a queue, gives them out and fails each with the error of its number.
func (w *world) failEach(queue string, n int, e func(i int) core.TaskError) {
	w.t.Helper()
	for i := 0; i < n; i += 100 {
		for j := i; j < min(n, i+100); j++ {
			w.do(&core.TaskCreate{ID: numbered(j), Queue: queue, MaxAttempts: 1})
		}
		for j, a := range w.do(claimOp(100, queue)).res.Assigned {
			w.do(&core.TaskFail{Task: a.Task, Token: a.Token, Error: e(i + j)})
		}
	}
}

// A queue has at most 1,000 groups: further errors count as others, and known ones where they belong. All of them go when they were not
// seen for long, a bounded number with each step.
func TestAQueueHasABoundedNumberOfGroups(t *testing.T) {
	w := newWorld(t, Options{})
	w.loose = true
	const more = 7
	w.do(&core.QueueSet{Queue: "mail", IfVersion: -1, Config: core.QueueConfig{Lease: 60_000}}) // it stays when it is empty
	w.failEach("mail", core.MaxErrorGroups+more, func(i int) core.TaskError {
		return core.TaskError{Code: fmt.Sprint("E", i), Message: strings.Repeat("m", 1000)}
	})
	w.do(&core.TaskCreate{ID: idOf("again"), Queue: "mail", MaxAttempts: 1})
	a := w.do(claimOp(1, "mail")).res.Assigned[0]
	w.do(&core.TaskFail{Task: a.Task, Token: a.Token, Error: core.TaskError{Code: "E3"}})
	w.check()
	page, err := Errors(w.tx, testPartition, core.ErrorQuery{Queue: "mail"}, w.c.Stamp)
	if err != nil || len(page.Groups) != core.MaxErrorsListed || !page.More {
		t.Fatalf("%d groups, more %v, %v", len(page.Groups), page.More, err)
	}
	first, second := page.Groups[0], page.Groups[1]
	if first.Fingerprint != 0 || first.Count != more || first.Code != "" || len(first.Sample) != core.ErrorSample {
		t.Errorf("the others are %+v", first)
	}
	if second.Code != "E3" || second.Count != 2 || second.Sample[0] != idOf("again") || len(second.Message) != 0 {
		t.Errorf("the second group is %+v", second)
	}
	if third := page.Groups[2]; len(third.Message) != groupMessage {
		t.Errorf("a message has %d bytes", len(third.Message))
	}
	w.c.Stamp = w.c.Stamp.Add(15 * 24 * 3_600_000)
	before, ticks := w.errorRows(), 0
	for ; w.errorRows() > 0; ticks++ {
		w.c.Stamp++
		w.tick(1000)
		w.check()
		if now := w.errorRows(); before-now > errorRows+1 || ticks > 1000 {
			t.Fatalf("a tick removed %d of %d groups", before-now, before)
		} else {
			before = now
		}
	}
	if want := core.MaxErrorGroups / errorRows; ticks < want {
		t.Errorf("groups were gone after %d ticks", ticks)
	}
}

// errorRows counts the rows of groups of errors.
func (w *world) errorRows() (n int) {
	from, to := keys.QueueRange(testPartition)
	if err := w.tx.Scan(from, to, func(key, _ []byte) bool {
		if row, _ := keys.DecodeQueue(key); row.Record == keys.RecordErrorGroup || row.Record == keys.RecordErrors {
			n++
		}
		return true
	}); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// Under entries of an older format no error is counted.
func TestOlderFormatsCountNoErrors(t *testing.T) {
	w := newWorld(t, Options{})
	w.c.Format = core.FormatOperate - 1
	w.failEach("mail", 3, func(int) core.TaskError { return core.TaskError{Code: "E"} })
	if n := w.errorRows(); n != 0 {
		t.Errorf("%d rows", n)
	}
	w.c.Format = core.FormatOperate
	w.do(&core.TaskRedrive{Task: numbered(1)})
	a := w.do(claimOp(1, "mail")).res.Assigned[0]
	w.do(&core.TaskFail{Task: a.Task, Token: a.Token, Error: core.TaskError{Code: "E"}})
	if n := w.errorRows(); n != 2 {
		t.Errorf("%d rows, want those of a group", n)
	}
}

// The groups of a queue that goes, or is removed, go with it.
func TestGroupsGoWithTheirQueue(t *testing.T) {
	w := newWorld(t, Options{})
	w.failEach("mail", 3, func(i int) core.TaskError { return core.TaskError{Code: fmt.Sprint("E", i)} })
	w.failEach("news", 0, nil)
	w.do(&core.QueueDelete{Queue: "mail", IfVersion: -1, Purge: true})
	if page, err := Errors(w.tx, testPartition, core.ErrorQuery{}, w.c.Stamp); err != nil || len(page.Groups) != 0 {
		t.Errorf("a removed queue shows %+v, %v", page, err)
	}
	w.loose = true
	w.do(&core.TaskCreate{ID: idOf("new"), Queue: "mail", MaxAttempts: 1})
	a := w.do(claimOp(1, "mail")).res.Assigned[0]
	w.do(&core.TaskFail{Task: a.Task, Token: a.Token, Error: core.TaskError{Code: "NEW"}})
	w.loose = false
	for _, q := range []core.ErrorQuery{{}, {Queue: "mail"}} {
		if page, err := Errors(w.tx, testPartition, q, w.c.Stamp); err != nil || len(page.Groups) != 1 || page.Groups[0].Code != "NEW" {
			t.Errorf("the next queue of the name shows %+v, %v", page, err)
		}
	}
	w.do(&core.QueueDelete{Queue: "mail", IfVersion: -1, Purge: true})
	w.advance(1)
	if n := w.errorRows(); n != 0 {
		t.Errorf("%d rows are left of a removed queue", n)
	}
	w.failEach("mail", 3, func(i int) core.TaskError { return core.TaskError{Code: fmt.Sprint("E", i)} })
	for i := range 3 {
		w.do(&core.TaskDelete{Task: numbered(i)})
	}
	w.advance(3_600_000)
	if n := w.errorRows(); n != 0 || w.m.lineOf("mail") != nil {
		t.Errorf("%d rows are left of a queue that is gone", n)
	}
}

// The last of several replicas to fail knows no kind from a grant: it counts the same.
func TestTheKindIsReadWhereItIsNotKnown(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t, Options{})
		w.do(&core.TaskCreate{ID: idOf("a"), Queue: "mail", TaskKind: "send"})
		a := w.do(claimOp(1, "mail")).res.Assigned[0]
		if restart {
			w.restart()
		}
		w.do(&core.TaskFail{Task: a.Task, Token: a.Token, Error: core.TaskError{Code: "E"}})
		page, err := Errors(w.tx, testPartition, core.ErrorQuery{Kind: "send"}, w.c.Stamp)
		if err != nil || len(page.Groups) != 1 {
			t.Errorf("restart %v: %+v, %v", restart, page, err)
		}
	}
}
