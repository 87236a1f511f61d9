// Package search is the state machine of collections: points with a vector and a payload, versions of rulesets, and
// recordings of searches.
//
// A collection comes into being by name and is numbered by an incarnation, so that all it holds is one contiguous range
// and goes with one mutation. A point's row, by its id, holds its version, its slot and its payload; its vector lies under
// the slot. Slots only grow: an update takes a new one, so that a slot never shows two vectors. What makes a search
// fast (rows of small numbers, bitmaps, columns) is derived by others from the changes that Apply tells, and is not here.
//
// Promised: a refused op changes nothing; equal ops on equal state give equal results; nothing is embedded and no float is
// looked at: a vector is bytes of the right length. Elsewhere: what payloads mean and whether their fields have the types
// of the schema (the edge, against the definition whose uid an upsert carries), searching (retrieval), the index (node), the
// order of fence, conditions and ops (package commit, which calls Mark, Undo and Keep in step with the Txn's).
package search

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// maxPointID is the longest id of a point, in bytes.
const maxPointID = 128

// Options are limits that only tests change. Zero means the default. All replicas must use the
// same, since Apply judges by them.
type Options struct {
	// MaxRecordings is the number of recordings that are kept of a collection.
	MaxRecordings uint64
	// MaxCollections is the number of collections of a partition: their definitions are in memory.
	MaxCollections int
	// MaxRulesets is the number of names of rulesets of a partition.
	MaxRulesets int
}

// withDefaults returns o with the defaults in the place of zeros.
func (o Options) withDefaults() Options {
	if o.MaxRecordings == 0 {
		o.MaxRecordings = core.MaxRecordings
	}
	if o.MaxCollections == 0 {
		o.MaxCollections = core.MaxCollections
	}
	if o.MaxRulesets == 0 {
		o.MaxRulesets = core.MaxRulesets
	}
	return o
}

// collection is what is kept in memory of one, derived from the store and bounded by
// MaxCollections. An op changes it in place, after touch.
type collection struct {
	// def is the definition, which never changes.
	def core.Collection
	// incarnation numbers it in keys. A later collection of the same name has another one.
	incarnation uint32
	// counts are the counters after the ops so far.
	counts counts
	// stored are the counters as the store has them; End writes those that differ.
	stored counts
	// due is when its oldest recording expires; core.Never without one.
	due core.ShardTime
	// touched says that it is in the Machine's list of that name.
	touched bool
}

// counts is a collection's row of counters.
type counts struct {
	// points is the number of points there are, and slots the number of slots given out. A slot is
	// given once, so slots only grows.
	points, slots uint64
	// first and next number the recordings: those from first to below next are kept.
	first, next uint64
}

// rulesetState says which versions of a ruleset are kept: oldest to newest, without gaps.
type rulesetState struct{ oldest, newest uint32 }

// Machine is the search service of one partition. One goroutine at a time calls its methods. Points
// and their vectors are only in the store.
type Machine struct {
	// p is the partition whose collections these are.
	p core.Partition
	// o has the defaults in the place of zeros, and is a part of the rules of Apply.
	o Options

	// collections are all collections that were not removed, by name.
	collections map[string]*collection
	// rulesets are all rulesets of which a version is kept, by name.
	rulesets map[string]rulesetState
	// last is the incarnation that was given out last.
	last uint32
	// removed is the highest number of a version that was removed with its ruleset; 0: none was.
	removed uint32
	// due is the earliest of the collections' due, as of the end of the last entry.
	due core.ShardTime
	// stale says that due must be found again at the end of the entry.
	stale bool

	// changes are what happened since the last Events. The index of each node is built from them.
	changes []core.PointChange
	// touched are the collections whose counters End may have to write.
	touched []*collection

	// The fields below are for Undo: functions that take changes back, to be called in the opposite
	// order, and the length of changes at the mark.
	marked     bool
	undo       []func()
	changeMark int
}

// New returns the machine of p, empty until Open.
func New(p core.Partition, o Options) *Machine {
	return &Machine{p: p, o: o.withDefaults(), due: core.Never}
}

// Open rebuilds the tables of collections and rulesets from v.
func (m *Machine) Open(v core.View) error {
	*m = *New(m.p, m.o)
	last, ok, err := v.Get(keys.Collection(m.p, ""))
	if err != nil {
		return err
	}
	if ok {
		if len(last) != 4 {
			return errs.Corruptf("collections of %s: last incarnation is %d bytes", m.p, len(last))
		}
		m.last = binary.BigEndian.Uint32(last)
	}
	infos, err := Collections(v, m.p)
	if err != nil {
		return err
	}
	for i := range infos {
		if err := m.openCollection(v, &infos[i]); err != nil {
			return err
		}
	}
	m.findDue()
	return m.openRulesets(v)
}

// openCollection takes one collection into memory, with its counters and the end of its oldest recording.
func (m *Machine) openCollection(v core.View, info *core.CollectionInfo) error {
	if info.Incarnation == 0 || info.Incarnation > m.last {
		return errs.Corruptf("collection %q of %s: incarnation %d, last is %d", info.Collection.Name, m.p, info.Incarnation, m.last)
	}
	c := &collection{def: info.Collection, incarnation: info.Incarnation}
	var err error
	if c.counts, err = readCounts(v, m.p, c.incarnation); err != nil {
		return err
	}
	// What was read is what is stored: nothing is to be written.
	c.stored = c.counts
	if c.due, err = m.firstDue(v, c); err != nil {
		return err
	}
	// The map is made with the first collection: most partitions have none.
	if m.collections == nil {
		m.collections = make(map[string]*collection)
	}
	m.collections[c.def.Name] = c
	return nil
}

