package node

import (
	"slices"
	"sync"
)

// keptHashes is at how many indexes a replica remembers its apply hash: as many comparisons it may be ahead of what it is
// told, or behind.
const keptHashes = 64

// hashes are the apply hashes of a replica at round indexes, and those its leader has told and that it has not reached.
type hashes struct {
	// Guards the fields below.
	mu sync.Mutex
	// The replica's own hashes, ascending by index; at most keptHashes.
	own []hashAt
	// What the leader told and was not compared yet, ascending by index; at most keptHashes.
	told []hashAt
}

// noteHash remembers the apply hash at round indexes, for replicas to compare.
func (s *shard) noteHash(index uint64) {
	if s.alone.Load() || index%hashEvery != 0 {
		return
	}
	_, hash := s.store.Applied()
	s.hashes.note(index, hash)
	s.poke()
}

// note remembers the replica's own hash at a round index.
func (h *hashes) note(index, hash uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own = kept(append(h.own, hashAt{index, hash}))
}

// last returns the newest own hash.
func (h *hashes) last() hashAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.own) == 0 {
		return hashAt{}
	}
	return h.own[len(h.own)-1]
}

// expect takes in what the leader has.
func (h *hashes) expect(t hashAt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.told); n == 0 || h.told[n-1].index < t.index {
		h.told = kept(append(h.told, t))
	}
}

// kept drops the oldest hashes beyond keptHashes.
func kept(s []hashAt) []hashAt {
	return slices.Delete(s, 0, max(len(s)-keptHashes, 0))
}

// restart forgets the own hashes: the state was exchanged for another one.
func (h *hashes) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own = nil
}

// compare holds what the leader told to the own hashes, and forgets what was compared.
func (h *hashes) compare() (want hashAt, got uint64, differ bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.told) > 0 && len(h.own) > 0 && h.told[0].index <= h.own[len(h.own)-1].index {
		want = h.told[0]
		h.told = h.told[1:]
		for _, o := range h.own {
			if o.index == want.index && o.hash != want.hash {
				return want, o.hash, true
			}
		}
	}
	return hashAt{}, 0, false
}
