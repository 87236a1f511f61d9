package sim

import (
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// read is a linearizable read at a host: it must show a task whose create was acknowledged before the read began.
type read struct {
	task core.TaskID
	may  func() bool
}

// look begins a read, again and again: at any host, and more often at one that leads, or thinks so.
func (w *world) look() {
	w.after(w.between(2*time.Millisecond, 40*time.Millisecond), "look", 0, func() {
		w.look()
		h := w.hosts[w.rng.IntN(len(w.hosts))]
		for range w.hosts {
			if h.node != nil {
				if term, _ := h.node.Leads(clientShard); term > 0 {
					break
				}
			}
			h = w.hosts[w.rng.IntN(len(w.hosts))]
		}
		task := w.ledger.newestTask
		if task.IsZero() || h.node == nil || h.paused {
			return
		}
		p, ok := h.partition()
		if !ok {
			return
		}
		may, err := h.node.Reading(p)
		if err != nil {
			w.violate("host %d: read: %v", h.id, err)
			return
		}
		h.reads = append(h.reads, read{task, may})
		h.kick()
	})
}

// answerReads does the reads that may be done.
func (h *host) answerReads() {
	waiting := h.reads[:0]
	for _, r := range h.reads {
		if !r.may() {
			waiting = append(waiting, r)
			continue
		}
		p, _ := h.partition()
		h.w.ledger.view(h, func(v core.View) error {
			_, found, err := queue.Task(v, p, r.task)
			if err == nil && !found {
				h.w.violate("host %d: a linearizable read does not show task %s, which was acknowledged before it began", h.id, r.task)
			}
			return err
		})
	}
	h.reads = waiting
}
