package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/check/checktest"
	"github.com/millrace/millrace/internal/core"
)

// mixed is clients that do everything a partition offers, at once, and remember what they were told.
type mixed struct {
	l      *long
	queues []string

	mu   sync.Mutex // guards the fields below
	next int
	ids  []core.TaskID
	held []core.Assigned
	old  []core.Commit   // repeatable
	told map[string]bool // entry, commit and answer
	made []checktest.Told
	seq  [4]uint64 // of the numbered commits of each client's session
}

func newMixed(l *long) *mixed {
	return &mixed{l: l, queues: []string{"a", "b", "c"}, told: make(map[string]bool)}
}

func answerKey(index uint64, c *core.Commit, r *core.Result) string {
	return fmt.Sprintf("%d %x %x", index, c.AppendContent(nil), core.AppendResult(nil, r))
}

// do proposes commits and remembers the answers.
func (m *mixed) do(commits ...core.Commit) []core.Result {
	for i := range commits {
		commits[i].Partition, commits[i].Principal = m.l.ns, "test"
	}
	done := make(chan core.Proposed, 1)
	m.l.node.Propose(m.l.ns, commits, func(p core.Proposed) { done <- p })
	p := <-done
	m.remember(commits, p)
	return p.Results
}

func (m *mixed) remember(commits []core.Commit, p core.Proposed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.Err != nil {
		m.l.t.Errorf("proposal: %v", p.Err)
		return
	}
	for i := range commits {
		c, r := &commits[i], &p.Results[i]
		m.told[answerKey(p.At.Index, c, r)] = true
		for k, op := range c.Ops {
			create, ok := op.(*core.TaskCreate)
			if !ok || r.Refusal != nil {
				continue
			}
			m.ids = append(m.ids, r.Ops[k].Task)
			if !r.Replayed && !r.Ops[k].Replayed {
				m.made = append(m.made, checktest.Told{Task: create.ID, Index: p.At.Index})
			}
		}
	}
}

func pickOne[T any](r *rand.Rand, from []T) (one T) {
	if len(from) > 0 {
		one = from[r.IntN(len(from))]
	}
	return one
}

func (m *mixed) create(r *rand.Rand) *core.TaskCreate {
	m.mu.Lock()
	m.next++
	id := taskID(m.next)
	if r.IntN(15) == 0 {
		id = pickOne(r, append(m.ids, id))
	}
	m.mu.Unlock()
	c := &core.TaskCreate{
		ID: id, Queue: pickOne(r, m.queues), Priority: uint8(r.IntN(3)), Payload: make([]byte, r.IntN(200)),
		MaxAttempts: int32(r.IntN(4)), MaxCrashes: int32(r.IntN(4)), MaxDeliveries: int32(r.IntN(3)) * 4,
		Lease: core.Millis(r.IntN(3)) * 20_000, MaxRun: core.Millis(r.IntN(3)) * 30_000,
	}
	switch r.IntN(6) {
	case 0:
		c.Delay = core.Millis(r.IntN(60_000))
	case 1:
		c.RunAt = m.l.now().Add(core.Millis(r.IntN(60_000) - 10_000))
	case 2:
		c.Unique = core.Unique{Key: string(rune('k' + r.IntN(6))), TTL: core.Millis(1 + r.IntN(60_000)), Reject: r.IntN(2) == 0}
	}
	return c
}

// ends settles one of the leases that clients took, or one that is long over.
func (m *mixed) ends(r *rand.Rand) core.Commit {
	m.mu.Lock()
	n := len(m.held)
	a := core.Assigned{Task: taskID(1), Token: 1}
	if n > 0 {
		a = m.held[max(0, n-1-r.IntN(40))]
	}
	m.mu.Unlock()
	c := core.Commit{}
	switch r.IntN(10) {
	case 0, 1:
		f := fail(a)
		f.Fatal, f.HasRetry, f.RetryAfter = r.IntN(5) == 0, r.IntN(2) == 0, core.Millis(r.IntN(20_000))
		c.Ops = []core.Op{f}
	case 2:
		c.Ops = []core.Op{&core.TaskSnooze{Task: a.Task, Token: a.Token, Delay: core.Millis(r.IntN(20_000))}}
	case 3:
		c.Ops = []core.Op{&core.TaskRelease{Task: a.Task, Token: a.Token}}
	case 4:
		c.Ops = []core.Op{&core.TaskRenew{Items: []core.TaskHold{{Task: a.Task, Token: a.Token}}, Extend: core.Millis(r.IntN(90_000))}}
	case 5: // in mid-task
		c.Fence = &core.Fence{Task: a.Task, Token: a.Token}
		c.Ops = []core.Op{put(r), m.create(r)}
	default:
		c.Ops = []core.Op{&core.TaskComplete{Task: a.Task, Token: a.Token, Result: []byte("r")}}
		if r.IntN(2) == 0 {
			c.Ops = append(c.Ops, put(r), m.create(r))
			c.FailOnRefusal = r.IntN(3) == 0
		}
	}
	return c
}

