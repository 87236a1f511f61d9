package apitest

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// Backlog answers as a test has set.
func (n *Node) Backlog(p core.Partition, _ []core.GrantQueue) bool {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return n.Ready[p.Index]
}

// Claim answers as a test has set.
func (n *Node) Claim(ctx context.Context, p core.Partition, s core.ClaimSpec) ([]core.Assigned, core.At, error) {
	n.step()
	n.reach(p)
	switch address, here, known := n.Leader(p); {
	case !known:
		return nil, core.At{}, core.Unavailable{Reason: "no_leader"}
	case !here:
		return nil, core.At{}, core.NotLeader{Leader: address}
	}
	if n.OnClaimAt != nil {
		tasks, err := n.OnClaimAt(ctx, p, s)
		return tasks, core.At{Partition: p.Index}, err
	}
	if n.OnClaim == nil {
		return nil, core.At{}, nil
	}
	tasks, err := n.OnClaim(ctx, s)
	return tasks, core.At{}, err
}

// Task answers as a test has set.
func (n *Node) Task(_ context.Context, p core.Partition, id core.TaskID, _ core.ReadOptions) (core.Task, core.At, error) {
	n.step()
	n.reach(p)
	n.Mu.Lock()
	defer n.Mu.Unlock()
	t, ok := n.Stored[p][id]
	if !ok {
		return t, core.At{}, core.NotFound{Kind: "task", ID: id.String()}
	}
	return t, core.At{Index: 1}, nil
}

// TaskUpTo answers as a test has set.
func (n *Node) TaskUpTo(ctx context.Context, p core.Partition, id core.TaskID, most core.ContentSize, o core.ReadOptions) (core.Task, core.ContentSize, core.At, error) {
	t, at, err := n.Task(ctx, p, id, o)
	size := core.ContentSize{Payload: len(t.Payload), Result: len(t.Result)}
	t.Payload, t.Result = t.Payload[:min(size.Payload, most.Payload)], t.Result[:min(size.Result, most.Result)]
	return t, size, at, err
}

// Attempts answers as a test has set.
func (n *Node) Attempts(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.AttemptList, core.At, error) {
	n.step()
	_, at, err := n.Task(ctx, p, id, o)
	return core.AttemptList{
		Attempts: []core.Attempt{{Number: 22, Outcome: core.OutcomeFailed, Error: core.TaskError{Code: "x"}}},
		Older:    []core.OutcomeCount{{Outcome: core.OutcomeCrashed, Count: 21}},
	}, at, err
}

// Tasks answers as a test has set.
func (n *Node) Tasks(_ context.Context, p core.Partition, q core.ListQuery) (core.TaskPage, core.At, error) {
	n.step()
	n.reach(p)
	if n.OnPageAt != nil {
		tasks, next := n.OnPageAt(p, q)
		return core.TaskPage{Tasks: tasks, Next: next, Inspected: len(tasks)}, core.At{}, nil
	}
	if n.OnPage == nil {
		return core.TaskPage{}, core.At{}, nil
	}
	tasks, next, err := n.OnPage(q)
	return core.TaskPage{Tasks: tasks, Next: next, Inspected: len(tasks)}, core.At{}, err
}

// Wait answers as a test has set.
func (n *Node) Wait(ctx context.Context, p core.Partition, id core.TaskID) (core.Task, core.At, error) {
	n.step()
	t, at, err := n.Task(ctx, p, id, core.ReadOptions{})
	if err != nil || t.State.Terminal() {
		return t, at, err
	}
	<-ctx.Done()
	return t, at, ctx.Err()
}

// WaitEnd returns when a task is stored as ended and Ends has told so; without Ends it does not wait for being told.
func (n *Node) WaitEnd(ctx context.Context, p core.Partition, id core.TaskID) error {
	for {
		t, _, err := n.Task(ctx, p, id, core.ReadOptions{})
		if err != nil || t.State.Terminal() {
			return err
		}
		select {
		case <-n.Ends:
		case <-ctx.Done():
			return core.DeadlineExceeded{}
		}
	}
}

// WatchTask shows a task as a test has set, once.
func (n *Node) WatchTask(ctx context.Context, p core.Partition, id core.TaskID, show func(core.Task, core.ContentSize, core.At) error) error {
	t, at, err := n.Wait(ctx, p, id)
	if err != nil {
		return err
	}
	return show(t, core.ContentSize{}, at)
}

