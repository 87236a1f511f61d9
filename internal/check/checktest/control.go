package checktest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// controlInto makes a commit by which a task or a queue is operated.
func (w *world) controlInto(c *core.Commit, p core.Partition, stamp core.ShardTime) {
	c.Principal = pick(w.rand, []string{"tester", "operator"})
	c.Ops = []core.Op{w.control(p, stamp)}
	if w.rand.IntN(8) == 0 { // the other op is taken back with it
		c.Ops = append(c.Ops, w.check())
	}
	if w.rand.IntN(6) == 0 {
		w.old = append(w.old, *c)
	}
}

// sawControl remembers which tasks ended without a result, and which are to stop.
func (w *world) sawControl(p core.Partition, op core.Op, got *core.OpResult) {
	var id core.TaskID
	switch op := op.(type) {
	case *core.TaskCancel:
		if id = op.Task; got.State == core.Running {
			w.asked[p] = append(w.asked[p], id)
		}
	case *core.TaskFail:
		id = op.Task
	case *core.TaskStop:
		id = op.Task
	case *core.TaskCreate:
		if op.ExpiresAt != 0 && w.rand.IntN(4) == 0 {
			w.stops[p] = append(w.stops[p], op.ID) // it may end so
		}
		return
	default:
		return
	}
	if got.State == core.Dead || got.State == core.Cancelled {
		w.stops[p] = append(w.stops[p], id)
	}
}

// askedHold picks a lease of a task that is to stop: its last one.
func (w *world) askedHold(p core.Partition) (core.TaskHold, bool) {
	if len(w.asked[p]) == 0 {
		return core.TaskHold{}, false
	}
	id := recent(w.rand, w.asked[p])
	for _, h := range slices.Backward(w.holds[p]) {
		if h.Task == id {
			return h, true
		}
	}
	return core.TaskHold{}, false
}

// control draws an op of core.FormatOperate. Cancels and releases by force meet running tasks more often than others.
func (w *world) control(p core.Partition, stamp core.ShardTime) core.Op {
	if w.rand.IntN(20) == 0 {
		return w.bulkOp()
	}
	if w.rand.IntN(8) == 0 {
		return w.keySet(stamp)
	}
	if w.rand.IntN(8) == 0 {
		return w.limiterOp()
	}
	ids, holds := w.ids[p], w.holds[p]
	n := w.rand.IntN(22)
	if len(ids) == 0 || n < 2 {
		return w.pauseOp(stamp)
	}
	if n >= 18 && len(holds) > 0 {
		return w.report(recent(w.rand, holds))
	}
	if n >= 16 && len(holds) > 0 {
		return w.sessionLost(p)
	}
	id := recent(w.rand, ids)
	if len(holds) > 0 && (n < 10 && w.rand.IntN(3) > 0 || n < 6) {
		id = recent(w.rand, holds).Task
	}
	switch {
	case n < 6 && n > 2 && len(holds) > 0:
		h := recent(w.rand, holds)
		if asked, ok := w.askedHold(p); ok && w.rand.IntN(4) > 0 {
			h = asked
		}
		return &core.TaskStop{Task: h.Task, Token: h.Token, Error: core.TaskError{Code: pick(w.rand, []string{"", "stopped"})}}
	case n < 8:
		return &core.TaskCancel{Task: id, Force: w.rand.IntN(4) == 0, Reason: w.reason()}
	case n < 10:
		return &core.TaskForceRelease{Task: id, Attempt: uint32(max(0, w.rand.IntN(6)-2))}
	case n < 13:
		if stops := w.stops[p]; len(stops) > 0 && w.rand.IntN(4) > 0 {
			id = recent(w.rand, stops)
		}
		return &core.TaskRedrive{Task: id}
	}
	return w.update(id, stamp)
}

// seen is a lease as it was granted.
type seen struct {
	session core.SessionID
	until   core.ShardTime
}

