package live

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

const (
	// Every is how often a topic is read.
	Every = time.Second
	// EveryTask is how often a topic of one task is read: who looks at one task waits for its next step. It costs one record.
	EveryTask = 250 * time.Millisecond
	// Lingers is how long a topic is read on after its last listener has left. One that comes back within it gets only what has
	// changed meanwhile.
	Lingers = 10 * time.Second
	// MaxIdle bounds the topics that are read on so, of all namespaces together: who listens to one task after the other leaves many.
	MaxIdle = 1000
	// Beat is after how long without a frame a listener is to be sent a sign of life. It is shorter than the time after which
	// proxies close a silent connection, often 60 s.
	Beat = 15 * time.Second
	// sampleWithin bounds one reading of a topic: a source that hangs must not hold the topic for good.
	sampleWithin = 10 * time.Second
	// MaxGone bounds the rows of a topic of which it is remembered that they are gone. With more of them a listener that has missed
	// a frame gets a whole one.
	MaxGone = 1000
)

// Topic names what is listened to. It is a key: each has one sampler.
type Topic struct {
	Tenant    string
	Namespace string
	Name      string        // as clients write it, such as queue:mail
	Every     time.Duration // how often it is read
	Sight     uint8         // what its listeners may see besides, as its source knows it: others have another topic
}

// Row is one row of a topic. Rows are compared by their bytes.
type Row struct {
	ID   string // unique in the topic
	JSON []byte // an object; it is not changed later
}

// Sample is what was read of a topic.
type Sample struct {
	Stamp time.Time // the age of its oldest part
	At    []core.At // where its parts stand, by partition
	Rows  []Row     // in the order in which they are sent
	// Partial says that not all rows could be read.
	Partial bool
}

// Source reads topics.
type Source interface {
	// Sample reads a topic. NotFound says that there is no such thing; to a topic that is listened to already its rows are gone.
	Sample(ctx context.Context, t Topic) (Sample, error)
}

// Options of a hub. All are required.
type Options struct {
	Source Source
	Clock  env.Clock
	Rand   env.Rand
	// Life ends all samplers.
	Life context.Context
}

// Hub has the topics that somebody listens to. It is safe for concurrent use.
type Hub struct {
	o Options
	// node names this hub in the ids of frames: ticks of another one say nothing here.
	node    string
	running sync.WaitGroup // samplers

	mu sync.Mutex // guards the fields below, and those of topics and listeners
	// tick counts the changes of all topics together, so that one number says what a listener of several has got.
	tick   uint64
	topics map[Topic]*topic
	idle   int // how many of topics have no listeners
}

// topic is one that is sampled.
type topic struct {
	key Topic
	// ready is closed after the first sample. err is what that failed with, or why the topic has ended.
	ready chan struct{}
	err   error
	quit  chan struct{} // closed when it is not to be read any more

	listeners map[*Listener]struct{}
	// since is when the last listener left, in the clock's boot time.
	since time.Duration

	last Sample
	// rows are those of last, and those that are gone, by their ids.
	rows map[string]*row
	gone int // how many of rows are gone
	// tick is that of the last change. What changed up to floor is not known row by row.
	tick, floor uint64
	// frames are those of the last change that were asked for, by the tick from which they lead here.
	frames map[uint64]Frame
}

// row is a row as it was last seen; json is nil once it is gone.
type row struct {
	json []byte
	tick uint64 // of its last change
}

// Frame is one event, encoded. Its bytes are shared by all who get it.
type Frame struct {
	Topic string
	Bytes []byte // as server-sent events have it

	tick uint64
}

// New makes a hub without topics.
func New(o Options) *Hub {
	var id [4]byte
	o.Rand.Fill(id[:])
	return &Hub{o: o, node: hex.EncodeToString(id[:]), topics: make(map[Topic]*topic)}
}

// Wait returns when no sampler runs any more, which is soon after Life has ended.
func (h *Hub) Wait() { h.running.Wait() }

// Topics is how many topics are sampled.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// Absent is a topic of what is not there.
type Absent struct {
	Topic Topic
	Err   error // a NotFound
}

// Listen begins to listen to topics, and waits until each was read once. Those of what is not there are left out, and returned; where
// none is left, and of one that cannot be read, the error is returned. last is the id of the last frame that the listener has got, or
// empty. It must be closed.
func (h *Hub) Listen(ctx context.Context, topics []Topic, last string) (*Listener, []Absent, error) {
	l, absent, err := h.listen(ctx, topics, last)
	switch {
	case err != nil:
	case len(absent) == len(topics):
		err = absent[0].Err
	default:
		return l, absent, nil
	}
	l.Close()
	return nil, nil, err
}

// listen is Listen. The listener must be closed also where there is an error.
func (h *Hub) listen(ctx context.Context, topics []Topic, last string) (*Listener, []Absent, error) {
	l := &Listener{h: h, wake: make(chan struct{}, 1), seen: make(map[*topic]uint64, len(topics))}
	from := h.from(last)
	var absent []Absent
	for _, key := range topics {
		t := h.enter(l, key, from)
		select {
		case <-t.ready:
		case <-ctx.Done():
			return l, nil, context.Cause(ctx)
		case <-h.o.Life.Done():
			return l, nil, core.Unavailable{Reason: "stopping"}
		}
		switch {
		case is[core.NotFound](t.err):
			absent = append(absent, Absent{key, t.err})
			l.leave(t)
		case t.err != nil:
			return l, nil, t.err
		}
	}
	return l, absent, nil
}

