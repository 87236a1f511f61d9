package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

// epoch is when worlds begin; times print as what passed since.
const epoch = core.ShardTime(1_700_000_000_000)

var testPartition = core.Partition{Tenant: 7, Namespace: 3}

// world is one machine on a state in memory. Each op is an entry of its own, after which everything is checked.
type world struct {
	t     testing.TB
	o     Options
	tx    *machinetest.Txn
	tape  *tape // the changes of the last entry
	m     *Machine
	c     core.ApplyContext
	loose bool // skip the checks after each op, for tests of size
}

func newWorld(t testing.TB, o Options) *world {
	tx := machinetest.NewTxn()
	return &world{
		t: t, o: o, tx: tx, tape: &tape{Txn: tx}, m: New(testPartition, o),
		c: core.ApplyContext{Stamp: epoch, Format: core.FormatCurrent, TermStart: epoch - 1_000_000, Principal: "alice"},
	}
}

// tape writes down what a machine changes, in order: replicas must agree on that too.
type tape struct {
	*machinetest.Txn
	on    bool
	lines []string
}

func (t *tape) note(what string, key, value []byte) {
	if t.on {
		t.lines = append(t.lines, fmt.Sprintf("%s %x %x", what, key, value))
	}
}

func (t *tape) Set(key, value []byte) {
	t.note("set", key, value)
	t.Txn.Set(key, value)
}

func (t *tape) Insert(key, value []byte) {
	t.note("insert", key, value)
	t.Txn.Insert(key, value)
}

func (t *tape) Delete(key []byte) {
	t.note("delete", key, nil)
	t.Txn.Delete(key)
}

func (t *tape) DeleteRange(from, to []byte) {
	t.note("range", from, to)
	t.Txn.DeleteRange(from, to)
}

// outcome is what one entry did.
type outcome struct {
	res   core.OpResult
	fact  core.Fact
	more  bool
	ended []core.TaskID
	woken []string
	lost  []core.Lost

	wanted []core.CancelWanted
}

// do applies one op as an entry.
func (w *world) do(op core.Op) outcome {
	w.t.Helper()
	outs, failed, fact := w.commit(op)
	if failed >= 0 {
		outs[0].fact = fact
	}
	return outs[0]
}

// commit applies ops as one commit in an entry of its own; the first that is refused undoes all of them.
func (w *world) commit(ops ...core.Op) (outs []outcome, failed int, fact core.Fact) {
	w.t.Helper()
	w.c.Index++
	before := ""
	if !w.loose {
		before = w.afterNothing()
	}
	outs = make([]outcome, len(ops))
	failed = -1
	w.c.Commit = &core.Commit{Partition: testPartition, Principal: w.c.Principal, Ops: ops}
	defer func() { w.c.Commit = nil }()
	if len(ops) > 1 {
		w.tx.Mark()
		w.m.Mark()
	}
	for i, op := range ops {
		var err error
		outs[i].res, fact, err = w.m.Apply(w.tape, &w.c, op)
		if err != nil {
			w.t.Fatalf("apply %T: %v", op, err)
		}
		if fact != nil {
			failed = i
			break
		}
	}
	if len(ops) > 1 {
		if failed >= 0 {
			w.tx.Undo()
			w.m.Undo()
		} else {
			w.tx.Keep()
			w.m.Keep()
		}
	}
	w.end(&outs[0])
	if failed >= 0 && !w.loose {
		if after := w.tx.Dump(); after != before {
			w.t.Fatalf("refused %T changed what is stored:\n%s", ops[failed], diff(before, after))
		}
		// What looks at lanes finds out, too, that a rate lets tasks go again.
		woken := slices.ContainsFunc(outs[0].woken, func(name string) bool { l := w.m.names[name]; return l == nil || l.share == nil })
		if o := outs[0]; len(o.ended)+len(o.lost)+len(o.wanted) > 0 || woken {
			w.t.Fatalf("refused %T has events %+v", ops[failed], o)
		}
	}
	return outs, failed, fact
}

// afterNothing is what an entry without ops would leave stored. That is mostly what is stored already, but any entry lets queues go at
// its end that could not go before: those that were left empty under the first format.
func (w *world) afterNothing() string {
	w.t.Helper()
	if len(w.m.vacant.items) == 0 {
		return w.tx.Dump()
	}
	tx, m := w.tx.Clone(), New(testPartition, w.o)
	if err := m.Open(tx); err != nil {
		w.t.Fatal(err)
	}
	m.Observe(&w.c)
	if err := m.End(tx, &w.c); err != nil {
		w.t.Fatal(err)
	}
	return tx.Dump()
}

func (w *world) end(o *outcome) {
	w.t.Helper()
	if err := w.m.End(w.tape, &w.c); err != nil {
		w.t.Fatal(err)
	}
	o.ended, o.woken, o.lost, o.wanted = eventsOf(w.m)
	if !w.loose {
		w.check()
	}
}

