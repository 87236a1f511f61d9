package node

import (
	"github.com/millrace/millrace/internal/core"
)

// send is one message to a session, or a release, to be done without the lock.
type send struct {
	// Who is told; nil for a release.
	session *session
	// The number of the subscription that the tasks are for.
	sub uint32
	// Tasks that are assigned: at most one grant's.
	assign []core.Assigned
	// Position of the entry that holds the grant.
	at core.At
	// The lease that ended without a settle, and why.
	lost   core.TaskHold
	reason string
	// The holder is to stop; nil when the message is another.
	cancel *core.CancelWanted
	// Tasks that go back to their queue, which is of this partition.
	release   []core.Assigned
	partition core.Partition
}

// deliver does what applied returned.
func (d *dispatcher) deliver(out []send) {
	for _, o := range out {
		switch {
		case o.release != nil:
			d.release(o.partition, o.release)
		case o.assign != nil:
			if !o.session.sink.Assign(o.sub, o.assign, o.at) {
				o.session.Close()
				d.release(o.partition, d.unadopted(o))
			}
		case o.cancel != nil:
			o.session.sink.Cancel(core.TaskHold{Task: o.cancel.Task, Token: o.cancel.Token}, o.cancel.Reason, o.cancel.Until)
		default:
			o.session.sink.LeaseLost(o.lost, o.reason)
		}
	}
}

// giveBack marks tasks that are about to be released. The mutex is held.
func (d *dispatcher) giveBack(tasks []core.Assigned) {
	for _, t := range tasks {
		d.releasing[core.TaskHold{Task: t.Task, Token: t.Token}] = struct{}{}
	}
}

// unadopted returns the tasks of an assignment that failed which no stream has taken over by resuming the session, marked
// to be released.
func (d *dispatcher) unadopted(o send) []core.Assigned {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.sessions[sessionKey{o.partition, o.session.spec.ID}]
	var out []core.Assigned
	for _, t := range o.assign {
		if next == nil || !next.has(t) {
			out = append(out, t)
		}
	}
	d.giveBack(out)
	return out
}

// release gives back tasks that were granted and cannot be delivered, as the next command.
func (d *dispatcher) release(p core.Partition, tasks []core.Assigned) {
	if len(tasks) == 0 {
		return
	}
	commits := make([]core.Commit, len(tasks))
	for i, t := range tasks {
		commits[i] = core.Commit{Partition: p, Principal: "millrace", Ops: []core.Op{
			&core.TaskRelease{Task: t.Task, Token: t.Token, Undelivered: true},
		}}
	}
	d.s.enqueue(&proposal{commits: commits, bytes: 64 * len(commits), done: func(core.Proposed) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, t := range tasks {
			delete(d.releasing, core.TaskHold{Task: t.Task, Token: t.Token})
		}
	}}, false)
}
