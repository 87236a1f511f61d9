package millrace

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/status"
)

// wakeup makes one goroutine look again at what others have changed. It holds one token, so that poking it never blocks.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) poke() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// inbox is what waits to be received from a stream over REST.
type inbox[M any] struct {
	items  []M    // guarded by the stream's mu
	arrive wakeup // there is one more, or the stream may be over
}

func newInbox[M any]() inbox[M] { return inbox[M]{arrive: newWakeup()} }

// add appends a message. The stream's mu is held.
func (in *inbox[M]) add(m M) {
	in.items = append(in.items, m)
	in.arrive.poke()
}

// take waits for the next message. Those that are there come before the end of the stream, of which ended, called with mu,
// tells: its cause, or nil for an end without one, which is io.EOF.
func (in *inbox[M]) take(ctx context.Context, mu *sync.Mutex, ended func() (over bool, cause error)) (m M, err error) {
	for {
		mu.Lock()
		if len(in.items) > 0 {
			m, in.items = in.items[0], in.items[1:]
			mu.Unlock()
			return m, nil
		}
		over, cause := ended()
		mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return m, status.FromContextError(ctx.Err()).Err()
		case over && cause != nil:
			return m, cause
		case over:
			return m, io.EOF
		}
		select {
		case <-in.arrive:
		case <-ctx.Done():
		}
	}
}
