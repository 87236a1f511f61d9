package node

import (
	"context"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/queue"
)

// Effects reads what the completion of a task did besides ending it.
func (n *Node) Effects(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (e core.Effects, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		e, ok, err = queue.Effects(v, p, id)
		show(shift, &e.At)
		return found(id, ok, err)
	})
	return e, at, err
}

// Logs reads lines of a task's log.
func (n *Node) Logs(ctx context.Context, p core.Partition, id core.TaskID, q core.LogQuery, o core.ReadOptions) (l core.TaskLog, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		l, ok, err = queue.Log(v, p, id, q.Attempt, q.After, q.Limit)
		for i := range l.Lines {
			show(shift, &l.Lines[i].At)
		}
		return found(id, ok, err)
	})
	return l, at, err
}

// Why reads why a task is where it is. Times that a client named by the wall clocks stay as they are.
func (n *Node) Why(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (w core.Why, at core.At, err error) {
	at, err = n.readShown(ctx, p, o, func(v core.View, shift core.Millis) error {
		var ok bool
		w, ok, err = queue.Why(v, p, id, n.Now(p))
		show(shift, &w.Since)
		for i := range w.Reasons {
			if r := &w.Reasons[i]; !r.Wall {
				show(shift, &r.Until)
			}
		}
		return found(id, ok, err)
	})
	return w, at, err
}
