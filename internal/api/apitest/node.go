package apitest

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

// Planter panics below a call, for tests of what the calls that recover give back. Fakes embed it, and call step in
// each method. PanicIn is how many steps there are until it panics; 0: it never does.
type Planter struct{ PanicIn atomic.Int64 } // steps until then; 0: never

// step counts one step, and panics when it is the last. A nil Planter never panics.
func (p *Planter) step() {
	if p != nil && p.PanicIn.Load() > 0 && p.PanicIn.Add(-1) == 0 {
		panic("planted")
	}
}

// Node is a Backend whose answers a test can script. Fields without another word are set before the first call, or
// under Mu.
type Node struct {
	// EntryFormat is the format of entries; 0: the current one.
	EntryFormat uint16
	// WallShift is what wall clocks show beyond the node's shard time.
	WallShift core.Millis
	Planter
	// Rates bound all puts together, per second: their number, and their bytes. 0: there is no bound.
	Rates [2]atomic.Int64
	// left is what may still be taken of each rate.
	left [2]int64
	// filled is the boot time at which left was filled last.
	filled [2]time.Duration
	// tenants are the configurations that SetTenant has stored, by the tenant's name.
	tenants map[string]core.TenantConfig
	// Endless says that ranges of keys have no end.
	Endless atomic.Bool
	// Mu guards what calls change: the namespaces, the commits, the sessions and what was reached.
	Mu sync.Mutex
	// Clock is the time of the node.
	Clock *Clock
	// Spaces are the namespaces, by tenant and name with a slash between.
	Spaces map[string]core.NamespaceInfo
	// Made is how many namespaces were made, which gives the next one its number.
	Made int
	// Commits are all that were proposed, in the order in which they came.
	Commits []core.Commit
	// HeldBack are the ends of proposals that wait for the test, while Holding is set.
	HeldBack []func()
	// Holding says that proposals wait for the test to end them.
	Holding bool
	// Judge decides the result of a commit; nil: it is applied.
	Judge func(core.Commit) core.Result
	// Ended may end a whole proposal without results; nil: none ends so.
	Ended func([]core.Commit) core.Fact
	// OnClaim answers claims; nil: there is no task.
	OnClaim func(context.Context, core.ClaimSpec) ([]core.Assigned, error)
	// Stored are the tasks that reads find, by partition and id.
	Stored map[core.Partition]map[core.TaskID]core.Task
	// OnPage answers lists of tasks; nil: they are empty.
	OnPage func(core.ListQuery) ([]core.Task, []byte, error)
	// KeyErr is what a read of a key fails with; nil: it succeeds.
	KeyErr error
	// Behind is how far the node's shard time is behind its wall clock.
	Behind time.Duration
	// Sessions are those that streams have opened, in order.
	Sessions []*Session
	// Opened gets each session that is opened, so that a test can wait for it.
	Opened chan *Session
	// Welcome is the answer to the opening of a session.
	Welcome core.Welcome
	// reached are the partitions that any call but Now has named.
	reached map[core.Partition]bool

	// Members are the addresses of the cluster.
	Members []string
	// Parts is the number of partitions of namespaces that their first use makes; 0: one.
	Parts int
	// Leaders are the addresses of leaders by partition; empty: this node leads, "?": no node is known to.
	Leaders map[uint16]string
	// Ready are the partitions with ready tasks.
	Ready map[uint16]bool
	// moved is closed when leaders change; nil: no call waits for that.
	moved chan struct{}
	// Forwarded are the partitions of proposals by Forward, in no order.
	Forwarded []uint16
	// Strays are how proposals to a partition end by Forward, by partition.
	Strays map[uint16]core.Proposed
	// asked is how many have asked for moved since the leaders changed last.
	asked int
	// OnClaimAt answers claims by partition, before OnClaim is asked; nil: it is not used.
	OnClaimAt func(context.Context, core.Partition, core.ClaimSpec) ([]core.Assigned, error)
	// OnPageAt answers lists of tasks by partition, before OnPage is asked; nil: it is not used.
	OnPageAt func(core.Partition, core.ListQuery) ([]core.Task, []byte)
	// PayloadText is the text that is embedded of any payload; empty: "text".
	PayloadText string
	// OnSearch answers searches; nil: they find one row.
	OnSearch func(context.Context, *core.SearchQuery) (*core.SearchAnswer, error)
	// Looked hears that a definition is looked for; may be nil.
	Looked func()
	// Defined is the collection ws; nil: Definition.
	Defined *core.Collection
	// Undefined says that only Collection finds ws.
	Undefined bool
	// Removed says that only Definition finds ws: the node's copy is older than the answer to its removal.
	Removed bool
	// IndexLoaded is closed when indexes are loaded; nil: they are.
	IndexLoaded chan struct{}
	// Settles is closed when reads of collections may be answered; nil: at once, without being asked.
	Settles chan struct{}
	// Mail is the state of the queue mail; its zero value: one of a configuration of its own.
	Mail core.QueueStats
}