func put(r *rand.Rand) core.Op {
	p := &core.KVPut{Keyspace: "s", Key: []byte{byte('a' + r.IntN(8))}, Value: []byte{byte(r.IntN(4))}}
	p.IfAbsent = r.IntN(4) == 0
	return p
}

func (m *mixed) other(r *rand.Rand, client int) core.Commit {
	m.mu.Lock()
	id := pickOne(r, m.ids)
	m.mu.Unlock()
	key := []byte{byte('a' + r.IntN(8))}
	switch r.IntN(6) {
	case 0:
		return core.Commit{Ops: []core.Op{&core.TaskDelete{Task: id}}}
	case 1:
		return core.Commit{Ops: []core.Op{&core.TaskRunNow{Task: id}}}
	case 2:
		return core.Commit{Ops: []core.Op{&core.QueueSet{Queue: pickOne(r, m.queues), IfVersion: -1, Config: core.QueueConfig{
			RetainCompleted: core.Millis(r.IntN(3))*10_000 - 1, RetainDead: core.Millis(r.IntN(2) * 60_000), Aging: pickOne(r, []core.Millis{-1, 0, 1000}),
		}}}}
	case 3:
		return core.Commit{
			Conditions: []*core.KVCheck{{Keyspace: "s", Key: key, Compare: core.CompareExists}},
			Ops:        []core.Op{&core.KVDelete{Keyspace: "s", Key: key}, m.create(r)},
		}
	case 4:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seq[client]++
		return core.Commit{Session: core.SessionID{9, byte(client)}, Seq: m.seq[client], Ops: []core.Op{put(r)}}
	}
	c := core.Commit{Ops: []core.Op{put(r), m.create(r)}}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.old) > 0 && r.IntN(2) == 0 {
		return m.old[max(0, len(m.old)-1-r.IntN(20))]
	}
	c.RequestID = requestID(m.next)
	m.old = append(m.old, c)
	return c
}

// client does n things.
func (m *mixed) client(r *rand.Rand, client, n int) {
	for range n {
		switch k := r.IntN(100); {
		case k < 30:
			commits := make([]core.Commit, 1+r.IntN(8))
			for i := range commits {
				commits[i].Ops = []core.Op{m.create(r)}
			}
			m.do(commits...)
		case k < 50:
			m.take(r)
		case k < 85:
			m.do(m.ends(r), core.Commit{}) // the second one makes the first hurry when it only renews
		default:
			m.do(m.other(r, client))
		}
	}
}

