package wal

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// position is where an entry lies. Segment numbers stay far below 32 bits: each stands for at least 4 KiB written.
type position struct {
	// term is that of the entry; segment is the number of the segment that it lies in.
	term    uint64
	segment uint32
	// off is where the record begins in the segment.
	off uint32
	// n is the length of the entry's data.
	n uint32
}

// recordBytes is what the entry takes on disk.
func (p position) recordBytes() int64 { return headerBytes + entryBytes + int64(p.n) }

// table is one shard's log: where its entries are, and what else was recorded of it.
type table struct {
	// shard is the number of the shard, and hardState the last one that was recorded.
	shard     core.ShardID
	hardState []byte
	// cut is the index up to which entries are gone, and cutTerm the term of that entry.
	cut, cutTerm uint64
	// first is the index of the first position. It is cut+1, except during recovery.
	first uint64
	// pos are the positions of the entries first, first+1 and so on.
	pos []position
	// early is used in recovery only. The segments that held the entries below first are gone; those that were written
	// again since then are here. What the cut does not cover in the end must be here.
	early map[uint64]position

	// recent are the newest entries, as they were appended, ending at last; there may be none.
	recent []Entry
	// recentBytes is about how much memory they take.
	recentBytes int64
}

// newTable returns a table without entries.
func newTable(shard core.ShardID) *table { return &table{shard: shard, first: 1} }

// last returns the last index, or first−1 if there is no entry.
func (t *table) last() uint64 { return t.first + uint64(len(t.pos)) - 1 }

// state returns what State shows.
func (t *table) state() ShardState {
	return ShardState{
		HardState: t.hardState, CutIndex: t.cut, CutTerm: t.cutTerm, First: t.cut + 1, Last: max(t.cut, t.last()),
	}
}

// truncate removes the entries from index on and returns their positions.
func (t *table) truncate(index uint64) []position {
	if index > t.last() {
		return nil
	}
	var gone []position
	if index < t.first {
		gone, t.pos, t.first = t.pos, nil, index
		for i := range t.early {
			if i >= index {
				delete(t.early, i)
			}
		}
	} else {
		gone = t.pos[index-t.first:]
		t.pos = t.pos[:index-t.first]
	}
	t.forgetFrom(index)
	return gone
}

// push adds an entry after the last.
func (t *table) push(p position) { t.pos = append(t.pos, p) }

// cutTo removes the entries up to index and returns their positions. A lower cut than before changes nothing.
func (t *table) cutTo(index, term uint64) []position {
	if index <= t.cut {
		return nil
	}
	t.cut, t.cutTerm = index, term
	if index < t.first {
		return nil
	}
	n := len(t.pos)
	if index < t.last() {
		n = int(index-t.first) + 1
	}
	gone := t.pos[:n]
	t.pos, t.first = t.pos[n:], index+1
	t.forgetTo(index)
	return gone
}

// reset removes all entries: the log goes on after (index, term).
func (t *table) reset(index, term uint64) []position {
	gone := t.pos
	t.pos, t.first, t.early = nil, index+1, nil
	t.cut, t.cutTerm = index, term
	t.recent, t.recentBytes = nil, 0
	return gone
}

// at returns the position of an entry, or nil.
func (t *table) at(index uint64) *position {
	if index < t.first || index > t.last() {
		return nil
	}
	return &t.pos[index-t.first]
}

// open takes the state with which a segment begins. In the lowest segment there is nothing before it.
func (t *table) open(s ShardState, lowest bool) {
	t.hardState = s.HardState
	switch {
	case lowest:
		t.cut, t.cutTerm, t.first, t.pos = s.CutIndex, s.CutTerm, s.Last+1, nil
	case s.CutIndex < t.cut || s.CutIndex > t.last():
		t.reset(s.CutIndex, s.CutTerm)
	default:
		t.cutTo(s.CutIndex, s.CutTerm)
		t.truncate(s.Last + 1)
		t.cutTerm = s.CutTerm
	}
}

// rewritten takes a new place of an entry. Only the group that opens a segment may put an entry past the last: there it
// stands for one whose record was not certain to be durable.
func (t *table) rewritten(index uint64, p position, opening bool) error {
	switch old := t.at(index); {
	case index <= t.cut:
	case old != nil:
		if old.term != p.term && !opening {
			return fmt.Errorf("entry %d of shard %d was written again with another term", index, t.shard)
		}
		*old = p
	case index < t.first:
		if t.early == nil {
			t.early = make(map[uint64]position)
		}
		t.early[index] = p
	case opening && index == t.last()+1:
		t.push(p)
	default:
		return fmt.Errorf("entry %d of shard %d was written again, but the log ends at %d", index, t.shard, t.last())
	}
	return nil
}

// appended takes an entry that the shard's owner wrote. It replaces all entries from its index on.
func (t *table) appended(index uint64, p position) error {
	if index > t.last()+1 || index <= t.cut {
		return fmt.Errorf("entry %d of shard %d does not follow %d", index, t.shard, t.last())
	}
	t.truncate(index)
	t.push(p)
	return nil
}

// settle ends recovery: the entries above the cut come together. It returns the first index that is missing, or 0.
func (t *table) settle() (missing uint64) {
	early := t.early
	t.early = nil
	if t.first == t.cut+1 {
		return 0
	}
	pos := make([]position, 0, len(early)+len(t.pos))
	for i := t.cut + 1; i < t.first; i++ {
		p, ok := early[i]
		if !ok {
			t.pos, t.first = pos, t.cut+1
			return i
		}
		pos = append(pos, p)
	}
	t.pos, t.first = append(pos, t.pos...), t.cut+1
	return 0
}

// remember keeps an entry just appended in memory.
func (t *table) remember(e Entry) {
	t.recent = append(t.recent, e)
	t.recentBytes += cost(e)
}

// cost is what a cached entry takes, about: its data and the struct.
func cost(e Entry) int64 { return int64(len(e.Data)) + 64 }

// forgetOldest drops the oldest cached entry.
func (t *table) forgetOldest() {
	t.recentBytes -= cost(t.recent[0])
	t.recent[0] = Entry{}
	t.recent = t.recent[1:]
}

// forgetTo drops cached entries up to an index.
func (t *table) forgetTo(index uint64) {
	for len(t.recent) > 0 && t.recent[0].Index <= index {
		t.forgetOldest()
	}
}

// forgetFrom drops cached entries from an index on.
func (t *table) forgetFrom(index uint64) {
	for n := len(t.recent); n > 0 && t.recent[n-1].Index >= index; n-- {
		t.recentBytes -= cost(t.recent[n-1])
		t.recent[n-1] = Entry{}
		t.recent = t.recent[:n-1]
	}
}

// cached returns a recent entry.
func (t *table) cached(index uint64) (Entry, bool) {
	if len(t.recent) == 0 || index < t.recent[0].Index || index > t.recent[len(t.recent)-1].Index {
		return Entry{}, false
	}
	return t.recent[index-t.recent[0].Index], true
}
