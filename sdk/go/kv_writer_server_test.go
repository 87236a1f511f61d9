package millrace_test

import (
	"context"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

func TestReadsTellWhichAttemptWroteAKey(t *testing.T) { eachTransport(t, readsTellWhoWrote) }

func readsTellWhoWrote(t *testing.T, opts ...millrace.Option) {
	ctx, c := bounded(t), dial(t, opts...)
	ks := c.KV("written")
	if _, err := ks.Configure(ctx, millrace.KeyspaceConfig{Writers: true}); err != nil {
		t.Fatal(err)
	}
	info, err := ks.Info(ctx)
	if err != nil || info.Config != (millrace.KeyspaceConfig{Version: 1, Writers: true}) {
		t.Errorf("configured as %+v, %v", info.Config, err)
	}
	if _, err := ks.Put(ctx, "outside", "v"); err != nil {
		t.Fatal(err)
	}
	job := millrace.Job[int, uint64]("write-keys")
	w := c.Worker()
	job.Handle(w, func(ctx context.Context, task *millrace.Task, _ int) (uint64, error) {
		err := c.Commit(ctx, func(tx *millrace.Tx) {
			tx.Fence(task)
			tx.KV("written").Put("mid", "v")
			tx.KV("unwritten").Put("mid", "v")
		})
		task.Effects().KV("written").Put("done", "v")
		task.Effects().KV("written").Add("sum", 3)
		return task.Token(), err
	})
	run(t, w)
	h, err := job.Add(ctx, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	token, err := h.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	by := &millrace.KeyWriter{Task: h.ID, Token: token}
	told := func(what string, v millrace.Value, want *millrace.KeyWriter) {
		t.Helper()
		if v.Rev == 0 || (v.Writer == nil) != (want == nil) || want != nil && *v.Writer != *want {
			t.Errorf("%s at %d was written by %+v, want %+v", what, v.Rev, v.Writer, want)
		}
	}
	wants := map[string]*millrace.KeyWriter{"mid": by, "done": by, "sum": by, "outside": nil}
	for key, want := range wants {
		v, err := ks.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		told(key, v, want)
		many, err := ks.GetMany(ctx, []string{key, "absent"})
		if err != nil || len(many) != 2 || many[1].Rev != 0 || many[1].Writer != nil {
			t.Fatalf("%+v, %v", many, err)
		}
		told(key+" among others", many[0], want)
	}
	for _, read := range []string{"with values", "keys alone"} {
		entries, n := ks.Range, 0
		if read == "keys alone" {
			entries = ks.Keys
		}
		for e, err := range entries(ctx, millrace.Prefix("")) {
			if err != nil {
				t.Fatal(err)
			}
			told(e.Key+" in a range, "+read, e.Value, wants[e.Key])
			n++
		}
		if n != len(wants) {
			t.Errorf("%s: %d keys", read, n)
		}
	}
	if v, err := c.KV("unwritten").Get(ctx, "mid"); err != nil || v.Writer != nil {
		t.Errorf("without the setting: %+v, %v", v, err)
	}
	if _, err := ks.Put(ctx, "done", "w"); err != nil {
		t.Fatal(err)
	}
	if v, err := ks.Get(ctx, "done"); err != nil || v.String() != "w" || v.Writer != nil {
		t.Errorf("written from outside since: %+v, %v", v, err)
	}
}
