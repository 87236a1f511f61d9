package check

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// Model is one shard's state as the documentation describes it, on plain maps: tasks, leases, tokens, unique keys,
// request ids, sessions, keys. Judge replays an entry on it and says whether the results were allowed.
//
// Where the documentation leaves a choice, a task has several possible standings, and each answer keeps those that
// explain it. Revisions, ids and tokens are taken from the answers, once they are seen to rise.
type Model struct {
	parts     map[core.Partition]*part
	spaces    map[spaceName]core.OpResult // namespaces of the directory
	tenants   map[string]core.TenantConfig
	seals     sealKeys            // of sessions of browsers
	unbound   uint64              // highest version of a tenant's configuration that was removed
	marks     map[markName]mark   // of removals that are under way
	retired   map[markName]string // numbers of namespaces that were removed, with the tenant's name
	removals  uint64              // the last number given to one
	index     uint64
	rules     uint16 // format of the entry at hand
	stamp     core.ShardTime
	termStart core.ShardTime
	shift     core.Millis // what wall clocks show beyond the stamp
	club      *club
	written   uint16   // the format that entries are to be written in; 0: the first
	undo      []func() // takes back the commit that is being judged
	guesses   guesses  // about that commit, where its answer leaves a choice
	follow    []following
	// batchLooks are the batches that the op at hand may have finished.
	batchLooks []batchLook
}

type spaceName struct{ tenant, name string }

// part is one partition.
type part struct {
	index    uint16 // among those of its namespace
	tasks    map[core.TaskID]*task
	timed    map[core.TaskID]bool // tasks that some standing has running or scheduled
	unswept  map[core.TaskID]bool // tasks that had not ended when their queue was removed
	queues   map[string]*queue
	unique   map[uniqueName]uniqueKey
	replaced map[core.TaskID]replaced
	spaces   map[string]map[string]pair // keyspace → key
	rules    map[string]spaceOf         // by keyspace
	made     uint32                     // keyspaces ever made
	requests map[core.RequestID]request
	sessions map[core.SessionID][]session
	config   core.NamespaceConfig
	total    uint64 // bytes on disk of all keyspaces of the namespace, as was told last
	tenant   core.TenantUse
	quota    core.TenantQuota
	rev      uint64     // the largest seen
	token    core.Token // the largest issued
	search   searches
	repos    repos
	bulks    map[core.TaskID]*bulk
	crons    map[string]*cron
	batches  map[core.TaskID]*batch
	limiters map[string]limiter
	closing  closing
}

// uniqueName names a unique key, or an idempotency key, which are two spaces.
type uniqueName struct {
	queue, key string
	request    bool
}

type uniqueKey struct {
	create core.TaskCreate // of the task that holds it
	until  core.ShardTime
	old    bool // made by an entry before format 2: it holds the key in both spaces, and knows the payload alone
}

type pair struct {
	value  []byte
	rev    uint64
	writer writer
}

// writer is the attempt that wrote a key last; zero: none was kept.
type writer struct {
	task  core.TaskID
	token core.Token
}

type request struct {
	commit core.Commit
	result core.Result
	index  uint64
	at     core.ShardTime
}

// session is where a session may stand; last is 0 when it is not known.
type session struct {
	last    uint64
	seen    core.ShardTime
	answers map[uint64]core.Result
}

// What is kept, and for how long at least.
const (
	keepRequest   = core.Millis(10 * 60 * 1000)
	keepSession   = core.Millis(10 * 60 * 1000)
	keepAnswers   = 64
	keepIdentity  = core.Millis(15 * 60 * 1000) // of an ended task's id
	longestGrace  = core.Millis(15 * 1000)      // of leases after a term starts
	defaultRetain = int64(10 << 30)
)

// NewModel returns the model of an empty shard.
func NewModel() *Model {
	return &Model{parts: map[core.Partition]*part{}, spaces: map[spaceName]core.OpResult{}, tenants: map[string]core.TenantConfig{}, marks: map[markName]mark{}, retired: map[markName]string{}, club: &club{seats: map[uint64]seat{}}}
}

func (m *Model) part(p core.Partition) *part {
	if m.parts[p] == nil {
		m.parts[p] = &part{
			index: p.Index,
			tasks: map[core.TaskID]*task{}, timed: map[core.TaskID]bool{}, unswept: map[core.TaskID]bool{}, queues: map[string]*queue{},
			unique: map[uniqueName]uniqueKey{}, replaced: map[core.TaskID]replaced{}, spaces: map[string]map[string]pair{},
			rules: map[string]spaceOf{}, requests: map[core.RequestID]request{}, sessions: map[core.SessionID][]session{}, search: newSearches(), repos: repos{}, bulks: map[core.TaskID]*bulk{}, crons: map[string]*cron{}, batches: map[core.TaskID]*batch{}, limiters: map[string]limiter{},
		}
	}
	return m.parts[p]
}

// partitions lists what the model knows, in order.
func (m *Model) partitions() []*part {
	keys := m.Partitions()
	out := make([]*part, len(keys))
	for i, p := range keys {
		out[i] = m.parts[p]
	}
	return out
}

// Mismatch is an answer that the model does not allow.
type Mismatch struct {
	Index  uint64
	Commit int
	What   string
}

// Error says where and what.
func (e *Mismatch) Error() string {
	return fmt.Sprintf("entry %d, commit %d: %s", e.Index, e.Commit, e.What)
}

// Judge replays the entry at index. results are what Apply answered, one per commit. It returns a *Mismatch for the
// first answer that is not allowed; the model is of no use afterwards.
func (m *Model) Judge(index uint64, e *core.Entry, results []core.Result) error {
	switch {
	case index <= m.index:
		return &Mismatch{index, 0, fmt.Sprintf("comes after entry %d", m.index)}
	case e.Stamp < m.stamp:
		return &Mismatch{index, 0, fmt.Sprintf("shard time falls from %d to %d", m.stamp, e.Stamp)}
	case len(results) != len(e.Commits):
		return &Mismatch{index, 0, fmt.Sprintf("%d results for %d commits", len(results), len(e.Commits))}
	}
	if m.rules < core.FormatQueues && e.Format >= core.FormatQueues {
		m.reorder()
	}
	m.index, m.stamp, m.rules = index, e.Stamp, e.Format
	for i := range e.Commits {
		if err := m.commit(&e.Commits[i], &results[i]); err != nil {
			return &Mismatch{index, i, err.Error()}
		}
	}
	return nil
}

// reorder forgets the order of ready tasks: places of format 1 are a class of their own, of which nothing is said here.
func (m *Model) reorder() {
	for _, p := range m.partitions() {
		for name, q := range p.queues {
			q.fresh = map[place][]*task{}
			p.unorder(m, name)
		}
	}
	m.undo = nil // it belongs to the entry, and not to a commit
}

// change registers how to take a change back if the commit turns out to be refused.
func (m *Model) change(back func()) { m.undo = append(m.undo, back) }

func (m *Model) rollback() {
	for i := len(m.undo) - 1; i >= 0; i-- {
		m.undo[i]()
	}
	m.undo = nil
}

// set stores a map entry, to be taken back with the commit.
func set[K comparable, V any](m *Model, in map[K]V, key K, value V) {
	old, had := in[key]
	m.change(func() {
		if had {
			in[key] = old
		} else {
			delete(in, key)
		}
	})
	in[key] = value
}

// drop removes a map entry, to be taken back with the commit.
func drop[K comparable, V any](m *Model, in map[K]V, key K) {
	if old, had := in[key]; had {
		m.change(func() { in[key] = old })
		delete(in, key)
	}
}
