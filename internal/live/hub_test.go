package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// fake is a source whose rows a test sets.
type fake struct {
	mu      sync.Mutex // guards the fields below
	rows    map[string]string
	err     error
	samples int
}

// Sample implements Source.
func (f *fake) Sample(context.Context, Topic) (Sample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.samples++
	s := Sample{Stamp: time.Unix(1e9, 0).UTC(), At: []core.At{{Partition: 1, Index: 7}}}
	for _, id := range []string{"a", "b", "c"} {
		if v, ok := f.rows[id]; ok {
			s.Rows = append(s.Rows, Row{id, fmt.Appendf(nil, `{"id":%q,"v":%s}`, id, v)})
		}
	}
	return s, f.err
}

// set sets a row; an empty value removes it.
func (f *fake) set(id, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows[id] = value; value == "" {
		delete(f.rows, id)
	}
}

// fail lets samples fail.
func (f *fake) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// count is how many samples were read.
func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.samples
}

var (
	mail  = Topic{Tenant: "acme", Namespace: "default", Name: "queue:mail", Every: Every}
	other = Topic{Tenant: "other", Namespace: "default", Name: "queue:mail", Every: Every}
)

// begin makes a hub in the bubble of a test, whose clock is its own.
func begin(t *testing.T) (*Hub, *fake) {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	f := &fake{rows: map[string]string{"a": "1", "b": "1"}}
	h := New(Options{Source: f, Clock: env.SystemClock{}, Rand: env.SystemRand{}, Life: life})
	t.Cleanup(func() {
		end()
		h.Wait()
	})
	return h, f
}

func listen(t *testing.T, h *Hub, last string, topics ...Topic) *Listener {
	t.Helper()
	l, absent, err := h.Listen(t.Context(), topics, last)
	if err != nil || len(absent) > 0 {
		t.Fatal(absent, err)
	}
	return l
}

// next returns the only frame that is due.
func next(t *testing.T, l *Listener) string {
	t.Helper()
	frames, err := l.Next(t.Context())
	if err != nil || len(frames) != 1 {
		t.Fatalf("%d frames, error %v", len(frames), err)
	}
	return string(frames[0].Bytes)
}

// data is what an event carries, its id left out.
func data(event string) string {
	_, rest, _ := strings.Cut(event, "\n")
	return rest
}

// idOf is the id of an event.
func idOf(event string) string {
	line, _, _ := strings.Cut(event, "\n")
	return strings.TrimPrefix(line, "id: ")
}

func TestTheFirstFrameIsWholeAndOthersHaveWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := begin(t)
		l := listen(t, h, "", mail)
		defer l.Close()
		const head = "event: queue:mail\ndata: {\"topic\":\"queue:mail\",\"stamp\":\"2001-09-09T01:46:40Z\",\"at\":[{\"partition\":1,\"index\":\"7\"}],"
		if got, want := data(next(t, l)), head+`"whole":true,"rows":[{"id":"a","v":1},{"id":"b","v":1}]}`+"\n\n"; got != want {
			t.Errorf("first frame\n%s\nwant\n%s", got, want)
		}
		f.set("b", "2")
		if got, want := data(next(t, l)), head+`"rows":[{"id":"b","v":2}]}`+"\n\n"; got != want {
			t.Errorf("second frame\n%s\nwant\n%s", got, want)
		}
		f.set("a", "")
		if got, want := data(next(t, l)), head+`"rows":[],"gone":["a"]}`+"\n\n"; got != want {
			t.Errorf("third frame\n%s\nwant\n%s", got, want)
		}
		f.set("a", "3")
		if got, want := data(next(t, l)), head+`"rows":[{"id":"a","v":3}]}`+"\n\n"; got != want {
			t.Errorf("fourth frame\n%s\nwant\n%s", got, want)
		}
	})
}

func TestManyListenersShareOneSampleAndOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := begin(t)
		var all []*Listener
		for range 50 {
			l := listen(t, h, "", mail)
			defer l.Close()
			all = append(all, l)
		}
		for _, l := range all {
			next(t, l)
		}
		if n := f.count(); n != 1 {
			t.Errorf("%d samples for the first frames", n)
		}
		f.set("a", "2")
		var first []byte
		for _, l := range all {
			frames, err := l.Next(t.Context())
			if err != nil || len(frames) != 1 {
				t.Fatal(len(frames), err)
			}
			if first == nil {
				first = frames[0].Bytes
			}
			if &first[0] != &frames[0].Bytes[0] {
				t.Fatal("a frame was encoded twice")
			}
		}
		if n := f.count(); n != 2 {
			t.Errorf("%d samples after one change", n)
		}
	})
}

func TestASlowReaderGetsTheNewestStateInOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := begin(t)
		l := listen(t, h, "", mail)
		defer l.Close()
		next(t, l)
		for i := range 20 {
			f.set("a", fmt.Sprint(i+10))
			time.Sleep(Every)
		}
		f.set("c", "1")
		time.Sleep(2 * Every)
		if got := next(t, l); !strings.HasSuffix(got, `"rows":[{"id":"a","v":29},{"id":"c","v":1}]}`+"\n\n") {
			t.Errorf("got %s", got)
		}
		if frames, err := l.Next(t.Context()); err != nil || len(frames) > 0 {
			t.Errorf("a backlog of %d frames, error %v", len(frames), err)
		}
	})
}

func TestAListenerThatComesBackGetsWhatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := begin(t)
		l := listen(t, h, "", mail)
		id := idOf(next(t, l))
		l.Close()
		f.set("b", "5")
		time.Sleep(3 * Every)
		l = listen(t, h, id, mail)
		event := next(t, l)
		if !strings.HasSuffix(event, `"rows":[{"id":"b","v":5}]}`+"\n\n") {
			t.Errorf("after a short while: %s", event)
		}
		l.Close()
		// Nothing has changed since that event, so there is nothing to send.
		l = listen(t, h, idOf(event), mail)
		if frames, err := l.Next(t.Context()); err != nil || len(frames) > 0 {
			t.Errorf("nothing was missed, but it got %d frames, error %v", len(frames), err)
		}
		l.Close()
		// Another process, ids that make no sense and ticks that were never given say nothing.
		for _, last := range []string{"00000000-1", "x", h.node + "-x", h.node + "-999"} {
			l = listen(t, h, last, mail)
			if got := next(t, l); !strings.Contains(got, `"whole":true`) {
				t.Errorf("after %q: %s", last, got)
			}
			l.Close()
		}
		time.Sleep(Lingers + 2*Every)
		if n := h.Topics(); n != 0 {
			t.Errorf("%d topics are still sampled", n)
		}
		l = listen(t, h, id, mail)
		if got := next(t, l); !strings.Contains(got, `"whole":true`) {
			t.Errorf("after a long while: %s", got)
		}
		l.Close()
	})
}

func TestFramesOfSeveralTopicsComeInTheOrderOfTheirTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := begin(t)
		l := listen(t, h, "", mail, other)
		defer l.Close()
		last := uint64(0)
		for i := range 5 {
			frames, err := l.Next(t.Context())
			if err != nil || len(frames) == 0 {
				t.Fatal(len(frames), err)
			}
			for _, frame := range frames {
				if frame.tick <= last {
					t.Fatalf("tick %d after %d", frame.tick, last)
				}
				last = frame.tick
			}
			f.set("a", fmt.Sprint(i+2))
			time.Sleep(2 * Every)
		}
		if n := h.Topics(); n != 2 {
			t.Errorf("topics of two tenants are %d", n)
		}
	})
}

