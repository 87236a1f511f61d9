package row

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/check/checktest"
	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// Sizes of the workload of registers.
const (
	// linearKeys are in use at once.
	linearKeys = 3
	// keyCalls is how many calls are made at one key before the next takes its place: a search for
	// an order must end.
	keyCalls = 600
	// keyOpen is how many of those may have unknown ends: such calls may happen at any time, and
	// make the search long.
	keyOpen     = 12
	linearSpace = "linear"
	// readPatience is more than a pause: what waits at a paused node is answered when it goes on.
	readPatience = 40 * time.Second
	putPatience  = 2 * time.Second
	// linearPause is between two calls of one client.
	linearPause = 8 * time.Millisecond
)

// linear is a workload of registers that all clients share, through clients that go where they are sent and through
// clients that speak to one node alone: they read, write, swap, delete and add, and put through streams. It keeps the history
// of all calls on one clock, window by window.
type linear struct {
	e Env
	// begin is where the clock of the history begins.
	begin time.Time
	// roaming are clients that go where they are sent. Each tries another node first.
	roaming []*client
	// pinned are clients of one node each, in the order of the nodes.
	pinned []*client
	// ids and values number keys and values, so that none comes twice.
	ids    atomic.Int64
	values atomic.Int64

	mu sync.Mutex // guards the fields below
	// clients is how many there are in the history. There a client is who makes one call at a time.
	clients int
	// nodeOf is, by client in the history, the node that it speaks to alone; 0 means none.
	nodeOf map[int]int
	keys   [linearKeys]inUse
	// window is the one that calls belong to now.
	window int
	// judged counts the calls of this window that say something.
	judged int
	// history has all calls that have ended.
	history []checktest.Access
	// acked are the acknowledged writes, in the order of their ends.
	acked []ack
	// more is closed and replaced when acked grows.
	more chan struct{}
}

// inUse is a key while it is in use, with how many calls were made at it, and how many of them have
// an unknown end.
type inUse struct {
	key         string
	calls, open int
}

// ack is a write that was acknowledged.
type ack struct {
	// node is the one it was made at, by a client that speaks to it alone; 0 means by one that roams.
	node int
	// invoke and took are when the call began and when it had its answer, in nanoseconds.
	invoke, took int64
}

// newLinear makes two clients for each node: one that roams, and one that speaks to that node alone.
func newLinear(ctx context.Context, e Env, c many, token proc.Token) (*linear, error) {
	l := &linear{e: e, begin: time.Now(), more: make(chan struct{}), nodeOf: map[int]int{}}
	l.renew()
	for i, n := range c.Nodes {
		roaming, err := dial(ctx, e, c, i, token, "")
		if err != nil {
			return nil, err
		}
		alone, err := dial(ctx, e, pinned{n}, 0, token, "")
		if err != nil {
			return nil, err
		}
		l.roaming, l.pinned = append(l.roaming, roaming), append(l.pinned, alone)
	}
	return l, nil
}

// renew puts new keys in the place of all.
func (l *linear) renew() {
	for i := range l.keys {
		l.keys[i] = inUse{key: l.newKey()}
	}
}

// newKey returns the name of a key that was never used.
func (l *linear) newKey() string { return "w" + strconv.FormatInt(l.ids.Add(1), 10) }

// now is the time on the clock of the history, in nanoseconds.
func (l *linear) now() int64 { return time.Since(l.begin).Nanoseconds() }

// load makes calls until ctx ends, and returns when all have ended. For each node there is a client
// that makes all kinds of calls and one that puts through a stream, which roam, and there are three
// that put and get at that node alone.
func (l *linear) load(ctx context.Context) {
	var wg sync.WaitGroup
	// start has one client in the history make calls, one after the other.
	start := func(c *client, node int, does func(context.Context, *client, int, int, *rand.Rand)) {
		me := l.newClient(node)
		r := rand.New(rand.NewPCG(l.e.Seed, uint64(400+me)))
		wg.Go(func() {
			for ctx.Err() == nil {
				does(ctx, c, node, me, r)
				pause(ctx, linearPause)
			}
		})
	}
	for i := range l.roaming {
		start(l.roaming[i], 0, l.mix)
		start(l.pinned[i], i+1, l.put)
		start(l.pinned[i], i+1, l.get)
		start(l.pinned[i], i+1, l.get)
		wg.Go(func() { l.stream(ctx, l.roaming[i], 0) })
	}
	wg.Wait()
}

