package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// eachPartitioned runs a test by each transport, in namespaces of four partitions.
func eachPartitioned(t *testing.T, test func(t *testing.T, dial func() *millrace.Client)) {
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		if existed, err := dial(t, opts...).CreateNamespace(bounded(t), 4); err != nil || existed {
			t.Fatalf("create namespace: %v, existed %v", err, existed)
		}
		test(t, func() *millrace.Client { return dial(t, opts...) })
	})
}

func TestANamespaceIsMadeOnceWithItsPartitions(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		c := dial()
		if existed, err := c.CreateNamespace(bounded(t), 4); err != nil || !existed {
			t.Errorf("made again: %v, %v, want that it existed", existed, err)
		}
		if _, err := c.CreateNamespace(bounded(t), 3); !errors.Is(err, millrace.ErrAlreadyExists) {
			t.Errorf("made with another number: %v, want ErrAlreadyExists", err)
		}
		ns, err := c.Namespace(bounded(t))
		if err != nil || len(ns.Partitions) != 4 || !ns.Config.AutoCreate {
			t.Fatalf("got %+v, %v", ns, err)
		}
		for i, p := range ns.Partitions {
			if p.Partition != i || !p.Led {
				t.Errorf("got partition %+v, want number %d, led", p, i)
			}
		}
	})
}

func TestTasksOfAllPartitionsRunOnceWithTheirEffects(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		for _, slots := range []int{2, 16} {
			const tasks = 300
			c := dial()
			name := fmt.Sprint("spread", slots)
			job := millrace.Job[int, string](name)
			var mu sync.Mutex
			runs := map[int]int{}
			most, now := 0, 0
			w := c.Worker(millrace.Slots(slots))
			job.Handle(w, func(_ context.Context, task *millrace.Task, n int) (string, error) {
				mu.Lock()
				runs[n]++
				now++
				most = max(most, now)
				mu.Unlock()
				task.Effects().KV(name).Put(fmt.Sprintf("{user/%d}/done", n), n, millrace.IfAbsent())
				mu.Lock()
				now--
				mu.Unlock()
				return task.ID, nil
			})
			run(t, w)
			producer := dial()
			var handles []*millrace.Handle[string]
			for i := range tasks {
				h, err := job.Add(bounded(t), producer, i, millrace.Tag(fmt.Sprint("user/", i)))
				if err != nil {
					t.Fatal(err)
				}
				handles = append(handles, h)
			}
			for i, h := range handles {
				if got, err := h.Wait(bounded(t)); err != nil || got != h.ID {
					t.Fatalf("task %d: got %q, %v, want %s", i, got, err, h.ID)
				}
				if v, err := producer.KV(name).Get(bounded(t), fmt.Sprintf("{user/%d}/done", i)); err != nil || v.String() != fmt.Sprint(i) {
					t.Fatalf("effect of task %d: %s, %v", i, v, err)
				}
			}
			mu.Lock()
			for i := range tasks {
				if runs[i] != 1 {
					t.Errorf("task %d ran %d times, want once", i, runs[i])
				}
			}
			if most > slots {
				t.Errorf("%d handlers ran at once with %d slots", most, slots)
			}
			mu.Unlock()
		}
	})
}

func TestABatchSpreadsOverThePartitions(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		c := dial()
		job := millrace.Job[int, int]("batch")
		args := make([]int, 700)
		for i := range args {
			args[i] = i
		}
		hs, err := job.AddMany(bounded(t), c, args)
		if err != nil {
			t.Fatal(err)
		}
		stats, err := c.Queue("batch").Stats(bounded(t))
		if err != nil || stats.Ready != 700 {
			t.Errorf("got %d ready, %v, want 700", stats.Ready, err)
		}
		used := map[uint32]bool{}
		for i := 0; i < len(hs); i += 10 {
			info, err := hs[i].Get(bounded(t))
			if err != nil || string(info.Payload) != fmt.Sprint(i) {
				t.Fatalf("task %d: %+v, %v", i, info, err)
			}
			used[info.At.Partition] = true
		}
		if len(used) != 4 {
			t.Errorf("got tasks in partitions %v, want all 4", used)
		}
		all, err := job.AddAll(bounded(t), c, args[:100])
		if err != nil {
			t.Fatal(err)
		}
		first, err := all[0].Get(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			if info, err := h.Get(bounded(t)); err != nil || info.At.Partition != first.At.Partition {
				t.Fatalf("got a task of the atomic batch in partition %d, %v, want %d", info.At.Partition, err, first.At.Partition)
			}
		}
	})
}

