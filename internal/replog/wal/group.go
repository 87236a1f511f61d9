package wal

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// group gathers records until all of a group are there, then applies them to the image.
type group struct {
	// im takes the records when all of a group are there.
	im *image
	// number is that of the segment.
	number uint64
	lowest bool // the segment is the lowest of the chain
	// ops are the records of the group so far.
	ops  []op
	ends []end // what the opening says of the shards' ends
}

// op is one decoded record, without the data of entries.
type op struct {
	kind byte
	// open says that the record is of the group that opens the segment.
	open  bool
	shard core.ShardID
	// index is that of an entry, a cut or a reset. The term of the last two is in pos.
	index uint64
	pos   position
	// state is what an opening says of a shard.
	state ShardState
	// hard is a hard state, copied.
	hard []byte
}

// end is the last index of a shard, as an opening has it.
type end struct {
	shard core.ShardID
	last  uint64
}

// errPayload is about a record that was written wrongly: its checksum is right.
var errPayload = errors.New("the record has a good checksum and a payload that makes no sense")

// add takes the next record. An error means that the record contradicts what is before it.
func (g *group) add(rec record) error {
	o := op{kind: rec.kind, shard: rec.shard, open: rec.flags&flagOpening != 0}
	ok := true
	switch rec.kind {
	case kindOpening:
		_, ok = decodeOpening(rec.payload)
	case kindSeal:
	case kindShard:
		o.state, ok = decodeShard(rec.payload)
	case kindEntry, kindRewrite:
		var e Entry
		e, ok = decodeEntry(rec.payload)
		o.index = e.Index
		o.pos = position{term: e.Term, segment: uint32(g.number), off: uint32(rec.off), n: uint32(len(e.Data))}
	case kindHardState:
		o.hard = append([]byte{}, rec.payload...)
	case kindCut, kindReset:
		o.index, o.pos.term, ok = decodePair(rec.payload)
	default:
		return fmt.Errorf("record kind %d is unknown", rec.kind)
	}
	if !ok {
		return errPayload
	}
	g.ops = append(g.ops, o)
	if rec.flags&flagMore != 0 {
		return nil
	}
	return g.apply()
}

// apply applies a whole group. In an opening the shards must then end where it says that they do:
// entries that are written again in it complete those of the segments before.
func (g *group) apply() error {
	for _, o := range g.ops {
		if err := g.applyOne(o); err != nil {
			return err
		}
	}
	for _, e := range g.ends {
		if t := g.im.table(e.shard); t.state().Last != e.last {
			return fmt.Errorf("shard %d ends at %d here and at %d before", e.shard, e.last, t.state().Last)
		}
	}
	g.ops, g.ends = g.ops[:0], g.ends[:0]
	return nil
}

// applyOne applies one record to the table of its shard.
func (g *group) applyOne(o op) error {
	if o.kind == kindOpening || o.kind == kindSeal {
		return nil
	}
	t := g.im.table(o.shard)
	switch o.kind {
	case kindShard:
		t.open(o.state, g.lowest)
		g.ends = append(g.ends, end{o.shard, o.state.Last})
	case kindEntry:
		return t.appended(o.index, o.pos)
	case kindRewrite:
		return t.rewritten(o.index, o.pos, o.open)
	case kindHardState:
		t.hardState = o.hard
	case kindCut:
		t.cutTo(o.index, o.pos.term)
	case kindReset:
		t.reset(o.index, o.pos.term)
	}
	return nil
}

// table returns the table of a shard, and makes it if it is not there.
func (im *image) table(s core.ShardID) *table {
	t := im.tables[s]
	if t == nil {
		t = newTable(s)
		im.tables[s] = t
	}
	return t
}
