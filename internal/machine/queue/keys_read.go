package queue

import (
	"cmp"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// Keys reads keys of a queue at a stamp: those that have tasks which have not ended, or for which something is set. By name it reads a
// page; in another order it looks at up to core.MaxKeysLooked keys, and refuses where there are more. ok is false where there is no
// such queue.
func Keys(v core.View, p core.Partition, q *core.KeyQuery, stamp core.ShardTime) (out core.KeyList, ok bool, err error) {
	value, ok, err := v.Get(keys.AppendQueueConfig(nil, p, q.Queue))
	if err != nil || !ok {
		return out, false, err
	}
	row, err := decodeConfig(value)
	if err != nil {
		return out, false, err
	}
	l := newLine(row.number, q.Queue)
	l.config = row.config
	s, err := readShare(v, p, l)
	if err != nil {
		return out, true, err
	}
	lanes, err := readLanes(v, p, l, q)
	if err != nil {
		return out, true, err
	}
	if out.Use, err = useOf(v, p, l, &s, stamp); err != nil {
		return out, true, err
	}
	if q.Order != core.KeysByName && q.Prefix == "" {
		if err := sumLanes(v, p, &out, append([]*lane{&l.plain}, lanes...), stamp); err != nil {
			return out, true, err
		}
	}
	if err := sortLanes(v, p, lanes, q.Order, &s); err != nil {
		return out, true, err
	}
	lanes = append(lanes[:min(len(lanes), q.Limit)], &l.plain)
	holders, err := laneHolders(v, p, l, lanes)
	if err != nil {
		return out, true, err
	}
	for _, ln := range lanes {
		k, err := showLane(v, p, ln, &s, stamp)
		if err != nil {
			return out, true, err
		}
		if k.WaitsFor == core.WhyLaneLimit || k.WaitsFor == core.WhyOrder {
			k.HeldBy = holders[ln.number]
		}
		if k.WaitsFor == core.WhyOrder && ln.hold != nil {
			k.HeldBy = []string{ln.hold.task.String()}
		}
		if ln.number == 0 {
			out.Unkeyed = k
			break
		}
		out.Keys = append(out.Keys, k)
	}
	return out, true, nil
}

// readShare reads how a queue is shared out, and its counters and lane of tasks without a key into l. All tasks of a queue that is not
// shared are in that lane.
func readShare(v core.View, p core.Partition, l *queueState) (s shareState, err error) {
	if l.counters, err = readCounters(v, p, l.number); err != nil {
		return s, err
	}
	value, shared, err := v.Get(keys.AppendShare(nil, p, l.number))
	switch {
	case err != nil:
		return s, err
	case shared:
		s, l.plain.laneState, err = decodeShareRecord(value)
		return s, err
	}
	for state, n := range l.states {
		if isLive(core.State(state)) {
			l.plain.tasks += uint32(n)
		}
	}
	l.plain.ready, l.plain.running = uint32(l.states[core.Ready]), uint32(l.states[core.Running])
	return s, nil
}

// useOf tells how much of the limits of a queue is used at a stamp.
func useOf(v core.View, p core.Partition, l *queueState, s *shareState, stamp core.ShardTime) (u core.QueueUse, err error) {
	share := &l.config.Share
	u = core.QueueUse{Running: l.states[core.Running], Rate: s.rate.used(&share.Rate, stamp)}
	if share.MaxWorkers > 0 && u.Running > 0 {
		var workers []string
		workers, err = workersOf(v, p, l.number)
		u.Workers = len(workers)
	}
	return u, err
}

// sumLanes counts, over all lanes of a queue, those that have tasks ready, and those of them that something of their own holds up.
func sumLanes(v core.View, p core.Partition, out *core.KeyList, lanes []*lane, stamp core.ShardTime) error {
	out.All = true
	for _, ln := range lanes {
		if ln.ready == 0 {
			continue
		}
		code, _, err := laneWaits(v, p, ln, stamp)
		if err != nil {
			return err
		}
		if code != "" {
			out.Held++
		}
		out.Waiting++
		out.Weights += uint64(ln.weight())
	}
	return nil
}

// sortLanes puts lanes that are in the order of their keys in another one. In each of them those with equal places stay by key.
func sortLanes(v core.View, p core.Partition, lanes []*lane, order core.KeyOrder, s *shareState) error {
	switch order {
	case core.KeysByBacklog:
		slices.SortStableFunc(lanes, func(a, b *lane) int { return cmp.Compare(b.ready, a.ready) })
	case core.KeysByOwed:
		slices.SortStableFunc(lanes, func(a, b *lane) int { return cmp.Compare(int64(a.pass-s.pass), int64(b.pass-s.pass)) })
	case core.KeysByOldest:
		oldest := make(map[uint64]core.ShardTime, len(lanes))
		for _, ln := range lanes {
			oldest[ln.number] = core.Never
			if ln.ready == 0 {
				continue
			}
			at, err := oldestReady(v, p, ln.queue.number, ln.number)
			if err != nil {
				return err
			}
			oldest[ln.number] = at
		}
		slices.SortStableFunc(lanes, func(a, b *lane) int { return cmp.Compare(oldest[a.number], oldest[b.number]) })
	}
	return nil
}

// readLanes reads the lanes that a query asks for: a page by name, or all that may be looked at.
func readLanes(v core.View, p core.Partition, l *queueState, q *core.KeyQuery) (lanes []*lane, err error) {
	most := q.Limit
	if q.Order != core.KeysByName {
		most = core.MaxKeysLooked + 1
	}
	from, to := keys.LaneRange(p, l.number)
	if first := max(q.Prefix, q.After); first != "" {
		from = keys.AppendLane(nil, p, l.number, first)
	}
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		name := keys.DecodeLane(key)
		if name[0] == 0 {
			return true, nil // of tasks without a key
		}
		if !strings.HasPrefix(name, q.Prefix) {
			return name < q.Prefix, nil
		}
		if name == q.After {
			return true, nil
		}
		state, err := decodeLaneRecord(value)
		if err != nil {
			return false, err
		}
		if state.tasks == 0 && state.set == nil {
			return true, nil // its rate is all that keeps it
		}
		ln := newLane(l, name, state.number)
		ln.laneState = state
		lanes = append(lanes, &ln)
		return len(lanes) < most, nil
	})
	if err == nil && len(lanes) > core.MaxKeysLooked {
		return nil, core.Invalid{Field: "sort", Reason: "too_many_keys", Message: "must be name, or a prefix must be given: the queue has more than 10,000 keys"}
	}
	return lanes, err
}

