package checktest

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/millrace/millrace/internal/core"
)

// world makes commits that meet each other: it remembers the tokens it saw and uses old ones too.
type world struct {
	rand   *rand.Rand
	parts  []core.Partition
	queues []string
	spaces []string
	keys   []string
	nextID uint64

	ids    map[core.Partition][]core.TaskID
	holds  map[core.Partition][]core.TaskHold // every lease ever granted, newest last
	seen   map[core.TaskHold]seen             // of each, who holds it and until when at first
	revs   []uint64
	stops  map[core.Partition][]core.TaskID // tasks that ended dead or cancelled, newest last
	asked  map[core.Partition][]core.TaskID // running tasks whose cancel was asked for, newest last
	jobs   []core.TaskID                    // bulk jobs, newest last
	old    []core.Commit                    // repeatable: with a request id, or a settle
	serial map[core.SessionID]uint64
	term   uint64

	company *world // whose ops on refs come into commits of tasks and keys
}

func newWorld(r *rand.Rand) *world {
	return &world{
		rand:   r,
		parts:  []core.Partition{{Tenant: 1, Namespace: 1}, {Tenant: 2, Namespace: 1}},
		queues: []string{"mail", "img"},
		spaces: []string{"a", "b"},
		keys:   []string{"x", "y", "z"},
		ids:    map[core.Partition][]core.TaskID{}, holds: map[core.Partition][]core.TaskHold{},
		stops: map[core.Partition][]core.TaskID{}, asked: map[core.Partition][]core.TaskID{},
		serial: map[core.SessionID]uint64{}, seen: map[core.TaskHold]seen{},
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// recent picks the newest most of the time.
func recent[T any](r *rand.Rand, from []T) T {
	back := min(len(from), 1+r.IntN(6))
	return from[len(from)-back]
}

// pause is how much shard time passes before the next entry: mostly little, at times past every lease or window.
func (w *world) pause() core.Millis {
	switch n := w.rand.IntN(100); {
	case n < 60:
		return core.Millis(w.rand.IntN(300))
	case n < 97:
		return core.Millis(w.rand.IntN(6_000))
	case n < 99:
		return core.Millis(w.rand.IntN(20 * 60_000))
	}
	return core.Millis(w.rand.IntN(30 * 3_600_000))
}

func (w *world) commit(stamp core.ShardTime) core.Commit {
	p := pick(w.rand, w.parts)
	c := core.Commit{Partition: p, Principal: "tester"}
	switch n := w.rand.IntN(100); {
	case n < 12:
		return core.Commit{Ops: []core.Op{&core.Tick{Max: uint32(1 + w.rand.IntN(40))}}}
	case n < 13 && w.rand.IntN(2) == 0:
		shift := pick(w.rand, []core.Millis{0, 3000, -3000, 3_600_000, -3_600_000})
		return core.Commit{Ops: []core.Op{&core.ClockShift{Shift: shift}}}
	case n < 13 && w.rand.IntN(3) == 0:
		secret := make([]byte, core.SessionKeyBytes)
		secret[0] = byte(w.rand.IntN(256))
		return core.Commit{Ops: []core.Op{&core.SessionKeyAdd{Secret: secret, End: w.rand.IntN(4) == 0}}}
	case n < 13:
		w.term++
		return core.Commit{Ops: []core.Op{&core.TermStart{Term: w.term, Leader: 1}}}
	case n < 30:
		c.Ops = []core.Op{w.grant(p)}
	case n < 55 && len(w.holds[p]) > 0:
		w.settleInto(&c, p, stamp)
	case n < 60 && len(w.holds[p]) > 0:
		c.Ops = []core.Op{w.renew(p)}
	case n < 66 && len(w.old) > 0:
		return recent(w.rand, w.old)
	case n < 67:
		c.Ops = []core.Op{w.configureSpace()}
	case n < 69:
		c.Ops = []core.Op{w.configure()}
	case n < 71 && len(w.ids[p]) > 0:
		c.Ops = []core.Op{w.admin(p)}
	case n < 81:
		w.controlInto(&c, p, stamp)
	case n < 88:
		w.mixInto(&c, p, stamp)
	default:
		c.Ops = []core.Op{w.create(p, stamp)}
	}
	return c
}

// mixInto makes a commit of several ops, at times fenced, repeatable or numbered.
func (w *world) mixInto(c *core.Commit, p core.Partition, stamp core.ShardTime) {
	for range w.rand.IntN(3) {
		c.Conditions = append(c.Conditions, w.check())
	}
	for range 1 + w.rand.IntN(4) {
		switch w.rand.IntN(7) {
		case 0:
			c.Ops = append(c.Ops, w.create(p, stamp))
		case 6:
			if op := w.control(p, stamp); op.Kind() != core.OpTaskStop { // a settle stands first
				c.Ops = append(c.Ops, op)
				continue
			}
			c.Ops = append(c.Ops, w.write())
		case 1:
			c.Ops = append(c.Ops, w.check())
		case 2:
			c.Ops = append(c.Ops, w.keysOp())
		default:
			c.Ops = append(c.Ops, w.write())
		}
	}
	if w.company != nil && w.company.rand.IntN(5) == 0 {
		c.Ops = slices.Insert(c.Ops, w.company.rand.IntN(len(c.Ops)+1), w.company.refsOp(false))
	}
	if w.company != nil && w.company.rand.IntN(5) == 0 {
		c.Ops = slices.Insert(c.Ops, w.company.rand.IntN(len(c.Ops)+1), w.company.rulesOp())
	}
	if w.rand.IntN(4) == 0 {
		c.Conditions, c.Ops = nil, []core.Op{w.puts()}
	}
	how := w.rand.IntN(6) // 5: a request id with a fence
	if n := len(w.holds[p]); n > 0 && (how == 0 || how == 3 || how == 5) {
		h := w.holds[p][max(0, n-1-w.rand.IntN(3))] // young enough to be live at times
		c.Fence = &core.Fence{Task: h.Task, Token: h.Token}
	}
	switch how {
	case 1, 5:
		c.RequestID = core.RequestID{byte(w.rand.IntN(250)), 1}
		w.old = append(w.old, *c)
	case 2, 3:
		c.Session = core.SessionID{byte(w.rand.IntN(3)), 7, byte(p.Tenant)}
		last := w.serial[c.Session]
		switch n := w.rand.IntN(20); {
		case n == 0:
			c.Seq = last + 2
		case n == 1 && last > 70:
			c.Seq = last - 69
		default:
			c.Seq = last + 1
			w.serial[c.Session] = c.Seq
			w.old = append(w.old, *c)
		}
	}
}

func (w *world) settleInto(c *core.Commit, p core.Partition, stamp core.ShardTime) {
	h := recent(w.rand, w.holds[p])
	if asked, ok := w.askedHold(p); ok && w.rand.IntN(6) == 0 {
		if h = asked; w.rand.IntN(3) == 0 {
			c.Ops = []core.Op{&core.TaskStop{Task: h.Task, Token: h.Token}}
			return
		}
	}
	if w.rand.IntN(20) == 0 {
		h.Token += core.Token(1 + w.rand.IntN(3)) // guessed
	}
	switch w.rand.IntN(8) {
	case 0:
		c.Ops = []core.Op{&core.TaskSnooze{Task: h.Task, Token: h.Token, Delay: core.Millis(w.rand.IntN(5000))}}
	case 1:
		c.Ops = []core.Op{&core.TaskRelease{Task: h.Task, Token: h.Token, Undelivered: w.rand.IntN(2) == 0}}
	case 2, 3:
		f := &core.TaskFail{Task: h.Task, Token: h.Token, Fatal: w.rand.IntN(8) == 0}
		if w.rand.IntN(3) == 0 {
			f.HasRetry, f.RetryAfter = true, core.Millis(w.rand.IntN(3)*1000)
		}
		c.Ops = []core.Op{f}
	default:
		c.Ops = []core.Op{&core.TaskComplete{Task: h.Task, Token: h.Token, Result: []byte{byte(w.rand.IntN(9))}}}
		for range w.rand.IntN(3) {
			if w.rand.IntN(3) == 0 {
				c.Ops = append(c.Ops, w.create(p, stamp))
			} else {
				c.Ops = append(c.Ops, w.write())
			}
		}
		c.FailOnRefusal = w.rand.IntN(3) == 0
		if w.rand.IntN(3) == 0 {
			c.Fence = &core.Fence{Task: h.Task, Token: h.Token}
		}
	}
	if w.rand.IntN(3) == 0 {
		w.old = append(w.old, *c)
	}
}

func (w *world) create(p core.Partition, stamp core.ShardTime) *core.TaskCreate {
	if ids := w.ids[p]; len(ids) > 0 && w.rand.IntN(12) == 0 {
		return &core.TaskCreate{ID: recent(w.rand, ids), Queue: w.queues[0], Payload: []byte("again")}
	}
	w.nextID++
	var random [9]byte
	for i := range 8 {
		random[i] = byte(w.nextID >> (8 * (7 - i)))
	}
	op := &core.TaskCreate{
		ID: core.NewTaskID(int64(stamp), p.Index, random), Queue: pick(w.rand, w.queues), Payload: []byte{byte(w.nextID)},
		Priority: uint8(w.rand.IntN(3)), Lease: core.Millis(1000 + w.rand.IntN(8000)),
	}
	if w.rand.IntN(5) == 0 {
		op.Delay = core.Millis(w.rand.IntN(9000))
	}
	if w.rand.IntN(8) == 0 {
		op.RunAt = stamp + core.ShardTime(w.rand.IntN(9000)-2000)
	}
	if w.rand.IntN(4) == 0 {
		op.Unique = core.Unique{Key: pick(w.rand, w.keys), TTL: core.Millis(w.rand.IntN(60_000)), Reject: w.rand.IntN(3) == 0, Request: w.rand.IntN(3) == 0}
		if w.rand.IntN(2) == 0 {
			op.Unique.Until = core.UniqueUntil(w.rand.IntN(3))
			op.Unique.Replace = w.rand.IntN(2) == 0
			op.Unique.Reject = op.Unique.Reject && (!op.Unique.Replace || w.rand.IntN(8) == 0)
		}
	}
	if w.rand.IntN(4) == 0 {
		op.MaxAttempts, op.MaxCrashes, op.MaxDeliveries = int32(w.rand.IntN(4)), int32(w.rand.IntN(4)), int32(w.rand.IntN(6)-1)
	}
	if w.rand.IntN(6) == 0 {
		op.MaxRun = core.Millis(500 + w.rand.IntN(12_000))
		if w.rand.IntN(5) == 0 {
			op.MaxRun = -1 // none, where the queue has one
		}
	}
	if w.rand.IntN(2) == 0 {
		op.Retry = core.Retry{
			Backoff: core.Backoff(w.rand.IntN(6)), Base: core.Millis(w.rand.IntN(3000)),
			FactorPercent: uint32(w.rand.IntN(2) * 150), Max: core.Millis(w.rand.IntN(20_000)),
		}
	}
	if w.rand.IntN(6) == 0 {
		op.ExpiresAt = w.expiry(stamp)
	}
	if w.rand.IntN(4) == 0 {
		op.Labels = someLabels(w.rand)
	}
	if w.rand.IntN(2) == 0 {
		op.Key, op.Cost = pick(w.rand, someKeys), uint32(w.rand.IntN(4))
	}
	if w.rand.IntN(3) == 0 {
		op.Limiters = w.limiters()
	}
	if ids := w.ids[p]; len(ids) > 0 && w.rand.IntN(4) == 0 {
		w.wait(op, ids)
	}
	w.ids[p] = append(w.ids[p], op.ID)
	return op
}

func (w *world) grant(p core.Partition) *core.Grant {
	op := &core.Grant{Session: core.SessionID{byte(w.rand.IntN(3)), 9}, Worker: pick(w.rand, []string{"w", "w", "x"}), N: uint32(w.rand.IntN(4))}
	for _, q := range w.queues[:1+w.rand.IntN(len(w.queues))] {
		op.Queues = append(op.Queues, core.GrantQueue{Name: q, Weight: 1})
	}
	if op.Weighted = w.rand.IntN(3) == 0; op.Weighted {
		for i := range op.Queues {
			op.Queues[i].Weight, op.Queues[i].Pass = uint32(w.rand.IntN(4)), uint64(w.rand.IntN(3))*core.GrantStride/2
		}
	}
	if w.rand.IntN(5) == 0 {
		op.Lease = core.Millis(1000 + w.rand.IntN(4000))
	}
	for range w.rand.IntN(2) {
		if len(w.holds[p]) > 0 {
			op.Settles = append(op.Settles, recent(w.rand, w.holds[p]))
		}
	}
	return op
}

func (w *world) renew(p core.Partition) *core.TaskRenew {
	op := &core.TaskRenew{Extend: core.Millis(w.rand.IntN(2) * (1000 + w.rand.IntN(20_000)))}
	for range 1 + w.rand.IntN(3) {
		h := recent(w.rand, w.holds[p])
		if asked, ok := w.askedHold(p); ok && w.rand.IntN(6) == 0 {
			h = asked
		}
		op.Items = append(op.Items, h)
	}
	return op
}

func (w *world) configure() core.Op {
	c := core.QueueConfig{Lease: core.Millis(1000 * (1 + w.rand.IntN(5)))}
	switch w.rand.IntN(3) {
	case 0:
		c.RetainCompleted, c.RetainDead = -1, -1
	case 1:
		c.RetainCompleted = core.Millis(1000 * (1 + w.rand.IntN(600)))
	}
	if w.rand.IntN(3) == 0 {
		c.MaxAttempts, c.Aging = int32(1+w.rand.IntN(5)), core.Millis(w.rand.IntN(3)-1)
	}
	if w.rand.IntN(8) == 0 {
		c.MaxRun = core.Millis(2000 + w.rand.IntN(9000))
	}
	if w.rand.IntN(3) == 0 {
		c.Limits = w.limits()
	}
	if w.rand.IntN(2) == 0 {
		c.Share = w.share()
	}
	if w.rand.IntN(3) == 0 {
		c.Share.DeadLetter = pick(w.rand, w.queues)
	}
	if w.rand.IntN(6) == 0 { // out of bounds
		switch w.rand.IntN(3) {
		case 0:
			c.MaxAttempts = 1001
		case 1:
			c.Lease = 999
		default:
			c.RetainDead = -2
		}
	}
	if w.rand.IntN(3) == 0 {
		return &core.QueueDelete{Queue: pick(w.rand, w.queues), Purge: w.rand.IntN(2) == 0, IfVersion: int64(w.rand.IntN(4) - 1)}
	}
	return &core.QueueSet{Queue: pick(w.rand, w.queues), Config: c, IfVersion: int64(w.rand.IntN(4) - 1)}
}

// rulesOp publishes or removes one of a few rulesets.
func (w *world) rulesOp() core.Op {
	name := pick(w.rand, []string{"r", "r", "s", "t"})
	if w.rand.IntN(4) == 0 {
		return &core.RulesetDelete{Name: name}
	}
	return &core.RulesetPut{Name: name, Version: uint32(max(0, w.rand.IntN(9)-4)), Rules: []byte(strconv.Itoa(w.rand.IntN(3)))}
}

func (w *world) admin(p core.Partition) core.Op {
	id := recent(w.rand, w.ids[p])
	if w.rand.IntN(2) == 0 {
		return &core.TaskDelete{Task: id}
	}
	return &core.TaskRunNow{Task: id}
}

func (w *world) rev() uint64 {
	if len(w.revs) == 0 || w.rand.IntN(4) == 0 {
		return uint64(w.rand.IntN(3))
	}
	return recent(w.rand, w.revs)
}

func (w *world) write() core.Op {
	space, key := pick(w.rand, w.spaces), []byte(pick(w.rand, w.keys))
	hasRev := w.rand.IntN(3) == 0
	if w.rand.IntN(4) == 0 {
		return &core.KVDelete{Keyspace: space, Key: key, HasRev: hasRev, IfRev: w.rev()}
	}
	return &core.KVPut{
		Keyspace: space, Key: key, Value: []byte{byte(w.rand.IntN(4))}, HasRev: hasRev, IfRev: w.rev(),
		IfAbsent: !hasRev && w.rand.IntN(5) == 0, WantPrev: w.rand.IntN(2) == 0,
	}
}

func (w *world) check() *core.KVCheck {
	return &core.KVCheck{
		Keyspace: pick(w.rand, w.spaces), Key: []byte(pick(w.rand, w.keys)), Target: core.Target(1 + w.rand.IntN(2)),
		Compare: core.Compare(1 + w.rand.IntN(6)), Rev: w.rev(), Value: []byte{byte(w.rand.IntN(4))},
	}
}

// saw remembers what later commits may use.
func (w *world) saw(c *core.Commit, got *core.Result) {
	for i, op := range got.Ops {
		if i < len(c.Ops) {
			w.sawControl(c.Partition, c.Ops[i], &got.Ops[i])
		}
		for _, a := range op.Assigned {
			h := core.TaskHold{Task: a.Task, Token: a.Token}
			w.holds[c.Partition] = append(w.holds[c.Partition], h)
			if grant, ok := c.Ops[i].(*core.Grant); ok {
				w.seen[h] = seen{grant.Session, a.LeaseUntil}
			}
		}
		if op.Rev != 0 {
			w.revs = append(w.revs, op.Rev)
		}
	}
}
