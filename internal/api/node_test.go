package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// planter panics below a call, for tests of what the calls that recover give back.
type planter struct{ panicIn atomic.Int64 } // steps until then; 0: never

func (p *planter) step() {
	if p != nil && p.panicIn.Load() > 0 && p.panicIn.Add(-1) == 0 {
		panic("planted")
	}
}

// fakeNode is a Backend whose answers a test can script.
type fakeNode struct {
	format uint16      // of entries; 0: the current one
	shift  core.Millis // what wall clocks show beyond its shard time
	planter
	rates    [2]atomic.Int64 // of all puts: how many, and their bytes, per second
	left     [2]int64        // of them
	filled   [2]time.Duration
	tenants  map[string]core.TenantConfig
	endless  atomic.Bool // ranges have no end
	mu       sync.Mutex
	clock    *fakeClock
	spaces   map[string]core.NamespaceInfo
	made     int // namespaces
	commits  []core.Commit
	held     []func()                      // ends of proposals that wait for the test, with holding
	holding  bool                          // proposals wait for the test
	judge    func(core.Commit) core.Result // default: applied
	ended    func([]core.Commit) core.Fact // a proposal that ends without results
	claim    func(context.Context, core.ClaimSpec) ([]core.Assigned, error)
	tasks    map[core.Partition]map[core.TaskID]core.Task
	page     func(core.ListQuery) ([]core.Task, []byte, error)
	keyErr   error
	behind   time.Duration // shard time, of the wall clock
	sessions []*fakeSession
	opened   chan *fakeSession
	welcome  core.Welcome
	reached  map[core.Partition]bool // by any call but Now

	members     []string                 // addresses of the cluster
	parts       int                      // of namespaces made by their first use; default 1
	leaders     map[uint16]string        // by partition; default: this node, and "?" for no node
	backlog     map[uint16]bool          // partitions with ready tasks
	moved       chan struct{}            // closed when leaders change
	forwarded   []uint16                 // partitions of proposals by Forward, in no order
	strays      map[uint16]core.Proposed // ends of proposals to a partition
	asked       int                      // who follows the leaders since they changed last
	claimAt     func(context.Context, core.Partition, core.ClaimSpec) ([]core.Assigned, error)
	pageAt      func(core.Partition, core.ListQuery) ([]core.Task, []byte)
	payloadText string // of what is embedded of any payload
	search      func(context.Context, *core.SearchQuery) (*core.SearchAnswer, error)
	looked      func()           // hears that a definition is looked for; may be nil
	defined     *core.Collection // what ws is; nil: fakeDefinition
	undefined   bool             // only Collection finds ws
	removed     bool             // only Definition finds ws: the node's copy is older than the answer to its removal
	loaded      chan struct{}    // closed when indexes are loaded; nil: they are
	settles     chan struct{}    // closed when reads of collections may be answered; nil: at once, without being asked
	queue       core.QueueStats  // of mail; default: one of a configuration of its own
}

func newFakeNode(clock *fakeClock) *fakeNode {
	return &fakeNode{
		clock: clock, spaces: make(map[string]core.NamespaceInfo),
		tasks: make(map[core.Partition]map[core.TaskID]core.Task), opened: make(chan *fakeSession, 64),
		reached: make(map[core.Partition]bool),
	}
}

func (n *fakeNode) reach(p core.Partition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reached[p] = true
}

// reachedBy calls f and returns the partitions that were reached meanwhile.
func (n *fakeNode) reachedBy(f func()) []core.Partition {
	n.mu.Lock()
	clear(n.reached)
	n.mu.Unlock()
	f()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.reached))
}

func (n *fakeNode) Namespace(_ context.Context, tenant, name string, create bool) (core.NamespaceInfo, error) {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	ns, ok := n.spaces[tenant+"/"+name]
	if !ok {
		if !create {
			return ns, core.NotFound{Kind: "namespace", ID: name}
		}
		n.made++
		ns = n.make(tenant, name, max(n.parts, 1))
	}
	return ns, nil
}

