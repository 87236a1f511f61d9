package gitobj

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// Peers are the other nodes of a cluster as an area needs them. Nodes go by their numbers.
type Peers interface {
	// Self is this node.
	Self() uint64
	// Hosts says which nodes host a shard.
	Hosts(shard core.ShardID) Hosts
	// Open opens a connection to the area of another node, which serves it by Serve. ctx bounds the opening only.
	Open(ctx context.Context, node uint64) (Conn, error)
}

// Hosts says which nodes host a shard.
type Hosts struct {
	// Majorities are sets of voters: of each of them more than half must have a pack before a
	// commit names it. There are two while the voters change.
	Majorities [][]uint64
	// Others are all nodes but this one, those that do not vote included.
	Others []uint64
	// Leader is 0 if no leader is known.
	Leader uint64
}

// enough reports whether more than half of each set have something.
func (h Hosts) enough(have func(node uint64) bool) bool {
	for _, set := range h.Majorities {
		n := 0
		for _, node := range set {
			if have(node) {
				n++
			}
		}
		if 2*n <= len(set) {
			return false
		}
	}
	return true
}

// Conn is a connection between two areas. Close ends reads and writes that wait. The caller of the
// area has authenticated the other side.
type Conn interface{ io.ReadWriteCloser }

const (
	// peerCalls is how many exchanges with one node are under way at once, and servedCalls how many connections of all nodes
	// are served: a cluster of seven has six others.
	peerCalls   = 6
	servedConns = 64
	// idleConns of a node are kept for the next exchange.
	idleConns = 3
	// callRetry is after how long a node is asked again that could not be reached.
	callRetry = 250 * time.Millisecond
	// openTime bounds the opening of a connection.
	openTime = 5 * time.Second
)

// lines are the connections to other nodes. A connection carries one exchange at a time; between
// exchanges it is idle, and is used again.
type lines struct {
	peers Peers

	mu sync.Mutex // guards the fields below
	// nodes are the lines by node, and ended says that no more connections are kept.
	nodes map[uint64]*line
	ended bool
}

// line is what there is to one node.
type line struct {
	// slots bounds the exchanges that are under way with it.
	slots chan struct{}
	// idle are connections that no exchange uses; guarded by lines.mu.
	idle []Conn
}

// newLines returns lines without connections.
func newLines(p Peers) *lines { return &lines{peers: p, nodes: make(map[uint64]*line)} }

// to returns the line to a node, and makes it if it is not there.
func (l *lines) to(node uint64) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		n = &line{slots: make(chan struct{}, peerCalls)}
		l.nodes[node] = n
	}
	return n
}

// errAnswer is what a node said instead of what was asked for. The connection is good for more.
type errAnswer struct{ say uint8 }

// Error names the answer.
func (e errAnswer) Error() string {
	names := [...]string{sayMissing: "it is not there", sayBusy: "it is busy", sayRefused: "it takes no packs", sayWrong: "it got something else"}
	if int(e.say) < len(names) && names[e.say] != "" {
		return names[e.say]
	}
	return fmt.Sprintf("answer %d", e.say)
}

// call has one exchange with a node, on a connection that is there or a new one. f may run twice: a connection that was idle
// may be gone.
func (l *lines) call(ctx context.Context, node uint64, f func(Conn) error) error {
	return l.begun(ctx, ctx, node, f)
}

// begun is call that gives up when begin ends before the exchange has begun. An idle connection may
// have been closed by the other side: an exchange that fails on one is repeated, until one fails on
// a connection that was opened for it.
func (l *lines) begun(begin, ctx context.Context, node uint64, f func(Conn) error) error {
	n := l.to(node)
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	case <-begin.Done():
		return begin.Err()
	}
	for {
		c, used, err := l.open(begin, node, n)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		err = f(c)
		_, said := errors.AsType[errAnswer](err)
		if !stop() || err != nil && !said {
			_ = c.Close()
			if err != nil && used && ctx.Err() == nil {
				continue
			}
			return err
		}
		l.keep(n, c)
		return err
	}
}

