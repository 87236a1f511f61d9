package queue

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// limitReasons says which limits of its queue and of its key hold a ready task up at a stamp, and who has what they let run.
func limitReasons(v core.View, p core.Partition, id core.TaskID, row *queueRow, name string, rec *record, stamp core.ShardTime) (out []core.WhyReason, err error) {
	l := newLine(row.number, name)
	l.config = row.config
	s, err := readShare(v, p, l)
	if err != nil {
		return nil, err
	}
	ln := &l.plain
	if rec.lane != 0 {
		if ln, err = laneOfTask(v, p, l, id); err != nil || ln == nil {
			return nil, err
		}
	}
	code, until, err := laneWaits(v, p, ln, stamp)
	if err != nil {
		return nil, err
	}
	if code == core.WhyOrder && ln.hold != nil && ln.hold.task == id {
		code = "" // it is the one that goes next
	}
	if code != "" {
		r := core.WhyReason{Code: code, Object: ln.shownKey(), Until: until}
		switch code {
		case core.WhyPaused:
			pause := &ln.set.paused
			r.Note, r.Until, r.Wall, r.HeldBy = pause.Reason, pause.Until, true, holder(pause.By)
		case core.WhyRate:
			r.Limit = uint64(ln.rateLimit().Limit)
		default:
			r.Limit = uint64(ln.concurrency())
			holders, err := laneHolders(v, p, l, []*lane{ln})
			if err != nil {
				return nil, err
			}
			if r.HeldBy = holders[ln.number]; len(r.HeldBy) == 0 && ln.hold != nil {
				r.HeldBy = []string{ln.hold.task.String()}
			}
		}
		out = append(out, r)
	}
	share := &l.config.Share
	if share.Concurrency > 0 && l.states[core.Running] >= uint64(share.Concurrency) {
		r := core.WhyReason{Code: core.WhyQueueLimit, Object: name, Limit: uint64(share.Concurrency)}
		if r.HeldBy, err = firstRunning(v, p, row.number); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	cost := max(rec.cost, 1)
	if at := s.rate.from(&share.Rate, cost); share.Rate.Limit > 0 && at > stamp {
		out = append(out, core.WhyReason{Code: core.WhyRate, Object: name, Limit: uint64(share.Rate.Limit), Until: at})
	}
	if share.MaxWorkers > 0 && l.states[core.Running] >= uint64(share.MaxWorkers) {
		workers, err := workersOf(v, p, row.number)
		if err != nil {
			return nil, err
		}
		if len(workers) >= int(share.MaxWorkers) {
			out = append(out, core.WhyReason{
				Code: core.WhyMaxWorkers, Object: name, Limit: uint64(share.MaxWorkers), HeldBy: workers[:min(len(workers), core.MaxHolders)],
			})
		}
	}
	return out, nil
}

// firstRunning reads which running tasks of a queue have the smallest tokens, up to core.MaxHolders.
func firstRunning(v core.View, p core.Partition, number uint32) (ids []string, err error) {
	err = eachRunning(v, p, number, func(id core.TaskID, _ *record) error {
		if len(ids) < core.MaxHolders {
			ids = append(ids, id.String())
		}
		return nil
	})
	return ids, err
}

// workersOf reads the names of the workers that have tasks of a queue, sorted. It looks at up to MaxInspected of those tasks, and so may
// miss some.
func workersOf(v core.View, p core.Partition, number uint32) ([]string, error) {
	var names []string
	err := eachRunning(v, p, number, func(id core.TaskID, rec *record) error {
		name, err := readWorker(v, p, id, rec)
		if i, ok := slices.BinarySearch(names, name); !ok {
			names = slices.Insert(names, i, name)
		}
		return err
	})
	return names, err
}

// tenantReason says whether as many tasks of the tenant run as may. It adds up the running tasks of the partition's queues.
func tenantReason(v core.View, p core.Partition) ([]core.WhyReason, error) {
	var q core.TenantQuota
	value, ok, err := v.Get(keys.TenantQuota(p))
	if err == nil && ok {
		q, err = decodeTenantQuota(value)
	}
	if err != nil {
		return nil, err
	}
	var running uint64
	from, to := keys.QueueCountersRange(p)
	err = core.ScanRows(v, from, to, func(_, value []byte) (bool, error) {
		c, err := decodeCounters(value)
		running += c.states[core.Running]
		return err == nil, err
	})
	most := q.Bounds.OrDefault().Running
	if err != nil || left(running, q.Others.Running, most) > 0 {
		return nil, err
	}
	return []core.WhyReason{{Code: core.WhyTenant, Limit: uint64(most)}}, nil
}

// laneOfTask reads the lane of a task that has a key; nil: it is not there.
func laneOfTask(v core.View, p core.Partition, l *queueState, id core.TaskID) (*lane, error) {
	made, err := storedSpec(v, keys.AppendTaskPayload(nil, p, id), id)
	if err != nil {
		return nil, err
	}
	name := laneKey(string(made.key), made.limiters)
	value, ok, err := v.Get(keys.AppendLane(nil, p, l.number, name))
	if err != nil || !ok {
		return nil, err
	}
	ln := newLane(l, name, 0)
	ln.laneState, err = decodeLaneRecord(value)
	return &ln, err
}
