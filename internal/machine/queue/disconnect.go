package queue

import "github.com/millrace/millrace/internal/core"

// lostDisconnected is why leases end whose session broke off and was not resumed in time.
const lostDisconnected = "disconnected"

// crash says what a crash of the holder leads to. The first one costs no wait, as it is the worker's fault more often than the task's.
func (r *run) crash(c *core.ApplyContext) next {
	n := next{outcome: core.OutcomeCrashed, reason: reasonRetry}
	if crashes := r.rec.crashes + 1; int64(crashes) >= int64(r.queue.maxCrashes(&r.settings)) {
		n.dead, n.reason = true, reasonMaxCrashes
	} else if crashes > 1 {
		n.at = after(c, r.backoff(crashes-1)) // after the first crash it is ready at once
	}
	return n
}

// applySessionLost ends the leases of a session that is gone, as crashes. A lease counts only as the op saw it: one whose end was
// moved since is alive, no matter which client renewed it, and one that is held under another token or by another session is not meant.
func (m *Machine) applySessionLost(tx core.Txn, c *core.ApplyContext, op *core.SessionLost) (core.OpResult, core.Fact, error) {
	if fact := notYet(c, "ends leases of sessions that are gone"); fact != nil {
		return core.OpResult{}, fact, nil
	}
	for _, l := range op.Leases {
		r := m.holding(l.Task, l.Token)
		if r == nil || r.rec.session != op.Session || r.rec.leaseUntil != l.Until {
			continue
		}
		m.lose(r, lostDisconnected)
		if _, err := m.endAttempt(tx, c, r, r.crash(c)); err != nil {
			return core.OpResult{}, nil, err
		}
	}
	return core.OpResult{}, nil, nil
}