// showLane tells of a lane what others see.
func showLane(v core.View, p core.Partition, ln *lane, s *shareState, stamp core.ShardTime) (k core.QueueKey, err error) {
	k = core.QueueKey{
		Key: ln.key, Tasks: uint64(ln.tasks), Ready: uint64(ln.ready), Running: uint64(ln.running), Owed: int64(s.pass-ln.pass) / stride,
		Limit: ln.concurrency(), Weight: ln.weight(),
	}
	if ln.set != nil {
		k.Settings, k.Paused = ln.set.KeySettings, ln.set.paused
	}
	if ln.ready == 0 {
		return k, nil
	}
	if k.OldestReady, err = oldestReady(v, p, ln.queue.number, ln.number); err != nil {
		return k, err
	}
	k.WaitsFor, k.Until, err = laneWaits(v, p, ln, stamp)
	return k, err
}

// laneWaits says what holds the ready tasks of a lane up, and until when; empty: nothing does. A rate is judged by what the first task
// costs.
func laneWaits(v core.View, p core.Partition, ln *lane, stamp core.ShardTime) (code string, until core.ShardTime, err error) {
	limit := ln.concurrency()
	strict := ln.queue.config.Share.Strict
	switch {
	case ln.isPaused():
		return core.WhyPaused, 0, nil
	case strict && (ln.running > 0 || ln.hold != nil && !ln.hold.ready):
		return core.WhyOrder, 0, nil
	case limit > 0 && int64(ln.running) >= limit:
		return core.WhyLaneLimit, 0, nil
	}
	rate := ln.rateLimit()
	if rate.Limit == 0 {
		return "", 0, nil
	}
	cost, err := firstCost(v, p, ln)
	if err != nil {
		return "", 0, err
	}
	if at := ln.rate.from(&rate, cost); at > stamp {
		return core.WhyRate, at, nil
	}
	return "", 0, nil
}

// firstCost is what the first task of a lane in the index of ready tasks costs.
func firstCost(v core.View, p core.Partition, ln *lane) (cost uint32, err error) {
	cost = 1
	from, to := keys.PlaceRange(p, ln.queue.number, ln.number)
	err = core.ScanRows(v, from, to, func(_, value []byte) (bool, error) {
		if len(value) > 16 {
			r := reader{b: value[16:]}
			cost = r.u32()
		}
		return false, nil
	})
	return max(cost, 1), err
}

// laneHolders reads which running tasks are in the lanes given, the first core.MaxHolders of each, by the lane's number. It looks at
// up to MaxInspected running tasks.
func laneHolders(v core.View, p core.Partition, l *queueState, lanes []*lane) (map[uint64][]string, error) {
	wanted := map[uint64]bool{}
	for _, ln := range lanes {
		if ln.running > 0 && ln.ready > 0 {
			wanted[ln.number] = true
		}
	}
	out := map[uint64][]string{}
	if len(wanted) == 0 {
		return out, nil
	}
	err := eachRunning(v, p, l.number, func(id core.TaskID, rec *record) error {
		if wanted[rec.lane] && len(out[rec.lane]) < core.MaxHolders {
			out[rec.lane] = append(out[rec.lane], id.String())
		}
		return nil
	})
	return out, err
}

// eachRunning calls fn for the first MaxInspected running tasks of a queue, by the order of their tokens.
func eachRunning(v core.View, p core.Partition, number uint32, fn func(id core.TaskID, rec *record) error) error {
	seen := 0
	from, to := keys.RunningRange(p)
	return core.ScanRows(v, from, to, func(_, value []byte) (bool, error) {
		c, err := decodeCarried(value)
		if err != nil || c.queue != number {
			return err == nil, err
		}
		rec, ok, err := storedRecord(v, keys.AppendTaskState(nil, p, c.task), c.task)
		if err == nil && ok {
			err = fn(c.task, &rec)
		}
		seen++
		return err == nil && seen < MaxInspected, err
	})
}
