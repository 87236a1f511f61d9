package session

import (
	"context"
	"sync"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
	"github.com/millrace/millrace/sdk/go/internal/frame"
	"github.com/millrace/millrace/sdk/go/internal/ledger"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/transport"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// putStream is a stream of puts to one partition, the role of a session: it gathers puts into frames, which carry numbers
// that rise by one over the life of the session. So a server tells a frame that comes again, and applies frames in their
// order: one that it has no place for yet, because one before it was not taken, comes again behind that.
type putStream struct {
	// s is the session whose role this is. Its mu guards all but keyspace, which is that of all puts.
	s        *session
	keyspace string

	// started says that the session runs.
	started bool
	// queue holds the batches that wait to be written: those with numbers first, in their order.
	queue deque[*putBatch]
	// gather is the last of queue while it takes puts; last is the newest batch, wherever it is.
	gather, last *putBatch
	// queued is how much of a window queue would take.
	queued window
	// space is closed when there is room again; nil while no put waits.
	space chan struct{}
	// The numbers of frames.
	numbers
	// stalled says that a frame was not taken: what is under way is awaited, then all is sent again in order.
	stalled bool
	// tries counts how often in a row frames were not taken.
	tries int
	// pace estimates how fast frames are answered that were taken at once.
	pace transport.AckPace
}

// putState is how far a batch got.
type putState struct {
	// seq is its number in the life of the session; 0 = none yet.
	seq uint64
	// tries is how often it was sent.
	tries int
	// unsure says that it may have been applied.
	unsure bool
	// first is when it left first; zero: it has not.
	first time.Time
}

const (
	// putsAim is where a frame of puts is closed, in bytes.
	putsAim = 256 << 10
	// putsOpen is how many frames that are not full may be under way, with more of which puts gather: where a server answers
	// fast, and where it does not, or is not known yet.
	putsOpen     = 1
	putsOpenSlow = 4
)

// newPutStream makes the stream of a partition; nothing is opened before its first put.
func newPutStream(hub *Hub, keyspace string, partition int) *putStream {
	l := &putStream{s: newSession(hub, new(sync.Mutex), partition), keyspace: keyspace}
	l.s.keys = true
	l.s.role = l
	return l
}

// put queues a put; op holds its conditions, nil for none. It waits for room until ctx ends.
func (l *putStream) put(ctx context.Context, key string, value []byte, op *millracev1.KVPut) (Put, *fault.Fault) {
	size := len(key) + len(value) + frame.PutBytes
	if size > FrameBytes-1024 {
		return Put{}, fault.TooLarge("value", "value_bytes", FrameBytes-1024-int64(frame.PutBytes))
	}
	l.s.mu.Lock()
	// Wait for room. An empty queue takes any one put, so that a large one does not wait for ever.
	for {
		if l.s.closing || l.s.ctx.Err() != nil {
			l.s.mu.Unlock()
			return Put{}, fault.Closed()
		}
		if n := l.queued; n == (window{}) ||
			n.items+l.s.used.items < l.s.limit.items && n.bytes+l.s.used.bytes+size <= l.s.limit.bytes {
			break
		}
		if l.space == nil {
			l.space = make(chan struct{})
		}
		space := l.space
		l.s.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return Put{}, fault.Ended(ctx, false, "the server takes no more puts now")
		}
		l.s.mu.Lock()
	}
	if !l.started {
		l.started = true
		go func() { _ = l.s.run(false) }() // each batch carries its own error
	}
	b := l.gather
	// The last batch is full, or has left: another one begins. It gets no number before it is sent.
	if b == nil || b.n >= wire.FrameItems || len(b.items)+size > putsAim {
		b = &putBatch{done: make(chan struct{}), items: make([]byte, 0, min(max(size, 1<<10), putsAim))}
		l.gather, l.last = b, b
		l.queue.pushBack(b)
	}
	old := len(b.items)
	b.items = frame.AppendPut(b.items, key, value, op)
	w := Put{b, b.n}
	b.n++
	l.queued.items++
	l.queued.bytes += len(b.items) - old
	if led := l.s.hub.Ledger; led != nil {
		b.lines = append(b.lines, ledger.Line{Op: "kv_put", Key: l.keyspace + "/" + key, Value: string(value), Invoke: led.Now()})
	}
	// The writer need not look at each put: only when a batch begins, and when it is worth a frame though others are open.
	wake := b.n == 1 || l.full(b)
	l.s.mu.Unlock()
	if wake {
		l.s.poke()
	}
	return w, nil
}

// full reports whether b is worth a frame though others are under way. Half of putsAim is enough: more gathers while it is written.
func (l *putStream) full(b *putBatch) bool {
	return b.n >= wire.FrameItems || len(b.items) >= putsAim/2
}

