package sim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
)

// read is a linearizable read at a host: it must show everything that was acknowledged, or read, before it began.
type read struct {
	at    place
	part  core.Partition
	task  core.TaskID // or a key
	key   []byte
	floor uint64 // index that it must show at least
	may   func() bool
	since time.Duration
}

// shown is what a read has shown, to be held to what the log leads to at that index.
type shown struct {
	read
	index uint64
	found bool
	value core.Task // of a task
	bytes []byte    // of a key
	rev   uint64
}

// look begins a read, again and again: at any host, and more often at one that leads, or thinks so.
func (w *world) look() {
	w.after(w.between(2*time.Millisecond, 60*time.Millisecond), "look", 0, func() {
		w.look()
		w.begin(w.someRead())
	})
}

// someRead draws what is read: mostly what has changed lately.
func (w *world) someRead() read {
	l := w.ledger
	if n := len(l.recent); n > 0 && w.chance(600) {
		id := l.recent[n-1]
		if w.chance(300) {
			id = l.recent[w.rng.IntN(n)]
		}
		return read{at: place{l.space, id.Partition()}, task: id}
	}
	at := l.somePlace()
	if w.chance(200) {
		at = place{l.rival, 0}
	}
	return read{at: at, key: keyAt(at, fmt.Sprint("k", w.rng.IntN(keysOfWriters)))}
}

// begin begins a read at some host.
func (w *world) begin(r read) {
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	for range w.hosts {
		if h.node != nil {
			if term, _ := h.node.Leads(w.ledger.shards[r.at]); term > 0 {
				break
			}
		}
		h = w.hosts[w.rng.IntN(len(w.hosts))]
	}
	if h.node == nil || h.paused {
		return
	}
	var ok bool
	if r.part, ok = h.find(r.at); !ok {
		return
	}
	r.floor = w.ledger.top[w.ledger.shards[r.at]]
	var err error
	if r.may, err = h.node.Reading(r.part); err != nil {
		w.violate("host %d: read: %v", h.id, err)
		return
	}
	r.since = w.now
	h.reads = append(h.reads, r)
	h.kick()
}

// answerReads does the reads that may be done.
func (h *host) answerReads() {
	waiting := h.reads[:0]
	for _, r := range h.reads {
		if !r.may() {
			waiting = append(waiting, r)
			continue
		}
		h.answerRead(r)
	}
	h.reads = waiting
}

func (h *host) answerRead(r read) {
	l, shard := h.w.ledger, h.w.ledger.shards[r.at]
	s := shown{read: r}
	l.view(h, r.at, func(v core.View, index uint64) (err error) {
		s.index = index
		if r.key == nil {
			s.value, s.found, err = queue.Task(v, r.part, r.task)
			return err
		}
		value, rev, found, err := kv.Get(v, r.part, "keys", r.key)
		s.bytes, s.rev, s.found = append([]byte(nil), value...), rev, found
		return err
	})
	if s.index < r.floor {
		h.w.violate("host %d: a linearizable read of shard %d shows entry %d, and entry %d was acknowledged or read before it began", h.id, shard, s.index, r.floor)
	}
	l.top[shard] = max(l.top[shard], s.index)
	l.shown[shard] = append(l.shown[shard], s)
}
