package node

import (
	"context"
	"fmt"
	"math"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
)

// at is where an answer read now stands: what it shows is at least this.
func (s *shard) at(p core.Partition) core.At {
	index, _ := s.store.Applied() // it is a little ahead of what is published
	return core.At{Partition: p.Index, Index: index, Stamp: core.ShardTime(s.view.lastSeen.Load())}
}

// unsyncedTail is how many entries a power cut may take from a log that is not synced: what is written in the half minute after
// which the system writes its cache to disk, at 30,000 entries a second.
const unsyncedTail = 1 << 20

// least returns the index that a read waits for, given the newest committed one. It refuses an index that no client was ever
// given, as it lies past the newest. One that clients were given may lie past it where a power cut took entries that were
// acknowledged.
func (s *shard) least(o core.ReadOptions, newest uint64) (uint64, core.Fact) {
	switch {
	case o.MinIndex <= newest:
		return o.MinIndex, nil
	case o.Elsewhere:
		return newest, nil
	case o.MinIndex-newest <= s.mayLack:
		return o.MinIndex, nil
	}
	return 0, core.Invalid{
		Field: core.FieldMinIndex, Reason: core.ReasonIndexUnknown,
		Message: fmt.Sprintf("%d must not be greater than the newest index, which is %d", o.MinIndex, newest),
	}
}

// barrier waits until the applied state is fresh enough to read. A leader that is the only voter has applied all it
// ever acknowledged, except an entry it is applying, for which every reader of the store waits. With more voters a majority
// confirms what index that is, whichever node leads. An index that is not applied here is waited for while no leader is known
// to lack it.
func (s *shard) barrier(ctx context.Context, o core.ReadOptions) error {
	if !o.Stale && s.alone.Load() && !s.view.ready.Load() {
		return core.Unavailable{Reason: "no_leader"}
	}
	if o.Stale && o.MaxStale > 0 && !s.freshWithin(o.MaxStale) {
		o.Stale = false
	}
	local := o.Stale || s.alone.Load()
	if local && s.view.applied.Load() >= o.MinIndex {
		return nil
	}
	asked := s.n.o.Clock.Boot()
	timer := s.n.o.Clock.NewTimer(s.n.o.ReadWait)
	defer timer.Stop()
	min := o.MinIndex
	var newest <-chan uint64
	if local {
		w := s.rounds.add()
		defer s.rounds.drop(w)
		s.poke()
		newest = w.index
	} else {
		index, fact := s.confirm(ctx, timer.C())
		if fact == nil {
			min, fact = s.least(o, index)
		}
		if fact != nil {
			return fact
		}
		min = max(min, index)
	}
	for {
		moved := s.advance.wait()
		if s.view.applied.Load() >= min {
			if !local {
				s.freshAt(asked)
			}
			return nil
		}
		select {
		case <-moved:
		case index := <-newest:
			var fact core.Fact
			if min, fact = s.least(o, index); fact != nil {
				return fact
			}
		case <-timer.C():
			return core.DeadlineExceeded{}
		case <-ctx.Done():
			return core.DeadlineExceeded{}
		case <-s.n.stopping:
			return core.Unavailable{Reason: "stopping"}
		}
	}
}

// read runs fn on the shard's state at o or later.
func (n *Node) read(ctx context.Context, p core.Partition, o core.ReadOptions, fn func(core.View) error) (core.At, error) {
	s, err := n.shardOf(p)
	if err != nil {
		return core.At{}, err
	}
	if err := s.barrier(ctx, o); err != nil {
		return core.At{}, err
	}
	at := s.at(p)
	err = s.store.ViewAt(func(v core.View, index uint64) error {
		at.Index = max(at.Index, index) // what was answered early shows only now
		return fn(v)
	})
	return at, err
}

// found is the error of reading a task: err, or that it is not there.
func found(id core.TaskID, ok bool, err error) error {
	if err == nil && !ok {
		return core.NotFound{Kind: "task", ID: id.String()}
	}
	return err
}

// Task reads one task.
func (n *Node) Task(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.Task, core.At, error) {
	t, _, at, err := n.TaskUpTo(ctx, p, id, core.ContentSize{Payload: math.MaxInt, Result: math.MaxInt}, o)
	return t, at, err
}

// TaskUpTo reads one task with at most that many bytes (most) of its payload and of its result; size is how long they are as a whole.
func (n *Node) TaskUpTo(ctx context.Context, p core.Partition, id core.TaskID, most core.ContentSize, o core.ReadOptions) (t core.Task, size core.ContentSize, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		t, size, ok, err = queue.TaskUpTo(v, p, id, most)
		showTask(&t, shift)
		return found(id, ok, err)
	})
	return t, size, at, err
}

// Attempts reads the last attempts of a task, oldest first, and counts those before them.
func (n *Node) Attempts(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (list core.AttemptList, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		list, ok, err = queue.Attempts(v, p, id)
		for i := range list.Attempts {
			a := &list.Attempts[i]
			show(shift, &a.Start, &a.End, &a.ReadyAt, &a.LeaseUntil, &a.RetryAt)
		}
		return found(id, ok, err)
	})
	return list, at, err
}

// Tasks reads a page of tasks, without payloads and results.
func (n *Node) Tasks(ctx context.Context, p core.Partition, q core.ListQuery) (page core.TaskPage, at core.At, err error) {
	at, err = n.readShown(ctx, p, q.Read, func(v core.View, shift core.Millis) error {
		page, err = queue.List(v, p, q, shift)
		for i := range page.Tasks {
			showTask(&page.Tasks[i], shift)
		}
		show(shift, &page.Reached)
		return err
	})
	return page, at, err
}

