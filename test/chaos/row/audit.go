package row

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/check"
	millrace "github.com/millrace/millrace/sdk/go"
)

// drainWithin bounds how long the tasks of a run may take to end once no fault is made any more.
const drainWithin = 60 * time.Second

// settled waits until no task of the queues waits or runs. A queue that is unknown to the server
// was never used, and counts as settled. An error means that tasks are left when the time is over,
// or that a call failed.
func settled(ctx context.Context, c *millrace.Client, queues []string) error {
	ctx, cancel := context.WithTimeout(ctx, drainWithin)
	defer cancel()
	for {
		left := ""
		for _, q := range queues {
			s, err := c.Queue(q).Stats(ctx)
			if isUnknownQueue(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("drain: %w", err)
			}
			if n := s.Blocked + s.Scheduled + s.Ready + s.Running; n > 0 {
				left = fmt.Sprintf("queue %s has %d tasks: %d scheduled, %d ready, %d running", q, n, s.Scheduled, s.Ready, s.Running)
			}
		}
		if left == "" {
			return nil
		}
		pause(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("not drained after %s: %s", drainWithin, left)
		}
	}
}

// tasks reads back every task of the queues: one state after the other, page by page. Nothing may
// change meanwhile.
func tasks(ctx context.Context, c *millrace.Client, tenant string, queues []string) ([]check.TaskState, error) {
	var out []check.TaskState
	for _, q := range queues {
		for state := millrace.Blocked; state <= millrace.Cancelled; state++ {
			for cursor := ""; ; {
				page, next, err := c.List(ctx, millrace.ListQuery{Queue: q, State: state, Limit: 1000, Cursor: cursor})
				if isUnknownQueue(err) {
					break
				}
				if err != nil {
					return nil, fmt.Errorf("list %s tasks of queue %s: %w", state, q, err)
				}
				for _, t := range page {
					known, ok := check.ParseState(t.State.String())
					if !ok {
						return nil, fmt.Errorf("task %s has state %q", t.ID, t.State)
					}
					out = append(out, check.TaskState{
						ID: t.ID, Tenant: tenant, Queue: q, Unique: t.UniqueKey, State: known, Attempt: uint32(t.Attempt),
					})
				}
				if cursor = next; cursor == "" {
					break
				}
			}
		}
	}
	return out, nil
}

// counters reads back the counters that the server keeps of the queues, for a recount against tasks.
func counters(ctx context.Context, c *millrace.Client, queues []string) ([]check.QueueCount, error) {
	var out []check.QueueCount
	for _, q := range queues {
		s, err := c.Queue(q).Stats(ctx)
		if isUnknownQueue(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("stats of queue %s: %w", q, err)
		}
		out = append(out, check.QueueCount{Queue: q, Created: s.Created, Purged: s.Purged, States: map[string]uint64{
			"blocked": s.Blocked, "scheduled": s.Scheduled, "ready": s.Ready, "running": s.Running,
			"completed": s.Completed, "dead": s.Dead, "cancelled": s.Cancelled,
		}})
	}
	return out, nil
}

// audit reads everything back and lets the checkers judge. The load has ended by then, and nothing runs any
// more. An error means that something could not be read; what is wrong with what was read is in o.
func (m *mixed) audit(ctx context.Context, o *Outcome) error {
	c := m.quiet.Client
	final, err := tasks(ctx, c, "", kinds)
	if err != nil {
		return err
	}
	stats, err := counters(ctx, c, kinds)
	if err != nil {
		return err
	}
	calls, err := m.calls()
	if err != nil {
		return err
	}
	o.Figures["calls"] += float64(len(calls))
	o.Figures["tasks"] += float64(len(final))
	for _, call := range calls {
		if call.Outcome == check.Unknown {
			o.Figures["unknown"]++
		}
	}
	o.judge(check.TotalQueue(append(calls, m.created(calls)...), final, check.TotalOptions{}))
	o.judge(check.LeaseExclusivity(calls), check.IndexOrder(calls), check.StatsRecount(stats, final))
	if len(m.pairs) > 0 {
		o.judge(check.BothOrNeither(m.pairs))
	}
	// sums is, by queue, what its completions have added up, one each: see countIn.
	sums := map[string]int64{}
	for _, queue := range kinds {
		if sums[queue], _, err = number(ctx, m.quiet.KV(sumSpace), queue); err != nil {
			return err
		}
	}
	o.judge(check.Sums(final, sums))
	if err := m.auditEffects(ctx, o, final); err != nil {
		return err
	}
	if err := m.auditRows(ctx, o, final); err != nil {
		return err
	}
	return m.auditRegisters(ctx, o, calls)
}

// calls reads the ledgers of both clients, as one list of calls.
func (m *mixed) calls() ([]check.Call, error) {
	return readLedgers([]string{m.clients[0].ledger.Name(), m.clients[1].ledger.Name()})
}

