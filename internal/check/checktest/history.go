package checktest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

// A replica that was behind gets a state instead of entries, and its log restarts behind it: its archive has a hole. What it
// had before may never have been committed, and no node told it which part was. So only what it knew to be committed counts;
// and the history of the shard is what the archives of all replicas have together.

// Part is what one replica's log has of a shard's history.
type Part struct {
	Log       []LogEntry // ascending; holes are where snapshots took the place of entries
	Snapshots []uint64   // the log restarted behind these entries, ascending
	Known     uint64     // entries up to here it knew to be committed
}

// Begun returns behind which entry the log restarted the last time; 0: it never did.
func (p *Part) Begun() uint64 {
	if len(p.Snapshots) == 0 {
		return 0
	}
	return p.Snapshots[len(p.Snapshots)-1]
}

// ReadPart is ReadLog for a replica that may have got snapshots.
func ReadPart(shard core.ShardID, folders ...string) (*Part, error) {
	r := partReader{shard: shard, found: map[uint64]partEntry{}, begun: map[uint64]bool{}}
	for _, folder := range folders {
		err := wal.ScanAll(store.NewFS(store.SystemFS()), folder, wal.Visitor{
			Entry: r.entry, HardState: r.hardState, Cut: r.cut, Reset: r.reset,
		})
		if err != nil {
			return nil, fmt.Errorf("read log in %s: %w", folder, err)
		}
	}
	p := &Part{Snapshots: slices.Sorted(maps.Keys(r.begun)), Known: r.known}
	for _, i := range slices.Sorted(maps.Keys(r.found)) {
		p.Log = append(p.Log, LogEntry{Index: i, Conf: r.found[i].conf, Data: r.found[i].data})
	}
	return p, nil
}

type partEntry struct {
	term uint64
	conf bool
	data []byte
}

// partReader reads what a log says, in the order in which it was written.
type partReader struct {
	shard core.ShardID
	found map[uint64]partEntry
	known uint64 // entries up to here are known to be committed
	begun map[uint64]bool
}

func (r *partReader) entry(s core.ShardID, e wal.Entry) error {
	if s != r.shard {
		return nil
	}
	old, ok := r.found[e.Index]
	switch {
	case ok && old.term >= e.Term:
		return nil // written again, perhaps before it was replaced
	case ok:
		maps.DeleteFunc(r.found, func(i uint64, _ partEntry) bool { return i > e.Index })
	}
	r.found[e.Index] = partEntry{e.Term, e.Kind == replog.KindConf, bytes.Clone(e.Data)}
	return nil
}

func (r *partReader) hardState(s core.ShardID, b []byte) error {
	if s != r.shard {
		return nil
	}
	p, err := replog.PromisedIn(b)
	r.known = max(r.known, p.Commit)
	return err
}

// cut: a log is cut at what is applied.
func (r *partReader) cut(s core.ShardID, index uint64) error {
	if s == r.shard {
		r.known = max(r.known, index)
	}
	return nil
}

func (r *partReader) reset(s core.ShardID, index uint64) error {
	if s != r.shard || index <= replog.FirstIndex {
		return nil
	}
	maps.DeleteFunc(r.found, func(i uint64, _ partEntry) bool { return i > r.known })
	r.known = max(r.known, index)
	r.begun[index] = true
	return nil
}

// History puts the entries up to an index together that the parts of replicas have. Where several have one, the first one's is
// taken: whether they are equal is for Replicas to say. applied is up to where each replica applied its own. A hole that all
// have is an error.
func History(parts []*Part, applied []uint64, to uint64) ([]LogEntry, error) {
	all := map[uint64]LogEntry{}
	for k, p := range parts {
		for _, e := range p.Log {
			if _, ok := all[e.Index]; !ok && e.Index <= min(applied[k], to) {
				all[e.Index] = e
			}
		}
	}
	var out []LogEntry
	for _, i := range slices.Sorted(maps.Keys(all)) {
		if len(out) > 0 && out[len(out)-1].Index != i-1 {
			return nil, fmt.Errorf("no log has entries %d to %d", out[len(out)-1].Index+1, i-1)
		}
		out = append(out, all[i])
	}
	if n := len(out); n == 0 || out[n-1].Index != to || out[0].Index > replog.FirstIndex+1 {
		return nil, fmt.Errorf("the logs have %d entries, and not all up to %d", len(out), to)
	}
	return out, nil
}
