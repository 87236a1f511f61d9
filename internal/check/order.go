package check

import (
	"cmp"
	"slices"
)

// IndexOrder judges the indexes of acknowledged calls against real time: a call that began after a write had been
// acknowledged has a larger index if it is a write, and no smaller one if it is a read. Replays carry the index of the
// first time and are left out. Rules: write_order, read_order.
func IndexOrder(calls []Call) *Report {
	r := NewReport("index_order")
	type log struct{ clock, tenant, partition string }
	groups := map[log][]*Call{}
	var order []log
	for i := range calls {
		c := &calls[i]
		if c.Outcome != OK || c.Index == 0 || c.Replayed || !(c.reads() || c.writes()) {
			continue
		}
		key := log{c.Clock, c.Tenant, string(c.Partition)}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], c)
	}
	for _, key := range order {
		judgeOrder(r, groups[key])
	}
	return r.Done()
}

func judgeOrder(r *Report, calls []*Call) {
	ended := slices.DeleteFunc(slices.Clone(calls), func(c *Call) bool { return !c.writes() })
	slices.SortStableFunc(ended, func(a, b *Call) int { return cmp.Compare(a.Return, b.Return) })
	slices.SortStableFunc(calls, func(a, b *Call) int { return cmp.Compare(a.Invoke, b.Invoke) })
	var last *Call // the write with the largest index among those that had returned
	next := 0
	for _, c := range calls {
		r.Checked++
		for ; next < len(ended) && ended[next].Return < c.Invoke; next++ {
			if last == nil || ended[next].Index > last.Index {
				last = ended[next]
			}
		}
		switch {
		case last == nil:
		case c.writes() && c.Index <= last.Index:
			r.Violate("write_order", "%s began after %s", c, last)
		case c.reads() && c.Index < last.Index:
			r.Violate("read_order", "%s began after %s", c, last)
		}
	}
}
