package millrace_test

import (
	"context"
	"errors"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

func TestABatchIsFilledSealedAndWaitedFor(t *testing.T) {
	eachTransport(t, batchIsFilledSealedAndWaitedFor)
}

func batchIsFilledSealedAndWaitedFor(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	ctx := t.Context()
	part, whole := millrace.Job[int, int]("part"), millrace.Job[string, string]("whole")
	b, err := c.OpenBatch(ctx, millrace.OnDone(whole, "done"), millrace.OnSuccess(whole, "success", millrace.Priority(3)), millrace.BatchLabels(map[string]string{"env": "test"}))
	if err != nil || b.State != millrace.BatchOpen || b.OnDone != "whole" || b.OnSuccess != "whole" || b.Labels["env"] != "test" || b.Replayed {
		t.Fatalf("%+v, %v", b, err)
	}
	h, err := part.Add(ctx, c, 0, millrace.InBatch(b.ID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.AddMany(ctx, c, []int{1, 2}, millrace.InBatch(b.ID)); err != nil {
		t.Fatal(err)
	}
	// A task that a completion adds is of the batch too.
	err = c.Commit(ctx, func(tx *millrace.Tx) { part.AddTx(tx, 3, millrace.InBatch(b.ID)) })
	if err != nil {
		t.Fatal(err)
	}
	if info, err := h.Get(ctx); err != nil || info.Batch != b.ID {
		t.Errorf("%+v, %v", info, err)
	}
	tasks, _, err := c.List(ctx, millrace.ListQuery{Batch: b.ID})
	if err != nil || len(tasks) != 4 {
		t.Errorf("%d tasks of the batch, %v", len(tasks), err)
	}
	if n, err := c.CountBulk(ctx, millrace.BulkCancel, millrace.TaskFilter{Batch: b.ID}); err != nil || n.Count != 4 {
		t.Errorf("%+v, %v", n, err)
	}
	if sealed, err := c.SealBatch(ctx, b.ID); err != nil || sealed.Replayed || sealed.State != millrace.BatchSealed || sealed.Counts != (millrace.BatchCounts{Total: 4, Waiting: 4}) {
		t.Errorf("%+v, %v", sealed, err)
	}
	if sealed, err := c.SealBatch(ctx, b.ID); err != nil || !sealed.Replayed {
		t.Errorf("%+v, %v", sealed, err)
	}
	if _, err := part.Add(ctx, c, 4, millrace.InBatch(b.ID)); !errors.Is(err, millrace.ErrWrongState) {
		t.Errorf("a sealed batch takes a task: %v", err)
	}
	if _, err := part.Add(ctx, c, 4, millrace.InBatch(millrace.NewID())); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("a batch that is not there takes a task: %v", err)
	}
	waited := make(chan *millrace.TaskBatch, 1)
	go func() {
		got, err := c.WaitBatch(ctx, b.ID)
		if err != nil {
			t.Error(err)
			got = new(millrace.TaskBatch)
		}
		waited <- got
	}()
	w := c.Worker(millrace.Slots(4))
	part.Handle(w, func(_ context.Context, _ *millrace.Task, n int) (int, error) { return n, nil })
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	got := <-waited
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got.State != millrace.BatchFinished || got.Counts != (millrace.BatchCounts{Total: 4, Completed: 4}) || got.Finished.IsZero() {
		t.Errorf("%+v", got)
	}
	for id, want := range map[string]string{got.DoneTask: "done", got.SuccessTask: "success"} {
		info, err := c.Task(ctx, id)
		if err != nil || string(info.Payload) != want || info.Headers["millrace-batch"] != b.ID {
			t.Errorf("follow-up %q: %+v, %v", id, info, err)
		}
	}
}

func TestABatchIsCancelledAndListed(t *testing.T) {
	eachTransport(t, batchIsCancelledAndListed)
}

func batchIsCancelledAndListed(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	ctx := t.Context()
	id := millrace.NewID()
	for range 2 {
		if b, err := c.OpenBatch(ctx, millrace.BatchID(id)); err != nil || b.ID != id {
			t.Fatalf("%+v, %v", b, err)
		}
	}
	if _, err := c.OpenBatch(ctx, millrace.BatchID(id), millrace.BatchLabels(map[string]string{"a": "b"})); !errors.Is(err, millrace.ErrAlreadyExists) {
		t.Errorf("opened with something else: %v", err)
	}
	job := millrace.Job[int, int]("cancelled")
	if _, err := job.Add(ctx, c, 1, millrace.InBatch(id), millrace.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	b, err := c.CancelBatch(ctx, id, millrace.BatchCancel{Reason: "wrong", Rate: 500})
	if err != nil || b.Cancel == nil || b.Cancel.Reason != "wrong" {
		t.Fatalf("%+v, %v", b, err)
	}
	if b, err = c.WaitBatch(ctx, id); err != nil || b.Counts != (millrace.BatchCounts{Total: 1, Cancelled: 1}) {
		t.Errorf("%+v, %v", b, err)
	}
	other, err := c.OpenBatch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for cursor := ""; ; {
		list, next, err := c.Batches(ctx, 1, cursor)
		if err != nil || len(list) > 1 {
			t.Fatal(len(list), err)
		}
		for _, one := range list {
			seen[one.ID] = true
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if !seen[id] || !seen[other.ID] {
		t.Errorf("listed %v", seen)
	}
	if _, err := c.Batch(ctx, millrace.NewID()); !errors.Is(err, millrace.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	for _, o := range []millrace.BatchOption{millrace.BatchID("\xff"), millrace.OnDone(job, 1, millrace.In(time.Second))} {
		if _, err := c.OpenBatch(ctx, o); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	}
}

// A batch is of the partition that its id names, and so are its tasks.
func TestABatchOfAWideNamespaceIsOfOnePartition(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		c := dial()
		ctx := bounded(t)
		job := millrace.Job[int, int]("narrow")
		b, err := c.OpenBatch(ctx, millrace.BatchTag("t"), millrace.OnDone(job, 1000))
		if err != nil {
			t.Fatal(err)
		}
		hs, err := job.AddMany(ctx, c, []int{1, 2, 3}, millrace.InBatch(b.ID))
		if err != nil {
			t.Fatal(err)
		}
		h, err := job.Add(ctx, c, 4, millrace.InBatch(b.ID), millrace.Tag("t"))
		if err != nil {
			t.Fatal(err)
		}
		tagged, err := h.Get(ctx)
		if err != nil || tagged.Batch != b.ID {
			t.Fatalf("%+v, %v", tagged, err)
		}
		for _, h := range hs {
			if info, err := h.Get(ctx); err != nil || info.At.Partition != tagged.At.Partition {
				t.Errorf("a task of the batch is in partition %d, %v, want %d", info.At.Partition, err, tagged.At.Partition)
			}
		}
		refused := 0
		for _, tag := range []string{"a", "b", "c", "d", "e"} {
			_, err := job.Add(ctx, c, 5, millrace.InBatch(b.ID), millrace.Tag(tag))
			if e, ok := errors.AsType[*millrace.Error](err); ok && e.Code == millrace.CodeWrongPartition {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused == 0 {
			t.Error("no tag of another partition was refused")
		}
		got, err := c.SealBatch(ctx, b.ID)
		if err != nil || got.Counts.Total != 4+5-refused || got.Counts.Waiting != got.Counts.Total {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err = job.Add(ctx, c, 6, millrace.InBatch(b.ID)); !errors.Is(err, millrace.ErrWrongState) {
			t.Errorf("added to a sealed batch: %v", err)
		}
	})
}

func TestOpsOfBatchesCommitTogether(t *testing.T) {
	eachTransport(t, opsOfBatchesCommitTogether)
}

func opsOfBatchesCommitTogether(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	ctx := t.Context()
	part, found := millrace.Job[int, int]("split"), millrace.Job[int, int]("found")
	var whole string
	var h *millrace.Handle[int]
	err := c.Commit(ctx, func(tx *millrace.Tx) {
		whole = tx.OpenBatch(millrace.OnDone(found, 9), millrace.BatchLabels(map[string]string{"env": "test"}))
		h = part.AddTx(tx, 1, millrace.InBatch(whole))
		tx.SealBatch(whole)
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Batch(ctx, whole)
	if err != nil || b.State != millrace.BatchSealed || b.Counts != (millrace.BatchCounts{Total: 1, Waiting: 1}) || b.OnDone != "found" || b.Labels["env"] != "test" {
		t.Fatalf("%+v, %v", b, err)
	}
	// The completion opens a batch of what it found.
	made := make(chan string, 1)
	w := c.Worker(millrace.Slots(1))
	part.Handle(w, func(_ context.Context, task *millrace.Task, n int) (int, error) {
		fx := task.Effects()
		id := fx.OpenBatch()
		found.AddTx(fx, n, millrace.InBatch(id), millrace.In(time.Hour))
		fx.SealBatch(id)
		made <- id
		return n, nil
	})
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	if b, err = c.WaitBatch(ctx, whole); err != nil || b.DoneTask == "" {
		t.Errorf("%+v, %v", b, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	part2 := <-made
	if b, err = c.Batch(ctx, part2); err != nil || b.State != millrace.BatchSealed || b.Counts != (millrace.BatchCounts{Total: 1, Waiting: 1}) {
		t.Errorf("%+v, %v", b, err)
	}
	did, err := c.Effects(ctx, h.ID)
	if err != nil || len(did.Effects) != 3 || did.Effects[0].Op != "batch_open" || string(did.Effects[0].Key) != part2 || did.Effects[2].Op != "batch_seal" {
		t.Errorf("%+v, %v", did, err)
	}
	if err := c.Commit(ctx, func(tx *millrace.Tx) { tx.CancelBatch(part2, millrace.BatchCancel{Reason: "wrong", Rate: 500}) }); err != nil {
		t.Fatal(err)
	}
	if b, err = c.WaitBatch(ctx, part2); err != nil || b.Cancel == nil || b.Cancel.Reason != "wrong" || b.Counts != (millrace.BatchCounts{Total: 1, Cancelled: 1}) {
		t.Errorf("%+v, %v", b, err)
	}
	opsOfBatchesAreRefusedTogether(ctx, t, c)
}

func opsOfBatchesAreRefusedTogether(ctx context.Context, t *testing.T, c *millrace.Client) {
	t.Helper()
	job := millrace.Job[int, int]("split")
	open, err := c.OpenBatch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, c2 := range map[string]struct {
		build func(tx *millrace.Tx)
		want  error
	}{
		"a batch that is not there": {func(tx *millrace.Tx) { tx.SealBatch(open.ID); tx.SealBatch(millrace.NewID()) }, millrace.ErrNotFound},
		"a task after the seal":     {func(tx *millrace.Tx) { tx.SealBatch(open.ID); job.AddTx(tx, 1, millrace.InBatch(open.ID)) }, millrace.ErrWrongState},
		"another one of its id": {func(tx *millrace.Tx) {
			tx.SealBatch(open.ID)
			tx.OpenBatch(millrace.BatchID(open.ID), millrace.OnDone(job, 1))
		}, millrace.ErrAlreadyExists},
		"an id and a tag":         {func(tx *millrace.Tx) { tx.OpenBatch(millrace.BatchID(open.ID), millrace.BatchTag("t")) }, millrace.ErrInvalid},
		"a follow-up with a time": {func(tx *millrace.Tx) { tx.OpenBatch(millrace.OnDone(job, 1, millrace.In(time.Hour))) }, millrace.ErrInvalid},
		"a rate below 0":          {func(tx *millrace.Tx) { tx.CancelBatch(open.ID, millrace.BatchCancel{Rate: -1}) }, millrace.ErrInvalid},
		"an id that is not text":  {func(tx *millrace.Tx) { tx.SealBatch("\xff") }, millrace.ErrInvalid},
	} {
		if err := c.Commit(ctx, c2.build); !errors.Is(err, c2.want) {
			t.Errorf("%s: %v, want %v", name, err, c2.want)
		}
	}
	if b, err := c.Batch(ctx, open.ID); err != nil || b.State != millrace.BatchOpen || b.Counts.Total != 0 {
		t.Errorf("after refused commits: %+v, %v", b, err)
	}
}
