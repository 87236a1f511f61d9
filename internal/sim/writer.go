package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// keysOfWriters is how many keys writers fight over.
const keysOfWriters = 5

// writer writes and deletes keys that other writers write as well, with and without conditions.
type writer struct {
	client
	spaces []*space
}

// keyAt returns a key with a name that is placed in a partition: it tries tags until it is.
func keyAt(at place, name string) []byte {
	for i := 0; ; i++ {
		key := fmt.Appendf(nil, "{%d}%s", i, name)
		if core.PlaceKey(key, at.partitions) == at.index {
			return key
		}
	}
}

// write sends the next write, until there are enough.
func (r *writer) write() {
	w := r.w
	if w.ledger.written >= w.plan.Writes {
		return
	}
	at, op := r.some()
	next := func() { w.after(w.between(0, 100*time.Millisecond), "writer", 0, r.write) }
	commit := core.Commit{Principal: "writer", Ops: []core.Op{op}}
	r.ask(at, commit, func(got core.Result) {
		w.ledger.acted(op, got)
		if pause, ok := op.(*core.QueuePause); ok {
			r.resume(at, pause, next)
			return
		}
		if start, ok := op.(*core.BulkStart); ok && w.chance(600) {
			r.halt(at, start, next)
			return
		}
		if batch, ok := op.(*core.BatchOpen); ok && got.Refusal == nil && len(got.Ops) > 0 {
			r.fill(at, batch, next)
			return
		}
		next()
	})
}

// once is ask for an answer that does not matter.
func (c *client) once(at place, commit core.Commit, then func()) {
	c.ask(at, commit, func(core.Result) { then() })
}

// ask sends a commit under a request id, so that it is applied once however often it is sent, and then calls then with the
// answer; with an empty one if it gave up.
func (c *client) ask(at place, commit core.Commit, then func(core.Result)) {
	w := c.w
	w.ledger.written++
	var id core.RequestID
	binary.BigEndian.PutUint64(id[:], uint64(w.ledger.written))
	id[15] = 1
	commit.RequestID = id
	c.begin(&request{
		at:      at,
		make:    func() core.Commit { return commit },
		matches: func(c *core.Commit) bool { return c.RequestID == id },
		answer:  func(r core.Result, _ core.At) { then(r) },
		unknown: func() { then(core.Result{}) },
	})
}

// some draws a write: of a key, sometimes of a recent task, or of the queue.
func (r *writer) some() (place, core.Op) {
	w, l := r.w, r.w.ledger
	if w.plan.Operate && w.chance(500) {
		if at, op := w.someAct(); op != nil {
			return at, op
		}
	}
	if n := len(l.recent); n > 0 && w.chance(200) {
		id := l.recent[w.rng.IntN(n)]
		at := place{l.space, id.Partition()}
		switch w.rng.IntN(3) {
		case 0:
			l.deleted[id] = true
			return at, &core.TaskDelete{Task: id}
		case 1:
			return at, &core.TaskRunNow{Task: id}
		}
		op := &core.QueueSet{Queue: queueName, Config: core.QueueConfig{Aging: core.Millis(1000 * w.rng.IntN(3)), MaxCrashes: 900}, IfVersion: -1}
		if w.plan.Operate {
			op.Config.Limits = w.someLimits()
			if w.chance(200) {
				op.Config.Share.Limiters[0] = limiterNames[0]
			}
		}
		return at, op
	}
	s := r.spaces[w.rng.IntN(len(r.spaces))]
	at := place{s, uint16(w.rng.IntN(s.partitions))}
	return at, w.someWrite(at)
}

// someWrite draws a write of a key.
func (w *world) someWrite(at place) core.Op {
	key := keyAt(at, fmt.Sprint("k", w.rng.IntN(keysOfWriters)))
	value := fmt.Appendf(nil, "v%d", w.ledger.written)
	switch w.rng.IntN(10) {
	case 0:
		return &core.KVDelete{Keyspace: "keys", Key: key}
	case 1:
		return &core.KVPut{Keyspace: "keys", Key: key, Value: value, IfAbsent: true}
	case 2:
		return &core.KVPut{Keyspace: "keys", Key: key, Value: value, HasRev: true, IfRev: uint64(w.rng.IntN(60))}
	case 3:
		return &core.KVPut{Keyspace: "keys", Key: key, Value: value, WantPrev: true}
	case 4:
		return &core.KVAdd{Keyspace: "sums", Key: key, Delta: int64(w.rng.IntN(5))}
	case 5:
		return &core.KVDeleteRange{Keyspace: "keys", Prefix: key[:len(key)-1], Count: true}
	case 6:
		return &core.KVPuts{Keyspace: "keys", Items: []core.KVItem{{Key: key, Value: value}, {Key: key, Value: value, IfAbsent: true}}}
	}
	return &core.KVPut{Keyspace: "keys", Key: key, Value: value}
}

// fencedWrites are what a worker writes under its fence.
func fencedWrites(at place, value string) []core.Op {
	return []core.Op{
		&core.KVPut{Keyspace: "keys", Key: keyAt(at, "fenced"), Value: []byte(value)},
		&core.KVAdd{Keyspace: "sums", Key: keyAt(at, "fenced"), Delta: 1},
	}
}
