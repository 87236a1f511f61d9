package queue

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// readAfter reads how those stand that a task was made to wait for.
func readAfter(v core.View, p core.Partition, t *core.Task) error {
	for i := range t.After {
		a := &t.After[i]
		rec, ok, err := readRecord(v, p, a.Task)
		if err != nil {
			return err
		}
		if ok && !rec.state.Terminal() { // the removal of its queue is seen by its payload record
			if _, _, ok, err = readSpec(v, p, a.Task, rec.queue); err != nil {
				return err
			}
		}
		if ok {
			a.State = rec.state
		}
		if t.State != core.Blocked {
			continue
		}
		if ok && rec.only.waits == t.ID {
			a.Waits = true
			continue
		}
		if _, a.Waits, err = v.Get(keys.AppendAfter(nil, p, a.Task, t.ID)); err != nil {
			return err
		}
	}
	return nil
}

// afterReasons says which tasks a blocked one waits for: first those that have not ended, in one reason, and then one for each that ended
// and holds it, or is not there any more.
func afterReasons(v core.View, p core.Partition, t *core.Task) (out []core.WhyReason, err error) {
	if err := readAfter(v, p, t); err != nil {
		return nil, err
	}
	waits := core.WhyReason{Code: core.WhyAfter, Limit: uint64(t.Pending)}
	for i := range t.After {
		a := &t.After[i]
		switch {
		case !a.Waits:
		case a.State != 0 && !a.State.Terminal():
			if len(waits.HeldBy) < core.MaxHolders {
				waits.HeldBy = append(waits.HeldBy, a.Task.String())
			}
		case len(out) < core.MaxHolders:
			note := "is gone" // also where a completed one has the id that it had
			if a.State != 0 && a.State != core.Completed {
				note = fmt.Sprintf("is %s", a.State)
			}
			out = append(out, core.WhyReason{Code: core.WhyAfter, Object: a.Task.String(), Note: note, HeldBy: []string{a.Task.String()}})
		}
	}
	if len(waits.HeldBy) > 0 || len(out) == 0 {
		out = append([]core.WhyReason{waits}, out...)
	}
	return out, nil
}