// openRulesets takes the kept versions of all rulesets into memory, by one scan of their keys. The
// row without a name has the highest number that was removed.
func (m *Machine) openRulesets(v core.View) error {
	from, to := keys.Rulesets(m.p)
	return core.ScanRows(v, from, to, func(key, row []byte) (bool, error) {
		name, version, ok := keys.RulesetOf(key)
		if ok && name == "" && version == 0 && len(row) == 4 {
			m.removed = binary.BigEndian.Uint32(row)
			return true, nil
		}
		if !ok || version == 0 || name == "" {
			return false, errs.Corruptf("key %x of a ruleset of %s", key, m.p)
		}
		if m.rulesets == nil {
			m.rulesets = make(map[string]rulesetState)
		}
		s, known := m.rulesets[name]
		if !known {
			// Versions come in rising order, since keys end with them.
			s.oldest = version
		}
		s.newest = version
		m.rulesets[name] = s
		return true, nil
	})
}

// Mark starts remembering changes of derived state, so that Undo can take them back. Marks do not nest.
func (m *Machine) Mark() { m.marked, m.undo, m.changeMark = true, m.undo[:0], len(m.changes) }

// Undo takes back every change since Mark, and ends the mark.
func (m *Machine) Undo() {
	for i := len(m.undo) - 1; i >= 0; i-- {
		m.undo[i]()
	}
	// Events of what was taken back must not reach an index.
	m.changes = m.changes[:m.changeMark]
	m.Keep()
}

// Keep keeps every change since Mark, and ends the mark.
func (m *Machine) Keep() {
	clear(m.undo)
	m.marked, m.undo = false, m.undo[:0]
}

// back registers how to take a change back. Without a mark nothing is remembered.
func (m *Machine) back(fn func()) {
	if m.marked {
		m.undo = append(m.undo, fn)
	}
}

// touch notes that c's counters or due are about to change.
func (m *Machine) touch(c *collection) {
	if m.marked {
		// The old values are kept, not a copy of the collection: nothing else of it changes.
		before, due := c.counts, c.due
		m.undo = append(m.undo, func() { c.counts, c.due = before, due })
	}
	if !c.touched {
		c.touched = true
		m.touched = append(m.touched, c)
	}
}

// Apply applies an op of the search service. A Fact is a refusal, and nothing was changed; an error is corruption. The
// slices of op that are written belong to tx afterwards.
func (m *Machine) Apply(tx core.Txn, c *core.ApplyContext, op core.Op) (core.OpResult, core.Fact, error) {
	r := core.OpResult{Kind: op.Kind()}
	var fact core.Fact
	var err error
	switch op := op.(type) {
	case *core.VectorUpsert:
		fact, err = m.upsert(tx, c, op, &r)
	case *core.VectorDelete:
		fact, err = m.delete(tx, op, &r)
	case *core.CollectionSet:
		fact = m.set(tx, op, &r)
	case *core.CollectionDelete:
		fact = m.drop(tx, op, &r)
	case *core.RulesetPut:
		fact, err = m.putRuleset(tx, op, &r)
	case *core.RulesetDelete:
		fact = m.dropRuleset(tx, c, op, &r)
	case *core.RecordingPut:
		fact, err = m.record(tx, c, op)
	default:
		err = errs.Corruptf("op %d does not belong to the search service", op.Kind())
	}
	if fact != nil || err != nil {
		return core.OpResult{}, fact, err
	}
	return r, nil, nil
}

// End writes the counters that the entry changed.
func (m *Machine) End(tx core.Txn, _ *core.ApplyContext) error {
	for _, c := range m.touched {
		c.touched = false
		// A collection that was removed in the entry has no row any more, and gets none.
		if m.collections[c.def.Name] == c && c.counts != c.stored {
			tx.Set(keys.CollectionCounts(m.p, c.incarnation), c.counts.append(nil))
			c.stored = c.counts
		}
	}
	m.touched = m.touched[:0]
	if m.stale {
		m.stale = false
		m.findDue()
	}
	return nil
}

// Version returns the number of a version of a ruleset that is kept; for 0 the newest one.
func (m *Machine) Version(ruleset string, version uint32) (kept uint32, ok bool) {
	s, known := m.rulesets[ruleset]
	switch {
	case !known:
		return 0, false
	case version == 0:
		return s.newest, true
	}
	return version, version >= s.oldest && version <= s.newest
}

// Events adds what happened to collections and points since the last call.
func (m *Machine) Events(to *core.EventList) {
	for i := range m.changes {
		to.Add(&m.changes[i])
	}
	m.changes = nil // the events are in it
}

// append writes the counters, and decodeCounters refuses a row in which they contradict each other.
func (c counts) append(dst []byte) []byte {
	for _, n := range [...]uint64{c.points, c.slots, c.first, c.next} {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

// decodeCounts reads what append wrote. ok is false for counters that contradict each other.
func decodeCounts(row []byte) (c counts, ok bool) {
	for _, to := range [...]*uint64{&c.points, &c.slots, &c.first, &c.next} {
		v, n := binary.Uvarint(row)
		if n <= 0 {
			return c, false
		}
		*to, row = v, row[n:]
	}
	return c, len(row) == 0 && c.points <= c.slots && c.first <= c.next
}

// readCounts reads the counters of a collection. One that nothing was put in has no row.
func readCounts(v core.View, p core.Partition, incarnation uint32) (counts, error) {
	row, ok, err := v.Get(keys.CollectionCounts(p, incarnation))
	if err != nil || !ok {
		return counts{}, err
	}
	c, ok := decodeCounts(row)
	if !ok {
		return c, errs.Corruptf("counters of collection %d of %s: row %x", incarnation, p, row)
	}
	return c, nil
}