// make makes a namespace. The caller holds the lock, and has counted it.
func (n *fakeNode) make(tenant, name string, parts int) core.NamespaceInfo {
	ns := core.NamespaceInfo{Name: name, TenantName: tenant}
	for i := range parts {
		ns.Partitions = append(ns.Partitions, core.PartitionInfo{
			Partition: core.Partition{Tenant: core.TenantID(len(tenant)), Namespace: core.NamespaceID(n.made), Index: uint16(i)},
			Shard:     core.ShardID(i % 4),
		})
	}
	n.spaces[tenant+"/"+name] = ns
	return ns
}

func (n *fakeNode) CreateNamespace(_ context.Context, tenant, name string, parts int) (core.NamespaceInfo, bool, error) {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	ns, replayed := n.spaces[tenant+"/"+name]
	switch {
	case !replayed:
		n.made++
		ns = n.make(tenant, name, parts)
	case len(ns.Partitions) != parts:
		return ns, false, core.AlreadyExists{Kind: "namespace", ID: name}
	}
	n.reached[ns.Partitions[0].Partition] = true
	return ns, replayed, nil
}

// RemoveNamespace tells what a node does, and keeps the namespace for the rest of the test.
func (n *fakeNode) RemoveNamespace(_ context.Context, tenant, name string) (bool, error) {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	ns, existed := n.spaces[tenant+"/"+name]
	if existed {
		n.reached[ns.Partitions[0].Partition] = true
	}
	return existed, nil
}

func (n *fakeNode) Leader(p core.Partition) (address string, here, known bool) {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	address = n.leaders[p.Index]
	if address == "?" {
		return "", false, false
	}
	return address, address == "", true
}

func (n *fakeNode) Nodes() []string {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.members
}

func (n *fakeNode) Moved() <-chan struct{} {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.moved == nil {
		n.moved = make(chan struct{})
	}
	n.asked++
	return n.moved
}

func (n *fakeNode) followers() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// lead gives partitions leaders, and tells who waits for that.
func (n *fakeNode) lead(leaders map[uint16]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaders, n.asked = leaders, 0
	if n.moved != nil {
		close(n.moved)
		n.moved = nil
	}
}

func (n *fakeNode) Backlog(p core.Partition, _ []core.GrantQueue) bool {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.backlog[p.Index]
}

func (n *fakeNode) Forward(ctx context.Context, p core.Partition, commits []core.Commit) core.Proposed {
	n.step()
	n.mu.Lock()
	n.forwarded = append(n.forwarded, p.Index)
	end, scripted := n.strays[p.Index]
	n.mu.Unlock()
	if scripted {
		return end
	}
	out := make(chan core.Proposed, 1)
	n.proposeAt(p, commits, func(p core.Proposed) { out <- p })
	select {
	case p := <-out:
		return p
	case <-ctx.Done():
		return core.Proposed{Err: core.DeadlineExceeded{Unknown: true}}
	}
}

func (n *fakeNode) Propose(p core.Partition, commits []core.Commit, done func(core.Proposed)) {
	n.step()
	if address, here, known := n.Leader(p); !here {
		end := core.Proposed{Err: core.Unavailable{Reason: "no_leader"}}
		if known {
			end.Err = core.NotLeader{Leader: address}
		}
		done(end)
		return
	}
	n.proposeAt(p, commits, done)
}

