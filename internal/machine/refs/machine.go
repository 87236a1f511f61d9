package refs

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Options are limits that are part of the rules of Apply: all replicas must use the same. A zero
// field means its default; only tests change one.
type Options struct {
	// MaxRepos is the most repositories of a partition; deleted ones count until they are gone.
	// Default 100,000.
	MaxRepos int64
	// MaxRefs is the most refs of a repository. Default 10,000,000.
	MaxRefs int64
	// MaxPacks is the most packs of a repository. Default 10,000.
	MaxPacks int64
}

// withDefaults returns o with the defaults in the place of zeros.
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

// Machine is the refs service of one partition. One goroutine at a time calls its methods. What it
// keeps of repositories is a cache of the store; only due is derived for all of them.
type Machine struct {
	// The partition whose repositories these are.
	p core.Partition
	// With the defaults in the place of zeros. They are rules of Apply.
	o Options

	// repos holds what was read of live repositories, by name, bounded by maxCached. An op changes
	// an entry in place and notes its name, so that Undo drops it.
	repos map[string]*repo
	// due is when the first row of the time index is due, or earlier.
	due core.ShardTime

	// marked says that a mark is set.
	marked bool
	// The value of due at the mark, for Undo.
	dueMark core.ShardTime
	// changed are the names whose cached repository changed since Mark.
	changed []string
	// edits is room for those of a transaction, used again by the next.
	edits []edit
}

// repo is a repository as it is stored, with the defaults of its settings in place. stats are its
// counters, which most transactions change.
type repo struct {
	// The record, with the defaults of the settings filled in.
	core.Repo
	// Counters: an op changes them in place and writes them at its end.
	stats core.RepoStats
	// head is what HEAD points to; empty when it is detached.
	head string
}

// maxCached bounds the repositories that are kept in memory. The cache is emptied when it is full;
// a repository is read again when it is used.
const maxCached = 256

// New returns the machine of p, empty until Open.
func New(p core.Partition, o Options) *Machine {
	return &Machine{p: p, o: o.withDefaults(), due: core.Never}
}

// Open rebuilds derived state from v, with one seek. Repositories are read when they are used.
func (m *Machine) Open(v core.View) error {
	m.repos, m.marked, m.changed = nil, false, nil
	return m.findDue(v)
}

// findDue seeks the first row of the time index.
func (m *Machine) findDue(v core.View) error {
	m.due = core.Never
	from, to := keys.RefsDue(m.p, core.Never)
	return core.ScanRows(v, from, to, func(key, _ []byte) (bool, error) {
		due, _, _, ok := keys.RefDueOf(key)
		if !ok {
			return false, errs.Corruptf("time index of refs: key %x", key)
		}
		// The index is in order of time: the first row is the earliest.
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

// note remembers that a cached repository changes, before or after the change.
func (m *Machine) note(name string) {
	if m.marked {
		m.changed = append(m.changed, name)
	}
}

// forget drops a repository from the cache, because its record changed. It is read again when it is used.
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

// find returns the live repository of a name; nil when there is none, or when it is deleted. The
// result is the cache's: a change of it must be noted.
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
	// All are dropped at once: which are kept decides nothing.
	if len(m.repos) >= maxCached {
		clear(m.repos)
	}
	if m.repos == nil {
		m.repos = map[string]*repo{}
	}
	m.repos[name] = r
	return r, nil
}

// load reads a repository whose name is stored, so its record must be there.
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

// repoID reads the id of a live repository by its name.
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

// count reads how many repositories the partition has, deleted ones included. The count lies under
// the empty name.
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

// setCount writes how many repositories the partition has, deleted ones included.
func (m *Machine) setCount(tx core.Txn, n int64) {
	tx.Set(keys.RepoName(m.p, ""), binary.AppendUvarint(nil, uint64(n)))
}

// arm enters a row in the time index: for the log of a ref, or with an empty name for the
// repository as a whole.
func (m *Machine) arm(tx core.Txn, due core.ShardTime, id core.RepoID, name string) {
	tx.Set(keys.RefDue(m.p, due, id, name), nil)
	m.due = min(m.due, due)
}

// refused makes the refusal of a repository as a whole, not of one change.
func refused(name string, reason core.RefReason) core.Fact {
	return core.RefRefused{Repo: name, Failures: []core.RefFailure{{Change: -1, Reason: reason}}}
}