// report is what a holder tells. Some say too much, and some come again.
func (w *world) report(h core.TaskHold) core.Op {
	op := &core.TaskReport{
		Task: h.Task, Token: h.Token, Number: uint64(w.rand.IntN(4)), HasProgress: w.rand.IntN(2) == 0, Percent: uint8(w.rand.IntN(105)),
		Message: w.reason(), Dropped: uint64(w.rand.IntN(2)), HasCheckpoint: w.rand.IntN(2) == 0,
	}
	if op.HasCheckpoint {
		op.Checkpoint = bytes.Repeat([]byte{'c'}, pick(w.rand, []int{0, 1, 100, core.MaxCheckpoint, core.MaxCheckpoint + 1}))
	}
	for range pick(w.rand, []int{0, 1, 3, 200, core.MaxReportLines, core.MaxReportLines + 1}) {
		op.Lines = append(op.Lines, "line")
	}
	return op
}

// sessionLost ends leases of a session. Some were renewed since they were seen, and some are those of another session.
func (w *world) sessionLost(p core.Partition) core.Op {
	holds := w.holds[p]
	op := &core.SessionLost{Session: w.seen[recent(w.rand, holds)].session}
	for _, h := range holds[max(0, len(holds)-4):] {
		if s := w.seen[h]; s.session == op.Session || w.rand.IntN(4) == 0 {
			op.Leases = append(op.Leases, core.SeenLease{Task: h.Task, Token: h.Token, Until: s.until})
		}
	}
	return op
}

func (w *world) reason() string {
	return pick(w.rand, []string{"", "wrong", "late", strings.Repeat("é", core.MaxReason/2) + "x", "x" + strings.Repeat("é", core.MaxReason/2)})
}

func (w *world) pauseOp(stamp core.ShardTime) core.Op {
	op := &core.QueuePause{Queue: pick(w.rand, append([]string{"none"}, w.queues...)), Resume: w.rand.IntN(2) == 0}
	if op.Resume {
		return op
	}
	if w.rand.IntN(4) > 0 {
		op.Until = stamp.Add(core.Millis(w.rand.IntN(4000) - 500))
	}
	op.Reason = w.reason()
	return op
}

func (w *world) update(id core.TaskID, stamp core.ShardTime) core.Op {
	op := &core.TaskUpdate{Task: id}
	if w.rand.IntN(3) == 0 {
		op.HasPriority, op.Priority = true, uint8(w.rand.IntN(4))
		if w.rand.IntN(10) == 0 {
			op.Priority = 10
		}
	}
	if w.rand.IntN(4) == 0 {
		op.HasRunAt, op.Delay = true, core.Millis(w.rand.IntN(3)*1000)
		if w.rand.IntN(2) == 0 {
			op.RunAt, op.Delay = stamp.Add(core.Millis(w.rand.IntN(9000)-3000)), 0
		}
	}
	if w.rand.IntN(2) == 0 {
		op.HasPayload, op.Payload = true, make([]byte, w.rand.IntN(12))
		op.ContentType = pick(w.rand, []string{"", "text/plain"})
	}
	if w.rand.IntN(3) == 0 {
		op.HasLabels, op.Labels = true, someLabels(w.rand)
	}
	if w.rand.IntN(5) == 0 {
		op.HasExpiry, op.ExpiresAt = true, w.expiry(stamp)
	}
	return op
}

func (w *world) expiry(stamp core.ShardTime) core.ShardTime {
	if w.rand.IntN(6) == 0 {
		return 0
	}
	return stamp.Add(core.Millis(w.rand.IntN(12_000) - 1000))
}

// someLabels draws labels, of which a few are not as they must be.
func someLabels(r *rand.Rand) []core.Label {
	switch r.IntN(20) {
	case 0:
		return []core.Label{{Name: "b", Value: "x"}, {Name: "a", Value: "x"}}
	case 1:
		return []core.Label{{Name: "a", Value: strings.Repeat("x", core.MaxLabelValue+1)}}
	case 2:
		return make([]core.Label, core.MaxLabels+1)
	}
	var out []core.Label
	for _, name := range []string{"env", "order", "team"} {
		if r.IntN(2) == 0 {
			out = append(out, core.Label{Name: name, Value: pick(r, []string{"", "a", "b"})})
		}
	}
	return out
}