func TestWhatIsOfTwoPartitionsIsRefused(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		c := dial()
		job := millrace.Job[int, int]("torn")
		// Of five tags two at least are of different partitions.
		err := c.Commit(bounded(t), func(tx *millrace.Tx) {
			for i := range 5 {
				job.AddTx(tx, i, millrace.Tag(string(rune('a'+i))))
			}
		})
		var e *millrace.Error
		if !errors.As(err, &e) || e.Code != millrace.CodeWrongPartition || e.Outcome != millrace.Refused || e.Details["ops"] == "" {
			t.Errorf("got %v, want WRONG_PARTITION with the ops", err)
		}
		var h *millrace.Handle[int]
		err = c.Commit(bounded(t), func(tx *millrace.Tx) {
			h = job.AddTx(tx, 1, millrace.Tag("a"))
			tx.KV("torn").Put("{a}/task", h.ID)
		})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := c.KV("torn").Get(bounded(t), "{a}/task"); err != nil || v.String() != h.ID {
			t.Errorf("got %s, %v, want %s", v, err, h.ID)
		}
		if info, err := h.Get(bounded(t)); err != nil || info.Tag != "a" {
			t.Errorf("got %+v, %v, want tag a", info, err)
		}
	})
}

func TestClaimsTakeTasksOfAnyPartition(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		c := dial()
		job := millrace.Job[int, int]("hand")
		var want []string
		for i := range 8 {
			h, err := job.Add(bounded(t), c, i)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, h.ID)
		}
		var got []string
		for len(got) < len(want) {
			tasks, err := c.Claim(bounded(t), millrace.ClaimQuery{Queues: []string{"hand"}, Max: 3})
			if err != nil || len(tasks) == 0 {
				t.Fatalf("got %d tasks, %v after %d", len(tasks), err, len(got))
			}
			for _, x := range tasks {
				if state, err := c.Complete(bounded(t), x.ID, x.Token, 1); err != nil || state != millrace.Completed {
					t.Errorf("complete %s: %v, %v", x.ID, state, err)
				}
				got = append(got, x.ID)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
	})
}

// Tasks of each partition are in their handlers while the way changes from REST to streams, and back.
func TestTasksOfAllPartitionsAreFinishedOverAnotherTransport(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	c := p.dial()
	if _, err := c.CreateNamespace(bounded(t), 4); err != nil {
		t.Fatal(err)
	}
	job := millrace.Job[int, int]("held")
	const tasks = 8
	began, gate := make(chan struct{}, tasks), make(chan struct{})
	w := c.Worker(millrace.Slots(tasks))
	job.Handle(w, func(ctx context.Context, task *millrace.Task, n int) (int, error) {
		began <- struct{}{}
		<-gate
		if task.Attempt != 1 || ctx.Err() != nil {
			t.Errorf("task %d: attempt %d, %v", n, task.Attempt, context.Cause(ctx))
		}
		task.Effects().KV("held").Put(fmt.Sprintf("{%d}", n), n)
		return n, nil
	})
	run(t, w)
	next := 0
	for _, way := range []struct {
		passes bool
		to     millrace.TransportMode
	}{{false, millrace.TransportREST}, {true, millrace.TransportStream}, {false, millrace.TransportREST}} {
		var held []*millrace.Handle[int]
		if next > 0 {
			for range tasks {
				h, err := job.Add(bounded(t), c, next, millrace.Tag(fmt.Sprint(next)))
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, h)
				next++
				<-began
			}
		}
		p.passes.Store(way.passes)
		p.cut()
		for ctx := bounded(t); c.Transport() != way.to; {
			if _, err := c.Status(ctx); ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		for range held {
			gate <- struct{}{}
		}
		for i, h := range held {
			if got, err := h.Wait(bounded(t)); err != nil || got != next-tasks+i {
				t.Errorf("task %d: got %d, %v", next-tasks+i, got, err)
			}
		}
		next++
	}
	close(gate)
}

