package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// maxAhead bounds how many rows of the ready index a count of the tasks ahead looks at.
const maxAhead = 10_000

// Why reads why a task is where it is: what its records and its queue say. ok is false where it is not there.
func Why(v core.View, p core.Partition, id core.TaskID) (w core.Why, ok bool, err error) {
	rec, ok, err := readRecord(v, p, id)
	if err != nil || !ok {
		return w, false, err
	}
	s, l, ok, err := readSpec(v, p, id, rec.queue)
	if err != nil || !ok {
		return w, false, err
	}
	t, err := readTask(v, p, id, &rec, &s, l)
	if err != nil {
		return w, false, err
	}
	w = core.Why{Queue: l.name, State: rec.state, Since: t.CreatedAt, Exact: true}
	switch {
	case rec.state.Terminal():
		w.Since = t.FinishedAt
		note := t.Reason
		if rec.state == core.Cancelled {
			note = t.Cancel.Reason
		}
		w.Reasons = []core.WhyReason{{Code: core.WhyEnded, Note: note, Object: t.Cancel.By}}
		return w, true, nil
	case rec.state == core.Running:
		w.Since = t.StartedAt
		w.Reasons = []core.WhyReason{{Code: core.WhyRunning, Object: t.Worker, Until: t.LeaseUntil}}
		if rec.cancelUntil != 0 {
			w.Reasons = append(w.Reasons, core.WhyReason{Code: core.WhyStopping, Object: t.Cancel.By, Note: t.Cancel.Reason, Until: t.Cancel.Until})
		}
		return w, true, nil
	}
	value, err := must(v, keys.AppendQueueConfig(nil, p, l.name), "configuration of queue %s", l.name)
	if err != nil {
		return w, false, err
	}
	row, err := decodeConfig(value)
	if err != nil {
		return w, false, err
	}
	if pause := row.paused; pause.Since != 0 {
		w.Reasons = append(w.Reasons, core.WhyReason{Code: core.WhyPaused, Object: pause.By, Note: pause.Reason, Until: pause.Until, Wall: true})
	}
	if rec.state != core.Ready {
		code := map[reason]string{reasonRetry: core.WhyRetry, reasonSnooze: core.WhySnooze}[rec.reason]
		if code == "" {
			code = core.WhyDelay
		}
		w.Reasons = append([]core.WhyReason{{Code: code, Until: rec.runAt, Wall: rec.wall}}, w.Reasons...)
		return w, true, nil
	}
	w.Since = t.ReadyAt
	w.Ahead, w.Exact, err = ahead(v, p, l, &rec)
	switch {
	case err != nil:
		return w, false, err
	case w.Ahead > 0 || !w.Exact:
		w.Reasons = append(w.Reasons, core.WhyReason{Code: core.WhyBehind, Object: l.name})
	case len(w.Reasons) == 0:
		w.Reasons = append(w.Reasons, core.WhyReason{Code: core.WhyNext, Object: l.name})
	}
	return w, true, nil
}

// ahead counts the ready tasks of a queue that go before one of them. The tasks of each priority are a class, which lies in order of
// their ready times, so those before it are a range of each class. It is exact unless there are too many, or places that entries
// before format 2 made.
func ahead(v core.View, p core.Partition, l *queueState, rec *record) (n uint64, exact bool, err error) {
	left := maxAhead
	own := classOf(rec.sort)
	exact = own > 0
	for class := range classes {
		lo, hi := classRange(p, l.number, class)
		if class == own {
			hi = keys.AppendReady(nil, p, l.number, rec.sort, rec.seq)
		} else if class > 0 {
			priority := int64(maxPriority - (class - 1))
			aging := int64(l.aging())
			if aging <= int64(strictAging) {
				if class > own {
					continue // a lower priority
				}
			} else {
				// A task of another priority goes first where its ready time less priority × aging is smaller; equal ones go by place.
				bound := int64(rec.readyAt) + (priority-int64(rec.priority))*aging
				if bound <= 0 {
					continue
				}
				hi = keys.AppendReady(nil, p, l.number, classSort|uint64(class-1)<<classShift|min(uint64(bound), 1<<classShift-1), rec.seq)
			}
		}
		c, err := countRows(v, lo, hi, &left)
		if err != nil {
			return n, false, err
		}
		exact = exact && (class > 0 || c == 0)
		n += c
	}
	return n, exact && left > 0, nil
}

// countRows counts the rows of a range, as many as left says, and takes them from left.
func countRows(v core.View, from, to []byte, left *int) (n uint64, err error) {
	if keys.Compare(from, to) >= 0 || *left <= 0 {
		return 0, nil
	}
	err = v.Scan(from, to, func(_, _ []byte) bool {
		n++
		*left--
		return *left > 0
	})
	return n, err
}
