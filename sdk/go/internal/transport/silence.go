package transport

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// A node that hangs keeps its connections: a paused process, a machine that swaps, a link that carries nothing. It takes
// half a minute of pings to tell, and after a second or two another node leads. So while a node owes an answer and is silent,
// the others are asked who leads. If they name another one, the node is left: what is under way there ends, and is repeated.

const (
	silentFor = time.Second            // a node may be silent while it owes an answer
	askEvery  = 500 * time.Millisecond // the others are asked again, longer each time
	askMax    = 10 * time.Second
	askWithin = time.Second // they are given to answer
)

// owed is what a node owes: frames without an ack, and calls that may be repeated without an answer. Others take as long as
// they take.
type owed struct {
	// open counts what is owed.
	open    atomic.Int64
	heard   atomic.Int64 // when something came last, or the first of open left: since epoch
	watched atomic.Bool  // a timer looks at it
	left    atomic.Bool  // it was silent, and another one leads
}

// epoch is what times of owed count from, so that they fit one atomic number of the monotonic clock.
var epoch = time.Now()

// hear notes that something came just now.
func (o *owed) hear() { o.heard.Store(int64(time.Since(epoch))) }

// quiet is how long nothing has come, or since the first of what is owed left.
func (o *owed) quiet() time.Duration { return time.Since(epoch) - time.Duration(o.heard.Load()) }

// answered notes that n answers came, or will not come any more.
func (o *owed) answered(n int) {
	o.hear()
	o.open.Add(-int64(n))
}

// end is the error of what ended because the node was left.
func (o *owed) end(err error) error {
	if err != nil && o.left.Load() && status.Code(err) == codes.Canceled {
		return status.Error(codes.Unavailable, "the node was silent, and another one leads")
	}
	return err
}

// Owes notes that g owes an answer more.
func (w *Router) Owes(g *Endpoint) {
	if g.Plain || g.owed.open.Add(1) > 1 {
		return
	}
	g.owed.hear()
	w.watchSilence(g)
}

// watchSilence begins to look at g, unless that is done already. It ends by itself once g owes nothing.
func (w *Router) watchSilence(g *Endpoint) {
	if g.owed.watched.CompareAndSwap(false, true) {
		time.AfterFunc(silentFor, func() { w.listen(g, 0) })
	}
}

// listen checks whether g is silent; asked is how often in a row the other nodes were asked.
func (w *Router) listen(g *Endpoint, asked int) {
	var next time.Duration
	switch quiet := g.owed.quiet(); {
	case w.ctx.Err() != nil || g.owed.left.Load():
		return
	case g.owed.open.Load() <= 0:
		g.owed.watched.Store(false)
		if g.owed.open.Load() > 0 {
			w.watchSilence(g)
		}
		return
	case quiet < silentFor:
		next, asked = silentFor-quiet, 0
	default:
		if leader, partition := w.askOthers(g); leader != "" {
			w.abandon(g, leader, partition)
			return
		}
		next = min(askEvery<<min(asked, 8), askMax)
		asked++
	}
	time.AfterFunc(next, func() { w.listen(g, asked) })
}

// askOthers asks the other nodes who leads the partition that g is used for. It returns an empty leader when they name g, or know
// of none.
func (w *Router) askOthers(g *Endpoint) (leader string, partition int) {
	w.mu.Lock()
	for p, at := range w.lead.at {
		if at == g.Address {
			partition = p
			break
		}
	}
	nodes := w.nodes()
	closed := w.closed
	if !closed {
		w.asking.Add(1)
	}
	w.mu.Unlock()
	if closed {
		return "", 0
	}
	defer w.asking.Done()
	ctx, cancel := context.WithTimeout(w.ctx, askWithin)
	defer cancel()
	answers := make(chan string, len(nodes))
	for _, address := range nodes {
		go func() { answers <- w.whoLeads(ctx, g, address, partition) }()
	}
	for range nodes { // all of them, so that none is left behind
		if named := <-answers; named != "" && leader == "" {
			leader = named
			cancel()
		}
	}
	return leader, partition
}

// whoLeads asks the node at an address which node leads a partition; empty if that is g, or if it is not known.
func (w *Router) whoLeads(ctx context.Context, g *Endpoint, address string, partition int) string {
	if address == g.Address {
		return ""
	}
	to, err := w.overGRPC(address)
	if err != nil {
		return ""
	}
	defer to.close()
	defer to.leave()
	if _, err = w.knock(ctx, to, partition); err == nil {
		return address
	}
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*millracev1.Error); ok && e.Code == wire.NotLeader && e.Leader != g.Address && w.allows(e.Leader) {
			return e.Leader
		}
	}
	return ""
}

// knock opens a stream as a session would, and closes it when it is let in.
func (w *Router) knock(ctx context.Context, g *Endpoint, partition int) (*millracev1.Welcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := millracev1.NewQueueStreamClient(g.streams).Open(ctx, grpc.WaitForReady(true), grpc.ForceCodecV2(w.opts.Codec))
	if err != nil {
		return nil, err
	}
	hello := &millracev1.Hello{Version: 1, Namespace: w.opts.Namespace, Session: wire.Random16(), Partition: uint32(partition)}
	_ = stream.Send(&millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Hello{Hello: hello}}) // Recv has the reason
	f, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	_ = stream.CloseSend() // never fails
	if f.GetWelcome() == nil {
		return nil, status.Error(codes.Internal, "a stream did not begin with a welcome")
	}
	return f.GetWelcome(), nil
}

// abandon leaves g, where nothing is heard, for the leader of a partition. What is under way on it ends.
func (w *Router) abandon(g *Endpoint, leader string, partition int) {
	w.opts.Logger.Warn("a node is silent, and another one leads", "address", g.Address, "leader", leader)
	w.mu.Lock()
	for p, at := range w.lead.at {
		switch {
		case at != g.Address:
		case p == partition:
			w.lead.at[p] = leader
		default:
			w.lead.at[p] = "" // it is looked for
		}
	}
	current := w.now == g
	w.mu.Unlock()
	if current && !w.move(leader) {
		w.watchAgain(g)
		return
	}
	closeEndpoints(w.sweep())
	g.owed.left.Store(true)
	w.mu.Lock()
	conns := g.connections()
	w.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // it fails for a closed one only
	}
}

// watchAgain watches g again from the start: it could not be left.
func (w *Router) watchAgain(g *Endpoint) { time.AfterFunc(askMax, func() { w.listen(g, 0) }) }

// heardStream tells why a stream ended whose node was left.
type heardStream struct {
	grpc.ClientStream
	// g is the endpoint that the stream is of.
	g *Endpoint
}

// RecvMsg receives a message.
func (s heardStream) RecvMsg(m any) error { return s.g.owed.end(s.ClientStream.RecvMsg(m)) }

// repeatableKey is under which a context says that its call may be repeated.
type repeatableKey struct{}

// Repeatable marks a call that may be repeated, so that a node which does not answer it may be left.
func Repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatableKey{}, true)
}

// Heard notes that something came from g.
func (g *Endpoint) Heard() { g.owed.hear() }

// Acked notes that one of the frames that g owed is answered. What came was noted by Heard.
func (g *Endpoint) Acked() { g.owed.open.Add(-1) }

// Answered notes that n answers came, or will not come any more.
func (g *Endpoint) Answered(n int) { g.owed.answered(n) }

// End is the error of what ended because g was left, and err for all else.
func (g *Endpoint) End(err error) error { return g.owed.end(err) }