// eventsOf returns what happened since it was asked last, by kind.
func eventsOf(m *Machine) (ended []core.TaskID, woken []string, lost []core.Lost, wanted []core.CancelWanted) {
	var list core.EventList
	m.Events(&list)
	for _, e := range list.All() {
		switch e := e.(type) {
		case *core.Ended:
			ended = append(ended, e.Task)
		case *core.Woken:
			woken = append(woken, e.Queue)
		case *core.Lost:
			lost = append(lost, *e)
		case *core.CancelWanted:
			wanted = append(wanted, *e)
		}
	}
	return ended, woken, lost, wanted
}

func (w *world) tick(steps uint32) outcome {
	w.t.Helper()
	w.c.Index++
	_, more, err := w.m.Tick(w.tape, &w.c, steps)
	if err != nil {
		w.t.Fatal(err)
	}
	o := outcome{more: more}
	w.end(&o)
	return o
}

// advance lets time pass and does what is due.
func (w *world) advance(d core.Millis) outcome {
	w.t.Helper()
	w.c.Stamp = w.c.Stamp.Add(d)
	var all outcome
	for range 1_000_000 {
		o := w.tick(1000)
		all.ended, all.woken = append(all.ended, o.ended...), append(all.woken, o.woken...)
		all.lost = append(all.lost, o.lost...)
		if !o.more {
			return all
		}
	}
	w.t.Fatal("ticks never end")
	return all
}

// restart throws the derived state away.
func (w *world) restart() {
	w.t.Helper()
	w.m = New(testPartition, w.o)
	if err := w.m.Open(w.tx); err != nil {
		w.t.Fatal(err)
	}
}

