package transport

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// TurnToREST leaves g for REST if that answers. It reports whether REST is in use now.
func (w *Router) TurnToREST(ctx context.Context, g *Endpoint) bool {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-w.turn }()
	w.mu.Lock()
	now, early := w.now, time.Since(w.missed) < askAgain
	w.mu.Unlock()
	switch {
	// Another call was faster: what it found out holds for this one too.
	case now != g:
		return now.Plain
	// REST was looked for just now, and was not there.
	case early:
		return false
	}
	if err := w.rest.Probe(ctx); err != nil {
		w.mu.Lock()
		w.missed = time.Now()
		w.mu.Unlock()
		return false
	}
	if !w.take(w.overREST()) {
		return false
	}
	w.opts.Logger.Warn("gRPC does not come through; the client goes over to REST", "address", w.opts.Addresses[0], "rest", w.rest.Host())
	return true
}

// watch looks after the endpoint in use until the client closes: for REST while gRPC fails, for gRPC while REST serves.
func (w *Router) watch() {
	defer close(w.done)
	for w.ctx.Err() == nil {
		w.mu.Lock()
		g := w.now
		w.mu.Unlock()
		if !g.Plain {
			w.stay(g)
		} else if w.look() == nil {
			return
		}
	}
}

// stay returns when g is left.
func (w *Router) stay(g *Endpoint) {
	conn := g.conns[0]
	for g.Gone.Err() == nil {
		state := conn.GetState()
		switch state {
		case connectivity.TransientFailure:
			w.doubt(g)
			continue
		case connectivity.Idle:
			retry.Sleep(g.Gone, retry.Within(moveWithin)) // where it is closed again and again, that takes no more than this often
			conn.Connect()                                // no stream may do it: they can all be of other nodes
		case connectivity.Ready:
			w.moves = 0
			w.opts.Reached(g.Address)
		}
		conn.WaitForStateChange(g.Gone, state)
	}
}

// doubt returns when g works again, or was left.
func (w *Router) doubt(g *Endpoint) {
	for try := 0; g.Gone.Err() == nil && g.conns[0].GetState() == connectivity.TransientFailure; try++ {
		w.opts.Lost(g.Address)
		if next := w.other(g.Address); next != "" && w.move(next) {
			retry.Sleep(w.ctx, moveWait(w.moves, len(w.addresses()))) // it is given a moment before the next one is tried
			w.moves++
			return
		}
		if w.opts.Mode == Auto && !w.patient(g, ErrNotReached) && w.TurnToREST(g.Gone, g) {
			return
		}
		retry.Sleep(g.Gone, max(retry.Backoff(try), askAgain))
	}
}

// moveWithin is at most how long a client stays with a node that is not reached before it tries the next of a cluster.
const moveWithin = 200 * time.Millisecond

// moveWait is how long a client stays with the next node after moves in a row that reached no node: once all nodes have been
// tried, longer with each round.
func moveWait(moves, nodes int) time.Duration {
	round := moves / max(nodes, 1)
	if round == 0 {
		return retry.Within(moveWithin)
	}
	return moveWithin/2 + retry.Backoff(round)
}

// ErrNotReached says that no connection to the server came about.
var ErrNotReached = errors.New("the server is not reached")

// look returns an endpoint over gRPC on which a stream was let in, and that is taken; nil when the client closes. It asks at all
// addresses in turn.
func (w *Router) look() *Endpoint {
	for wait := lookBase; retry.Sleep(w.ctx, wait/2+retry.Within(wait/2)); wait = min(2*wait, lookMax) {
		for _, address := range w.addresses() {
			if g := w.lookTo(address); g != nil {
				return g
			}
		}
	}
	return nil
}

// lookTo is look at one address.
func (w *Router) lookTo(address string) *Endpoint {
	g, err := w.overGRPC(address)
	if err != nil {
		return nil
	}
	if w.try(g) && w.take(g) {
		w.opts.Logger.Info("gRPC comes through; the client goes back to its stream", "address", address)
		return g
	}
	g.leave()
	g.close()
	return nil
}

// try opens a stream on g, as a session would, and closes it.
func (w *Router) try(g *Endpoint) bool {
	ctx, cancel := context.WithTimeout(g.Gone, grpcWithin)
	defer cancel()
	if _, err := w.knock(ctx, g, 0); err != nil {
		return ofServer(err)
	}
	g.proved = true
	return true
}