// newClient returns the number in the history of who makes one call at a time, at one node alone
// or, with 0, anywhere.
func (l *linear) newClient(node int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients++
	l.nodeOf[l.clients] = node
	return l.clients
}

// ask makes n reads at once at one node, which may be paused. wait returns when all have ended.
func (l *linear) ask(ctx context.Context, node, n int, r *rand.Rand) (wait func()) {
	var wg sync.WaitGroup
	for range n {
		me, at := l.newClient(node), l.pick(r)
		wg.Go(func() {
			call, cancel := context.WithTimeout(ctx, readPatience)
			defer cancel()
			l.read(call, l.pinned[node-1], me, at)
		})
	}
	return wg.Wait
}

// close ends all clients.
func (l *linear) close() error {
	var errs []error
	for _, c := range slices.Concat(l.roaming, l.pinned) {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// mix reads or changes a key in one of all ways, with patience. The end of the load does not cut
// its call short.
func (l *linear) mix(ctx context.Context, c *client, node, me int, r *rand.Rand) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*putPatience)
	defer cancel()
	at := l.pick(r)
	switch r.IntN(8) {
	case 0, 1:
		l.read(call, c, me, at)
	case 2, 3:
		l.write(call, c, node, me, at)
	case 4:
		l.remove(call, c, node, me, at)
	case 5:
		l.add(call, c, node, me, at, 1+r.Int64N(valueStep-1))
	default:
		l.swap(call, c, node, me, at)
	}
}

// put writes at one node, with less patience than many a pause lasts.
func (l *linear) put(ctx context.Context, c *client, node, me int, r *rand.Rand) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), putPatience)
	defer cancel()
	l.write(call, c, node, me, l.pick(r))
}

// get reads, and waits long at a node that does not answer. The end of the load ends it: a read that is not answered is
// nothing to judge.
func (l *linear) get(ctx context.Context, c *client, _, me int, r *rand.Rand) {
	call, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	l.read(call, c, me, l.pick(r))
}

// place is a key that is in use, and the window that it is of.
type place struct {
	key    string
	window int
}

// pick returns a key that is in use.
func (l *linear) pick(r *rand.Rand) place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return place{l.keys[r.IntN(linearKeys)].key, l.window}
}

// access begins a call, and notes when.
func (l *linear) access(me int, at place, kind checktest.AccessKind) checktest.Access {
	return checktest.Access{Client: me, Key: at.key, Window: at.window, Kind: kind, Invoke: l.now()}
}

// read, and what follows, make one call each and note how it ended. A read that fails says nothing,
// so its end is unknown.
func (l *linear) read(ctx context.Context, c *client, me int, at place) {
	a := l.access(me, at, checktest.Read)
	value, _, err := text(ctx, c.KV(linearSpace), at.key)
	a.Value, a.Outcome = value, check.OK
	if err != nil {
		a.Outcome = check.Unknown
	}
	l.note(a, 0)
}

func (l *linear) write(ctx context.Context, c *client, node, me int, at place) {
	a := l.access(me, at, checktest.Write)
	a.Value = l.newValue()
	_, err := c.KV(linearSpace).Put(ctx, at.key, a.Value)
	a.Outcome = outcome(err)
	l.note(a, node)
}

func (l *linear) remove(ctx context.Context, c *client, node, me int, at place) {
	a := l.access(me, at, checktest.Delete)
	var err error
	a.Found, err = c.KV(linearSpace).Delete(ctx, at.key)
	a.Outcome = outcome(err)
	l.note(a, node)
}

func (l *linear) add(ctx context.Context, c *client, node, me int, at place, delta int64) {
	a := l.access(me, at, checktest.Add)
	a.Delta = delta
	sum, err := c.KV(linearSpace).Add(ctx, at.key, delta)
	a.Value, a.Outcome = strconv.FormatInt(sum, 10), outcome(err)
	l.note(a, node)
}

