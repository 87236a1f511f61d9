package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// A completion, a key, a ref and a point stand in one entry: a client that finds the point finds the others, also when the
// server is killed. MILLRACE_EFFECT_KILLS and MILLRACE_STALE_COMPLETIONS set how often that is tried.
func TestAPointIsSeenWithTheKeyTheRefAndTheCompletionItCameWith(t *testing.T) {
	t.Parallel()
	kills := counted("MILLRACE_EFFECT_KILLS", 3)
	s, c := serve(t)
	ctx := bounded(t, 10*time.Minute)
	m := made{c.Collection("made"), c.Repo("app"), c.KV("made"), c}
	_, err := m.points.Create(ctx, millrace.CollectionConfig{})
	noErr(t, err)
	_, err = m.repo.Create(ctx, millrace.RepoSettings{})
	noErr(t, err)
	job := millrace.Job[string, string]("make")
	w := c.Worker(millrace.Slots(8))
	ended := make(chan *millrace.Task, 1)
	job.Handle(w, func(_ context.Context, task *millrace.Task, _ string) (string, error) {
		fx := task.Effects()
		fx.KV("made").Put(task.ID, "done")
		fx.Repo("app").Apply(millrace.PointRef(madeRef+task.ID, "refs/heads/main"))
		fx.Collection("made").Upsert(millrace.Point{ID: task.ID, Payload: map[string]string{"text": "made by a task"}})
		select {
		case ended <- task:
		default:
		}
		return "done", nil
	})
	working, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- w.Run(working) }()

	var ids []string
	for kill := range kills + 1 {
		for range 60 {
			h, err := job.Add(ctx, c, "x")
			noErr(t, err)
			ids = append(ids, h.ID)
		}
		if kill == kills {
			break
		}
		time.Sleep(time.Duration(20+30*kill) * time.Millisecond)
		if !s.Kill() {
			t.Fatalf("the server ended by itself\n%s", logOf(s))
		}
		_, err := s.Start(ctx)
		noErr(t, err)
		for _, id := range ids {
			m.whole(t, ctx, id)
		}
		for _, hit := range got[*millrace.Found](t)(m.points.Search(ctx, millrace.Search{Text: "made", K: 1000})).Results {
			if !m.whole(t, ctx, hit.ID) {
				t.Errorf("%s is found, and not completed", hit.ID)
			}
		}
	}
	for _, id := range ids {
		for !m.whole(t, ctx, id) {
			noErr(t, ctx.Err())
			time.Sleep(10 * time.Millisecond)
		}
	}
	stop()
	<-over
	m.late(t, ctx, <-ended, ids)
	m.listed(t, ctx, ids[0])
	noErr(t, s.Stop())
}

// made is where effects of tasks go.
type made struct {
	points millrace.Collection
	repo   millrace.Repo
	keys   millrace.KV
	c      *millrace.Client
}

const madeRef = "refs/tasks/"

// whole reports whether all that a task makes is there; nothing of it may be there alone.
func (m *made) whole(t *testing.T, ctx context.Context, id string) bool {
	t.Helper()
	points := got[[]millrace.StoredPoint](t)(m.points.Points(ctx, []string{id}))
	info := got[*millrace.TaskInfo](t)(m.c.Task(ctx, id))
	_, key := m.keys.Get(ctx, id)
	_, at := m.repo.Get(ctx, madeRef+id)
	for _, err := range []error{key, at} {
		if err != nil && !errors.Is(err, millrace.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if len(points) > 0 && (info.State != millrace.Completed || key != nil || at != nil) {
		t.Errorf("task %s: its point is there, and it is %v, key: %v, ref: %v", id, info.State, key, at)
	}
	if info.State == millrace.Completed { // it was asked for before the others
		points = got[[]millrace.StoredPoint](t)(m.points.Points(ctx, []string{id}))
		if len(points) != 1 || key != nil || at != nil {
			t.Errorf("task %s is completed with %d points, key: %v, ref: %v", id, len(points), key, at)
		}
	}
	return info.State == millrace.Completed
}

// listed wants the three effects of a task in its list, first as they were made and then as they are when they are gone.
func (m *made) listed(t *testing.T, ctx context.Context, id string) {
	t.Helper()
	want := func(now millrace.EffectNow) {
		t.Helper()
		e := got[*millrace.Effects](t)(m.c.Effects(ctx, id))
		ops := map[string]millrace.EffectNow{}
		for _, one := range e.Effects {
			ops[one.Op] = one.Now
		}
		if e.Count != 3 || e.Index == 0 || len(ops) != 3 {
			t.Fatalf("task %s lists %+v", id, e)
		}
		for op, is := range ops {
			if is != now {
				t.Errorf("task %s: %s is %v, want %v", id, op, is, now)
			}
		}
	}
	want(millrace.EffectCurrent)
	noErr(t, m.c.Commit(ctx, func(tx *millrace.Tx) {
		tx.KV("made").Delete(id)
		tx.Collection("made").Remove(id)
		tx.Repo("app").Apply(millrace.DeleteRef(madeRef+id, "").NoDeref())
	}))
	want(millrace.EffectGone)
}

// late commits under a lease that has ended with the completion of its task.
func (m *made) late(t *testing.T, ctx context.Context, late *millrace.Task, ids []string) {
	t.Helper()
	stale := counted("MILLRACE_STALE_COMPLETIONS", 100)
	before := got[millrace.GateCounts](t)(m.points.Count(ctx, millrace.Gate{}))
	version := got[[]millrace.StoredPoint](t)(m.points.Points(ctx, []string{late.ID}))[0].Version
	another := ids[0]
	if another == late.ID {
		another = ids[1]
	}
	for range stale {
		err := m.c.Commit(ctx, func(tx *millrace.Tx) {
			tx.Fence(late)
			tx.Collection("made").Upsert(millrace.Point{ID: late.ID, Payload: map[string]string{"text": "too late"}})
			tx.Collection("made").Upsert(millrace.Point{ID: "other", Payload: map[string]string{"text": "too late"}})
			tx.Collection("made").Remove(another)
		})
		if !errors.Is(err, millrace.ErrLeaseLost) {
			t.Fatalf("under a lease that has ended: %v", err)
		}
	}
	after := got[millrace.GateCounts](t)(m.points.Count(ctx, millrace.Gate{}))
	if p := got[[]millrace.StoredPoint](t)(m.points.Points(ctx, []string{late.ID})); after.Passed != before.Passed || after.Passed != uint64(len(ids)) || p[0].Version != version {
		t.Errorf("%d points, then %d, of %d tasks; version %s, then %s", before.Passed, after.Passed, len(ids), version, p[0].Version)
	}
}
