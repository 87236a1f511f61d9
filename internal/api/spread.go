package api

import (
	"context"
	"errors"
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// This file carries calls that are about several partitions of a namespace to each of them.

// share is the part of a batch that is one partition's.
type share struct {
	part    core.Partition
	commits []core.Commit
	// places are those of the commits in the batch, in their order.
	places []int
	// end is how its proposal ended; broken says that it panicked.
	end    core.Proposed
	broken error
}

// shares divides a batch, in the order of its items.
func shares(commits []core.Commit) []*share {
	var out []*share
	known := make(map[core.Partition]*share)
	for i := range commits {
		p := commits[i].Partition
		s := known[p]
		if s == nil {
			s = &share{part: p}
			known[p] = s
			out = append(out, s)
		}
		s.commits, s.places = append(s.commits, commits[i]), append(s.places, i)
	}
	return out
}

// onePartition reports whether all commits are of the same partition.
func onePartition(commits []core.Commit) bool {
	for i := range commits {
		if commits[i].Partition != commits[0].Partition {
			return false
		}
	}
	return true
}

// proposeEach is propose for commits of several partitions, in the order of each. When one other node leads all of them it
// says so; else those led elsewhere are carried there. The results are in the order of the commits. Where a partition did
// not answer, its commits are refused for that; when none did, so is the call.
func (c *call) proposeEach(ctx context.Context, commits []core.Commit) (core.Proposed, error) {
	// Then the client may be sent to the leader, which serves the next calls better.
	if !c.t.several() || onePartition(commits) {
		return c.propose(ctx, commits...)
	}
	if err := ctx.Err(); err != nil {
		return core.Proposed{}, edge.FactOf(err, false)
	}
	all := shares(commits)
	// As with one partition: the client goes there.
	if leader, ok := c.s.oneElsewhere(all); ok {
		return core.Proposed{}, core.NotLeader{Leader: leader}
	}
	var wait sync.WaitGroup
	for _, s := range all {
		wait.Go(func() {
			s.broken = c.s.Safely(func() error { s.end = c.s.forward(ctx, s.part, s.commits); return nil })
		})
	}
	wait.Wait()
	for _, s := range all {
		if s.broken != nil {
			return core.Proposed{}, s.broken
		}
	}
	out := core.Proposed{Results: make([]core.Result, len(commits))}
	// An outcome that is unknown counts more than a refusal: the client must not take it for one.
	var failed, unknown core.Fact
	answered := 0
	for _, s := range all {
		if s.end.Err != nil {
			if failed = s.end.Err; isUnknown(failed) {
				unknown = failed
			}
		} else {
			answered++
		}
		for i, place := range s.places {
			if s.end.Err != nil {
				// Of the commit as a whole, not of one of its ops.
				out.Results[place].Refusal = &core.Refusal{Op: core.CommitOp, Fact: s.end.Err}
			} else {
				out.Results[place] = s.end.Results[i]
			}
		}
	}
	switch {
	case answered > 0:
		return out, nil
	case unknown != nil:
		return out, unknown
	}
	return out, failed
}

// forward proposes at the node that leads a partition. It ends with a result for each commit, or with an error of this node,
// which never redirects the caller to another node.
func (s *Server) forward(ctx context.Context, p core.Partition, commits []core.Commit) core.Proposed {
	out := s.node.commits.Forward(ctx, p, commits)
	if edge.Is[core.NotLeader](out.Err) { // leaders changed faster than it could follow
		out.Err = core.Unavailable{Reason: "no_leader"}
	}
	if out.Err == nil && CheckResults(out, len(commits)) != nil {
		// Nothing can be said of what was applied.
		s.Log.Error("call failed", "method", "forward", "err", errResults)
		out.Err = core.Unavailable{Reason: "leader_unreached", Unknown: true}
	}
	return out
}

// oneElsewhere finds the one other node that leads all shares of a batch, if it is so.
func (s *Server) oneElsewhere(all []*share) (leader string, ok bool) {
	for _, sh := range all {
		address, here, known := s.node.places.Leader(sh.part)
		if here || !known || leader != "" && address != leader {
			return "", false
		}
		leader = address
	}
	return leader, leader != ""
}

// isUnknown reports whether what failed so may have been applied.
func isUnknown(f core.Fact) bool {
	switch f := f.(type) {
	case core.Unavailable:
		return f.Unknown
	case core.DeadlineExceeded:
		return f.Unknown
	}
	return false
}

// halfway is what a caller is told when a part of what was asked for is done, and f is why the rest is not known to be.
// Asking again does the rest.
func halfway(f core.Fact) core.Fact {
	switch f := f.(type) {
	case core.DeadlineExceeded:
		return core.DeadlineExceeded{Unknown: true}
	case core.Unavailable:
		f.Unknown = true
		return f
	// The limit is named, so that the client knows what to make room in.
	case core.Exhausted:
		return core.Unavailable{Reason: "partly_applied", Limit: f.Limit, Unknown: true}
	}
	return core.Unavailable{Reason: "partly_applied", Unknown: true}
}

// eachAtOnce is how many partitions of one call are asked at once: enough for reads that each wait for a majority.
const eachAtOnce = 32

// each runs fn for every partition of the namespace, from the given one on, a few at a time. After an error it begins no
// more, and returns the one of the first partition that had one.
func (c *call) each(from int, fn func(core.Partition) error) error {
	var (
		mu sync.Mutex // guards the variables below
		// next is the next partition to begin, failed the error of the lowest one that had any, and at
		// which that is.
		next   = from
		failed error
		at     = c.t.parts
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil || next >= c.t.parts {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var wait sync.WaitGroup
	for range min(c.t.parts-from, eachAtOnce) {
		wait.Go(func() {
			for place, ok := take(); ok; place, ok = take() {
				if err := c.s.Safely(func() error { return fn(c.t.in(place)) }); err != nil {
					mu.Lock()
					// The same error each time, whichever partition answers first.
					if place < at {
						at, failed = place, err
					}
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	return failed
}

// setting is a configuration that all partitions of a namespace have.
type setting struct {
	// version is what the change expects; -1: any.
	version int64
	// op puts the configuration, if the first partition has that version; -1: whatever it has.
	op func(int64) core.Op
	// now reads what the first partition has.
	now func() (found, error)
}

// found is the configuration that the first partition has.
type found struct {
	version uint64
	// same says that it is just that of the setting. op puts it into another partition, whatever that
	// has.
	same bool
	op   core.Op
}

// setTries bounds how often a change of a configuration is carried on because another one came in between.
const setTries = 4

// set puts a configuration into all partitions. The first one judges the version, and its answer is the call's; where the
// others fail, the outcome is unknown until the call is repeated. A repetition finds the version that the first call left.
// Where others change it at the same time, what the first partition has in the end is carried to all.
func (c *call) set(ctx context.Context, s setting) (core.OpResult, core.At, error) {
	r, at, err := c.proposeOp(ctx, s.op(s.version))
	if !c.t.several() {
		return r, at, err
	}
	// It may be a repetition of a call that got as far as the first partition: then the version is one
	// higher, and the content the same.
	if edge.Is[core.RevMismatch](err) {
		f, readErr := s.now()
		if readErr != nil {
			return r, at, readErr
		}
		if !f.same || f.version != uint64(s.version)+1 {
			return r, at, err
		}
		r.Version, err = f.version, nil
	}
	if err != nil {
		return r, at, err
	}
	carried := found{version: r.Version, op: s.op(-1)}
	for range setTries {
		if err := c.carry(ctx, carried.op); err != nil {
			return r, at, err
		}
		// Another change may have come in between, whose own carrying this one may have undone in some
		// partitions.
		f, err := s.now()
		if err != nil || f.version == carried.version {
			return r, at, err
		}
		carried = f
	}
	// Others change it all the time: what the partitions have is not known.
	return r, at, halfway(nil)
}

// carry puts a configuration into all partitions but the first.
func (c *call) carry(ctx context.Context, op core.Op) error {
	_, err := c.elsewhere(ctx, op)
	return err
}

// elsewhere proposes op, which the first partition took, to each of the others. It reports whether any of them had what op
// removes. An error leaves the outcome unknown.
func (c *call) elsewhere(ctx context.Context, op core.Op) (existed bool, err error) {
	var mu sync.Mutex // guards existed
	err = c.each(1, func(p core.Partition) error {
		end := c.s.forward(ctx, p, []core.Commit{c.t.commitIn(p, []core.Op{op})})
		switch {
		case end.Err != nil:
			return halfway(end.Err)
		case end.Results[0].Refusal != nil:
			return halfway(end.Results[0].Refusal.Fact)
		}
		mu.Lock()
		defer mu.Unlock()
		existed = existed || end.Results[0].Ops[0].Existed
		return nil
	})
	return existed, err
}

// deleteQueue removes a queue from the first partition, and then from the others. A version that is asked for is that of
// the configuration in the first partition; where an earlier try got no further than that one, the version that the
// others have counts.
func (c *call) deleteQueue(ctx context.Context, op *core.QueueDelete) (existed bool, at core.At, err error) {
	r, at, err := c.proposeOp(ctx, op)
	if f, ok := errors.AsType[core.RevMismatch](err); ok && f.Missing && c.t.several() {
		q, _, readErr := c.queue(ctx, op.Queue, core.ReadOptions{})
		if readErr == nil && q.Config.Version == uint64(op.IfVersion) {
			err = nil
		}
	}
	if err != nil || !c.t.several() {
		return r.Existed, at, err
	}
	// The first partition has judged the version: the others follow it.
	anyVersion := *op
	anyVersion.IfVersion = -1
	existed, err = c.elsewhere(ctx, &anyVersion)
	return existed || r.Existed, at, err
}

// isUnknownIndex reports whether a read was refused because its index is past the newest one.
func isUnknownIndex(err error) bool {
	f, ok := errors.AsType[core.Invalid](err)
	return ok && f.Reason == core.ReasonIndexUnknown
}

// ofSome prepares reads of several partitions that name one index, which is of one of them: it refuses an index that none has,
// and has each partition wait for no more than it has.
func (c *call) ofSome(ctx context.Context, o *core.ReadOptions) error {
	if o.MinIndex == 0 || !c.t.several() {
		return nil
	}
	o.Elsewhere = true
	var refused error
	for i := range c.t.parts {
		_, _, err := c.s.node.spaces.NamespaceConfig(ctx, c.t.in(i), readOptions(o.MinIndex, true))
		// One partition has it: the others wait for no more than they have.
		if !isUnknownIndex(err) {
			return err
		}
		refused = err
	}
	return refused
}

// merge adds where one partition's part of an answer stands. The whole has no index: it is of no one log.
func merge(all *core.At, one core.At) {
	// The oldest part says how old the whole may be.
	if all.Stamp == 0 || one.Stamp < all.Stamp {
		all.Stamp = one.Stamp
	}
}

// queue counts what is in a queue, in all partitions. The configuration is that of the first one which has the queue.
func (c *call) queue(ctx context.Context, name string, o core.ReadOptions) (q core.QueueStats, at core.At, err error) {
	b := c.s.node.queues
	if !c.t.several() {
		return b.Queue(ctx, c.t.part, name, o)
	}
	var mu sync.Mutex // guards the answer
	first := c.t.parts
	err = c.each(0, func(p core.Partition) error {
		one, oneAt, err := b.Queue(ctx, p, name, o)
		if edge.Is[core.NotFound](err) {
			return nil
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		merge(&at, oneAt)
		sum(&q, &one)
		if int(p.Index) < first {
			first, q.Config = int(p.Index), one.Config
		}
		return nil
	})
	if err == nil && first == c.t.parts {
		err = core.NotFound{Kind: "queue", ID: name}
	}
	return q, at, err
}

// sum adds the counters of a queue in one partition. The configuration is left to the caller.
func sum(q, one *core.QueueStats) {
	q.Queue = one.Queue
	for i, n := range one.States {
		q.States[i] += n
	}
	q.Created += one.Created
	q.Purged += one.Purged
	q.Completed += one.Completed
	q.Failed += one.Failed
	q.Crashed += one.Crashed
	q.Bytes += one.Bytes
	q.LettersLost += one.LettersLost
	if q.OldestReady == 0 || one.OldestReady != 0 && one.OldestReady < q.OldestReady {
		q.OldestReady = one.OldestReady
	}
	// All partitions are paused together.
	if q.Paused.Since == 0 {
		q.Paused = one.Paused
	}
}

// queues reads a page of queues by name, each counted in all partitions.
func (c *call) queues(ctx context.Context, after string, limit int, o core.ReadOptions) (page []core.QueueStats, at core.At, err error) {
	b := c.s.node.queues
	if !c.t.several() {
		return b.Queues(ctx, c.t.part, after, limit, o)
	}
	var mu sync.Mutex // guards the answer
	err = c.each(0, func(p core.Partition) error {
		one, oneAt, err := b.Queues(ctx, p, after, limit, o)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		merge(&at, oneAt)
		page = mergeQueues(page, one, limit)
		return nil
	})
	return page, at, err
}

// mergeQueues adds a partition's page to what is merged so far, both by name. What lies beyond the limit is dropped: it
// never comes back into the page, as later pages only bring names before it.
func mergeQueues(all, one []core.QueueStats, limit int) []core.QueueStats {
	out := make([]core.QueueStats, 0, min(len(all)+len(one), limit))
	for len(out) < limit && len(all)+len(one) > 0 {
		switch {
		case len(one) == 0 || len(all) > 0 && all[0].Queue < one[0].Queue:
			out, all = append(out, all[0]), all[1:]
		case len(all) == 0 || one[0].Queue < all[0].Queue:
			out, one = append(out, one[0]), one[1:]
		default:
			sum(&all[0], &one[0])
			out, all, one = append(out, all[0]), all[1:], one[1:]
		}
	}
	return out
}

// listPartitions is how many partitions one page of tasks is looked for in. Where they hold few, the page is short, and its
// cursor leads on.
const listPartitions = 64

// listAll reads a page of tasks, partition after partition. The cursor is the partition, and the cursor within it. What has ended last
// is listed in one order over all partitions.
func (c *call) listAll(ctx context.Context, q core.ListQuery) (*pb.ListResponse, error) {
	if before, ok := lastEnded(q); ok {
		return c.listEnded(ctx, q, before)
	}
	place, rest, fact := readPlaceCursor(q.Cursor, c.t.parts)
	if fact != nil {
		return nil, fact
	}
	q.Cursor = nil
	if len(rest) > 0 {
		q.Cursor = rest
	}
	out := new(pb.ListResponse)
	var at core.At
	room := AnswerBytes
	for last := place + listPartitions; place < min(last, c.t.parts) && q.Limit > 0 && room > 0; {
		p, err := c.s.tasksUpTo(ctx, c.t.in(place), q, room)
		if err != nil {
			return nil, err
		}
		merge(&at, p.at)
		for i := range p.Tasks {
			out.Tasks = append(out.Tasks, showListed(&p.Tasks[i], q.Head))
		}
		out.Inspected += uint32(p.Inspected)
		room -= p.bytes
		q.Limit -= len(p.Tasks)
		if q.Cursor = p.Next; q.Cursor == nil {
			place++
		} else if p.cut || q.Limit > 0 { // it is full, or as much was looked at as one request may
			break
		}
	}
	out.At = ShowAt(at)
	if place < c.t.parts {
		out.Cursor = showPlaceCursor(place, q.Cursor)
	}
	return out, nil
}