// pinnedTo fails the test unless a task is in a partition; below 0: in any but the first.
func pinnedTo[R any](t *testing.T, h *millrace.Handle[R], first bool) {
	t.Helper()
	info, err := h.Get(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if (info.At.Partition == 0) != first {
		t.Fatalf("task %s is in partition %d, in the first: %v", h.ID, info.At.Partition, first)
	}
}

// away is a tag, key or unique key of another partition than the first.
func away(t *testing.T, c *millrace.Client) string {
	t.Helper()
	for i := 0; ; i++ {
		text := fmt.Sprint("away", i)
		h, err := millrace.Job[int, int]("free").Add(bounded(t), c, i, millrace.Tag(text))
		if err != nil {
			t.Fatal(err)
		}
		if info, err := h.Get(bounded(t)); err != nil {
			t.Fatal(err)
		} else if info.At.Partition != 0 {
			return text
		}
	}
}

func TestTasksOfAQueueBoundedAsAWholeAreInOnePartition(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		c := dial()
		text := away(t, c)
		job := millrace.Job[int, int]("pinned")
		// It is not bounded yet: the key says where the task is, and the client knows no better.
		h, err := job.Add(bounded(t), c, 0, millrace.Key(text))
		if err != nil {
			t.Fatal(err)
		}
		pinnedTo(t, h, false)
		bound := func(n int64) {
			t.Helper()
			if _, err := c.Queue("pinned").Update(bounded(t), func(cfg *millrace.QueueConfig) { cfg.Concurrency = n }); err != nil {
				t.Fatal(err)
			}
		}
		bound(1)
		if h, err = job.Add(bounded(t), c, 1, millrace.Key(text)); err != nil { // finds out
			t.Fatal(err)
		}
		pinnedTo(t, h, true)
		if h, err = job.Add(bounded(t), dial(), 2, millrace.UniqueKey(text, 0)); err != nil {
			t.Fatal(err)
		}
		pinnedTo(t, h, true)
		given, err := job.Add(bounded(t), dial(), 3, millrace.ID(millrace.NewID()))
		if err != nil {
			t.Fatal(err)
		}
		pinnedTo(t, given, true)
		_, err = job.Add(bounded(t), dial(), 4, millrace.Tag(text))
		if e, ok := errors.AsType[*millrace.Error](err); !ok || e.Code != millrace.CodeWrongPartition || e.Reason != "queue_pinned" || e.Outcome != millrace.Refused {
			t.Errorf("a tag of another partition: %v", err)
		}
		many := make([]int, 200)
		hs, err := job.AddMany(bounded(t), dial(), many, millrace.Each(func(i int) []millrace.AddOption {
			return []millrace.AddOption{millrace.Key(fmt.Sprint("k", i))}
		}))
		if err != nil {
			t.Fatal(err)
		}
		chain, err := job.AddMany(bounded(t), dial(), many[:40], millrace.AfterPrevious())
		if err != nil {
			t.Fatal(err)
		}
		all, err := job.AddAll(bounded(t), dial(), many[:40], millrace.AfterPrevious())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range slices.Concat(hs, chain, all) {
			pinnedTo(t, h, true)
		}
		if info, err := chain[39].Get(bounded(t)); err != nil || len(info.After) != 1 || info.After[0].ID != chain[38].ID {
			t.Errorf("the end of a chain: %+v, %v", info.After, err)
		}
		var byTx *millrace.Handle[int]
		if err := dial().Commit(bounded(t), func(tx *millrace.Tx) { byTx = job.AddTx(tx, 5, millrace.Key(text)) }); err != nil {
			t.Fatal(err)
		}
		pinnedTo(t, byTx, true)
		// A batch that makes such a task is there too; the server refuses it elsewhere.
		for other := dial(); len(many) > 190; many = many[1:] {
			if _, err := other.OpenBatch(bounded(t), millrace.OnDone(job, 6)); err != nil {
				t.Fatal(err)
			}
		}
		// And when the limit goes, keys say again where tasks are, to a client that thought otherwise too.
		bound(0)
		if h, err = job.Add(bounded(t), c, 6, millrace.Key(text)); err != nil {
			t.Fatal(err)
		}
		pinnedTo(t, h, false)
	})
}

// A batch goes where its follow-ups must be, whichever of the two is of a pinned queue. By chance it would be there one time in four.
func TestABatchIsOpenedWhereItsFollowUpsMustBe(t *testing.T) {
	eachPartitioned(t, func(t *testing.T, dial func() *millrace.Client) {
		c := dial()
		if _, err := c.Queue("pinned").Update(bounded(t), func(cfg *millrace.QueueConfig) { cfg.Concurrency = 1 }); err != nil {
			t.Fatal(err)
		}
		free, job := millrace.Job[int, int]("free"), millrace.Job[int, int]("pinned")
		for i := range 12 {
			err := dial().Commit(bounded(t), func(tx *millrace.Tx) {
				tx.OpenBatch(millrace.OnDone(free, i), millrace.OnSuccess(job, i))
			})
			if err != nil {
				t.Fatalf("open a batch in a commit: %v", err)
			}
			if _, err := dial().OpenBatch(bounded(t), millrace.OnDone(free, i), millrace.OnSuccess(job, i)); err != nil {
				t.Fatalf("open a batch: %v", err)
			}
		}
	})
}
