package session

import (
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// In a namespace of several partitions a queue that is bounded or ordered as a whole is pinned: its tasks are all made in one. A client
// finds out by a refusal, or asks before it builds a commit, and may be behind: the server judges.

// Space returns what places tasks, as far as is known.
func (h *Hub) Space() place.Space { return place.Space{Partitions: h.Partitions(), Pinned: h.pinned} }

// Pinned reports whether a queue is known to be pinned.
func (h *Hub) Pinned(queue string) bool {
	pinned, _ := h.KnowsPinned(queue)
	return pinned
}

// KnowsPinned reports whether a queue is pinned, and whether that is known.
func (h *Hub) KnowsPinned(queue string) (pinned, known bool) {
	value, known := h.pins.Load(queue)
	return known && value.(bool), known
}

// LearnPinned takes in whether a queue is pinned.
func (h *Hub) LearnPinned(queue string, pinned bool) { h.pins.Store(queue, pinned) }

// Repin takes in why the create of a task of a queue was refused. It reports whether that was because of the task's partition: then the
// task may be of another one by what is known now.
func (h *Hub) Repin(f *fault.Fault, queue string) bool {
	if f.Code != wire.WrongPartition || f.Unknown || f.Details["partition"] == "" {
		return false
	}
	h.LearnPinned(queue, f.Reason == wire.ReasonPinned)
	return true
}