// Wait answers when the task has ended.
func (n *Node) Wait(ctx context.Context, p core.Partition, id core.TaskID) (t core.Task, at core.At, err error) {
	err = n.awaitEnd(ctx, p, id, func() (core.State, error) {
		t, at, err = n.Task(ctx, p, id, core.ReadOptions{})
		return t.State, err
	})
	return t, at, err
}

// WaitEnd returns when the task has ended. It reads neither payload nor result.
func (n *Node) WaitEnd(ctx context.Context, p core.Partition, id core.TaskID) error {
	return n.awaitEnd(ctx, p, id, func() (core.State, error) {
		t, _, _, err := n.TaskUpTo(ctx, p, id, core.ContentSize{}, core.ReadOptions{})
		return t.State, err
	})
}

// awaitEnd returns when read has shown a state that ends the task.
func (n *Node) awaitEnd(ctx context.Context, p core.Partition, id core.TaskID, read func() (core.State, error)) error {
	s, err := n.shardOf(p)
	if err != nil {
		return err
	}
	for {
		// A waiter may be woken only to look: by a snapshot, which says of no task that it has ended.
		if state, err := n.awaitWake(ctx, s, waitKey{p, id}, read); err != nil || state.Terminal() {
			return err
		}
	}
}

// awaitWake reads, and if the task has not ended waits to be woken and reads again. It registers before it reads, so that no end is missed.
func (n *Node) awaitWake(ctx context.Context, s *shard, k waitKey, read func() (core.State, error)) (core.State, error) {
	woken, f := s.waits.add(k)
	if f != nil {
		return 0, f
	}
	defer func() { s.waits.remove(k, woken) }()
	if state, err := read(); err != nil || state.Terminal() {
		return state, err
	}
	select {
	case <-woken:
		return read()
	case <-ctx.Done():
		return 0, core.DeadlineExceeded{}
	case <-n.stopping:
		return 0, core.Unavailable{Reason: "stopping"}
	}
}

// WatchTask shows a task to show, and again each time that it has changed, until it has ended, show fails or ctx ends. show is given the
// newest state alone: it may miss some in between. NotFound: the task is not there, or is not any more.
func (n *Node) WatchTask(ctx context.Context, p core.Partition, id core.TaskID, show func(core.Task, core.ContentSize, core.At) error) error {
	s, err := n.shardOf(p)
	if err != nil {
		return err
	}
	k := waitKey{p, id}
	changed, f := s.waits.watch(k)
	if f != nil {
		return f
	}
	defer s.waits.unwatch(k, changed)
	var o core.ReadOptions
	for {
		t, size, at, err := n.TaskUpTo(ctx, p, id, core.ContentSize{}, o)
		if err != nil {
			return err
		}
		if err := show(t, size, at); err != nil || t.State.Terminal() {
			return err
		}
		select {
		case <-changed:
			o.Stale = true // this replica has applied what it was told of
		case <-ctx.Done():
			return core.DeadlineExceeded{}
		case <-n.stopping:
			return core.Unavailable{Reason: "stopping"}
		}
	}
}

// Key reads one key. Its revision is 0 when it, or its keyspace, is absent.
func (n *Node) Key(ctx context.Context, p core.Partition, keyspace string, key []byte, o core.ReadOptions) (k core.KeyRead, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		k, err = kv.Read(v, p, keyspace, key)
		return err
	})
	return k, at, err
}

// Queue reads a queue's counters and configuration.
func (n *Node) Queue(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (q core.QueueStats, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		q, ok, err = queue.Stats(v, p, name)
		if err == nil && !ok {
			err = core.NotFound{Kind: "queue", ID: name}
		}
		show(shift, &q.OldestReady, &q.Paused.Since)
		return err
	})
	return q, at, err
}

// Queues reads a page of queues by name.
func (n *Node) Queues(ctx context.Context, p core.Partition, after string, limit int, o core.ReadOptions) (list []core.QueueStats, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		list, err = queue.Queues(v, p, after, limit)
		for i := range list {
			show(shift, &list[i].OldestReady, &list[i].Paused.Since)
		}
		return err
	})
	return list, at, err
}

// QueueKeys reads keys of a queue.
func (n *Node) QueueKeys(ctx context.Context, p core.Partition, q *core.KeyQuery, o core.ReadOptions) (list core.KeyList, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		if list, ok, err = queue.Keys(v, p, q, n.Now(p)); err == nil && !ok {
			err = core.NotFound{Kind: "queue", ID: q.Queue}
		}
		for i := range list.Keys {
			showKey(&list.Keys[i], shift)
		}
		showKey(&list.Unkeyed, shift)
		return err
	})
	return list, at, err
}

// showKey shows a key of a queue.
func showKey(k *core.QueueKey, shift core.Millis) {
	show(shift, &k.OldestReady, &k.Paused.Since, &k.Until)
}

// NamespaceConfig reads the configuration of the partition's namespace. Error: removedFact where that was removed.
func (n *Node) NamespaceConfig(ctx context.Context, p core.Partition, o core.ReadOptions) (c core.NamespaceConfig, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		// That there is one tells that the namespace is there, and this node may not know yet that it was removed.
		cleared, err := commit.Cleared(v, p)
		switch {
		case err != nil:
			return err
		case cleared:
			return removedFact
		}
		c, err = commit.NamespaceConfig(v, p)
		return err
	})
	return c, at, err
}

// KeyBytes reads how many bytes all keyspaces of the partition's namespace took on disk when that was measured last; 0 when
// it never was.
func (n *Node) KeyBytes(ctx context.Context, p core.Partition, o core.ReadOptions) (bytes uint64, at core.At, err error) {
	at, err = n.read(ctx, p, o, func(v core.View) error {
		bytes, err = kv.Used(v, p)
		return err
	})
	return bytes, at, err
}