func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := begin(t)
		f.fail(core.NotFound{Kind: "queue", ID: "mail"})
		if _, _, err := h.Listen(t.Context(), []Topic{mail}, ""); !is[core.NotFound](err) {
			t.Fatalf("what is not there: %v", err)
		}
		f.fail(nil)
		l := listen(t, h, "", mail)
		defer l.Close()
		next(t, l)
		// A fault that passes changes nothing.
		f.fail(errors.New("disk"))
		time.Sleep(3 * Every)
		f.fail(nil)
		if frames, err := l.Next(t.Context()); err != nil || len(frames) > 0 {
			t.Errorf("after a fault: %d frames, error %v", len(frames), err)
		}
		f.fail(core.NotFound{Kind: "queue", ID: "mail"})
		if got := next(t, l); !strings.HasSuffix(got, `"rows":[],"gone":["a","b"]}`+"\n\n") {
			t.Errorf("after the removal: %s", got)
		}
		f.fail(core.NotLeader{Leader: "elsewhere"})
		if _, err := l.Next(t.Context()); !is[core.NotLeader](err) {
			t.Errorf("after the topic went elsewhere: %v", err)
		}
	})
}

func TestASignOfLifeIsDueAndTheEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := begin(t)
		l := listen(t, h, "", mail)
		defer l.Close()
		next(t, l)
		begun := time.Now()
		if frames, err := l.Next(t.Context()); err != nil || len(frames) > 0 || time.Since(begun) != Beat {
			t.Errorf("%d frames, error %v after %v", len(frames), err, time.Since(begun))
		}
		over := errors.New("the token has ended")
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { end(over) })
		if _, err := l.Next(ctx); !errors.Is(err, over) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestRowsThatAreGoneAreRememberedUpToABound(t *testing.T) {
	h := &Hub{topics: make(map[Topic]*topic)}
	tp := &topic{key: mail, rows: make(map[string]*row)}
	for i := range 3 * MaxGone {
		h.take(tp, Sample{Rows: []Row{{fmt.Sprint(i), []byte("{}")}}}, i == 0)
		if len(tp.rows) > MaxGone+2 {
			t.Fatalf("%d rows are held of a topic of one", len(tp.rows))
		}
	}
	if tp.floor == 0 {
		t.Fatal("no listener is told to begin from a whole frame")
	}
	if f := tp.frame("n", tp.floor-1); !strings.Contains(string(f.Bytes), `"whole":true`) {
		t.Errorf("a listener older than what is known got %s", f.Bytes)
	}
}

func TestAFrameSaysThatRowsAreMissing(t *testing.T) {
	h := &Hub{topics: make(map[Topic]*topic)}
	tp := &topic{key: mail, rows: make(map[string]*row)}
	sample := Sample{Rows: []Row{{"a", []byte("{}")}}}
	h.take(tp, sample, true)
	before := tp.tick
	for _, partial := range []bool{true, false} {
		sample.Partial = partial
		if !h.take(tp, sample, false) || strings.Contains(string(tp.frame("n", before).Bytes), `"partial":true`) != partial {
			t.Errorf("partial %t: %s", partial, tp.frame("n", before).Bytes)
		}
		if h.take(tp, sample, false) {
			t.Error("the same again counts as a change")
		}
	}
}

func TestTopicsWithoutListenersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := begin(t)
		for i := range 3 * MaxIdle {
			l := listen(t, h, "", Topic{Tenant: "acme", Namespace: "default", Name: fmt.Sprint("task:", i), Every: EveryTask})
			l.Close()
			l.Close() // no more than once
		}
		if n := h.Topics(); n != MaxIdle {
			t.Errorf("%d topics without listeners are read", n)
		}
		before := f.count()
		time.Sleep(EveryTask + time.Millisecond)
		if n := f.count() - before; n > MaxIdle {
			t.Errorf("%d topics are read, and %d are known", n, MaxIdle)
		}
		// One that is listened to stays, and does not count.
		l := listen(t, h, "", Topic{Tenant: "acme", Namespace: "default", Name: "task:1", Every: EveryTask})
		time.Sleep(Lingers + time.Second)
		if n := h.Topics(); n != 1 || h.idle != 0 {
			t.Errorf("%d topics, %d without listeners, while one has some", n, h.idle)
		}
		l.Close()
		time.Sleep(Lingers + time.Second)
		if n := h.Topics(); n != 0 || h.idle != 0 {
			t.Errorf("%d topics, %d without listeners, after all have left", n, h.idle)
		}
	})
}