// NewNode returns a node without namespaces.
func NewNode(clock *Clock) *Node {
	return &Node{
		Clock: clock, Spaces: make(map[string]core.NamespaceInfo),
		Stored: make(map[core.Partition]map[core.TaskID]core.Task), Opened: make(chan *Session, 64),
		reached: make(map[core.Partition]bool),
	}
}

// reach notes that a call has named a partition.
func (n *Node) reach(p core.Partition) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.reached[p] = true
}

// ReachedBy calls f and returns the partitions that were reached meanwhile.
func (n *Node) ReachedBy(f func()) []core.Partition {
	n.Mu.Lock()
	clear(n.reached)
	n.Mu.Unlock()
	f()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return slices.Collect(maps.Keys(n.reached))
}

// Namespace answers as a test has set.
func (n *Node) Namespace(_ context.Context, tenant, name string, create bool) (core.NamespaceInfo, error) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	ns, ok := n.Spaces[tenant+"/"+name]
	if !ok {
		if !create {
			return ns, core.NotFound{Kind: "namespace", ID: name}
		}
		n.Made++
		ns = n.Make(tenant, name, max(n.Parts, 1))
	}
	return ns, nil
}

// Make makes a namespace. The caller holds the lock, and has counted it.
func (n *Node) Make(tenant, name string, parts int) core.NamespaceInfo {
	ns := core.NamespaceInfo{Name: name, TenantName: tenant}
	for i := range parts {
		ns.Partitions = append(ns.Partitions, core.PartitionInfo{
			Partition: core.Partition{Tenant: core.TenantID(len(tenant)), Namespace: core.NamespaceID(n.Made), Index: uint16(i)},
			Shard:     core.ShardID(i % 4),
		})
	}
	n.Spaces[tenant+"/"+name] = ns
	return ns
}

// CreateNamespace answers as a test has set.
func (n *Node) CreateNamespace(_ context.Context, tenant, name string, parts int) (core.NamespaceInfo, bool, error) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	ns, replayed := n.Spaces[tenant+"/"+name]
	switch {
	case !replayed:
		n.Made++
		ns = n.Make(tenant, name, parts)
	case len(ns.Partitions) != parts:
		return ns, false, core.AlreadyExists{Kind: "namespace", ID: name}
	}
	n.reached[ns.Partitions[0].Partition] = true
	return ns, replayed, nil
}

// RemoveNamespace tells what a node does, and keeps the namespace for the rest of the test.
func (n *Node) RemoveNamespace(_ context.Context, tenant, name string) (bool, error) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	ns, existed := n.Spaces[tenant+"/"+name]
	if existed {
		n.reached[ns.Partitions[0].Partition] = true
	}
	return existed, nil
}

// Leader answers as a test has set.
func (n *Node) Leader(p core.Partition) (address string, here, known bool) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	address = n.Leaders[p.Index]
	if address == "?" {
		return "", false, false
	}
	return address, address == "", true
}

