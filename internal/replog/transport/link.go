package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ownPiece is the size in bytes from which a payload is written as it is, without a copy into the buffer of others.
const ownPiece = 16 << 10

// link keeps the connection of one class to a peer, and writes to it. One goroutine, run, dials and
// writes; another one reads the answers to pings while there is a connection. The queue is open
// while there is a connection, or an attempt that may lead to one.
type link struct {
	// t is the transport, peer the node, and class the kind of messages.
	t     *Transport
	peer  *peer
	class Class
	// queue has what waits to be sent.
	queue *queue
	// pingDue is set by the keeper.
	pingDue atomic.Bool

	// own counts for this link alone.
	own    classCounters
	counts [2]*classCounters // what is counted for this link, and for all of its class

	// buf has frame heads and small payloads, pieces what is written at once, and batch the
	// messages under way. They are run's, and are used again.
	buf    []byte
	pieces [][]byte // likewise
	batch  []message

	mu sync.Mutex // guards the fields below
	// connected says that there is a connection; refused and failure say why there is none.
	connected bool
	refused   Reason
	failure   string
	// roundTrip is that of the last ping.
	roundTrip time.Duration
}

// newLink returns a link that does not dial yet.
func newLink(p *peer, class Class, messages, bytes int) *link {
	l := &link{t: p.t, peer: p, class: class, queue: newQueue(messages, bytes)}
	l.counts = [...]*classCounters{&l.own, p.t.stats.class(class)}
	return l
}

// run connects, writes until the connection ends, and connects again. The first time after a connection that lasted it
// does so at once. What is queued waits for that one attempt.
func (l *link) run() {
	ctx := l.peer.ctx
	defer func() { l.drop(l.queue.setOpen(false)) }()
	var wait time.Duration
	for ctx.Err() == nil {
		address, moved := l.peer.where()
		if address == "" {
			l.drop(l.queue.setOpen(false))
			select {
			case <-moved:
			case <-ctx.Done():
			}
			continue
		}
		l.queue.setOpen(true)
		c, err := l.t.dial(ctx, l.peer, l.class, "")
		if err == nil {
			since := l.t.o.Clock.Boot()
			l.began()
			err = l.pump(c)
			l.peer.leave(c)
			if l.t.o.Clock.Boot()-since >= l.t.o.BackoffMax {
				wait = 0
			}
			l.lost(err)
			if wait == 0 || errors.Is(err, errMoved) {
				wait = l.t.o.BackoffMin
				continue
			}
		} else {
			l.failed(err)
		}
		l.drop(l.queue.setOpen(false))
		wait = min(max(2*wait, l.t.o.BackoffMin), l.t.o.BackoffMax)
		if l.t.pause(ctx, moved, wait) {
			wait = 0
		}
	}
}

// pause waits for about d. It returns true when moved cut it short. The half of d is by chance, so
// that nodes which lost each other at one moment do not all dial at once.
func (t *Transport) pause(ctx context.Context, moved <-chan struct{}, d time.Duration) bool {
	timer := t.o.Clock.NewTimer(d/2 + time.Duration(t.o.Rand.Uint64()%uint64(d/2+1)))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	case <-moved:
		return true
	}
	return false
}

// drop counts messages for which there was no connection.
func (l *link) drop(messages int) {
	for _, n := range l.counts {
		n.droppedDown.Add(uint64(messages))
	}
}

// began notes that there is a connection.
func (l *link) began() {
	l.mu.Lock()
	l.connected, l.refused, l.failure = true, 0, ""
	l.mu.Unlock()
	for _, n := range l.counts {
		n.connects.Add(1)
	}
	l.t.log.Info("connected to peer", "peer", l.peer.id, "class", l.class)
}

// up reports whether there is a connection.
func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected
}

// refusal returns why the last attempt was refused; 0: it was not.
func (l *link) refusal() Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// lost notes that the connection has ended.
func (l *link) lost(err error) {
	l.mu.Lock()
	l.connected, l.failure = false, err.Error()
	l.mu.Unlock()
	if l.peer.ctx.Err() == nil && l.t.notes.fresh("lost", l.peer.id, 0) {
		l.t.log.Warn("connection to peer lost", "peer", l.peer.id, "class", l.class, "error", err)
	}
}

