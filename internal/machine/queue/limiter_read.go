package queue

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// Limiters reads up to limit limiters with a prefix at a stamp, by name, behind after.
func Limiters(v core.View, p core.Partition, prefix, after string, limit int, stamp core.ShardTime) (out []core.Limiter, err error) {
	from, to := keys.LimiterRange(p)
	if first := max(prefix, after); first != "" {
		from = keys.AppendLimiter(nil, p, first)
	}
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		name := keys.DecodeLimiter(key)
		if len(name) < len(prefix) || name[:len(prefix)] != prefix {
			return name < prefix, nil
		}
		if name == after {
			return true, nil
		}
		x, err := decodeLimiter(value)
		out = append(out, showLimiter(name, &x, stamp))
		return err == nil && len(out) < limit, err
	})
	return out, err
}

// Limiter reads one limiter at a stamp, with the tasks that hold it and the queues that name it. ok is false where it is not there.
func Limiter(v core.View, p core.Partition, name string, stamp core.ShardTime) (out core.Limiter, ok bool, err error) {
	x, ok, err := readLimiter(v, p, name)
	if err != nil || !ok {
		return out, false, err
	}
	out = showLimiter(name, &x, stamp)
	if x.used > 0 {
		if out.HeldBy, err = limiterHolders(v, p, name); err != nil {
			return out, false, err
		}
	}
	from, to := keys.QueueConfigRange(p)
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		row, err := decodeConfig(value)
		if slices.Contains(row.config.Share.LimiterNames(), name) {
			out.Queues = append(out.Queues, keys.DecodeQueueConfig(key))
		}
		return err == nil && len(out.Queues) < core.MaxHolders, err
	})
	return out, err == nil, err
}

// readLimiter reads the record of a limiter.
func readLimiter(v core.View, p core.Partition, name string) (x limiterState, ok bool, err error) {
	value, ok, err := v.Get(keys.AppendLimiter(nil, p, name))
	if err != nil || !ok {
		return x, false, err
	}
	x, err = decodeLimiter(value)
	return x, err == nil, err
}

// showLimiter tells of a limiter what others see.
func showLimiter(name string, x *limiterState, stamp core.ShardTime) core.Limiter {
	out := core.Limiter{Name: name, LimiterConfig: x.LimiterConfig, Version: x.version, Used: x.used, Tasks: x.tasks}
	if at := x.rate.from(&x.Rate, 1); at > stamp {
		out.Until = at
	}
	return out
}

// limiterHolders reads which running tasks hold a limiter, the first core.MaxHolders by the order of their tokens. It looks at up to
// MaxInspected running tasks.
func limiterHolders(v core.View, p core.Partition, name string) (out []core.LimiterHolder, err error) {
	byQueue := map[uint32]bool{} // whether the queue of a number names it
	seen := 0
	from, to := keys.RunningRange(p)
	err = core.ScanRows(v, from, to, func(_, value []byte) (bool, error) {
		c, err := decodeCarried(value)
		if err != nil {
			return false, err
		}
		s, l, ok, err := readSpec(v, p, c.task, c.queue)
		if err != nil {
			return false, err
		}
		if _, known := byQueue[c.queue]; ok && !known {
			byQueue[c.queue] = slices.Contains(l.config.Share.LimiterNames(), name)
		}
		if ok && (byQueue[c.queue] || slices.Contains(s.limiters, name)) {
			out = append(out, core.LimiterHolder{Task: c.task, Queue: l.name})
		}
		seen++
		return seen < MaxInspected && len(out) < core.MaxHolders, nil
	})
	return out, err
}

// limiterReasons says which of the limiters of a ready task hold it up at a stamp, and who has what they let run. names are those that the
// task names, and share is that of its queue.
func limiterReasons(v core.View, p core.Partition, names []string, share *core.QueueShare, cost uint32, stamp core.ShardTime) (out []core.WhyReason, err error) {
	all := slices.Clone(names)
	for _, name := range share.LimiterNames() {
		if !slices.Contains(names, name) {
			all = append(all, name)
		}
	}
	for _, name := range all {
		state, ok, err := readLimiter(v, p, name)
		if err != nil {
			return nil, err
		}
		x := limiter{limiterState: state}
		switch at := x.rate.from(&x.Rate, cost); {
		case !ok:
		case !x.fits(cost):
			r := core.WhyReason{Code: core.WhyLimiter, Object: name, Limit: uint64(x.Concurrency)}
			holders, err := limiterHolders(v, p, name)
			if err != nil {
				return nil, err
			}
			for _, h := range holders {
				r.HeldBy, r.Holders = append(r.HeldBy, h.Task.String()), append(r.Holders, h.Queue)
			}
			out = append(out, r)
		case at > stamp:
			out = append(out, core.WhyReason{Code: core.WhyLimiter, Object: name, Limit: uint64(x.Rate.Limit), Until: at})
		}
	}
	return out, nil
}
