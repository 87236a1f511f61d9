package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// holding is what calls prove of one token: the instants at which its lease was live.
type holding struct {
	task      string
	token     uint64
	index     span             // of acknowledged uses in the log
	stamp     span             // the same in shard time
	earliest  map[string]int64 // by clock: the first end of an acknowledged use
	latest    map[string]int64 // by clock: the last start of one
	settledAt uint64           // index of the settle that ended the lease; 0: none
}

// span is the least and the greatest of what was added; zero values are not added.
type span struct{ min, max uint64 }

func (s *span) add(v uint64) {
	if v == 0 {
		return
	}
	if s.min == 0 || v < s.min {
		s.min = v
	}
	s.max = max(s.max, v)
}

type tenantTask struct{ tenant, task string }

// LeaseExclusivity judges that at most one token of a task is good at any instant. An acknowledged renewal, settle or
// fenced commit proves its token live at its place in the log; a delivery proves that it was issued. Rules: overlap
// (uses of two tokens of one task interleave in the log or in shard time), stale_token (a smaller token was accepted
// after a use of a larger one had been acknowledged), used_after_settle, token_of_two_tasks. Counts: tasks, tokens,
// lease_lost.
func LeaseExclusivity(calls []Call) *Report {
	r := NewReport("lease_exclusivity")
	byTask := map[tenantTask]map[uint64]*holding{}
	owner := map[string]string{} // tenant, partition and token → task
	for i := range calls {
		c := &calls[i]
		if c.Token == 0 || c.ID == "" || !(c.Op == OpDeliver || c.Op == OpRenew || c.Op == OpCommit || c.settles()) {
			continue
		}
		r.Checked++
		if c.Outcome == Refused && c.Code == "LEASE_LOST" {
			r.Counts["lease_lost"]++
		}
		if c.Outcome != OK || c.Replayed { // a replay proves what was, not what is
			continue
		}
		key := tenantTask{c.Tenant, c.ID}
		if byTask[key] == nil {
			byTask[key] = map[uint64]*holding{}
		}
		h := byTask[key][c.Token]
		if h == nil {
			h = &holding{task: c.ID, token: c.Token, earliest: map[string]int64{}, latest: map[string]int64{}}
			byTask[key][c.Token] = h
			r.Counts["tokens"]++
		}
		h.use(r, c)
		tokenOwner(r, owner, c)
	}
	for _, key := range slices.SortedFunc(maps.Keys(byTask), func(a, b tenantTask) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.task, b.task))
	}) {
		r.Counts["tasks"]++
		judgeHoldings(r, byTask[key])
	}
	return r.Done()
}

func (h *holding) use(r *Report, c *Call) {
	if first, ok := h.earliest[c.Clock]; !ok || c.Return < first {
		h.earliest[c.Clock] = c.Return
	}
	if c.Op == OpDeliver {
		return // it proves that the token was issued, not that it is still good
	}
	h.latest[c.Clock] = max(h.latest[c.Clock], c.Invoke)
	h.index.add(c.Index)
	h.stamp.add(uint64(max(0, c.Stamp)))
	if c.settles() {
		if h.settledAt != 0 {
			r.Violate("used_after_settle", "%s: token was settled at index %d already", c, h.settledAt)
		}
		h.settledAt = c.Index
	}
}

func tokenOwner(r *Report, owner map[string]string, c *Call) {
	if c.Partition == "" { // a delivery does not say
		return
	}
	key := fmt.Sprintf("%s\x00%s\x00%d", c.Tenant, c.Partition, c.Token)
	if other, ok := owner[key]; ok && other != c.ID {
		r.Violate("token_of_two_tasks", "token %d of partition %s: tasks %s and %s", c.Token, c.Partition, other, c.ID)
	}
	owner[key] = c.ID
}

// judgeHoldings compares each token of a task with all smaller ones, in token order.
func judgeHoldings(r *Report, tokens map[uint64]*holding) {
	var before *holding // folds all smaller tokens
	for _, token := range slices.Sorted(maps.Keys(tokens)) {
		h := tokens[token]
		if h.settledAt != 0 && h.index.max > h.settledAt {
			r.Violate("used_after_settle", "task %s token %d: settled at index %d, accepted at %d", h.task, token, h.settledAt, h.index.max)
		}
		if before != nil {
			before.against(r, h)
			h = before.fold(h)
		}
		before = h
	}
}

func (h *holding) against(r *Report, next *holding) {
	if h.index.max != 0 && next.index.min != 0 && h.index.max >= next.index.min {
		r.Violate("overlap", "task %s: token %d accepted at index %d, larger token %d at %d", h.task, h.token, h.index.max, next.token, next.index.min)
	}
	if h.stamp.max != 0 && next.stamp.min != 0 && h.stamp.max > next.stamp.min {
		r.Violate("overlap", "task %s: token %d accepted at stamp %d, larger token %d at %d", h.task, h.token, h.stamp.max, next.token, next.stamp.min)
	}
	for _, clock := range slices.Sorted(maps.Keys(h.latest)) {
		if first, ok := next.earliest[clock]; ok && h.latest[clock] > first {
			r.Violate("stale_token", "task %s: token %d accepted by a call of %d us, token %d was in use at %d us", h.task, h.token, h.latest[clock], next.token, first)
		}
	}
}

func (h *holding) fold(next *holding) *holding {
	out := &holding{task: h.task, token: next.token, index: h.index, stamp: h.stamp, earliest: next.earliest, latest: maps.Clone(h.latest)}
	out.index.add(next.index.max)
	out.stamp.add(next.stamp.max)
	for clock, at := range next.latest {
		out.latest[clock] = max(out.latest[clock], at)
	}
	return out
}