func (m *mixed) take(r *rand.Rand) {
	tasks, _, err := m.l.node.Claim(m.l.t.Context(), m.l.ns, core.ClaimSpec{
		Queues: []core.GrantQueue{{Name: pickOne(r, m.queues)}, {Name: "a"}}, Max: uint32(1 + r.IntN(8)), Worker: "w",
	})
	if err != nil {
		m.l.t.Errorf("claim: %v", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = append(m.held, tasks...)
}

// stream works off what is assigned to a session, until stop is closed.
func (m *mixed) stream(id byte, stop chan struct{}) {
	k := newSink()
	ses, _, err := m.l.node.Session(m.l.t.Context(), m.l.ns, core.SessionSpec{ID: core.SessionID{id}, Worker: "s"}, k)
	if err != nil {
		m.l.t.Errorf("session: %v", err)
		return
	}
	defer ses.Close()
	ses.Subscribe(core.Subscription{Sub: 1, Queues: []core.GrantQueue{{Name: "b"}, {Name: "c"}}, Slots: 8, Batch: 4})
	for {
		select {
		case <-stop:
			return
		case <-k.moved:
		}
		k.mu.Lock()
		tasks := k.tasks
		k.tasks = nil
		k.mu.Unlock()
		commits, holds := make([]core.Commit, len(tasks)), make([]core.TaskHold, len(tasks))
		for i, a := range tasks {
			commits[i] = core.Commit{Partition: m.l.ns, Principal: "test", Ops: []core.Op{ending(a, int(a.Token))}}
			holds[i] = core.TaskHold{Task: a.Task, Token: a.Token}
		}
		if len(tasks) > 0 {
			done := make(chan core.Proposed, 1)
			ses.Settle(m.l.ns, commits, holds, func(p core.Proposed) { done <- p })
			m.remember(commits, <-done)
		}
	}
}

// entries reads the whole log of the only shard.
func (l *long) entries() (out []checktest.LogEntry) {
	l.t.Helper()
	st := l.log.State(0)
	for i := st.First; i <= st.Last; {
		page, err := l.log.Entries(0, i, st.Last+1, 1<<20)
		if err != nil || len(page) == 0 {
			l.t.Fatalf("read %d entries from %d: %v", len(page), i, err)
		}
		for _, e := range page {
			out = append(out, checktest.LogEntry{Index: e.Index, Data: e.Data})
		}
		i += uint64(len(page))
	}
	return out
}

// TestTheLogReplaysToTheSameStateAndToAnswersThatTheModelAllows runs clients, sessions, timers and restarts at once. The log
// alone must lead to the answers that clients were given and to the same apply hash, on a store whose layers are written
// elsewhere; and each of its answers must be one that the documented behaviour allows.
func TestTheLogReplaysToTheSameStateAndToAnswersThatTheModelAllows(t *testing.T) {
	l := openLong(t, longOptions{layer: 128 << 10, node: Options{DiskEvery: 1_000_000 * time.Hour}}) // the log is never cut
	m := newMixed(l)
	steps := shorter(1200)
	for run := range 3 {
		var clients, others sync.WaitGroup
		stop := make(chan struct{})
		for id := range 2 {
			others.Go(func() { m.stream(byte(id+1), stop) })
		}
		others.Go(func() {
			r := rand.New(rand.NewPCG(uint64(run), 100))
			for applied := uint64(0); ; {
				select {
				case <-stop:
					return
				case <-l.node.shards[0].advance.wait():
				}
				if now := l.node.shards[0].view.applied.Load(); now > applied+20 { // time goes on with the work
					applied = now
					l.clock.Advance(time.Duration(r.IntN(2500)) * time.Millisecond)
				}
			}
		})
		for c := range 4 {
			clients.Go(func() { m.client(rand.New(rand.NewPCG(uint64(run), uint64(c))), c, steps) })
		}
		clients.Wait()
		close(stop)
		l.must(&core.KVPut{Keyspace: "s", Key: []byte("end")}) // wakes those who wait
		others.Wait()
		l.restart()
		l.pass(16 * time.Second)
	}
	st := l.node.shards[0].store
	if err := st.View(func(core.View) error { return nil }); err != nil { // waits for an entry of which a part was answered
		t.Fatal(err)
	}
	index, hash := st.Applied()
	log := slices.DeleteFunc(l.entries(), func(e checktest.LogEntry) bool { return e.Index > index }) // a tick may follow
	replay, err := checktest.ReplayLog(log, m.made)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries to index %d: %s", len(log), index, replay.Report)
	if !replay.Report.OK() {
		t.Errorf("the model: %s", replay.Report)
	}
	if replay.Hash != hash || log[len(log)-1].Index != index {
		t.Errorf("the replay ends at entry %d with hash %x, the node at %d with %x", log[len(log)-1].Index, replay.Hash, index, hash)
	}
	same := 0
	for _, rec := range replay.Records {
		for i := range rec.Results {
			c := &rec.Entry.Commits[i]
			if key := answerKey(rec.Index, c, &rec.Results[i]); m.told[key] {
				same++
				delete(m.told, key)
			}
		}
	}
	if len(m.told) > 0 || same == 0 {
		t.Errorf("%d answers are those that were given, %d are not", same, len(m.told))
		for key := range m.told {
			t.Logf("given: %s", key)
			break
		}
	}
	err = l.node.shards[0].store.View(func(v core.View) error { return replay.Audit(v, l.ns, m.queues...) })
	if err != nil {
		t.Errorf("read back: %v", err)
	}
	l.audit()
	l.close()
}
