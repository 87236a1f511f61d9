package refs

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Options are limits that are part of the rules of Apply: all replicas must use the same. A zero field means its
// default; only tests change one.
type Options struct {
	MaxRepos int64 // of a partition, deleted ones until they are gone included; default 100,000
	MaxRefs  int64 // of a repository; default 10,000,000
	MaxPacks int64 // of a repository; default 10,000
}

func (o Options) withDefaults() Options {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&o.MaxRepos, 100_000)
	set(&o.MaxRefs, 10_000_000)
	set(&o.MaxPacks, 10_000)
	return o
}

// Machine is the refs service of one partition.
type Machine struct {
	p core.Partition
	o Options

	// repos holds what was read of repositories, by name: a cache of the store, bounded by maxCached.
	repos map[string]*repo
	due   core.ShardTime // of the first row of the time index, or earlier

	marked  bool
	dueMark core.ShardTime
	changed []string // names whose cached repository changed since Mark
	edits   []edit   // room for those of a transaction
}

// repo is a repository as it is stored, with the defaults of its settings in place.
type repo struct {
	core.Repo
	stats core.RepoStats
	head  string // what HEAD points to; empty when it is detached
}

// maxCached bounds the repositories kept in memory; the others are read again when they are used.
const maxCached = 256

// New returns the machine of p, empty until Open.
func New(p core.Partition, o Options) *Machine {
	return &Machine{p: p, o: o.withDefaults(), due: core.Never}
}

// Open rebuilds derived state from v: one seek.
func (m *Machine) Open(v core.View) error {
	m.repos, m.marked, m.changed = nil, false, nil
	return m.findDue(v)
}

func (m *Machine) findDue(v core.View) error {
	m.due = core.Never
	from, to := keys.RefsDue(m.p, core.Never)
	return core.ScanRows(v, from, to, func(key, _ []byte) (bool, error) {
		due, _, _, ok := keys.RefDueOf(key)
		if !ok {
			return false, errs.Corruptf("time index of refs: key %x", key)
		}
		m.due = due
		return false, nil
	})
}

// Due returns when the earliest timed work is due; core.Never without any.
func (m *Machine) Due() core.ShardTime { return m.due }

// Mark starts remembering changes of derived state, so that Undo can take them back. Marks do not nest.
func (m *Machine) Mark() { m.marked, m.dueMark, m.changed = true, m.due, m.changed[:0] }

// Undo takes back every change since Mark, and ends the mark.
func (m *Machine) Undo() {
	for _, name := range m.changed {
		delete(m.repos, name)
	}
	m.due = m.dueMark
	m.Keep()
}

// Keep keeps every change since Mark, and ends the mark.
func (m *Machine) Keep() { m.marked, m.changed = false, m.changed[:0] }

// note remembers that a cached repository changes.
func (m *Machine) note(name string) {
	if m.marked {
		m.changed = append(m.changed, name)
	}
}

// forget drops a repository from the cache, because its record changed.
func (m *Machine) forget(name string) {
	m.note(name)
	delete(m.repos, name)
}

// Apply applies an op of this service. A Fact is a refusal, and nothing was changed; an error is corruption.
func (m *Machine) Apply(tx core.Txn, c *core.ApplyContext, op core.Op) (core.OpResult, core.Fact, error) {
	r := core.OpResult{Kind: op.Kind()}
	var fact core.Fact
	var err error
	switch op := op.(type) {
	case *core.RefTxn:
		r.Refs, fact, err = m.transact(tx, c, op)
	case *core.RepoCreate:
		fact, err = m.create(tx, c, op, &r)
	case *core.RepoSet:
		fact, err = m.set(tx, c, op, &r)
	case *core.RepoDelete:
		fact, err = m.delete(tx, c, op, &r)
	case *core.RepoUndelete:
		fact, err = m.undelete(tx, op, &r)
	case *core.PackSwap:
		fact, err = m.swap(tx, c, op, &r)
	default:
		err = errs.Corruptf("op %d does not belong to the refs service", op.Kind())
	}
	if fact != nil || err != nil {
		return core.OpResult{}, fact, err
	}
	return r, nil, nil
}

// End has nothing to write: each op wrote what it changed.
func (m *Machine) End(core.Txn, *core.ApplyContext) error { return nil }

// Events has nothing to tell.
func (m *Machine) Events(*core.EventList) {}

// find returns the live repository of a name, nil when there is none.
func (m *Machine) find(v core.View, name string) (*repo, error) {
	if r := m.repos[name]; r != nil {
		return r, nil
	}
	id, ok, err := repoID(v, m.p, name)
	if err != nil || !ok {
		return nil, err
	}
	r, err := m.load(v, id)
	if err != nil {
		return nil, err
	}
	if len(m.repos) >= maxCached {
		clear(m.repos)
	}
	if m.repos == nil {
		m.repos = map[string]*repo{}
	}
	m.repos[name] = r
	return r, nil
}

func (m *Machine) load(v core.View, id core.RepoID) (*repo, error) {
	info, ok, err := readRepo(v, m.p, id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errs.Corruptf("repository %s of %s: its name is there, its record is not", id, m.p)
	}
	r := &repo{Repo: info.Repo, stats: info.Stats, head: info.Head}
	r.Config = r.Config.WithDefaults()
	return r, nil
}

func repoID(v core.View, p core.Partition, name string) (id core.RepoID, ok bool, err error) {
	if name == "" {
		return id, false, nil
	}
	row, ok, err := v.Get(keys.RepoName(p, name))
	if err != nil || !ok {
		return id, false, err
	}
	if len(row) != len(id) {
		return id, false, errs.Corruptf("repository %q of %s: id of %d bytes", name, p, len(row))
	}
	copy(id[:], row)
	return id, true, nil
}

// count reads how many repositories the partition has.
func (m *Machine) count(v core.View) (int64, error) {
	row, ok, err := v.Get(keys.RepoName(m.p, ""))
	if err != nil || !ok {
		return 0, err
	}
	n, k := binary.Uvarint(row)
	if k != len(row) {
		return 0, errs.Corruptf("number of repositories of %s: %x", m.p, row)
	}
	return int64(n), nil
}

func (m *Machine) setCount(tx core.Txn, n int64) {
	tx.Set(keys.RepoName(m.p, ""), binary.AppendUvarint(nil, uint64(n)))
}

// arm enters a row in the time index.
func (m *Machine) arm(tx core.Txn, due core.ShardTime, id core.RepoID, name string) {
	tx.Set(keys.RefDue(m.p, due, id, name), nil)
	m.due = min(m.due, due)
}

// refused makes the refusal of a repository as a whole.
func refused(name string, reason core.RefReason) core.Fact {
	return core.RefRefused{Repo: name, Failures: []core.RefFailure{{Change: -1, Reason: reason}}}
}