func (n *fakeNode) proposeAt(p core.Partition, commits []core.Commit, done func(core.Proposed)) {
	n.reach(p)
	for _, c := range commits {
		n.reach(c.Partition)
	}
	n.mu.Lock()
	n.commits = append(n.commits, commits...)
	out := core.Proposed{At: core.At{Partition: p.Index, Index: uint64(len(n.commits)), Stamp: core.ShardTimeOf(testNow)}}
	if n.ended != nil {
		out.Err = n.ended(commits)
	}
	for _, c := range commits {
		if out.Err == nil {
			out.Results = append(out.Results, n.result(c))
		}
	}
	if n.holding {
		n.held = append(n.held, func() { done(out) })
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	done(out)
}

func (n *fakeNode) result(c core.Commit) core.Result {
	if n.judge != nil {
		return n.judge(c)
	}
	return applied(c)
}

// applied is the result of a commit that nothing refuses.
func applied(c core.Commit) (r core.Result) {
	for _, op := range c.Ops {
		o := core.OpResult{Kind: op.Kind(), State: core.Ready}
		switch op := op.(type) {
		case *core.TaskCreate:
			o.Task = op.ID
		case *core.TaskComplete:
			o.State = core.Completed
		case *core.TaskRenew:
			for range op.Items {
				o.Renewed = append(o.Renewed, core.Renewed{Until: core.ShardTimeOf(testNow)})
			}
		case *core.KVPut:
			o.Rev = 7
		case *core.QueueSet, *core.NamespaceSet, *core.KeyspaceSet:
			o.Version = 3
		case *core.QueueDelete:
			o.Existed = op.Queue != "gone"
		case *core.RefTxn:
			o.Refs = fakeAnswer(op)
		case *core.RepoCreate, *core.RepoSet, *core.RepoDelete, *core.RepoUndelete:
			o.Version, o.Refs = 2, &core.RefsAnswer{Repo: core.RepoID{1}}
		}
		r.Ops = append(r.Ops, o)
	}
	return r
}

// proposed is what was proposed so far.
func (n *fakeNode) proposed() []core.Commit {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]core.Commit(nil), n.commits...)
}

// release ends one held proposal, by its place in the order of arrival.
func (n *fakeNode) release(i int) {
	n.mu.Lock()
	f := n.held[i]
	n.held = append(n.held[:i:i], n.held[i+1:]...)
	n.mu.Unlock()
	f()
}

func (n *fakeNode) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.held)
}

func (n *fakeNode) Session(_ context.Context, p core.Partition, s core.SessionSpec, sink core.Sink) (core.Session, core.Welcome, error) {
	n.step()
	n.reach(p)
	ses := &fakeSession{n: n, part: p, spec: s, sink: sink}
	n.mu.Lock()
	n.sessions = append(n.sessions, ses)
	w := n.welcome
	n.mu.Unlock()
	n.opened <- ses
	return ses, w, nil
}

func (n *fakeNode) Claim(ctx context.Context, p core.Partition, s core.ClaimSpec) ([]core.Assigned, core.At, error) {
	n.step()
	n.reach(p)
	if address, here, _ := n.Leader(p); !here {
		return nil, core.At{}, core.NotLeader{Leader: address}
	}
	if n.claimAt != nil {
		tasks, err := n.claimAt(ctx, p, s)
		return tasks, core.At{Partition: p.Index}, err
	}
	if n.claim == nil {
		return nil, core.At{}, nil
	}
	tasks, err := n.claim(ctx, s)
	return tasks, core.At{}, err
}

func (n *fakeNode) Task(_ context.Context, p core.Partition, id core.TaskID, _ core.ReadOptions) (core.Task, core.At, error) {
	n.step()
	n.reach(p)
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.tasks[p][id]
	if !ok {
		return t, core.At{}, core.NotFound{Kind: "task", ID: id.String()}
	}
	return t, core.At{Index: 1}, nil
}

func (n *fakeNode) Attempts(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) ([]core.Attempt, core.At, error) {
	n.step()
	_, at, err := n.Task(ctx, p, id, o)
	return []core.Attempt{{Number: 1, Outcome: core.OutcomeFailed, Error: core.TaskError{Code: "x"}}}, at, err
}

func (n *fakeNode) Tasks(_ context.Context, p core.Partition, q core.ListQuery) ([]core.Task, []byte, core.At, error) {
	n.step()
	n.reach(p)
	if n.pageAt != nil {
		tasks, next := n.pageAt(p, q)
		return tasks, next, core.At{}, nil
	}
	if n.page == nil {
		return nil, nil, core.At{}, nil
	}
	tasks, next, err := n.page(q)
	return tasks, next, core.At{}, err
}

func (n *fakeNode) Wait(ctx context.Context, p core.Partition, id core.TaskID) (core.Task, core.At, error) {
	n.step()
	t, at, err := n.Task(ctx, p, id, core.ReadOptions{})
	if err != nil || t.State.Terminal() {
		return t, at, err
	}
	<-ctx.Done()
	return t, at, ctx.Err()
}

func (n *fakeNode) Key(_ context.Context, p core.Partition, _ string, key []byte, _ core.ReadOptions) ([]byte, uint64, core.At, error) {
	n.step()
	n.reach(p)
	return key, 5, core.At{}, n.keyErr
}

