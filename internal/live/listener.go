package live

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// Listener gets the frames of some topics. It belongs to one goroutine. It has no queue of frames: Next makes of what has changed since
// the last one a single frame, so a slow reader gets the newest state and never a backlog.
type Listener struct {
	h *Hub
	// wake has room for one: more than one change before the next look is one look.
	wake chan struct{}
	// seen is the tick up to which it knows each topic; the hub's mutex guards it.
	seen map[*topic]uint64
}

// poke wakes the listener.
func (l *Listener) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Next waits for changes, and returns a frame for each topic that has some, in the order in which they were seen: a listener that got one
// has got all before it. No frame and no error after Beat: a sign of life is due.
func (l *Listener) Next(ctx context.Context) ([]Frame, error) {
	timer := l.h.o.Clock.NewTimer(Beat)
	defer timer.Stop()
	for {
		if frames, err := l.take(); len(frames) > 0 || err != nil {
			return frames, err
		}
		select {
		case <-l.wake:
		case <-timer.C():
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-l.h.o.Life.Done():
			return nil, core.Unavailable{Reason: "stopping"}
		}
	}
}

// take returns what has changed since the last time, or why a topic has ended.
func (l *Listener) take() (out []Frame, err error) {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	for t, from := range l.seen {
		if t.err != nil {
			return nil, t.err
		}
		if t.tick > from {
			out = append(out, t.frame(l.h.node, from))
			l.seen[t] = t.tick
		}
	}
	slices.SortFunc(out, func(a, b Frame) int { return cmp.Compare(a.tick, b.tick) })
	return out, nil
}

// leave ends the listening to one topic.
func (l *Listener) leave(t *topic) {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.h.leave(l, t)
	delete(l.seen, t)
}

// Close ends the listening.
func (l *Listener) Close() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	for t := range l.seen {
		l.h.leave(l, t)
	}
	l.seen = nil
}