// swap reads a key and replaces what it read, unless it has changed.
func (l *linear) swap(ctx context.Context, c *client, node, me int, at place) {
	expect, rev, err := text(ctx, c.KV(linearSpace), at.key)
	if err != nil || rev == 0 {
		return
	}
	a := l.access(me, at, checktest.Swap)
	a.Expect, a.Value = expect, l.newValue()
	err = c.Commit(ctx, func(tx *millrace.Tx) {
		tx.KV(linearSpace).Check(at.key, millrace.ValueEqual(expect))
		tx.KV(linearSpace).Put(at.key, a.Value)
	})
	a.Outcome = outcome(err)
	if a.Outcome == check.Refused && !errors.Is(err, millrace.ErrPrecondition) {
		return // refused for a reason that says nothing of the key
	}
	l.note(a, node)
}

// valueStep lies between two values that are written, so that sums differ from all of them.
const valueStep = 1_000_000

// newValue returns a number that was never written.
func (l *linear) newValue() string { return strconv.FormatInt(valueStep*l.values.Add(1), 10) }

// outcome is how a call ended, in the checkers' words.
func outcome(err error) check.Outcome { return check.Outcome(millrace.OutcomeOf(err).String()) }

// note keeps a call that has ended, and wakes those who wait for a write. A key that has had its
// share of calls is replaced. A window that is whole makes place for the next one, with new keys.
func (l *linear) note(a checktest.Access, node int) {
	a.Return = l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, a)
	if a.Kind != checktest.Read && a.Outcome == check.OK {
		l.acked = append(l.acked, ack{node, a.Invoke, a.Return})
		close(l.more)
		l.more = make(chan struct{})
	}
	for i := range l.keys {
		k := &l.keys[i]
		if k.key != a.Key {
			continue
		}
		k.calls++
		if a.Kind != checktest.Read && a.Outcome == check.Unknown {
			k.open++
		}
		if k.calls >= keyCalls || k.open >= keyOpen {
			*k = inUse{key: l.newKey()}
		}
	}
	// Calls that began in an earlier window belong to that one.
	if a.Window != l.window || !a.Judged() {
		return
	}
	if l.judged++; l.judged >= checktest.WindowCalls {
		l.window, l.judged = l.window+1, 0
		l.renew()
	}
}

// nextOK waits for the first write that began at or after since and was acknowledged, and returns how long after since that
// was. roaming asks for one by a client that roams.
func (l *linear) nextOK(ctx context.Context, since int64, roaming bool) (time.Duration, error) {
	for from := 0; ; {
		l.mu.Lock()
		acked, more := l.acked, l.more
		l.mu.Unlock()
		for ; from < len(acked); from++ {
			if a := acked[from]; a.invoke >= since && (!roaming || a.node == 0) {
				return time.Duration(a.took - since), nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return 0, fmt.Errorf("no write was acknowledged after %s", time.Duration(l.now()-since).Round(time.Millisecond))
		}
	}
}

// longestGap is the longest time between two acknowledged writes one after the other, of those that ended after since.
func (l *linear) longestGap(since int64) (most time.Duration) {
	l.mu.Lock()
	acked := l.acked
	l.mu.Unlock()
	from, _ := slices.BinarySearchFunc(acked, since, func(a ack, at int64) int { return cmp.Compare(a.took, at) })
	for ; from < len(acked); from++ {
		most = max(most, time.Duration(acked[from].took-since))
		since = acked[from].took
	}
	return most
}

// wholeWindow waits until the window that is under way is whole, unless it is hardly begun: less than half of it.
func (l *linear) wholeWindow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, windowWithin)
	defer cancel()
	l.mu.Lock()
	window, judged := l.window, l.judged
	l.mu.Unlock()
	for judged >= checktest.WindowCalls/2 && ctx.Err() == nil {
		pause(ctx, 50*time.Millisecond)
		l.mu.Lock()
		if l.window != window {
			judged = 0
		}
		l.mu.Unlock()
	}
}

// count returns how many calls have ended.
func (l *linear) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.history)
}

// windowWithin bounds how long a run goes on after its faults until the calls of a window are whole.
const windowWithin = 20 * time.Second

// searchWithin bounds the search for an order of one key's calls.
const searchWithin = 60 * time.Second

// audit judges the history: the calls at each key must have an order that explains all answers.
func (l *linear) audit(o *Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.Figures["register_calls"] += float64(len(l.history))
	report := checktest.Linearizable(l.history, searchWithin)
	o.Windows = report.Counts["windows"]
	o.judge(report)
}