// open is how many frames that are not full may be under way.
func (l *putStream) open() int {
	if l.pace.Fast() {
		return putsOpen
	}
	return putsOpenSlow
}

// newest returns the batch that was begun last, whose answer comes after those of all before it; nil before the first put.
func (l *putStream) newest() *putBatch {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.last
}

// Puts have nothing to say when a stream begins, and nothing is pushed to them.
func (l *putStream) hello(*millracev1.Hello)         {}
func (l *putStream) receive(*millracev1.ServerFrame) {}

// parted ends a wait for what was under way: it is back in the queue.
func (l *putStream) parted()                      { l.stalled = false }
func (l *putStream) welcomed(*millracev1.Welcome) {}

// idle reports whether no batch waits.
func (l *putStream) idle() bool { return l.queue.len() == 0 }

// moved ends all that waits when the session goes over to a way that has no streams.
func (l *putStream) moved() {
	if l.s.plain {
		l.refuse(&fault.Fault{Code: wire.InvalidArgument, Reason: "not_supported", Message: "a stream of puts needs gRPC, and the server is reached over REST only", Op: fault.OpNone})
	}
}

// next makes the frame of the batch that stands first; nil when none waits, the window is full, or the batch should take more puts
// meanwhile.
func (l *putStream) next(seq uint64) (*millracev1.ClientFrame, outgoing) {
	if l.held() {
		return nil, nil
	}
	if l.queue.len() == 0 {
		return nil, nil
	}
	b := l.queue.front()
	if l.renew && !b.put.unsure {
		return nil, nil // of the next life
	}
	if b == l.gather && len(l.s.frames) >= l.open() && !l.full(b) {
		l.s.blocked = true // an ack wakes the writer
		return nil, nil
	}
	n := window{items: b.n, bytes: len(b.items), commits: 1}
	if !l.s.fits(n) {
		return nil, nil
	}
	l.queue.popFront()
	l.queued.items -= n.items
	l.queued.bytes -= n.bytes
	if b == l.gather {
		l.gather = nil
	}
	// A batch that comes again keeps its number, by which the server knows it.
	if b.put.seq == 0 {
		b.put.seq, _ = l.number()
		b.put.tries = 0
	}
	if b.put.first.IsZero() {
		b.put.first = time.Now()
	}
	b.put.tries++
	return l.frame(seq, b), &putFrame{l, b}
}

// held reports whether nothing is sent now.
func (l *putStream) held() bool {
	if l.s.plain {
		l.moved()
		return true
	}
	// All that is under way will be refused too. Once it has, everything is sent again in order, after a pause.
	if l.stalled {
		if l.s.used.commits > 0 {
			return true
		}
		l.stalled = false
		l.tries++
		pause := retry.Backoff(l.tries)
		l.s.pause = time.Now().Add(pause)
		time.AfterFunc(pause, l.s.poke)
	}
	if !l.s.pause.IsZero() {
		if time.Now().Before(l.s.pause) {
			return true
		}
		l.s.pause = time.Time{}
	}
	return l.renew && !l.reborn()
}

// frame writes a batch. Its items are encoded already, and stand in the message as fields that it does not look into.
func (l *putStream) frame(seq uint64, b *putBatch) *millracev1.ClientFrame {
	f := &millracev1.PutsFrame{Seq: seq, Keyspace: l.keyspace, CommitSeq: b.put.seq}
	f.ProtoReflect().SetUnknown(b.items)
	return &millracev1.ClientFrame{Frame: &millracev1.ClientFrame_Puts{Puts: f}}
}

// reborn begins the new life of the session if nothing of the old one is open, and opens the stream again for it. It
// reports whether batches of the old life that may have been applied wait to be sent; they stand first.
func (l *putStream) reborn() bool {
	if l.s.used.commits > 0 {
		return false
	}
	open := false
	for i := range l.queue.len() {
		b := l.queue.ring[l.queue.at(i)]
		open = open || b.put.unsure
		if !b.put.unsure {
			b.put.seq = 0
		}
	}
	if open {
		return true
	}
	l.newLife(l.s)
	l.s.cut()
	return false
}

// putFrame is the outgoing of a batch.
type putFrame struct {
	l *putStream
	b *putBatch
}

// size counts one commit, as the server applies each frame as one.
func (f *putFrame) size() window { return window{items: f.b.n, bytes: len(f.b.items), commits: 1} }

