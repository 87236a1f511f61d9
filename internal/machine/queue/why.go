package queue

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// maxAhead bounds how many rows of the ready index a count of the tasks ahead looks at.
const maxAhead = 10_000

// Why reads why a task is where it is: what its records and its queue say at a stamp. ok is false where it is not there.
func Why(v core.View, p core.Partition, id core.TaskID, stamp core.ShardTime) (w core.Why, ok bool, err error) {
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
	w = core.Why{Queue: l.name, Kind: t.Kind, State: rec.state, Since: t.CreatedAt, Exact: true}
	switch {
	case rec.state.Terminal():
		w.Since = t.FinishedAt
		r, err := endReason(v, p, id, &rec, &t)
		w.Reasons = []core.WhyReason{r}
		return w, err == nil, err
	case rec.state == core.Running:
		w.Since = t.StartedAt
		w.Reasons = []core.WhyReason{{Code: core.WhyRunning, Object: t.Worker, Until: t.LeaseUntil, HeldBy: holder(t.Worker)}}
		if rec.cancelUntil != 0 {
			w.Reasons = append(w.Reasons, core.WhyReason{
				Code: core.WhyStopping, Object: t.Cancel.By, Note: t.Cancel.Reason, Until: t.Cancel.Until, HeldBy: holder(t.Worker),
			})
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
		w.Reasons = append(w.Reasons, core.WhyReason{
			Code: core.WhyPaused, Object: l.name, Note: pause.Reason, Until: pause.Until, Wall: true, HeldBy: holder(pause.By),
		})
	}
	if rec.state != core.Ready {
		waits, err := waitReasons(v, p, id, &rec, &t)
		w.Reasons = append(waits, w.Reasons...)
		return w, err == nil, err
	}
	w.Since = t.ReadyAt
	limits, err := readyReasons(v, p, id, &row, l.name, &rec, &s, stamp)
	if err != nil {
		return w, false, err
	}
	w.Reasons = append(w.Reasons, limits...)
	var first []core.TaskID
	w.Ahead, w.Exact, first, err = ahead(v, p, l, &rec)
	switch {
	case err != nil:
		return w, false, err
	case w.Ahead > 0 || !w.Exact:
		r := core.WhyReason{Code: core.WhyBehind, Object: l.name}
		if !w.Exact {
			r.Limit = maxAhead
		}
		for _, id := range first {
			r.HeldBy = append(r.HeldBy, id.String())
		}
		w.Reasons = append(w.Reasons, r)
	case len(w.Reasons) == 0:
		w.Reasons = append(w.Reasons, core.WhyReason{Code: core.WhyNext, Object: l.name})
	}
	return w, true, nil
}

// readyReasons says which limits hold a ready task up: those of its queue and key, its limiters, and the quota of the tenant.
func readyReasons(v core.View, p core.Partition, id core.TaskID, row *queueRow, name string, rec *record, s *spec, stamp core.ShardTime) ([]core.WhyReason, error) {
	out, err := limitReasons(v, p, id, row, name, rec, stamp)
	if err != nil {
		return nil, err
	}
	held, err := limiterReasons(v, p, s.limiters, &row.config.Share, max(rec.cost, 1), stamp)
	if err != nil {
		return nil, err
	}
	tenant, err := tenantReason(v, p)
	return slices.Concat(out, held, tenant), err
}

// endReason is the reason of a task that has ended.
func endReason(v core.View, p core.Partition, id core.TaskID, rec *record, t *core.Task) (r core.WhyReason, err error) {
	r = core.WhyReason{Code: core.WhyEnded, Note: t.Reason, Object: t.Cancel.By}
	if rec.state == core.Cancelled {
		r.Note, r.HeldBy = t.Cancel.Reason, holder(t.Cancel.By)
		return r, nil
	}
	r.Object, err = lastWorker(v, p, id, rec, t)
	r.HeldBy = holder(r.Object)
	return r, err
}

// holder is who holds a task up, if that is known.
func holder(who string) []string {
	if who == "" {
		return nil
	}
	return []string{who}
}

// waitReasons are the reasons why a task waits for a time, or for others.
func waitReasons(v core.View, p core.Partition, id core.TaskID, rec *record, t *core.Task) ([]core.WhyReason, error) {
	if rec.state == core.Blocked {
		return afterReasons(v, p, t)
	}
	r, err := waitReason(v, p, id, rec, t)
	return []core.WhyReason{r}, err
}

// waitReason is the reason why a task waits for a time.
func waitReason(v core.View, p core.Partition, id core.TaskID, rec *record, t *core.Task) (core.WhyReason, error) {
	r := core.WhyReason{Code: core.WhyDelay, Until: rec.runAt, Wall: rec.wall}
	switch rec.reason {
	case reasonRetry:
		r.Code, r.Limit = core.WhyRetry, uint64(max(t.MaxAttempts, 0))
	case reasonSnooze:
		r.Code = core.WhySnooze
	default:
		return r, nil
	}
	var err error
	r.Object, err = lastWorker(v, p, id, rec, t)
	r.HeldBy = holder(r.Object)
	return r, err
}

// lastWorker is the worker that has a task, or had it last; empty: none had it.
func lastWorker(v core.View, p core.Partition, id core.TaskID, rec *record, t *core.Task) (string, error) {
	if t.Worker != "" {
		return t.Worker, nil
	}
	past, err := readAttempts(v, p, id, rec.attempt)
	if err != nil || len(past) == 0 {
		return "", err
	}
	return past[len(past)-1].Worker, nil
}

// ahead counts the ready tasks of a queue that go before one of them, and names the first MaxHolders that it counts. The tasks of each priority are a class, which lies in order of
// their ready times, so those before it are a range of each class. It is exact unless there are too many, or places that entries
// before format 2 made.
func ahead(v core.View, p core.Partition, l *queueState, rec *record) (n uint64, exact bool, first []core.TaskID, err error) {
	left := maxAhead
	own := classOf(rec.sort)
	exact = own > 0
	for class := range classes {
		lo, hi := classRange(p, l.number, rec.lane, class)
		if class == own {
			hi = keys.AppendPlace(nil, p, l.number, rec.lane, rec.sort, rec.seq)
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
				hi = keys.AppendPlace(nil, p, l.number, rec.lane, classSort|uint64(class-1)<<classShift|min(uint64(bound), 1<<classShift-1), rec.seq)
			}
		}
		c, err := countRows(v, lo, hi, &left, &first)
		if err != nil {
			return n, false, nil, err
		}
		exact = exact && (class > 0 || c == 0)
		n += c
	}
	return n, exact && left > 0, first, nil
}

// countRows counts the rows of a range, as many as left says, and takes them from left. Their tasks are added to first, up to MaxHolders.
func countRows(v core.View, from, to []byte, left *int, first *[]core.TaskID) (n uint64, err error) {
	if keys.Compare(from, to) >= 0 || *left <= 0 {
		return 0, nil
	}
	err = v.Scan(from, to, func(_, value []byte) bool {
		if n++; len(*first) < core.MaxHolders {
			*first = append(*first, toID(value[:min(len(value), 16)]))
		}
		*left--
		return *left > 0
	})
	return n, err
}