func (n *fakeNode) Queue(_ context.Context, p core.Partition, name string, _ core.ReadOptions) (core.QueueStats, core.At, error) {
	n.step()
	n.reach(p)
	if name != "mail" {
		return core.QueueStats{}, core.At{}, core.NotFound{Kind: "queue", ID: name}
	}
	if n.queue.Queue != "" {
		return n.queue, core.At{}, nil
	}
	return core.QueueStats{Queue: name, Config: core.QueueConfig{Version: 2, Aging: -1, MaxDeliveries: -1}}, core.At{}, nil
}

func (n *fakeNode) Queues(_ context.Context, p core.Partition, after string, limit int, _ core.ReadOptions) (out []core.QueueStats, _ core.At, _ error) {
	n.step()
	n.reach(p)
	for i := range 5 {
		if name := fmt.Sprintf("q%d", i); name > after && len(out) < limit {
			out = append(out, core.QueueStats{Queue: name})
		}
	}
	return out, core.At{}, nil
}

func (n *fakeNode) NamespaceConfig(_ context.Context, p core.Partition, _ core.ReadOptions) (core.NamespaceConfig, core.At, error) {
	n.step()
	n.reach(p)
	return core.NamespaceConfig{Version: 4, NoAutoCreate: true}, core.At{}, nil
}

func (n *fakeNode) Format() uint16 { return cmp.Or(n.format, core.FormatCurrent) }

func (n *fakeNode) Status() core.NodeStatus {
	n.step()
	return core.NodeStatus{Node: "n1", Durability: "fsync", Shards: 1, Fsyncs: 9}
}

func (n *fakeNode) Shift(core.Partition) core.Millis { return n.shift }

func (n *fakeNode) Now(core.Partition) core.ShardTime {
	n.step()
	return core.ShardTimeOf(n.clock.Wall().Add(-n.behind))
}

// fakeSession records what a stream asks of its session.
type fakeSession struct {
	n    *fakeNode
	part core.Partition
	spec core.SessionSpec
	sink core.Sink

	mu      sync.Mutex
	subs    []core.Subscription
	slots   []uint32
	held    []core.TaskHold
	settled []core.TaskHold
	drained bool
	closed  bool
}

func (s *fakeSession) Subscribe(sub core.Subscription) {
	s.n.step()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs = append(s.subs, sub)
}

func (s *fakeSession) Slots(_, free uint32) {
	s.n.step()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = append(s.slots, free)
}

func (s *fakeSession) Settle(p core.Partition, commits []core.Commit, holds []core.TaskHold, done func(core.Proposed)) {
	s.n.step()
	s.mu.Lock()
	s.settled = append(s.settled, holds...)
	s.mu.Unlock()
	s.n.Propose(p, commits, done)
}

func (s *fakeSession) Held() []core.TaskHold {
	s.n.step()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *fakeSession) Drain() {
	s.n.step()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = true
}

func (s *fakeSession) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *fakeSession) state() (subs int, drained, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs), s.drained, s.closed
}

func (n *fakeNode) Keys(_ context.Context, p core.Partition, _ string, keys [][]byte, _ int, _ core.ReadOptions) ([]core.KeyRead, core.At, error) {
	n.step()
	n.reach(p)
	out := make([]core.KeyRead, len(keys))
	for i, key := range keys {
		out[i] = core.KeyRead{Value: key, Rev: 7}
	}
	return out, core.At{Partition: p.Index, Index: 9}, nil
}

func (n *fakeNode) KeyRange(_ context.Context, p core.Partition, r core.KeyRange, _ core.ReadOptions) (core.KeyCursor, core.At, error) {
	n.step()
	n.reach(p)
	pairs := []core.KeyPair{{Key: []byte("a"), Value: []byte("1"), Rev: 7}, {Key: []byte("b"), Value: []byte("2"), Rev: 8}}
	if len(r.From) > 0 {
		pairs = nil
	}
	if n.endless.Load() {
		return endlessCursor{}, core.At{Partition: p.Index, Index: 9}, nil
	}
	return &fakeCursor{pairs}, core.At{Partition: p.Index, Index: 9}, nil
}