// acked takes the answer. An error with a place in the log was judged by the state, and is the end; one without it took no number,
// so the batch comes again, or the session begins a new life.
func (f *putFrame) acked(a *millracev1.Ack) {
	l, b := f.l, f.b
	e := fault.FromWire(a.Error)
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	defer l.roomy()
	if b.ended {
		return
	}
	judged := a.GetAt().GetIndex() != 0
	switch {
	case e == nil && a.Puts == nil:
		l.renew = true
		l.end(b, fault.Lacking("the puts"))
	case e == nil:
		if b.put.tries == 1 {
			l.pace.Answered(b.put.first, time.Now())
		}
		b.firstRev, b.refused, b.at = a.Puts.GetFirstRev(), a.Puts.GetRefused(), a.At
		l.tries = 0
		l.counted = l.counted || b.put.seq != 0
		l.end(b, nil)
	case e.Reason == wire.ReasonSessionExpired && l.early(b.put.seq, b.put.tries, b.put.first):
		l.again(b)
	case e.Reason == wire.ReasonSessionExpired:
		l.renew = true
		if l.forgotten(b.put.seq, b.put.tries, b.put.first) {
			b.put.unsure = false
			l.back(b)
			return
		}
		l.end(b, &fault.Fault{Code: wire.Unavailable, Reason: wire.ReasonSessionExpired, Message: e.Message, Op: fault.OpNone, Unknown: true})
	case e.Code == wire.InvalidArgument && e.Reason == reasonGap:
		b.put.unsure = false // a number before it was not taken, so this one was not either
		l.again(b)
	case e.Code == wire.ResourceExhausted && e.Limit == "sessions":
		l.renew = true // it counted for nothing
		l.end(b, e)
	case judged:
		l.end(b, e)
	case e.Patience() > 0 && time.Since(b.put.first) < e.Patience():
		b.put.unsure = b.put.unsure || e.Unknown
		l.again(b)
	default:
		l.renew = true // its number was not taken, and will not be
		l.end(b, e.After(b.put.unsure || e.Unknown))
	}
}

// again queues a batch that was not taken, and holds back what would overtake it.
func (l *putStream) again(b *putBatch) {
	l.stalled = true
	l.back(b)
	l.s.poke()
}

// back puts a batch into its place in the queue.
func (l *putStream) back(b *putBatch) {
	// Numbers stand in their order: b goes behind those below its own.
	var before []*putBatch
	for l.queue.len() > 0 && l.queue.front().put.seq != 0 && l.queue.front().put.seq < b.put.seq {
		before = append(before, l.queue.popFront())
	}
	l.queue.pushFront(b)
	for i := len(before) - 1; i >= 0; i-- {
		l.queue.pushFront(before[i])
	}
	l.queued.items += b.n
	l.queued.bytes += len(b.items)
}

// lost puts the batch back as one that may have been applied.
func (f *putFrame) lost() {
	if f.b.ended {
		return
	}
	f.b.put.unsure = true
	f.l.back(f.b)
}

// expire ends a batch that has no answer. Its number stays open, so the session begins a new life on a new stream.
func (f *putFrame) expire(t time.Time) time.Time {
	if f.b.ended || f.b.put.first.After(t) {
		return f.b.put.first
	}
	f.l.renew = true
	f.l.end(f.b, fault.Expired())
	f.l.s.cut()
	return time.Time{}
}

// expire ends batches that wait to be sent again and left before t.
func (l *putStream) expire(t time.Time) time.Time {
	var oldest time.Time
	l.queue.keep(func(b *putBatch) bool {
		if b.put.first.IsZero() {
			return true
		}
		if b.put.first.After(t) {
			oldest = retry.Earlier(oldest, b.put.first)
			return true
		}
		l.renew = true
		l.drop(b, fault.Expired())
		return false
	})
	return oldest
}

// refuse ends all batches that wait with err: those that left before as unknown.
func (l *putStream) refuse(err *fault.Fault) {
	for l.queue.len() > 0 {
		b := l.queue.popFront()
		l.renew = l.renew || b.put.seq != 0
		l.drop(b, err.Copy().After(b.put.unsure))
	}
	l.roomy()
}

// drop ends a batch that was taken off the queue.
func (l *putStream) drop(b *putBatch, e *fault.Fault) {
	l.queued.items -= b.n
	l.queued.bytes -= len(b.items)
	if b == l.gather {
		l.gather = nil
	}
	l.end(b, e)
}

// end wakes those who wait for a batch.
func (l *putStream) end(b *putBatch, e *fault.Fault) {
	if b.ended {
		return
	}
	b.ended, b.err = true, e
	close(b.done)
	for i, line := range b.lines {
		_, f := b.answer(i)
		l.s.hub.Ledger.Write(line, b.at, f)
	}
}

// roomy wakes puts that wait for room.
func (l *putStream) roomy() {
	if l.space != nil {
		close(l.space)
		l.space = nil
	}
}

// close refuses further puts, waits at most d for those under way, and ends the stream.
func (l *putStream) close(d time.Duration) {
	l.s.mu.Lock()
	started := l.started
	l.s.closing = true
	l.roomy()
	l.s.mu.Unlock()
	if !started {
		l.s.stop(fault.ErrClosed)
		return
	}
	l.s.drain(d)
}
