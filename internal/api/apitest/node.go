package apitest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/history"
)

// Planter panics below a call, for tests of what the calls that recover give back.
type Planter struct{ PanicIn atomic.Int64 } // steps until then; 0: never

func (p *Planter) step() {
	if p != nil && p.PanicIn.Load() > 0 && p.PanicIn.Add(-1) == 0 {
		panic("planted")
	}
}

// Node is the node as package api asks for it, in each of its interfaces, and package stream (session.go). A test can script what it
// answers.
type Node struct {
	EntryFormat uint16      // of entries; 0: the current one
	PinnedQueue string      // the queue that is pinned; empty: none is
	New         bool        // it has not heard of the cluster's format
	WallShift   core.Millis // what wall clocks show beyond its shard time
	Planter
	Rates [2]atomic.Int64 // of all puts: how many, and their bytes, per second
	left  [2]int64        // of them

	CreateRate, Creates  atomic.Int64 // tasks that may be created one by one or in batches, and those that were; 0: any number
	StreamsMost, Streams atomic.Int64 // streams that may be open, and those that are; 0: any number
	Use                  core.TaskUse // what any tenant has of tasks

	filled   [2]time.Duration
	tenants  map[string]core.TenantConfig
	Endless  atomic.Bool // ranges have no end
	Mu       sync.Mutex
	claims   map[claimKey]context.CancelCauseFunc // under way
	Clock    *Clock
	Spaces   map[string]core.NamespaceInfo
	Made     int // namespaces
	Commits  []core.Commit
	HeldBack []func()                      // ends of proposals that wait for the test, with holding
	Holding  bool                          // proposals wait for the test
	Judge    func(core.Commit) core.Result // default: applied
	Ended    func([]core.Commit) core.Fact // a proposal that ends without results
	OnClaim  func(context.Context, core.ClaimSpec) ([]core.Assigned, error)
	Stored   map[core.Partition]map[core.TaskID]core.Task
	Ends     chan struct{} // closed when waits are to look again; nil: they look once, or wait until their caller is gone
	OnPage   func(core.ListQuery) ([]core.Task, []byte, error)
	KeyErr   error
	Behind   time.Duration // shard time, of the wall clock
	Sessions []*Session
	Known    []core.Worker // the workers that are listed
	Waits    *core.Why     // why a task is where it is; nil: it is the next one
	Full     bool          // its disk is
	Opened   chan *Session
	Welcome  core.Welcome
	reached  map[core.Partition]bool // by any call but Now

	Members        []string                 // addresses of the cluster
	Parts          int                      // of namespaces made by their first use; default 1
	Leaders        map[uint16]string        // by partition; default: this node, and "?" for no node
	Ready          map[uint16]bool          // partitions with ready tasks
	moved          chan struct{}            // closed when leaders change
	Forwarded      []uint16                 // partitions of proposals by Forward, in no order
	Strays         map[uint16]core.Proposed // ends of proposals to a partition
	asked          int                      // who follows the leaders since they changed last
	OnClaimAt      func(context.Context, core.Partition, core.ClaimSpec) ([]core.Assigned, error)
	OnPageAt       func(core.Partition, core.ListQuery) ([]core.Task, []byte)
	PayloadText    string // of what is embedded of any payload
	OnSearch       func(context.Context, *core.SearchQuery) (*core.SearchAnswer, error)
	ClaimElsewhere error            // of EndClaim where no such claim is here; nil: there is none
	Looked         func()           // hears that a definition is looked for; may be nil
	Defined        *core.Collection // what ws is; nil: Definition
	Undefined      bool             // only Collection finds ws
	Removed        bool             // only Definition finds ws: the node's copy is older than the answer to its removal
	IndexLoaded    chan struct{}    // closed when indexes are loaded; nil: they are
	Settles        chan struct{}    // closed when reads of collections may be answered; nil: at once, without being asked
	Mail           core.QueueStats  // of mail; default: one of a configuration of its own

	QueueHas map[string]history.Rates  // rates of queues; default: none are known
	QueueDid map[string]history.Recent // what queues did lately; default: nothing is known
	refusals *history.Refusals         // what bounds refused
	Lines    []history.Line            // the series of every queue; nil: there are none
	Listed   []core.QueueStats         // queues that are listed, by name; nil: five without tasks
}

// NewNode returns a node without namespaces.
func NewNode(clock *Clock) *Node {
	return &Node{
		Clock: clock, Spaces: make(map[string]core.NamespaceInfo),
		Stored: make(map[core.Partition]map[core.TaskID]core.Task), Opened: make(chan *Session, 64),
		reached: make(map[core.Partition]bool), refusals: history.NewRefusals(), Known: []core.Worker{{ID: "w", Queues: []string{"mail"}, Nodes: []string{"n1"}}},
	}
}

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

// Namespaces lists those that were made, as the directory does.
func (n *Node) Namespaces(tenant, after string, limit int) (list []core.NamespaceInfo, err error) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n.Spaces)) {
		if ns := n.Spaces[name]; ns.TenantName == tenant && ns.Name > after && len(list) < limit {
			list = append(list, ns)
		}
	}
	return list, nil
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
		case *core.LimiterSet:
			o.Version = 1 // as Limiter reads it
		case *core.CronDelete, *core.LimiterDelete:
			o.Existed = true
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

// NamespaceConfig answers as a test has set.
func (n *Node) NamespaceConfig(_ context.Context, p core.Partition, _ core.ReadOptions) (core.NamespaceConfig, core.At, error) {
	n.step()
	n.reach(p)
	return core.NamespaceConfig{Version: 4, NoAutoCreate: true}, core.At{}, nil
}

// Format answers as a test has set.
func (n *Node) Format() uint16 { return cmp.Or(n.EntryFormat, core.FormatCurrent) }

// Pinned answers as a test has set.
func (n *Node) Pinned(_ core.Partition, queue string) bool {
	return queue != "" && queue == n.PinnedQueue
}

// KnowsFormat answers as a test has set.
func (n *Node) KnowsFormat() bool { return !n.New }

// Status answers as a test has set.
func (n *Node) Status() core.NodeStatus {
	n.step()
	return core.NodeStatus{Node: "n1", Durability: "fsync", Shards: 1, Fsyncs: 9, DiskFull: n.Full}
}

// Shift answers as a test has set.
func (n *Node) Shift(core.Partition) core.Millis { return n.WallShift }

// Now answers as a test has set.
func (n *Node) Now(core.Partition) core.ShardTime {
	n.step()
	return core.ShardTimeOf(n.Clock.Wall().Add(-n.Behind))
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
func (n *Node) Tenant(_ context.Context, name string, _ core.ReadOptions) (core.TenantInfo, error) {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	c, ok := n.tenants[name]
	if !ok {
		return core.TenantInfo{Name: name}, nil
	}
	return core.TenantInfo{ID: 7, Name: name, Namespaces: 2, Config: c, Measured: 60, Over: c.KeyBytes > 0 && c.KeyBytes < 60, Pace: n.KeyPace(core.Partition{}, true), Creates: n.KeyPace(core.Partition{}, true), Use: n.Use}, nil
}