// Queue answers as a test has set.
func (n *Node) Queue(_ context.Context, p core.Partition, name string, _ core.ReadOptions) (core.QueueStats, core.At, error) {
	n.step()
	n.reach(p)
	if name != "mail" {
		return core.QueueStats{}, core.At{}, core.NotFound{Kind: "queue", ID: name}
	}
	if n.Mail.Queue != "" {
		return n.Mail, core.At{}, nil
	}
	return core.QueueStats{Queue: name, Config: core.QueueConfig{Version: 2, Aging: -1, MaxDeliveries: -1}}, core.At{}, nil
}

// QueueKeys answers as a test has set.
func (n *Node) QueueKeys(_ context.Context, p core.Partition, q *core.KeyQuery, _ core.ReadOptions) (out core.KeyList, _ core.At, _ error) {
	n.step()
	n.reach(p)
	return core.KeyList{Keys: []core.QueueKey{{Key: "ann", Tasks: 2, Ready: 1, Running: 1, Weight: 1}}, Unkeyed: core.QueueKey{Weight: 1}}, core.At{}, nil
}

// Queues answers as a test has set.
func (n *Node) Queues(_ context.Context, p core.Partition, after string, limit int, _ core.ReadOptions) (out []core.QueueStats, _ core.At, _ error) {
	n.step()
	n.reach(p)
	list := n.Listed
	for i := 0; n.Listed == nil && i < 5; i++ {
		list = append(list, core.QueueStats{Queue: fmt.Sprintf("q%d", i)})
	}
	for i := range list {
		if list[i].Queue > after && len(out) < limit {
			out = append(out, list[i])
		}
	}
	return out, core.At{}, nil
}

// cron is the cron of every partition: it makes tasks of the queue mail.
func (n *Node) cron(name string) core.Cron {
	return core.Cron{
		Name: name, CronConfig: core.CronConfig{Schedule: "@daily"}, Template: core.TaskCreate{Queue: "mail"}, Version: 1, Next: core.Never, Runs: 1,
	}
}

// Crons shows one cron in the first partition.
func (n *Node) Crons(_ context.Context, p core.Partition, q core.CronQuery, _ core.ReadOptions) ([]core.Cron, bool, core.At, error) {
	n.step()
	n.reach(p)
	if p.Index != 0 || q.After >= "nightly" {
		return nil, false, core.At{}, nil
	}
	return []core.Cron{n.cron("nightly")}, false, core.At{}, nil
}

// Cron shows a cron of any name.
func (n *Node) Cron(_ context.Context, p core.Partition, name string, _ core.ReadOptions) (core.Cron, core.At, error) {
	n.step()
	n.reach(p)
	return n.cron(name), core.At{}, nil
}

// CronRuns shows one run.
func (n *Node) CronRuns(_ context.Context, p core.Partition, _ string, _ uint64, _ int, _ core.ReadOptions) ([]core.CronRun, core.At, error) {
	n.step()
	n.reach(p)
	return []core.CronRun{{Number: 1, Slot: 1, Outcome: core.CronOverlaps}}, core.At{}, nil
}

// batch is the batch of every id: its follow-up is of the queue mail.
func (n *Node) batch(id core.TaskID) core.Batch {
	return core.Batch{
		BatchOpen: core.BatchOpen{ID: id, OnDone: &core.TaskCreate{Queue: "mail"}}, Number: 1, State: core.BatchFinished, Opened: 1, Sealed: 1, Finished: 1,
	}
}

// Batches shows one batch in the first partition.
func (n *Node) Batches(_ context.Context, p core.Partition, below uint64, _, _ int, _ core.ReadOptions) ([]core.Batch, bool, core.At, error) {
	n.step()
	n.reach(p)
	if p.Index != 0 || below == 1 {
		return nil, false, core.At{}, nil
	}
	return []core.Batch{n.batch(core.NewTaskID(1, 0, [9]byte{1}))}, false, core.At{}, nil
}

// Batch shows a batch of any id.
func (n *Node) Batch(_ context.Context, p core.Partition, id core.TaskID, _ core.ReadOptions) (core.Batch, core.At, error) {
	n.step()
	n.reach(p)
	return n.batch(id), core.At{}, nil
}

// WaitBatch shows a batch of any id, which has finished.
func (n *Node) WaitBatch(_ context.Context, p core.Partition, id core.TaskID) (core.Batch, core.At, error) {
	n.step()
	n.reach(p)
	return n.batch(id), core.At{}, nil
}

