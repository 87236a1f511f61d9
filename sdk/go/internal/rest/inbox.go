package rest

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/sdk/go/internal/wakeup"
)

// inbox is what waits to be received from a stream over REST.
type inbox[M any] struct {
	items  []M           // guarded by the stream's mu
	arrive wakeup.Wakeup // there is one more, or the stream may be over
}

// newInbox makes an inbox that is empty.
func newInbox[M any]() inbox[M] { return inbox[M]{arrive: wakeup.New()} }

// add appends a message. The stream's mu is held.
func (in *inbox[M]) add(m M) {
	in.items = append(in.items, m)
	in.arrive.Poke()
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