// open takes an idle connection, which used says, or opens one.
func (l *lines) open(ctx context.Context, node uint64, n *line) (c Conn, used bool, err error) {
	l.mu.Lock()
	if k := len(n.idle); k > 0 {
		c, n.idle = n.idle[k-1], n.idle[:k-1]
		l.mu.Unlock()
		return c, true, nil
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	c, err = l.peers.Open(ctx, node)
	return c, false, err
}

// keep puts a connection aside for the next exchange, or closes it.
func (l *lines) keep(n *line, c Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(n.idle) >= idleConns {
		_ = c.Close()
		return
	}
	n.idle = append(n.idle, c)
}

// close closes what is idle.
func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, n := range l.nodes {
		for _, c := range n.idle {
			_ = c.Close()
		}
		n.idle = nil
	}
}

// stamp is the shard time from which a pack counts as kept: no later than that of any entry to
// come, and not much earlier. Only who leads knows it; what others have applied may be hours old.
// One that is much too early would let the pack be swept before its commit comes.
func (a *Area) stamp(ctx context.Context, at Place) (core.ShardTime, error) {
	if a.lines == nil {
		return a.o.Manifests.Now(at.Shard), nil
	}
	ctx, cancel := context.WithTimeout(ctx, stampTime)
	defer cancel()
	for {
		switch lead := a.o.Peers.Hosts(at.Shard).Leader; lead {
		case 0:
		case a.o.Peers.Self():
			return a.o.Manifests.Now(at.Shard), nil
		default:
			var got answer
			err := a.lines.call(ctx, lead, func(c Conn) error {
				q := ask(askTime, at, core.Pack{})
				if err := say(c, &q); err != nil {
					return err
				}
				if err := hear(c, &got); err != nil {
					return err
				}
				if got.Say != sayTime {
					return errAnswer{got.Say}
				}
				return nil
			})
			if err == nil {
				return core.ShardTime(got.Time), nil
			}
		}
		if !a.pause(ctx, callRetry/5) {
			return 0, core.Unavailable{Reason: "no_leader"}
		}
	}
}

// stampTime is how long a leader is looked for.
const stampTime = 10 * time.Second

// pause waits, and reports whether ctx goes on.
func (a *Area) pause(ctx context.Context, d time.Duration) bool {
	t := a.o.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Serve answers what another node asks on a connection, until that ends or asks what makes no
// sense. The caller closes it. Each question is answered before the next is read.
func (a *Area) Serve(c Conn) {
	if a.served.Add(1) > servedConns {
		a.served.Add(-1)
		return // it is asked again
	}
	defer a.served.Add(-1)
	for {
		var q question
		if err := hear(c, &q); err != nil {
			return // it has no more questions
		}
		if err := q.check(); err != nil {
			a.o.Logger.Warn("question of another node about packs", "err", err)
			_ = say(c, &answer{Say: sayWrong})
			return
		}
		var err error
		switch q.Ask {
		case askStage:
			err = a.serveStage(c, &q)
		case askFetch:
			err = a.serveFetch(c, &q)
		case askTime:
			err = a.serveTime(c, &q)
		default:
			_ = say(c, &answer{Say: sayWrong})
			return
		}
		if err != nil {
			a.o.Logger.Debug("exchange of packs ended", "err", err)
			return
		}
	}
}

// serveTime answers with the shard time, if this node leads the shard.
func (a *Area) serveTime(c Conn, q *question) error {
	at := q.place()
	if a.o.Peers == nil || a.o.Peers.Hosts(at.Shard).Leader != a.o.Peers.Self() {
		return say(c, &answer{Say: sayMissing})
	}
	return say(c, &answer{Say: sayTime, Time: int64(a.o.Manifests.Now(at.Shard))})
}

// hosts reports whether this node and others host a shard.
func (a *Area) hosts(shard core.ShardID) (h Hosts, several bool) {
	if a.o.Peers == nil {
		return h, false
	}
	h = a.o.Peers.Hosts(shard)
	slices.Sort(h.Others)
	return h, len(h.Others) > 0
}
