package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// This file lists the ended tasks of a queue, the last ones first, over several partitions. Who follows a queue wants what has ended
// just now, in whichever partition it was.

// cursorEnded is the first byte of a cursor of such a list. The end and the id of its last task follow. In cursors over partitions it
// is that of a partition, of which there are fewer.
const cursorEnded = 0xff

// endedAtLeast is how many tasks are read of each partition at least.
const endedAtLeast = 8

// lastEnded reports whether a list is of ended tasks in one order over partitions, and where its page begins. Lists that ask more of
// each task go partition after partition, as an index may have none of them for long.
func lastEnded(q core.ListQuery) (before core.TaskEnd, ok bool) {
	if !q.Desc || !q.State.Terminal() || q.Queue == "" || q.Picky() {
		return before, false
	}
	c := q.Cursor
	if len(c) == 0 {
		return before, true
	}
	// A cursor over partitions is of a list that was begun before the server told partitions apart.
	if len(c) != 1+8+len(before.ID) || c[0] != cursorEnded {
		return before, false
	}
	before.At = core.ShardTime(binary.BigEndian.Uint64(c[1:]))
	copy(before.ID[:], c[9:])
	return before, true
}

// listEnded reads a page of ended tasks, the last ones first. It is short where a partition has more of them than were read.
func (c *call) listEnded(ctx context.Context, q core.ListQuery, before core.TaskEnd) (*pb.ListResponse, error) {
	limit := q.Limit
	q.Cursor, q.Before = nil, before
	q.Limit = min(limit, max(4*limit/c.t.parts, endedAtLeast))
	pages := make([]taskPage, c.t.parts) // each is written by one reading
	err := c.each(0, func(p core.Partition) (err error) {
		one, q := taskPage{}, q
		for { // an index may begin with tasks that were removed just now
			one, err = c.s.tasksUpTo(ctx, p, q, AnswerBytes/c.t.parts)
			if err != nil || len(one.Tasks) > 0 || one.Next == nil {
				pages[p.Index] = one
				return err
			}
			q.Cursor, q.Before = one.Next, core.TaskEnd{}
		}
	})
	if err != nil {
		return nil, err
	}
	out := new(pb.ListResponse)
	var at core.At
	for i := range pages {
		merge(&at, pages[i].at)
		out.Inspected += uint32(pages[i].Inspected)
	}
	out.At = ShowAt(at)
	last, more := mergeEnded(pages, limit, func(t *core.Task) { out.Tasks = append(out.Tasks, showListed(t, q.Head)) })
	if more && last != nil {
		out.Reached = TimeOf(last.FinishedAt)
		b := binary.BigEndian.AppendUint64([]byte{cursorEnded}, uint64(last.FinishedAt))
		out.Cursor = showCursor(append(b, last.ID[:]...))
	}
	return out, nil
}

// mergeEnded gives the tasks of pages to add, by their ends, the last ones first, until there are limit, or one of the pages is at its
// end and its partition is not. last is the last of them; more says that there may be others.
func mergeEnded(pages []taskPage, limit int, add func(t *core.Task)) (last *core.Task, more bool) {
	next := make([]int, len(pages))
	for n := 0; n < limit; n++ {
		best := -1
		var first *core.Task
		for i := range pages {
			p := &pages[i]
			if next[i] == len(p.Tasks) {
				if p.Next != nil {
					return last, true
				}
				continue
			}
			if t := &p.Tasks[next[i]]; first == nil || endsAfter(t, first) {
				best, first = i, t
			}
		}
		if best < 0 {
			return last, false
		}
		next[best]++
		last = first
		add(first)
	}
	for i := range pages {
		if next[i] < len(pages[i].Tasks) || pages[i].Next != nil {
			return last, true
		}
	}
	return last, false
}

// endsAfter reports whether a task stands before another one in a list with the last ones first.
func endsAfter(a, b *core.Task) bool {
	return cmp.Or(cmp.Compare(a.FinishedAt, b.FinishedAt), bytes.Compare(a.ID[:], b.ID[:])) > 0
}