// limits draws the bounds of a queue: most of them leave room.
func (w *world) limits() (l core.QueueLimits) {
	some := func(n int) bool { return w.rand.IntN(n) == 0 }
	if some(2) {
		l.CancelGrace = core.Millis(w.rand.IntN(6)-1) * 1000
		if l.CancelGrace < 0 {
			l.CancelGrace = -1
		}
	}
	if some(4) {
		l.DefaultTTL = core.Millis(2000 + w.rand.IntN(20_000))
	}
	if some(4) {
		l.MaxTasks = int64(1 + w.rand.IntN(20))
	}
	if some(5) {
		l.MaxBytes = int64(1 + w.rand.IntN(80))
	}
	if some(5) {
		l.CeilingAttempts, l.CeilingCrashes, l.CeilingDeliveries = int32(w.rand.IntN(3)), int32(w.rand.IntN(3)), int32(w.rand.IntN(6))
	}
	if some(8) {
		l.CeilingLease = core.Millis(4000 + w.rand.IntN(9000))
	}
	if some(8) {
		l.CeilingMaxRun, l.CeilingPriority = core.Millis(4000+w.rand.IntN(9000)), int32(1+w.rand.IntN(3))
	}
	if some(30) {
		l.CancelGrace = -2
	}
	if some(30) {
		l.CeilingPriority = 10
	}
	return l
}

// countControl counts what operated a task or a queue.
func (s *Stats) countControl(c *core.Commit, got *core.Result) {
	if got.Refusal != nil {
		if f, ok := got.Refusal.Fact.(core.Invalid); ok && f.Field == "op" && f.Reason == "not_supported" {
			s.Early++
		}
		if f, ok := got.Refusal.Fact.(core.Exhausted); ok && (f.Limit == "tenant_tasks" || f.Limit == "tenant_task_bytes") {
			s.FullTenants++
		}
		return
	}
	if got.Replayed {
		return
	}
	for i, op := range c.Ops[:min(len(c.Ops), len(got.Ops))] { // a planted bug may leave answers out
		for _, a := range got.Ops[i].Assigned {
			if slices.ContainsFunc(a.Headers, func(h core.Header) bool { return h.Name == core.HeaderDeadTask }) {
				s.Letters++
			}
		}
		switch op := op.(type) {
		case *core.TaskCreate:
			if got.Ops[i].Existed {
				s.Replaces++
			}
		case *core.TaskCancel:
			s.Cancels++
			if got.Ops[i].State == core.Running {
				s.Asked++
			}
		case *core.TaskStop:
			s.Stops++
		case *core.TaskRedrive:
			s.Redrives++
		case *core.TaskForceRelease:
			s.Forced++
		case *core.TaskUpdate:
			s.Updates++
		case *core.TaskReport:
			s.Reports++
		case *core.BulkStart:
			s.BulkStarts++
		case *core.BulkStop:
			s.BulkStops++
		case *core.QueuePause:
			if op.Resume {
				s.Resumes++
			} else {
				s.Pauses++
			}
		}
	}
}

func (s *Stats) addControl(o *Stats) {
	s.Cancels += o.Cancels
	s.Asked += o.Asked
	s.Stops += o.Stops
	s.Reports += o.Reports
	s.BulkStarts += o.BulkStarts
	s.BulkStops += o.BulkStops
	s.Bulked += o.Bulked
	s.Redrives += o.Redrives
	s.Forced += o.Forced
	s.Updates += o.Updates
	s.Pauses += o.Pauses
	s.Resumes += o.Resumes
	s.Early += o.Early
	s.Replaces += o.Replaces
	s.Letters += o.Letters
	s.FullTenants += o.FullTenants
	s.Blocked += o.Blocked
	s.NotBlocked += o.NotBlocked
	s.BornCancelled += o.BornCancelled
}

// missesControl reports whether something that operates tasks or queues was never done, or never refused by an older format.
func (s *Stats) missesControl() bool {
	return slices.Contains([]int{s.Cancels, s.Asked, s.Stops, s.Redrives, s.Forced, s.Updates, s.Reports, s.BulkStarts, s.BulkStops, s.Bulked, s.Pauses, s.Resumes, s.Early, s.Replaces, s.Letters, s.FullTenants, s.Blocked, s.NotBlocked, s.BornCancelled}, 0)
}
