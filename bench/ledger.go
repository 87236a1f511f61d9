package bench

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/check"
)

// Ledger holds what the servers acknowledged in one run, warm-up and drain included: an 8-byte hash
// of each id that was created or completed, and the whole ids of a sample. Its methods may be
// called from any goroutine. A hash may stand for two ids: of 50 million random hashes less than
// one such pair is expected in ten thousand runs.
type Ledger struct {
	// seed makes the hashes, which differ from run to run.
	seed maphash.Seed
	// limit is the number of created ids after which only a part is kept; full says that every id is sampled.
	limit int64
	full  bool
	// kept counts the ids in created, before thinning.
	kept atomic.Int64
	// thin says that only every 16th id is kept from now on. Which ones is decided by the hash, so
	// that both sides keep the same.
	thin    atomic.Bool
	unknown atomic.Uint64
	shards  [ledgerShards]ledgerShard
}

// ledgerShard is the part of a ledger for the ids whose hash selects it. A task's create and
// completion are in the same shard, so that sums can compare shard by shard. mu guards all fields.
type ledgerShard struct {
	mu sync.Mutex
	// created and done are hashes in the order in which they came; done has no replays.
	created, done []uint64
	// nCreated, nDone and nReplay count acknowledgements; nDone includes replays.
	nCreated       uint64
	nDone, nReplay uint64
	// replays are completions whose acknowledgement answered a repeat.
	replays []uint64
	// sample are the ids that are read back, and settled the known ends of completions of sampled ids.
	sample  []string
	settled []completion
	_       [64]byte
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
	id string
	// followed says that completions holds all that there were of the id.
	followed    bool
	completions []completion
}

const (
	// ledgerShards bounds how often goroutines meet at one lock; ledgerLimit bounds the memory of a
	// ledger to some 800 MB.
	ledgerShards = 16
	ledgerLimit  = 50_000_000
	thinning     = 16
	// sampleOne: one in 100 ids is read back.
	sampleOne = 100
	// sampleFirst: so are the first ids of each shard, this many.
	sampleFirst = 1_024 / ledgerShards
	// traceOne: one in 64 ids has its way through the queue timed.
	traceOne = 64
)

func newLedger(full bool) *Ledger {
	return &Ledger{seed: maphash.MakeSeed(), limit: ledgerLimit, full: full}
}

// Traced reports whether the latencies across sides are taken of this id: 1 in 64.
func (l *Ledger) Traced(hash uint64) bool { return hash>>32%traceOne == 0 }

// Hash returns what the ledger keeps of an id.
func (l *Ledger) Hash(id string) uint64 { return maphash.String(l.seed, id) }

// sampled reports whether completions of the id are followed. It must depend on the hash alone:
// create and completion come from different goroutines.
func (l *Ledger) sampled(hash uint64) bool { return l.full || hash%sampleOne == 0 }

// Created notes an acknowledged create, and returns the hash of the id.
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

// Completed notes an acknowledged completion, and returns the hash of the id. A replay is the
// answer to a repeat: it completes nothing again.
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

// CompleteUnknown notes a completion whose end is not known. Only sampled ids need it, for their history.
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

// ledgerSums is what a ledger proves by itself, without reading a server.
type ledgerSums struct {
	// created, completed and unknown count calls; replayed is part of completed.
	created, completed, unknown, replayed uint64
	// twice counts ids with more than one completion that did something.
	twice        int
	createdTwice int
	// missing counts ids that were created and not completed.
	missing int
	// strangers counts ids that were completed, though their create was not acknowledged.
	strangers int
	// every says that one in this many ids was compared; the counts above stand for that part. It
	// is 1 unless the ledger was thinned.
	every int
}

// sums compares the ids that were created with those that were completed, shard by shard. It sorts
// the shards in place, so that it needs no memory of its own, and may be called again.
//
// A replay is not a second completion. It counts as one only where the first answer was lost, that
// is, where no other completion of the id is there.
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

// withReplays adds the completions of which only the answer to a repeat came, once each, to a
// sorted slice. The result is sorted.
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

// differ counts the values that only one of two sorted slices has. Values that both have may occur
// a different number of times.
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