// endlessCursor has as many keys as are asked for.
type endlessCursor struct{}

func (endlessCursor) Incarnation() uint32 { return 3 }
func (endlessCursor) Close() error        { return nil }
func (endlessCursor) Next(int, int, bool) ([]core.KeyPair, error) {
	return []core.KeyPair{{Key: []byte("a"), Value: make([]byte, 64<<10), Rev: 7}}, nil
}

type fakeCursor struct{ pairs []core.KeyPair }

func (c *fakeCursor) Incarnation() uint32 { return 3 }
func (c *fakeCursor) Close() error        { return nil }
func (c *fakeCursor) Next(items, _ int, _ bool) ([]core.KeyPair, error) {
	n := min(items, len(c.pairs))
	out := c.pairs[:n]
	c.pairs = c.pairs[n:]
	return out, nil
}

func (n *fakeNode) Keyspace(_ context.Context, p core.Partition, name string, _ bool, _ core.ReadOptions) (core.KeyspaceInfo, core.At, error) {
	n.step()
	n.reach(p)
	config := core.KeyspaceConfig{Version: 2, Bytes: 100, WriteRate: 5, ByteRate: 6}
	return core.KeyspaceInfo{Name: name, Incarnation: 3, Config: config, Keys: 2, Bytes: 50, Measured: 40}, core.At{Index: 9}, nil
}

func (n *fakeNode) Keyspaces(ctx context.Context, p core.Partition, _ string, _ int, o core.ReadOptions) ([]core.KeyspaceInfo, core.At, error) {
	n.step()
	k, at, err := n.Keyspace(ctx, p, "ks", false, o)
	return []core.KeyspaceInfo{k}, at, err
}

func (n *fakeNode) KeyBytes(_ context.Context, p core.Partition, _ core.ReadOptions) (uint64, core.At, error) {
	n.step()
	n.reach(p)
	return 60, core.At{Index: 9}, nil
}

// TakeRate holds all puts together to rates, from buckets of a second's worth.
func (n *fakeNode) TakeRate(_ core.Partition, ops []core.Op, _ bool) (wait time.Duration, limit string) {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	var what [2]int64
	for _, op := range ops {
		if w, ok := core.KeysOf(op); ok && op.Kind().Has(core.OpPutsKeys) {
			what[0] += int64(w.Writes)
			what[1] += int64(w.Bytes)
		}
	}
	if what[0] == 0 {
		return 0, ""
	}
	for i, limit := range []string{"writes_per_second", "bytes_per_second"} {
		rate := n.rates[i].Load()
		if rate == 0 {
			continue
		}
		now := n.clock.Boot()
		if n.filled[i] == 0 || now-n.filled[i] >= time.Second {
			n.left[i], n.filled[i] = rate, now
		}
		if n.left[i] <= 0 {
			return time.Second, limit
		}
		n.left[i] -= what[i]
	}
	return 0, ""
}

func (n *fakeNode) KeyPace(core.Partition, bool) core.KeyPace {
	n.step()
	return core.KeyPace{Puts: 3, Bytes: 30, OverPuts: 1, OverBytes: 10}
}

func (n *fakeNode) SetTenant(_ context.Context, tenant string, c core.TenantConfig, ifVersion int64) (uint64, error) {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.tenants[tenant]
	if ifVersion >= 0 && uint64(ifVersion) != now.Version {
		return 0, core.RevMismatch{Rev: now.Version, Missing: now.Version == 0}
	}
	if n.tenants == nil {
		n.tenants = make(map[string]core.TenantConfig)
	}
	c.Version = now.Version + 1
	n.tenants[tenant] = c
	return c.Version, nil
}

func (n *fakeNode) Tenant(_ context.Context, name string) (core.TenantInfo, error) {
	n.step()
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.tenants[name]
	if !ok {
		return core.TenantInfo{Name: name}, nil
	}
	return core.TenantInfo{ID: 7, Name: name, Namespaces: 2, Config: c, Measured: 60, Over: c.KeyBytes > 0 && c.KeyBytes < 60, Pace: n.KeyPace(core.Partition{}, true)}, nil
}
