package wal

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// group gathers records until all of a group are there, then applies them to the image.
type group struct {
	im     *image
	number uint64
	lowest bool // the segment is the lowest of the chain
	ops    []op
	ends   []end // what the opening says of the shards' ends
}

// op is one decoded record, without the data of entries.
type op struct {
	kind  byte
	open  bool
	shard core.ShardID
	index uint64
	pos   position
	state ShardState
	hard  []byte
}

type end struct {
	shard core.ShardID
	last  uint64
}

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

func (im *image) table(s core.ShardID) *table {
	t := im.tables[s]
	if t == nil {
		t = newTable(s)
		im.tables[s] = t
	}
	return t
}
