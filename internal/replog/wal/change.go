package wal

import "github.com/millrace/millrace/internal/core"

// change is what one caller, or the log itself, wants recorded: a group of records of one shard. After a crash all of
// them count, or none.
type change struct {
	// kind is kindEntry (with a hard state, entries or both), kindReset, kindCut, kindRewrite or
	// kindSeal.
	kind  byte
	shard core.ShardID
	// hard is the hard state to be written; nil leaves that of the shard as it is.
	hard        []byte
	entries     []Entry  // of a rewrite: the one
	old         position // of a rewrite: where the entry was
	index, term uint64   // of a cut or a reset
	// done is told the end of the change, once; it may be nil.
	done func(error)
	// size is how many bytes the records of the change take.
	size int64
	// queued says that size is counted in Log.queued.
	queued bool
}

// end calls done once.
func (c *change) end(err error) {
	if done := c.done; done != nil {
		c.done = nil
		done(err)
	}
}

// encodedSize is the length of all records of a change.
func (c *change) encodedSize() int64 {
	var n int64
	switch c.kind {
	case kindSeal:
		n = headerBytes
	case kindCut, kindReset:
		n = headerBytes + pairBytes
	}
	for _, e := range c.entries {
		n += headerBytes + entryBytes + int64(len(e.Data))
	}
	if c.hard != nil {
		n += headerBytes + int64(len(c.hard))
	}
	return n
}

// encoder appends records to a buffer. It writes no checksums: finish does, when the batch is
// complete.
type encoder struct {
	// buf has the records, one after the other.
	buf []byte
	// segment, batch and synced stand in the header of each record.
	segment, batch, synced uint64
	flags                  byte // of all records
}

// begin starts a record; more says that the group goes on behind it.
func (e *encoder) begin(n int, shard core.ShardID, kind byte, more bool) {
	flags := e.flags
	if more {
		flags |= flagMore
	}
	e.buf = appendHeader(e.buf, n, e.segment, e.batch, e.synced, shard, kind, flags)
}

// add appends the records of a change. more says that the group goes on behind it.
func (e *encoder) add(c *change, more bool) {
	switch c.kind {
	case kindSeal:
		e.begin(0, c.shard, kindSeal, more)
	case kindCut, kindReset:
		e.begin(pairBytes, c.shard, c.kind, more || c.hard != nil)
		e.buf = appendPair(e.buf, c.index, c.term)
	}
	for i, en := range c.entries {
		e.begin(entryBytes+len(en.Data), c.shard, c.kind, more || c.hard != nil || i < len(c.entries)-1)
		e.buf = appendEntry(e.buf, en)
	}
	if c.hard != nil {
		e.begin(len(c.hard), c.shard, kindHardState, more)
		e.buf = append(e.buf, c.hard...)
	}
}

// opening appends the group that opens a segment: where it goes on from, the state of every shard, and entries to be
// written again.
func (e *encoder) opening(o opening, states []shardState, again []*change) {
	e.flags = flagOpening
	e.begin(openingBytes, 0, kindOpening, len(states)+len(again) > 0)
	e.buf = appendOpening(e.buf, o)
	for i, s := range states {
		n := shardBytes + len(s.HardState)
		e.begin(n, s.shard, kindShard, i < len(states)-1 || len(again) > 0)
		e.buf = appendShard(e.buf, s.ShardState)
	}
	for i, c := range again {
		e.add(c, i < len(again)-1)
	}
	e.flags = 0
}

// shardState is a shard's state as an opening has it.
type shardState struct {
	// shard is the number of the shard.
	shard core.ShardID
	ShardState
}