// failed notes why there is no connection. A refusal was logged where it was met.
func (l *link) failed(err error) {
	l.mu.Lock()
	l.refused, l.failure = refusedFor(err), err.Error()
	l.mu.Unlock()
	if l.peer.ctx.Err() == nil && refusedFor(err) == 0 && l.t.notes.fresh("dial", l.peer.id, 0) {
		l.t.log.Warn("no connection to peer", "peer", l.peer.id, "class", l.class, "error", err)
	}
}

// status returns what is known of the connection.
func (l *link) status() LinkStatus {
	l.mu.Lock()
	s := LinkStatus{Connected: l.connected, Refused: l.refused, Error: l.failure, RoundTrip: l.roundTrip}
	l.mu.Unlock()
	s.ClassStats = l.own.read()
	s.QueuedMessages, s.QueuedBytes = l.queue.size()
	return s
}

// ping makes the link write a ping soon.
func (l *link) ping() {
	l.pingDue.Store(true)
	l.queue.signal()
}

// pump writes what is queued until the connection ends, and returns why it did. It takes what is
// there as one batch. What gathers during a write is the next batch, so a slow connection gets
// larger writes and not more of them.
func (l *link) pump(c *conn) error {
	done := make(chan struct{})
	l.t.work.Go(func() {
		defer close(done)
		c.close(c.cause(l.pongs(c)))
	})
	for {
		l.batch = l.queue.take(l.batch[:0], l.t.o.WriteBytes)
		ping := l.pingDue.Swap(false)
		if len(l.batch) == 0 && !ping {
			select {
			case <-l.queue.wake:
				continue
			case <-c.dead:
				<-done
				return c.err
			}
		}
		err := l.write(c, ping)
		l.queue.done(l.batch)
		if err != nil {
			c.close(c.cause(fmt.Errorf("write: %w", err)))
			<-done
			return c.err
		}
	}
}

// write writes the batch, after a ping if one is due. Heads and small payloads are copied into one
// buffer; large payloads are written from where they are. What was in a write that fails may have
// arrived in part, and counts as dropped.
func (l *link) write(c *conn, ping bool) error {
	b, pieces, from, size := l.buf[:0], l.pieces[:0], 0, 0
	if ping {
		var stamp [8]byte
		binary.LittleEndian.PutUint64(stamp[:], uint64(l.t.o.Clock.Boot()))
		b = append(appendHead(b, 0, kindPing, stamp[:]), stamp[:]...)
	}
	for i := range l.batch {
		m := &l.batch[i]
		size += len(m.data)
		b = appendHead(b, m.shard, kindMessage, m.data)
		if len(m.data) < ownPiece {
			b = append(b, m.data...)
			continue
		}
		pieces = append(pieces, b[from:], m.data)
		from = len(b)
	}
	if from < len(b) {
		pieces = append(pieces, b[from:])
	}
	l.buf, l.pieces = b, pieces
	out := net.Buffers(pieces)
	err := c.writeAll(&out)
	clear(l.pieces)
	if err != nil {
		l.drop(len(l.batch))
		return err
	}
	for _, n := range l.counts {
		n.writes.Add(1)
		n.sent.Add(uint64(len(l.batch)))
		n.sentBytes.Add(uint64(size))
	}
	return nil
}

// pongs reads what the peer says on a connection that this node dialled: answers to pings, and nothing else.
func (l *link) pongs(c *conn) error {
	in := frameReader{r: c, max: maxPing, chunk: 512}
	for {
		f, err := in.next()
		if err != nil {
			return l.t.broken(c, err)
		}
		if f.kind != kindPong || len(f.payload) != 8 {
			return l.t.broken(c, fmt.Errorf("%w: kind %d on a connection that was dialled", ErrCorrupt, f.kind))
		}
		took := l.t.o.Clock.Boot() - time.Duration(binary.LittleEndian.Uint64(f.payload))
		l.mu.Lock()
		l.roundTrip = max(took, 0)
		l.mu.Unlock()
	}
}