// check holds the stored state to its invariants, and the derived state to what opening makes of the stored one.
func (w *world) check() {
	w.t.Helper()
	findings, err := Audit(w.tx, testPartition)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range findings {
		w.t.Error(f)
	}
	fresh := New(testPartition, w.o)
	if err := fresh.Open(w.tx); err != nil {
		w.t.Fatal(err)
	}
	fresh.Observe(&w.c)
	w.m.Observe(&w.c)
	if got, want := w.m.derived(), fresh.derived(); got != want {
		w.t.Errorf("derived state is not what opening makes of the stored one:\n%s", diff(want, got))
	}
	if w.m.timer > fresh.timer {
		w.t.Errorf("no timer is expected before %d, and one is due at %d", w.m.timer, fresh.timer)
	}
	if w.m.wall > fresh.wall {
		w.t.Errorf("no timer by wall clock is expected before %d, and one is due at %d", w.m.wall, fresh.wall)
	}
	if w.m.expiry > fresh.expiry {
		w.t.Errorf("no expiry is expected before %d, and one is due at %d", w.m.expiry, fresh.expiry)
	}
	if err := w.m.checkHeads(w.tx); err != nil {
		w.t.Error(err)
	}
	if err := w.m.checkShares(w.tx, w.c.Stamp); err != nil {
		w.t.Error(err)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// derived prints the derived state, without caches.
func (m *Machine) derived() string {
	var b strings.Builder
	fmt.Fprintf(&b, "meta %+v stored %+v ended %d use %+v quota %+v\n", m.meta, m.stored, m.endedBytes, m.use, m.quota)
	for _, l := range m.queues {
		fmt.Fprintf(&b, "queue %d %q %+v %+v %+v errors=%+v resumes=%v dirty=%v named=%v removed=%v cursor=%x vacant=%v\n", l.number, l.name, l.config, l.counters, l.paused, l.errors,
			l.byResume >= 0 && m.resumes.items[l.byResume].queueState == l, l.dirty,
			m.names[l.name] == l, l.removed, l.cursor, l.byVacant >= 0 && m.vacant.items[l.byVacant].queueState == l)
		fmt.Fprintf(&b, "  plain %s\n", &l.plain.laneState)
		if s := l.share; s != nil {
			fmt.Fprintf(&b, "  share %+v stored %x %v set %d\n", s.shareState, s.stored, s.isStored, s.keysSet)
			for _, ln := range s.byName() {
				fmt.Fprintf(&b, "  lane %q %s stored %v resumes %v\n", ln.key, &ln.laneState, ln.isStored, ln.byResume >= 0)
			}
			fmt.Fprintf(&b, "  workers %v\n", s.workers)
		}
		for i := range l.past {
			p := &l.past[i]
			fmt.Fprintf(&b, "  %s oldest %d known %d due %d in heaps %v %v\n", p.state, p.oldest, p.known, p.due,
				p.byDue >= 0 && m.byDue.items[p.byDue].past == p, p.byEnd >= 0 && m.byEnd.items[p.byEnd].past == p)
		}
	}
	for _, r := range slices.SortedFunc(maps.Values(m.runs), func(a, b *run) int { return cmp.Compare(a.rec.token, b.rec.token) }) {
		fmt.Fprintf(&b, "run %s %+v %d %d %+v %v %q %s ends %d in heap %v\n", r.id, r.rec, r.content, r.payload, r.settings, r.labels, r.reason, r.queue.name, r.ends, m.leases.items[r.at] == r)
	}
	for _, name := range slices.Sorted(maps.Keys(m.limiters)) {
		x := m.limiters[name]
		fmt.Fprintf(&b, "limiter %q %+v stored %v %v gone=%v dirty=%v freed=%v\n", name, x.limiterState, x.isStored, x.stored == x.limiterState, x.gone, x.dirty, x.freed)
	}
	fmt.Fprintf(&b, "%d limiters to write, %d changes\n", len(m.limDirty), len(m.limLog))
	for _, name := range slices.Sorted(maps.Keys(m.cronNames)) {
		c := m.cronNames[name]
		fmt.Fprintf(&b, "cron %q %+v free=%v due=%v waits=%v\n", name, c.cronRow, c.free, c.at >= 0 && m.crons.items[c.at] == c, m.cronWaits[c.last] == c)
	}
	fmt.Fprintf(&b, "%d crons are due some time, %d wait, %d to look at\n", len(m.crons.items), len(m.cronWaits), len(m.cronCheck))
	fmt.Fprintf(&b, "batches %+v stored %+v end %d, %d read, %d moves, %d to look at\n", m.batches.count, m.batches.stored, m.batches.end, len(m.batches.read), len(m.batches.moves), len(m.batches.check))
	fmt.Fprintf(&b, "%d resumes, %d runs, %d leases, %d sessions, %d+%d past, %d names, %d removed, %d vacant\n", len(m.resumes.items), len(m.runs), len(m.leases.items), len(m.sessions), len(m.byDue.items), len(m.byEnd.items), len(m.names), len(m.removed), len(m.vacant.items))
	for _, s := range slices.SortedFunc(maps.Keys(m.sessions), func(a, b core.SessionID) int { return slices.Compare(a[:], b[:]) }) {
		fmt.Fprintf(&b, "session %x", s)
		for _, a := range m.Held(s) {
			fmt.Fprintf(&b, " %d", a.Token)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// checkHeads holds what is kept of the ready tasks to their index.
func (m *Machine) checkHeads(v core.View) error {
	for _, l := range m.queues {
		lanes := []*lane{&l.plain}
		if l.share != nil {
			lanes = append(lanes, l.share.sorted()...)
		}
		for _, ln := range lanes {
			if err := m.checkLane(v, ln); err != nil {
				return fmt.Errorf("queue %q, lane %d: %w", l.name, ln.number, err)
			}
		}
	}
	return nil
}

// checkShares holds what is derived of the lanes to what it is derived of, and the counters of the lanes to a recount.
func (m *Machine) checkShares(v core.View, stamp core.ShardTime) error {
	type counts struct{ tasks, ready, running uint32 }
	found := map[[2]uint64]counts{}
	from, to := keys.TaskStateRange(m.p)
	if err := core.ScanRows(v, from, to, func(_, value []byte) (bool, error) {
		if isNoTask(value) {
			return true, nil
		}
		rec, err := decodeRecord(value)
		if err != nil || !isLive(rec.state) {
			return true, err
		}
		c := found[[2]uint64{uint64(rec.queue), rec.lane}]
		c.tasks++
		switch rec.state {
		case core.Ready:
			c.ready++
		case core.Running:
			c.running++
		}
		found[[2]uint64{uint64(rec.queue), rec.lane}] = c
		return true, nil
	}); err != nil {
		return err
	}
	total := 0
	for _, l := range m.queues {
		if l.removed {
			continue
		}
		lanes := []*lane{&l.plain}
		var can uint64
		if s := l.share; s != nil {
			total += s.byNumber.n
			lanes = append(lanes, s.sorted()...)
			if len(s.stale)+len(s.dirty) > 0 || s.byKey.n != s.byNumber.n {
				return fmt.Errorf("queue %q: %d stale and %d dirty lanes after an entry", l.name, len(s.stale), len(s.dirty))
			}
		}
		for _, ln := range lanes {
			if got := (counts{ln.tasks, ln.ready, ln.running}); got != found[[2]uint64{uint64(l.number), ln.number}] {
				return fmt.Errorf("queue %q, lane %d counts %+v, and has %+v", l.name, ln.number, got, found[[2]uint64{uint64(l.number), ln.number}])
			}
			if l.share == nil {
				continue
			}
			can += uint64(ln.can)
			waits := ln.may() > 0 && ln.can == 0
			if (ln.can > 0) != (ln.byTurn >= 0) || ln.can > ln.may() || waits && ln.due == core.Never || (ln.due != core.Never) != (ln.byRefill >= 0) {
				return fmt.Errorf("queue %q, lane %d may give %d: can %d due %d, places %d %d", l.name, ln.number, ln.may(), ln.can, ln.due, ln.byTurn, ln.byRefill)
			}
		}
		if s := l.share; s != nil {
			if err := m.checkGroups(v, s, stamp, can); err != nil {
				return fmt.Errorf("queue %q: %w", l.name, err)
			}
		}
	}
	if total != m.lanes {
		return fmt.Errorf("%d lanes, and %d are counted", total, m.lanes)
	}
	return nil
}

func (m *Machine) checkLane(v core.View, ln *lane) error {
	ready := 0
	for c := range classes {
		var rows []head
		from, to := m.classRange(ln, c)
		if err := v.Scan(from, to, func(key, value []byte) bool {
			_, sort, seq, _ := keys.DecodePlace(key)
			row := head{sort: sort, seq: seq, id: toID(value[:16])}
			r := reader{b: value[16:]}
			if len(value) > 16 {
				row.cost = r.u32()
			}
			rows = append(rows, row)
			return true
		}); err != nil {
			return err
		}
		if ready += len(rows); ln.heads == nil {
			continue
		}
		if err := m.checkList(ln, ln.heads.of[c], rows); err != nil {
			return fmt.Errorf("class %d: %w", c, err)
		}
	}
	switch {
	case ln.queue.removed:
	case ready != int(ln.ready):
		return fmt.Errorf("counts %d ready tasks, and has %d", ln.ready, ready)
	case ready == 0 && ln.heads != nil:
		return fmt.Errorf("has nothing ready and keeps heads")
	}
	return nil
}

func (m *Machine) checkList(ln *lane, list *headList, rows []head) error {
	if list == nil {
		list = &headList{}
	}
	live := slices.Clone(list.live())
	for i := range live {
		live[i].fresh, live[i].epoch = 0, 0
	}
	if len(live) > m.headsOf(ln) || len(live) > len(rows) || !slices.Equal(live, rows[:len(live)]) {
		return fmt.Errorf("%d heads %v of rows %v", len(live), live, rows)
	}
	if len(live) < len(rows) && (!list.more || !list.bound.before(rows[len(live)])) {
		return fmt.Errorf("%d rows beyond the heads, more=%v bound=%v", len(rows)-len(live), list.more, list.bound)
	}
	return nil
}

func diff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	for _, l := range a {
		if !slices.Contains(b, l) {
			fmt.Fprintf(&out, "- %s\n", l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			fmt.Fprintf(&out, "+ %s\n", l)
		}
	}
	return out.String()
}

// idNames has the names of the copies of tasks that idOf has made ids of, by their ids.
var idNames sync.Map

// idOf makes a task id whose random bits spell a name of up to nine letters. The copy that is made of a when it dies for the first time
// is a+0.
func idOf(name string) core.TaskID {
	var id core.TaskID
	if of, redrives, ok := lastCut(name, "+"); ok {
		n, _ := strconv.Atoi(redrives)
		id = core.DeadLetterID(idOf(of), uint32(n))
	} else {
		id = plainID(name)
	}
	for n := range 3 {
		idNames.LoadOrStore(core.DeadLetterID(id, uint32(n)), fmt.Sprintf("%s+%d", name, n))
	}
	return id
}

func lastCut(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

func plainID(name string) core.TaskID {
	var r [9]byte
	copy(r[:8], name)
	return core.NewTaskID(1, testPartition.Index, r)
}

// nameOf is the name of idOf; of an id that a cron made it is the beginning of its random bits.
func nameOf(id core.TaskID) string {
	if name, ok := idNames.Load(id); ok {
		_ = idOf(name.(string)) // its copies have names too
		return name.(string)
	}
	name := strings.TrimRight(string(id[8:]), "\x00")
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Sprintf("#%x", id[8:10])
	}
	return name
}

func since(t core.ShardTime) string {
	if t == core.Never {
		return "never"
	}
	d := time.Duration(t-epoch) * time.Millisecond
	if d%(24*time.Hour) == 0 && d != 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return d.String()
}

// String shows what is stored of a lane.
func (ln *laneState) String() string {
	type bare laneState
	state := bare(*ln)
	state.hold, state.set = nil, nil
	return fmt.Sprintf("%+v hold %+v set %+v", state, ln.hold, ln.set)
}

// byName returns the lanes in order of their keys.
func (s *share) byName() []*lane {
	out := s.sorted()
	slices.SortFunc(out, func(a, b *lane) int { return cmp.Compare(a.key, b.key) })
	return out
}
