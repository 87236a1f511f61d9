package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/internal/core"
)

// Entries returns the entries [lo, hi) of a shard in order, the first and then as many as have at most maxBytes of data
// together. Recent ones come from memory; others are read back, and a damaged one is a CorruptionError. The caller does
// not change their data.
func (l *Log) Entries(s core.ShardID, lo, hi, maxBytes uint64) ([]Entry, error) {
	out, places, err := l.locate(s, lo, hi, maxBytes)
	if err != nil {
		return nil, err
	}
	defer l.letGo(places)
	for i, p := range places {
		e, err := readEntry(p.segment.file, p.segment, l.seed, lo+uint64(i), p.position)
		if err != nil {
			return nil, fmt.Errorf("read entry %d of shard %d: %w", lo+uint64(i), s, err)
		}
		out[i] = e
	}
	return out, nil
}

// place is an entry that is to be read from its segment. Its segment stays open and unchanged,
// because it is counted as being read.
type place struct {
	position
	segment *segment
}

// locate finds entries: those that are in memory, and before them the places of those to be read, whose segments are
// held. The result has as many entries as there are in all.
func (l *Log) locate(s core.ShardID, lo, hi, maxBytes uint64) ([]Entry, []place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tables[s]
	switch {
	case t == nil:
		return nil, nil, ErrUnavailable
	case lo <= t.cut:
		return nil, nil, ErrCompacted
	case lo > hi || hi > t.last()+1:
		return nil, nil, ErrUnavailable
	case len(l.segments) == 0:
		return nil, nil, ErrClosed
	case lo == hi:
		return nil, nil, nil
	}
	var out []Entry
	var places []place
	var bytes uint64
	for i := lo; i < hi; i++ {
		p := t.at(i)
		bytes += uint64(p.n)
		if i > lo && bytes > maxBytes {
			break
		}
		e, ok := t.cached(i)
		if !ok {
			g := l.segmentOf(p.segment)
			g.readers++
			places = append(places, place{*p, g})
			l.stats.DiskReads++
		} else {
			l.stats.CacheHits++
		}
		out = append(out, e)
	}
	return out, places, nil
}

// letGo ends the reading of segments. The last reader of a log that was closed meanwhile closes the
// file.
func (l *Log) letGo(places []place) {
	if len(places) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range places {
		if p.segment.readers--; p.segment.readers == 0 && len(l.segments) == 0 {
			_ = p.segment.file.Close() // the log was closed meanwhile; only read here
		}
	}
	if len(l.freed) > 0 {
		notify(l.keep)
	}
}

// readAt returns the entry at a position, whose segment the caller holds.
func (l *Log) readAt(s core.ShardID, index uint64, p position) (Entry, error) {
	l.mu.Lock()
	e, ok := l.tables[s].cached(index)
	g := l.segmentOf(p.segment)
	l.mu.Unlock()
	if ok {
		return e, nil
	}
	return readEntry(g.file, g, l.seed, index, p)
}

// readEntry reads one entry back and checks that it is the one that was written. Header, payload
// and position must agree: what is there may be of a write that went elsewhere.
func readEntry(f io.ReaderAt, g *segment, seed uint32, index uint64, p position) (Entry, error) {
	damaged := func(what string) error {
		return &CorruptionError{File: g.name, Offset: int64(p.off), What: what}
	}
	b := make([]byte, p.recordBytes())
	n, err := f.ReadAt(b, int64(p.off))
	if err != nil && !errors.Is(err, io.EOF) {
		return Entry{}, fmt.Errorf("read %s at offset %d: %w", g.name, p.off, err)
	}
	if n < len(b) {
		return Entry{}, damaged("the file ends within an entry")
	}
	rec, size, ok := decodeHeader(b, int64(p.off), g.number, seed)
	if !ok || size != len(b)-headerBytes || !rec.setPayload(b[headerBytes:], seed) {
		return Entry{}, damaged("the checksum of an entry is wrong")
	}
	e, ok := decodeEntry(rec.payload)
	if !ok || e.Index != index || e.Term != p.term {
		return Entry{}, damaged("another entry is there")
	}
	return e, nil
}