// from reads the id of a frame; 0 where it says nothing here.
func (h *Hub) from(id string) uint64 {
	node, tick, ok := strings.Cut(id, "-")
	if !ok || node != h.node {
		return 0
	}
	n, err := strconv.ParseUint(tick, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// enter adds a listener to a topic, and begins to sample it if it is new.
func (h *Hub) enter(l *Listener, key Topic, from uint64) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t != nil && len(t.listeners) == 0 {
		h.idle--
	}
	if t == nil {
		t = &topic{
			key: key, ready: make(chan struct{}), quit: make(chan struct{}), listeners: make(map[*Listener]struct{}),
			rows: make(map[string]*row), floor: h.tick,
		}
		h.topics[key] = t
		h.running.Go(func() { h.sample(t) })
	}
	t.listeners[l] = struct{}{}
	// A tick that was never given says nothing.
	if from > h.tick {
		from = 0
	}
	l.seen[t] = from
	return t
}

// sample reads a topic again and again, until it is not listened to any more.
func (h *Hub) sample(t *topic) {
	timer := h.o.Clock.NewTimer(t.key.Every)
	defer timer.Stop()
	for first := true; ; first = false {
		ctx, cancel := context.WithTimeout(h.o.Life, sampleWithin)
		s, err := h.o.Source.Sample(ctx, t.key)
		cancel()
		if !h.publish(t, s, err, first) {
			return
		}
		timer.Reset(t.key.Every)
		select {
		case <-timer.C():
		case <-t.quit:
			return
		case <-h.o.Life.Done():
			h.mu.Lock()
			h.forget(t)
			h.mu.Unlock()
			return
		}
	}
}

// leave takes a listener away from a topic. The hub's mutex is held.
func (h *Hub) leave(l *Listener, t *topic) {
	delete(t.listeners, l)
	if len(t.listeners) > 0 || h.topics[t.key] != t {
		return
	}
	h.idle++
	t.since = h.o.Clock.Boot()
	if h.idle > MaxIdle {
		h.forget(t)
		close(t.quit)
	}
}

// forget removes a topic. The hub's mutex is held.
func (h *Hub) forget(t *topic) {
	if h.topics[t.key] != t {
		return
	}
	delete(h.topics, t.key)
	if len(t.listeners) == 0 {
		h.idle--
	}
}

// publish takes a sample, and wakes those who listen if anything has changed. It reports false once the topic is over.
func (h *Hub) publish(t *topic, s Sample, err error, first bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first {
		defer close(t.ready)
	}
	now := h.o.Clock.Boot()
	switch {
	case err != nil && first:
		t.err = err
		h.forget(t)
		return false
	case len(t.listeners) == 0 && now-t.since >= Lingers:
		h.forget(t)
		return false
	case is[core.NotFound](err):
		s = Sample{Stamp: h.o.Clock.Wall()}
	case is[core.NotLeader](err):
		t.err = err // it is not held here any more, so its listeners must go elsewhere
		h.forget(t)
		t.poke()
		return false
	case err != nil:
		return true // what was read before stays until it can be read again
	}
	if h.take(t, s, first) {
		t.poke()
	}
	return true
}

// is reports whether an error is, or wraps, a fact of a type.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// poke wakes all who listen to a topic.
func (t *topic) poke() {
	for l := range t.listeners {
		l.poke()
	}
}

// take compares a sample with the one before, and reports whether rows have changed, or whether they are all. The first one always counts as a change, so that a
// topic without rows is told of too.
func (h *Hub) take(t *topic, s Sample, first bool) bool {
	tick, changed := h.tick+1, first || s.Partial != t.last.Partial
	found := make(map[string]bool, len(s.Rows))
	for _, r := range s.Rows {
		found[r.ID] = true
		old := t.rows[r.ID]
		switch {
		case old == nil:
			t.rows[r.ID] = &row{r.JSON, tick}
		case bytes.Equal(old.json, r.JSON):
			continue
		default:
			if old.json == nil {
				t.gone--
			}
			old.json, old.tick = r.JSON, tick
		}
		changed = true
	}
	for id, r := range t.rows {
		if r.json != nil && !found[id] {
			r.json, r.tick = nil, tick
			t.gone++
			changed = true
		}
	}
	t.last = s
	if !changed {
		return false
	}
	h.tick, t.tick, t.frames = tick, tick, make(map[uint64]Frame)
	if t.gone > MaxGone {
		for id, r := range t.rows {
			if r.json == nil {
				delete(t.rows, id)
			}
		}
		t.gone, t.floor = 0, tick
	}
	return true
}

// goneSince lists the rows that are gone since a tick, by id.
func (t *topic) goneSince(from uint64) (ids []string) {
	for id, r := range t.rows {
		if r.json == nil && r.tick > from {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