// Nodes answers as a test has set.
func (n *Node) Nodes() []string {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.Members
}

// Moved answers as a test has set.
func (n *Node) Moved() <-chan struct{} {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if n.moved == nil {
		n.moved = make(chan struct{})
	}
	n.asked++
	return n.moved
}

// Followers is how many wait for the leaders to change.
func (n *Node) Followers() int {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.asked
}

// Lead gives partitions leaders, and tells who waits for that.
func (n *Node) Lead(leaders map[uint16]string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.Leaders, n.asked = leaders, 0
	if n.moved != nil {
		close(n.moved)
		n.moved = nil
	}
}

// Backlog answers as a test has set.
func (n *Node) Backlog(p core.Partition, _ []core.GrantQueue) bool {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.Ready[p.Index]
}

// Forward answers as a test has set.
func (n *Node) Forward(ctx context.Context, p core.Partition, commits []core.Commit) core.Proposed {
	n.step()
	n.Mu.Lock()
	n.Forwarded = append(n.Forwarded, p.Index)
	end, scripted := n.Strays[p.Index]
	n.Mu.Unlock()
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

// Propose answers as a test has set.
func (n *Node) Propose(p core.Partition, commits []core.Commit, done func(core.Proposed)) {
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

// proposeAt takes commits in, makes their results, and ends the proposal or holds it back.
func (n *Node) proposeAt(p core.Partition, commits []core.Commit, done func(core.Proposed)) {
	n.reach(p)
	for _, c := range commits {
		n.reach(c.Partition)
	}
	n.Mu.Lock()
	n.Commits = append(n.Commits, commits...)
	out := core.Proposed{At: core.At{Partition: p.Index, Index: uint64(len(n.Commits)), Stamp: core.ShardTimeOf(Now)}}
	if n.Ended != nil {
		out.Err = n.Ended(commits)
	}
	for _, c := range commits {
		if out.Err == nil {
			out.Results = append(out.Results, n.result(c))
		}
	}
	if n.Holding {
		n.HeldBack = append(n.HeldBack, func() { done(out) })
		n.Mu.Unlock()
		return
	}
	n.Mu.Unlock()
	done(out)
}

// result is what Judge says of a commit, or Applied.
func (n *Node) result(c core.Commit) core.Result {
	if n.Judge != nil {
		return n.Judge(c)
	}
	return Applied(c)
}

// Applied is the result of a commit that nothing refuses.
func Applied(c core.Commit) (r core.Result) {
	for _, op := range c.Ops {
		o := core.OpResult{Kind: op.Kind(), State: core.Ready}
		switch op := op.(type) {
		case *core.TaskCreate:
			o.Task = op.ID
		case *core.TaskComplete:
			o.State = core.Completed
		case *core.TaskRenew:
			for range op.Items {
				o.Renewed = append(o.Renewed, core.Renewed{Until: core.ShardTimeOf(Now)})
			}
		case *core.KVPut:
			o.Rev = 7
		case *core.QueueSet, *core.NamespaceSet, *core.KeyspaceSet:
			o.Version = 3
		case *core.QueueDelete:
			o.Existed = op.Queue != "gone"
		case *core.RefTxn:
			o.Refs = RefAnswer(op)
		case *core.RepoCreate, *core.RepoSet, *core.RepoDelete, *core.RepoUndelete:
			o.Version, o.Refs = 2, &core.RefsAnswer{Repo: core.RepoID{1}}
		}
		r.Ops = append(r.Ops, o)
	}
	return r
}

// Proposed is what was proposed so far.
func (n *Node) Proposed() []core.Commit {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return append([]core.Commit(nil), n.Commits...)
}

// ReleaseHeld ends one held proposal, by its place in the order of arrival.
func (n *Node) ReleaseHeld(i int) {
	n.Mu.Lock()
	f := n.HeldBack[i]
	n.HeldBack = append(n.HeldBack[:i:i], n.HeldBack[i+1:]...)
	n.Mu.Unlock()
	f()
}

// Waiting is how many proposals wait for the test.
func (n *Node) Waiting() int {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return len(n.HeldBack)
}

// Session answers as a test has set.
func (n *Node) Session(_ context.Context, p core.Partition, s core.SessionSpec, sink core.Sink) (core.Session, core.Welcome, error) {
	n.step()
	n.reach(p)
	ses := &Session{n: n, Part: p, Spec: s, Sink: sink}
	n.Mu.Lock()
	n.Sessions = append(n.Sessions, ses)
	w := n.Welcome
	n.Mu.Unlock()
	n.Opened <- ses
	return ses, w, nil
}

// Claim answers as a test has set.
func (n *Node) Claim(ctx context.Context, p core.Partition, s core.ClaimSpec) ([]core.Assigned, core.At, error) {
	n.step()
	n.reach(p)
	if address, here, _ := n.Leader(p); !here {
		return nil, core.At{}, core.NotLeader{Leader: address}
	}
	if n.OnClaimAt != nil {
		tasks, err := n.OnClaimAt(ctx, p, s)
		return tasks, core.At{Partition: p.Index}, err
	}
	if n.OnClaim == nil {
		return nil, core.At{}, nil
	}
	tasks, err := n.OnClaim(ctx, s)
	return tasks, core.At{}, err
}

// Task answers as a test has set.
func (n *Node) Task(_ context.Context, p core.Partition, id core.TaskID, _ core.ReadOptions) (core.Task, core.At, error) {
	n.step()
	n.reach(p)
	n.Mu.Lock()
	defer n.Mu.Unlock()
	t, ok := n.Stored[p][id]
	if !ok {
		return t, core.At{}, core.NotFound{Kind: "task", ID: id.String()}
	}
	return t, core.At{Index: 1}, nil
}

// Attempts answers as a test has set.
func (n *Node) Attempts(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) ([]core.Attempt, core.At, error) {
	n.step()
	_, at, err := n.Task(ctx, p, id, o)
	return []core.Attempt{{Number: 1, Outcome: core.OutcomeFailed, Error: core.TaskError{Code: "x"}}}, at, err
}

// Tasks answers as a test has set.
func (n *Node) Tasks(_ context.Context, p core.Partition, q core.ListQuery) (core.TaskPage, core.At, error) {
	n.step()
	n.reach(p)
	if n.OnPageAt != nil {
		tasks, next := n.OnPageAt(p, q)
		return core.TaskPage{Tasks: tasks, Next: next, Inspected: len(tasks)}, core.At{}, nil
	}
	if n.OnPage == nil {
		return core.TaskPage{}, core.At{}, nil
	}
	tasks, next, err := n.OnPage(q)
	return core.TaskPage{Tasks: tasks, Next: next, Inspected: len(tasks)}, core.At{}, err
}

// Wait answers as a test has set.
func (n *Node) Wait(ctx context.Context, p core.Partition, id core.TaskID) (core.Task, core.At, error) {
	n.step()
	t, at, err := n.Task(ctx, p, id, core.ReadOptions{})
	if err != nil || t.State.Terminal() {
		return t, at, err
	}
	<-ctx.Done()
	return t, at, ctx.Err()
}

// Key answers as a test has set.
func (n *Node) Key(_ context.Context, p core.Partition, _ string, key []byte, _ core.ReadOptions) ([]byte, uint64, core.At, error) {
	n.step()
	n.reach(p)
	return key, 5, core.At{}, n.KeyErr
}

// Queue answers as a test has set.
func (n *Node) Queue(_ context.Context, p core.Partition, name string, _ core.ReadOptions) (core.QueueStats, core.At, error) {
	n.step()
	n.reach(p)
	if name != "mail" {
		return core.QueueStats{}, core.At{}, core.NotFound{Kind: "queue", ID: name}
	}
	if n.Mail.Queue != "" {
		return n.Mail, core.At{}, nil
	}
	return core.QueueStats{Queue: name, Config: core.QueueConfig{Version: 2, Aging: -1, MaxDeliveries: -1}}, core.At{}, nil
}

// Queues answers as a test has set.
func (n *Node) Queues(_ context.Context, p core.Partition, after string, limit int, _ core.ReadOptions) (out []core.QueueStats, _ core.At, _ error) {
	n.step()
	n.reach(p)
	for i := range 5 {
		if name := fmt.Sprintf("q%d", i); name > after && len(out) < limit {
			out = append(out, core.QueueStats{Queue: name})
		}
	}
	return out, core.At{}, nil
}

// NamespaceConfig answers as a test has set.
func (n *Node) NamespaceConfig(_ context.Context, p core.Partition, _ core.ReadOptions) (core.NamespaceConfig, core.At, error) {
	n.step()
	n.reach(p)
	return core.NamespaceConfig{Version: 4, NoAutoCreate: true}, core.At{}, nil
}

// Format answers as a test has set.
func (n *Node) Format() uint16 { return cmp.Or(n.EntryFormat, core.FormatCurrent) }

// Status answers as a test has set.
func (n *Node) Status() core.NodeStatus {
	n.step()
	return core.NodeStatus{Node: "n1", Durability: "fsync", Shards: 1, Fsyncs: 9}
}

// Shift answers as a test has set.
func (n *Node) Shift(core.Partition) core.Millis { return n.WallShift }

// Now answers as a test has set.
func (n *Node) Now(core.Partition) core.ShardTime {
	n.step()
	return core.ShardTimeOf(n.Clock.Wall().Add(-n.Behind))
}

// Session records what a stream asks of its session.
type Session struct {
	// n is the node that opened it; its Planter counts the session's calls too.
	n *Node
	// Part is the partition, and Spec what the stream has asked for.
	Part core.Partition
	Spec core.SessionSpec
	// Sink is where a test gives tasks to the stream.
	Sink core.Sink

	// Mu guards the fields below.
	Mu sync.Mutex
	// Subs are the subscriptions, in order.
	Subs []core.Subscription
	// slots are the numbers of free slots that were told, in order.
	slots []uint32
	// Holds are the leases that the session has, as a test has set.
	Holds []core.TaskHold
	// Settled are the leases that settlements have named.
	Settled []core.TaskHold
	// drained says that Drain was called, closed that Close was.
	drained bool
	closed  bool
}

// Subscribe notes that it was called.
func (s *Session) Subscribe(sub core.Subscription) {
	s.n.step()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Subs = append(s.Subs, sub)
}

// Slots notes that it was called.
func (s *Session) Slots(_, free uint32) {
	s.n.step()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.slots = append(s.slots, free)
}

// Settle notes that it was called.
func (s *Session) Settle(p core.Partition, commits []core.Commit, holds []core.TaskHold, done func(core.Proposed)) {
	s.n.step()
	s.Mu.Lock()
	s.Settled = append(s.Settled, holds...)
	s.Mu.Unlock()
	s.n.Propose(p, commits, done)
}

// Held are the leases of the session.
func (s *Session) Held() []core.TaskHold {
	s.n.step()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Holds
}

// Drain notes that it was called.
func (s *Session) Drain() {
	s.n.step()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.drained = true
}

// Close notes that it was called.
func (s *Session) Close() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.closed = true
}

// State is what the session was told.
func (s *Session) State() (subs int, drained, closed bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return len(s.Subs), s.drained, s.closed
}

// Keys answers as a test has set.
func (n *Node) Keys(_ context.Context, p core.Partition, _ string, keys [][]byte, _ int, _ core.ReadOptions) ([]core.KeyRead, core.At, error) {
	n.step()
	n.reach(p)
	out := make([]core.KeyRead, len(keys))
	for i, key := range keys {
		out[i] = core.KeyRead{Value: key, Rev: 7}
	}
	return out, core.At{Partition: p.Index, Index: 9}, nil
}

// KeyRange answers as a test has set.
func (n *Node) KeyRange(_ context.Context, p core.Partition, r core.KeyRange, _ core.ReadOptions) (core.KeyCursor, core.At, error) {
	n.step()
	n.reach(p)
	pairs := []core.KeyPair{{Key: []byte("a"), Value: []byte("1"), Rev: 7}, {Key: []byte("b"), Value: []byte("2"), Rev: 8}}
	if len(r.From) > 0 {
		pairs = nil
	}
	if n.Endless.Load() {
		return endlessCursor{}, core.At{Partition: p.Index, Index: 9}, nil
	}
	return &cursor{pairs}, core.At{Partition: p.Index, Index: 9}, nil
}

// endlessCursor has as many keys as are asked for.
type endlessCursor struct{}

// Incarnation answers as a test has set.
func (endlessCursor) Incarnation() uint32 { return 3 }

// Close answers as a test has set.
func (endlessCursor) Close() error { return nil }

// Next answers as a test has set.
func (endlessCursor) Next(int, int, bool) ([]core.KeyPair, error) {
	return []core.KeyPair{{Key: []byte("a"), Value: make([]byte, 64<<10), Rev: 7}}, nil
}

// cursor gives the pairs that it has, and then none.
type cursor struct{ pairs []core.KeyPair }

// Incarnation answers as a test has set.
func (c *cursor) Incarnation() uint32 { return 3 }

// Close answers as a test has set.
func (c *cursor) Close() error { return nil }

// Next answers as a test has set.
func (c *cursor) Next(items, _ int, _ bool) ([]core.KeyPair, error) {
	n := min(items, len(c.pairs))
	out := c.pairs[:n]
	c.pairs = c.pairs[n:]
	return out, nil
}

// Keyspace answers as a test has set.
func (n *Node) Keyspace(_ context.Context, p core.Partition, name string, _ bool, _ core.ReadOptions) (core.KeyspaceInfo, core.At, error) {
	n.step()
	n.reach(p)
	config := core.KeyspaceConfig{Version: 2, Bytes: 100, WriteRate: 5, ByteRate: 6}
	return core.KeyspaceInfo{Name: name, Incarnation: 3, Config: config, Keys: 2, Bytes: 50, Measured: 40}, core.At{Index: 9}, nil
}

// Keyspaces answers as a test has set.
func (n *Node) Keyspaces(ctx context.Context, p core.Partition, _ string, _ int, o core.ReadOptions) ([]core.KeyspaceInfo, core.At, error) {
	n.step()
	k, at, err := n.Keyspace(ctx, p, "ks", false, o)
	return []core.KeyspaceInfo{k}, at, err
}

// KeyBytes answers as a test has set.
func (n *Node) KeyBytes(_ context.Context, p core.Partition, _ core.ReadOptions) (uint64, core.At, error) {
	n.step()
	n.reach(p)
	return 60, core.At{Index: 9}, nil
}

// TakeRate holds all puts together to rates, from buckets of a second's worth.
func (n *Node) TakeRate(_ core.Partition, ops []core.Op, _ bool) (wait time.Duration, limit string) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
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
		rate := n.Rates[i].Load()
		if rate == 0 {
			continue
		}
		now := n.Clock.Boot()
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

// KeyPace answers as a test has set.
func (n *Node) KeyPace(core.Partition, bool) core.KeyPace {
	n.step()
	return core.KeyPace{Puts: 3, Bytes: 30, OverPuts: 1, OverBytes: 10}
}

// SetTenant answers as a test has set.
func (n *Node) SetTenant(_ context.Context, tenant string, c core.TenantConfig, ifVersion int64) (uint64, error) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
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

// Tenant answers as a test has set.
func (n *Node) Tenant(_ context.Context, name string) (core.TenantInfo, error) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	c, ok := n.tenants[name]
	if !ok {
		return core.TenantInfo{Name: name}, nil
	}
	return core.TenantInfo{ID: 7, Name: name, Namespaces: 2, Config: c, Measured: 60, Over: c.KeyBytes > 0 && c.KeyBytes < 60, Pace: n.KeyPace(core.Partition{}, true)}, nil
}
