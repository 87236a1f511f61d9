package bench

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/check"
)

// Ledger holds what the servers acknowledged in one run, warm-up and drain included: 8 bytes for each id that was created
// or completed, and the whole ids of a sample.
type Ledger struct {
	seed    maphash.Seed
	limit   int64
	full    bool
	kept    atomic.Int64 // ids in created, before thinning
	thin    atomic.Bool  // only every 16th id is kept from here on
	unknown atomic.Uint64
	shards  [ledgerShards]ledgerShard
}

type ledgerShard struct {
	mu             sync.Mutex
	created, done  []uint64
	nCreated       uint64
	nDone, nReplay uint64
	replays        []uint64 // completions that are answers to repeats
	sample         []string
	settled        []completion
	_              [64]byte
}

// completion is the end of one completion of a sampled id.
type completion struct {
	id       string
	token    uint64
	outcome  check.Outcome
	replayed bool
}

// sampled is one id that is read back.
type sampled struct {
	id          string
	followed    bool // completions are all that there were
	completions []completion
}

const (
	ledgerShards = 16
	ledgerLimit  = 50_000_000
	thinning     = 16
	sampleOne    = 100                  // one in 100 ids is read back,
	sampleFirst  = 1_024 / ledgerShards // and each shard's first ids, this many
	traceOne     = 64                   // one in 64 ids has its way through the queue timed
)

func newLedger(full bool) *Ledger {
	return &Ledger{seed: maphash.MakeSeed(), limit: ledgerLimit, full: full}
}

// Traced reports whether the latencies across sides are taken of this id: 1 in 64.
func (l *Ledger) Traced(hash uint64) bool { return hash>>32%traceOne == 0 }

// Hash returns what the ledger keeps of an id.
func (l *Ledger) Hash(id string) uint64 { return maphash.String(l.seed, id) }

func (l *Ledger) sampled(hash uint64) bool { return l.full || hash%sampleOne == 0 }

// Created notes an acknowledged create.
func (l *Ledger) Created(id string) uint64 {
	h := l.Hash(id)
	s := &l.shards[h>>60%ledgerShards]
	s.mu.Lock()
	s.nCreated++
	if l.sampled(h) || s.nCreated <= sampleFirst {
		s.sample = append(s.sample, id)
	}
	if !l.thin.Load() || h%thinning == 0 {
		s.created = append(s.created, h)
	}
	s.mu.Unlock()
	if !l.thin.Load() && l.kept.Add(1) > l.limit {
		l.thin.Store(true)
	}
	return h
}

// Completed notes an acknowledged completion. A replay is the answer to a repeat and completes nothing again.
func (l *Ledger) Completed(id string, token uint64, replayed bool) uint64 {
	h := l.Hash(id)
	s := &l.shards[h>>60%ledgerShards]
	s.mu.Lock()
	s.nDone++
	if l.sampled(h) {
		s.settled = append(s.settled, completion{id, token, check.OK, replayed})
	}
	switch {
	case replayed:
		s.nReplay++
		s.replays = append(s.replays, h)
	case !l.thin.Load() || h%thinning == 0:
		s.done = append(s.done, h)
	}
	s.mu.Unlock()
	return h
}

// CompleteUnknown notes a completion whose end is not known.
func (l *Ledger) CompleteUnknown(id string, token uint64) {
	h := l.Hash(id)
	if !l.sampled(h) {
		return
	}
	s := &l.shards[h>>60%ledgerShards]
	s.mu.Lock()
	s.settled = append(s.settled, completion{id, token, check.Unknown, false})
	s.mu.Unlock()
}

// samples returns the ids to read back, in order of id, with their completions.
func (l *Ledger) samples() []sampled {
	byID := map[string]*sampled{}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, id := range s.sample {
			byID[id] = &sampled{id: id, followed: l.sampled(l.Hash(id))}
		}
		s.mu.Unlock()
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, c := range s.settled {
			if t := byID[c.id]; t != nil {
				t.completions = append(t.completions, c)
			}
		}
		s.mu.Unlock()
	}
	out := make([]sampled, 0, len(byID))
	for _, id := range sortedKeys(byID) {
		out = append(out, *byID[id])
	}
	return out
}

// CreateUnknown notes creates whose end is not known: they may be there.
func (l *Ledger) CreateUnknown(n int) { l.unknown.Add(uint64(n)) }

// Counts returns the acknowledged creates and completions so far.
func (l *Ledger) Counts() (created, completed uint64) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		created, completed = created+s.nCreated, completed+s.nDone
		s.mu.Unlock()
	}
	return created, completed
}

// ledgerSums is what a ledger proves by itself.
type ledgerSums struct {
	created, completed, unknown, replayed uint64
	twice                                 int // ids with more than one completion that did something
	createdTwice                          int
	missing                               int // created, not completed
	strangers                             int // completed, though their create was not acknowledged
	every                                 int // one in this many ids was compared
}

// sums compares the ids that were created with those that were completed.
func (l *Ledger) sums() ledgerSums {
	out := ledgerSums{unknown: l.unknown.Load(), every: 1}
	thin := l.thin.Load()
	if thin {
		out.every = thinning
	}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		out.created, out.completed, out.replayed = out.created+s.nCreated, out.completed+s.nDone, out.replayed+s.nReplay
		if thin {
			keep := func(h uint64) bool { return h%thinning != 0 }
			s.created, s.done = slices.DeleteFunc(s.created, keep), slices.DeleteFunc(s.done, keep)
		}
		slices.Sort(s.created)
		slices.Sort(s.done)
		out.twice += repeated(s.done)
		s.done = withReplays(s.done, s.replays, out.every)
		out.createdTwice += repeated(s.created)
		missing, strangers := differ(s.created, s.done)
		out.missing, out.strangers = out.missing+missing, out.strangers+strangers
		s.mu.Unlock()
	}
	return out
}

// withReplays adds completions of which only the answer to a repeat came.
func withReplays(done, replays []uint64, every int) []uint64 {
	var more []uint64
	for _, h := range replays {
		if _, ok := slices.BinarySearch(done, h); !ok && h%uint64(every) == 0 {
			more = append(more, h)
		}
	}
	if len(more) == 0 {
		return done
	}
	slices.Sort(more)
	done = append(done, slices.Compact(more)...)
	slices.Sort(done)
	return done
}

// repeated counts the values of a sorted slice that occur more than once.
func repeated(sorted []uint64) (n int) {
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] && (i < 2 || sorted[i-2] != sorted[i]) {
			n++
		}
	}
	return n
}

// differ counts the values that only one of two sorted slices has.
func differ(a, b []uint64) (onlyA, onlyB int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			onlyA, a = onlyA+1, a[1:]
		case a[0] > b[0]:
			onlyB, b = onlyB+1, b[1:]
		default:
			v := a[0]
			for len(a) > 0 && a[0] == v {
				a = a[1:]
			}
			for len(b) > 0 && b[0] == v {
				b = b[1:]
			}
		}
	}
	return onlyA + len(a), onlyB + len(b)
}
