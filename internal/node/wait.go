package node

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/core"
)

// notifier wakes everybody who waits for something to move on.
type notifier struct {
	// Guards the fields below.
	mu sync.Mutex
	// Closed at the next notify; nil until someone waits.
	c chan struct{}
	// No more notify comes: what waits is woken at once.
	closed bool
}

// wait returns a channel that is closed at the next notify.
func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c == nil {
		n.c = make(chan struct{})
		if n.closed {
			close(n.c)
		}
	}
	return n.c
}

// notify wakes those who wait now. Those who call wait afterwards wait for the next one.
func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c != nil && !n.closed {
		close(n.c)
		n.c = nil
	}
}

// close wakes those who wait, and lets no one wait any more.
func (n *notifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.closed = true
		if n.c != nil {
			close(n.c)
		}
	}
}

// waitKey names a task: ids are only unique within a partition.
type waitKey struct {
	p    core.Partition
	task core.TaskID
}

// waits holds the callers that wait for tasks to end, or to change. An unknown task leaves nothing behind.
type waits struct {
	// Guards the fields below.
	mu sync.Mutex
	// The channels of those who wait, by task.
	byKey map[waitKey][]chan struct{}
	// The channels of those who watch, by task. Each holds one word that the task may have changed.
	watched map[waitKey][]chan struct{}
	// How many watch: the applier looks at it for each task that changes.
	watchers atomic.Int64
	// Watched tasks that the entry at hand changed. It is the applier's.
	moved []waitKey
	// How many wait and watch in all.
	n int
	// How many may wait: Options.Waits. An add beyond it is refused.
	max int
}

// add registers a waiter; its channel is closed when the task ends.
func (w *waits) add(k waitKey) (chan struct{}, core.Fact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enter(&w.byKey, k, 0)
}

// remove ends the wait of one caller, whether it was woken or not.
func (w *waits) remove(k waitKey, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(w.byKey, k, c)
}

// watch registers one who is told of each change of a task, until it calls unwatch. Changes that come together are told as one.
func (w *waits) watch(k waitKey) (chan struct{}, core.Fact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, f := w.enter(&w.watched, k, 1)
	if f == nil {
		w.watchers.Add(1)
	}
	return c, f
}

// unwatch ends a watch.
func (w *waits) unwatch(k waitKey, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watchers.Add(-1)
	w.leave(w.watched, k, c)
}

// enter adds a channel with that much room to those of a task. The mutex is held.
func (w *waits) enter(to *map[waitKey][]chan struct{}, k waitKey, room int) (chan struct{}, core.Fact) {
	if w.n >= w.max {
		return nil, core.Unavailable{Reason: "overload", Limit: "waits"}
	}
	w.n++
	c := make(chan struct{}, room)
	if *to == nil {
		*to = make(map[waitKey][]chan struct{})
	}
	(*to)[k] = append((*to)[k], c)
	return c, nil
}

// leave takes a channel from those of a task, if it is still among them. The mutex is held.
func (w *waits) leave(from map[waitKey][]chan struct{}, k waitKey, c chan struct{}) {
	w.n--
	list := from[k]
	if i := slices.Index(list, c); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(from, k)
	} else {
		from[k] = list
	}
}

// changed notes a task that the entry at hand changes. The applier calls it for each, so it costs little where no task is watched.
func (w *waits) changed(p core.Partition, id core.TaskID) {
	if w.watchers.Load() == 0 {
		return
	}
	k := waitKey{p, id}
	w.mu.Lock()
	_, ok := w.watched[k]
	w.mu.Unlock()
	if ok {
		w.moved = append(w.moved, k)
	}
}

// tell tells who watches a task to look.
func tell(watchers []chan struct{}) {
	for _, c := range watchers {
		select {
		case c <- struct{}{}:
		default: // it was told, and has not looked yet
		}
	}
}

// wake wakes all who wait for a task. Each still counts until it calls remove.
func (w *waits) wake(k waitKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.byKey[k] {
		close(c)
	}
	delete(w.byKey, k)
}

// observer wakes those who wait for tasks that ended, and tells those who watch tasks that changed.
func (w *waits) observer() observer {
	return observer{name: "waits", after: func(a *appliedEntry) {
		for _, e := range a.Events {
			if end, ok := e.(*core.Ended); ok {
				w.wake(waitKey{end.Partition, end.Task})
			}
		}
		if len(w.moved) == 0 {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, k := range w.moved {
			tell(w.watched[k])
		}
		w.moved = w.moved[:0]
	}}
}

// wakeAll wakes every waiter, to look for itself.
func (w *waits) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range w.byKey {
		for _, c := range all {
			close(c)
		}
	}
	clear(w.byKey)
	for _, all := range w.watched {
		tell(all)
	}
}

// sortedKeys returns the keys of m in rising order, so that what follows does not depend on the order of the map.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
