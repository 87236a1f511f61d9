package row

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/check/checktest"
	millrace "github.com/millrace/millrace/sdk/go"
)

// streamTogether is how many puts of a stream are under way at most, at one key each.
const streamTogether = linearKeys

// streamPatience is how long the end of a put is waited for that was sent through a stream: the stream sends it again until it
// is told, so that a pause of a leader is seen out.
const streamPatience = 20 * time.Second

// stream puts through a stream, at several keys at once, until ctx ends. Each of the puts is a client of its own, for they
// overlap.
func (l *linear) stream(ctx context.Context, c *client, node int) {
	s := c.KV(linearSpace).Stream()
	defer s.Close() //nolint:errcheck // all that was sent has its end, or counts as unknown
	var me [streamTogether]int
	for i := range me {
		me[i] = l.newClient(node)
	}
	r := rand.New(rand.NewPCG(l.e.Seed, uint64(400+me[0])))
	for ctx.Err() == nil {
		l.putTogether(context.WithoutCancel(ctx), s, node, me[:1+r.IntN(streamTogether)])
		pause(ctx, linearPause)
	}
}

// putTogether puts at as many keys as there are clients, without waiting in between, and returns when all have their end.
func (l *linear) putTogether(ctx context.Context, s *millrace.KVStream, node int, clients []int) {
	ctx, cancel := context.WithTimeout(ctx, streamPatience)
	defer cancel()
	l.mu.Lock()
	keys, window := l.keys, l.window
	l.mu.Unlock()
	var ends sync.WaitGroup
	for i, me := range clients {
		a := l.access(me, place{keys[i].key, window}, checktest.Write)
		a.Value = l.newValue()
		put, err := s.Put(ctx, a.Key, []byte(a.Value))
		ends.Go(func() {
			if err == nil {
				_, err = put.Wait(ctx)
			}
			a.Outcome = outcome(err)
			l.note(a, node)
		})
	}
	ends.Wait()
}
