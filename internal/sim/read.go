package sim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
)

// read is a linearizable read at a host. It must show everything that was acknowledged, or shown by
// another read, before it began. It reads a task, or a key if key is set.
type read struct {
	at   place
	part core.Partition
	task core.TaskID // or a key
	key  []byte
	// The index that it must show at least.
	floor uint64
	// Reports that it may be answered, as the node has confirmed that it is up to date.
	may   func() bool
	since time.Duration
}

// shown is what a read has shown. The model must have the same at that index.
type shown struct {
	read
	index uint64
	found bool
	value core.Task    // of a task
	held  core.KeyRead // of a key
}

// look begins reads at random times, as long as the history lasts.
func (w *world) look() {
	w.after(w.between(2*time.Millisecond, 60*time.Millisecond), "look", 0, func() {
		w.look()
		w.begin(w.someRead())
	})
}

// someRead draws what is read: usually something that has changed recently.
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

// begin begins a read at some host, more often at one that leads the shard or believes so.
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

// answerReads answers the reads that may be answered.
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

// answerRead answers one read and checks its index; replay compares the content.
func (h *host) answerRead(r read) {
	l, shard := h.w.ledger, h.w.ledger.shards[r.at]
	s := shown{read: r}
	l.view(h, r.at, func(v core.View, index uint64) (err error) {
		s.index = index
		if r.key == nil {
			s.value, s.found, err = queue.Task(v, r.part, r.task)
			return err
		}
		s.held, err = kv.Read(v, r.part, "keys", r.key)
		return err
	})
	if s.index < r.floor {
		h.w.violate("host %d: a linearizable read of shard %d shows entry %d, and entry %d was acknowledged or read before it began", h.id, shard, s.index, r.floor)
	}
	l.top[shard] = max(l.top[shard], s.index)
	l.shown[shard] = append(l.shown[shard], s)
}
