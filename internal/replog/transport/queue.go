package transport

import (
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// message is one message that waits to be sent.
type message struct {
	// shard is the number of the shard that the message is about.
	shard core.ShardID
	// data is the payload. It is not changed while it waits.
	data []byte
}

// verdict says what became of a message that was to be queued.
type verdict uint8

// queued, full and down are what push returns.
const (
	// queued says that the message waits to be sent.
	queued verdict = iota
	// full says that the queue had no room for it.
	full
	down // there is no connection, and none is being made
)

// queue holds the messages for one peer and class. What is taken counts against its bounds until it
// is done, so that they bound all that the peer makes this node hold. It has one reader, the link,
// and any number of writers.
type queue struct {
	maxMessages, maxBytes int
	wake                  chan struct{} // one value: there may be something to take

	mu sync.Mutex // guards the fields below
	// open says that messages are let in.
	open bool
	// msgs are those that wait, from head on.
	msgs  []message
	head  int // first of msgs that was not taken
	held  int // messages taken and not done
	bytes int // of all that waits or is held
}

// newQueue returns a queue that is not open.
func newQueue(maxMessages, maxBytes int) *queue {
	return &queue{maxMessages: maxMessages, maxBytes: maxBytes, wake: make(chan struct{}, 1)}
}

// push queues m, unless that would exceed a bound. An empty queue takes one message of any size.
func (q *queue) push(m message) verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := len(q.msgs) - q.head
	size := len(m.data) + frameHead
	switch n := waiting + q.held; {
	case !q.open:
		return down
	case n >= q.maxMessages, n > 0 && q.bytes+size > q.maxBytes:
		return full
	}
	q.msgs = append(q.msgs, m)
	q.bytes += size
	if waiting == 0 {
		q.signal()
	}
	return queued
}

// signal wakes the link, which may be writing or waiting.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take appends to dst what waits, up to limit bytes or one message. The caller tells by done when
// they are written.
func (q *queue) take(dst []message, limit int) []message {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := 0
	for q.head < len(q.msgs) {
		m := q.msgs[q.head]
		if size += len(m.data) + frameHead; size > limit && len(dst) > 0 {
			break
		}
		dst = append(dst, m)
		q.msgs[q.head] = message{}
		q.head++
		q.held++
	}
	if 2*q.head >= len(q.msgs) { // half of it is empty: what remains moves to the front
		n := copy(q.msgs, q.msgs[q.head:])
		clear(q.msgs[n:])
		q.msgs, q.head = q.msgs[:n], 0
	}
	return dst
}

// done forgets messages that were taken. They are cleared, so that their memory can go.
func (q *queue) done(taken []message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= len(taken)
	for i := range taken {
		q.bytes -= len(taken[i].data) + frameHead
		taken[i] = message{}
	}
}

// setOpen lets messages in, or refuses them and drops what waits. It returns how many were dropped.
func (q *queue) setOpen(open bool) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open = open
	if open {
		return 0
	}
	for _, m := range q.msgs[q.head:] {
		q.bytes -= len(m.data) + frameHead
		dropped++
	}
	q.msgs, q.head = nil, 0
	return dropped
}

// size returns how much waits or is being written.
func (q *queue) size() (messages, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.msgs) - q.head + q.held, q.bytes
}