// created returns the creates that stand in no ledger, because they were ops of a commit. How they
// ended follows from that commit: a follow-up task ends as the completion of its attempt does, and
// a task that comes with a row as the commit of both.
func (m *mixed) created(calls []check.Call) []check.Call {
	// attempt is one attempt at a task, told from the others by its token.
	type attempt struct {
		id    string
		token uint64
	}
	// ends is how the last completion ended that an attempt tried.
	ends := map[attempt]check.Outcome{}
	for _, c := range calls {
		if c.Op == check.OpComplete {
			ends[attempt{c.ID, c.Token}] = c.Outcome
		}
	}
	// last is the follow-up task that an attempt built last, which is the one that was sent.
	last := map[attempt]string{}
	for _, f := range m.follows {
		last[attempt{f.parent, f.token}] = f.id
	}
	var out []check.Call
	for _, f := range m.follows {
		key := attempt{f.parent, f.token}
		end, tried := ends[key]
		switch {
		case last[key] != f.id: // it was built again because these effects were refused
			end = check.Refused
		case !tried: // it may have left when its client ended
			end = check.Unknown
		}
		out = append(out, check.Call{Op: check.OpCreate, ID: f.id, Outcome: end})
	}
	for id, end := range m.rows {
		out = append(out, check.Call{Op: check.OpCreate, ID: id, Outcome: end})
	}
	return out
}

// auditEffects judges the tasks whose completions change keys: lists with their counters, a key for
// each task, and the accounts that moves move money between. It also notes which tasks with effects
// are completed, for the audit of the log.
func (m *mixed) auditEffects(ctx context.Context, o *Outcome, final []check.TaskState) error {
	var effects, moves []check.TaskState
	read := check.EffectsRead{Lists: map[string][]string{}, Counters: map[string]int64{}, ByTask: map[string]int{}}
	for _, t := range final {
		switch t.Queue {
		case kindEffect:
			effects = append(effects, t)
			if t.State == check.Completed {
				m.completed = append(m.completed, t.ID)
			}
			// The completion of a task with effects puts this key.
			mark, _, err := text(ctx, m.quiet.KV("done"), t.ID)
			if err != nil {
				return err
			}
			if mark != "" {
				read.ByTask[t.ID]++
			}
		case kindMove:
			moves = append(moves, t)
		}
	}
	// Lists that nothing was added to are left out.
	for i := range lists {
		name := fmt.Sprintf("l%02d", i)
		ids, _, err := text(ctx, m.quiet.KV("lists"), name)
		if err != nil {
			return err
		}
		if n, _, err := number(ctx, m.quiet.KV("counters"), name); err != nil {
			return err
		} else if n != 0 || ids != "" {
			read.Lists[name], read.Counters[name] = strings.Fields(ids), n
		}
	}
	run := check.BankRun{Opening: map[string]int64{}, Closing: map[string]int64{}, Snapshots: m.snapshots, Transfers: m.transfers, Final: moves}
	for i := range accounts {
		n, _, err := number(ctx, m.quiet.KV("accounts"), account(i))
		if err != nil {
			return err
		}
		run.Opening[account(i)], run.Closing[account(i)] = opening, n
	}
	o.judge(check.EffectsOnce(effects, read), check.Bank(run), m.followed(final, moves))
	return nil
}

// followed judges that each completed move has exactly one follow-up task, whichever of its
// attempts made that.
func (m *mixed) followed(final, moves []check.TaskState) *check.Report {
	there := map[string]bool{}
	for _, t := range final {
		there[t.ID] = true
	}
	found := map[string]int{}
	for _, f := range m.follows {
		if there[f.id] {
			found[f.parent]++
		}
	}
	r := check.EffectsOnce(moves, check.EffectsRead{ByTask: found, OwnOnly: true})
	r.Checker = "followed_once"
	return r
}

// auditRows judges that a task made together with a row is there exactly when its row is.
func (m *mixed) auditRows(ctx context.Context, o *Outcome, final []check.TaskState) error {
	there := map[string]bool{}
	for _, t := range final {
		there[t.ID] = true
	}
	var made []check.TaskState
	rows := map[string]int{}
	// A row counts as the effect of its task: without the task, or twice, it is wrong.
	for id := range m.rows {
		row, _, err := text(ctx, m.quiet.KV("rows"), id)
		if err != nil {
			return err
		}
		if row != "" {
			rows[id]++
		}
		if there[id] {
			made = append(made, check.TaskState{ID: id, State: check.Completed})
		}
	}
	if len(m.rows) == 0 {
		return nil
	}
	r := check.EffectsOnce(made, check.EffectsRead{ByTask: rows, OwnOnly: true})
	r.Checker = "row_with_task"
	o.judge(r)
	return nil
}

// auditRegisters judges the keys that have one writer each, by all calls at them and their last values.
func (m *mixed) auditRegisters(ctx context.Context, o *Outcome, calls []check.Call) error {
	final := map[string]string{}
	for i := range registers {
		key := fmt.Sprintf("r%d", i)
		value, _, err := text(ctx, m.quiet.KV("registers"), key)
		if err != nil {
			return err
		}
		final["registers/"+key] = value
	}
	var own []check.Call
	for _, c := range calls {
		if strings.HasPrefix(c.Key, "registers/") {
			own = append(own, c)
		}
	}
	o.judge(check.Registers(own, final))
	return nil
}