// Limiters shows one limiter.
func (n *Node) Limiters(_ context.Context, p core.Partition, _, after string, _ int, _ core.ReadOptions) ([]core.Limiter, core.At, error) {
	n.step()
	n.reach(p)
	if after >= "api" {
		return nil, core.At{}, nil
	}
	return []core.Limiter{{Name: "api", Version: 1}}, core.At{}, nil
}

// Limiter shows a limiter of any name, which a task of the queue mail holds.
func (n *Node) Limiter(_ context.Context, p core.Partition, name string, _ core.ReadOptions) (core.Limiter, core.At, error) {
	n.step()
	n.reach(p)
	id, _ := core.ParseTaskID(ID(1))
	return core.Limiter{Name: name, Version: 1, Used: 1, HeldBy: []core.LimiterHolder{{Task: id, Queue: "mail"}}}, core.At{}, nil
}

// Bulks shows the jobs that were begun, and one of ID(1): they run and have done nothing.
func (n *Node) Bulks(_ context.Context, p core.Partition, _ core.ReadOptions) ([]core.BulkJob, core.At, error) {
	n.step()
	n.reach(p)
	n.Mu.Lock()
	defer n.Mu.Unlock()
	id, _ := core.ParseTaskID(ID(1))
	out := []core.BulkJob{{BulkStart: core.BulkStart{ID: id, Action: core.BulkCancel}, State: core.BulkRunning}}
	for i := range n.Commits {
		for _, op := range n.Commits[i].Ops {
			if start, ok := op.(*core.BulkStart); ok && n.Commits[i].Partition == p {
				out = append(out, core.BulkJob{BulkStart: *start, State: core.BulkRunning})
			}
		}
	}
	return out, core.At{}, nil
}

// CountBulk finds nothing.
func (n *Node) CountBulk(_ context.Context, p core.Partition, _ *core.BulkStart, _ []byte, _ int) (core.BulkCount, core.At, error) {
	n.step()
	n.reach(p)
	return core.BulkCount{}, core.At{}, nil
}

// Logs shows none.
func (n *Node) Logs(ctx context.Context, p core.Partition, id core.TaskID, _ core.LogQuery, o core.ReadOptions) (core.TaskLog, core.At, error) {
	_, at, err := n.Task(ctx, p, id, o)
	return core.TaskLog{}, at, err
}

// Effects shows none.
func (n *Node) Effects(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.Effects, core.At, error) {
	_, at, err := n.Task(ctx, p, id, o)
	return core.Effects{}, at, err
}

// Why answers as a test has set. Without a leader nothing is read that is not stale.
func (n *Node) Why(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.Why, core.At, error) {
	t, at, err := n.Task(ctx, p, id, o)
	if _, _, led := n.Leader(p); !led && !o.Stale {
		return core.Why{}, at, core.Unavailable{Reason: "no_leader"}
	}
	if n.Waits != nil {
		w := *n.Waits
		w.Reasons = slices.Clone(w.Reasons)
		return w, at, err
	}
	return core.Why{Queue: t.Queue, State: t.State, Exact: true, Reasons: []core.WhyReason{{Code: core.WhyNext, Object: t.Queue}}}, at, err
}

// claimKey names a claim under way.
type claimKey struct {
	tenant    core.TenantID
	namespace core.NamespaceID
	claim     core.RequestID
}

// NameClaim keeps a claim for EndClaimHere. Names are of one claim at a time.
func (n *Node) NameClaim(p core.Partition, claim core.RequestID, end context.CancelCauseFunc) (done func()) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	if n.claims == nil {
		n.claims = make(map[claimKey]context.CancelCauseFunc)
	}
	k := claimKey{p.Tenant, p.Namespace, claim}
	n.claims[k] = end
	return func() {
		end(nil)
		n.Mu.Lock()
		defer n.Mu.Unlock()
		delete(n.claims, k)
	}
}

// EndClaimHere ends a claim that was named.
func (n *Node) EndClaimHere(p core.Partition, claim core.RequestID) bool {
	n.step()
	n.Mu.Lock()
	defer n.Mu.Unlock()
	end, found := n.claims[claimKey{p.Tenant, p.Namespace, claim}]
	if found {
		end(core.ErrClaimEnded)
	}
	return found
}

// EndClaim ends a claim that was named, or answers as a test has set.
func (n *Node) EndClaim(_ context.Context, parts []core.PartitionInfo, claim core.RequestID) (bool, error) {
	if n.EndClaimHere(parts[0].Partition, claim) {
		return true, nil
	}
	return false, n.ClaimElsewhere
}
