package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// whole is a completion with one effect on each service.
func whole(a core.Assigned, i int) core.Commit {
	return complete(a,
		&core.KVPut{Keyspace: "done", Key: []byte(refOf(i)), Value: []byte("x")},
		&core.RefTxn{Repo: "app", Changes: []core.RefChange{
			{Kind: core.OpRefCreate, Name: refOf(i), New: core.ObjectID{1, byte(i)}, Type: core.ObjectCommit},
		}},
		pointUpsert(fmt.Sprint("w", i), i),
	)
}

func refOf(i int) string { return fmt.Sprintf("refs/heads/b%d", i) }

// holds says of each service whether it has what the i-th completion did. The point is looked at first: what is seen later
// must be there when it is.
func (r *rig) holds(ctx context.Context, id core.TaskID, i int) (out [4]bool, err error) {
	found, _, err := r.found(ctx, pointQuery(0, false))
	if err != nil {
		return out, err
	}
	_, refs, _, err := r.node.Refs(ctx, r.ns, "app", []string{refOf(i)}, false, core.ReadOptions{})
	if err != nil {
		return out, err
	}
	key, _, err := r.node.Key(ctx, r.ns, "done", []byte(refOf(i)), core.ReadOptions{})
	if err != nil {
		return out, err
	}
	task, _, err := r.node.Task(ctx, r.ns, id, core.ReadOptions{})
	return [4]bool{found[fmt.Sprint("w", i)] > 0, refs[0].Rev > 0, key.Rev > 0, task.State == core.Completed}, err
}

// A completion, a key, a ref and a point are one entry: a reader that sees one sees all, also after a power cut at any time.
func TestACompletionAKeyARefAndAPointAreSeenTogetherOrNotAtAll(t *testing.T) {
	cuts := 8
	if testing.Short() {
		cuts = 2
	}
	r := openRig(t, rigOptions{segment: 64 << 10})
	defer r.close()
	rnd := rand.New(rand.NewPCG(3, 4))
	r.must(pointsDefinition())
	r.must(&core.RepoCreate{Name: "app", ID: core.RepoID{1}})
	const each = 12
	for cut := range cuts {
		for i := range each {
			r.must(&core.TaskCreate{ID: taskID(cut*each + i), Queue: "q"})
		}
		tasks := r.claim("q", each, 3_600_000)
		answered := make(chan core.Proposed, each)
		for i := range tasks {
			c := whole(tasks[i], cut*each+i)
			c.Partition, c.Principal = r.ns, "test"
			r.node.Propose(r.ns, []core.Commit{c}, func(p core.Proposed) { answered <- p })
		}
		before := rnd.IntN(each) // acknowledged before the power is cut; others are on their way
		for range before {
			if p := <-answered; p.Err != nil || p.Results[0].Refusal != nil {
				t.Fatalf("a completion: %+v", p)
			}
		}
		after, err := tryRig(t, rigOptions{disk: r.disk.Crash(rnd.IntN(101), rnd.Uint64()), segment: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for i := range tasks {
			got, err := after.holds(t.Context(), tasks[i].Task, cut*each+i)
			if err != nil {
				t.Fatal(err)
			}
			switch got {
			case [4]bool{true, true, true, true}:
				kept++
			case [4]bool{}:
			default:
				t.Errorf("cut %d, task %d: point, ref, key and completion are there: %v", cut, i, got)
			}
		}
		if kept < before {
			t.Errorf("cut %d: %d are there, %d were acknowledged", cut, kept, before)
		}
		after.close()
		for range each - before {
			<-answered
		}
	}
}

// A reader that looks while completions arrive sees the effects of each wholly.
func TestWhoSeesThePointOfACompletionSeesAllThatItDid(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	r.must(pointsDefinition())
	r.must(&core.RepoCreate{Name: "app", ID: core.RepoID{1}})
	const tasks = 60
	for i := range tasks {
		r.must(&core.TaskCreate{ID: taskID(i), Queue: "q"})
	}
	claimed := r.claim("q", tasks, 3_600_000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range claimed {
			r.proposeIn(whole(claimed[i], i))
		}
	}()
	for looked, over := 0, false; !over; looked++ {
		select {
		case <-done:
			over = true
		default:
		}
		i := looked % tasks
		got, err := r.holds(t.Context(), claimed[i].Task, i)
		if err != nil {
			t.Fatal(err)
		}
		if got[0] && got != [4]bool{true, true, true, true} {
			t.Fatalf("the point of %d is there; point, ref, key and completion: %v", i, got)
		}
	}
}

// Points are changed by ten thousand completions of leases that have ended: none of them is.
func TestCompletionsUnderTokensThatAreStaleChangeNoPoint(t *testing.T) {
	stale := 10_000
	if testing.Short() {
		stale = 1000
	}
	r := openRig(t, rigOptions{})
	defer r.close()
	r.must(pointsDefinition())
	r.must(pointUpsert("w0", 1))
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	task := r.claim("q", 1, 3_600_000)[0]
	r.must(&core.TaskFail{Task: task.Task, Token: task.Token, HasRetry: true})
	again := r.claim("q", 1, 3_600_000)[0]
	if again.Token <= task.Token {
		t.Fatalf("token %d after %d", again.Token, task.Token)
	}
	before, err := r.stored()
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	for left := stale; left > 0; left -= 500 {
		commits := make([]core.Commit, min(left, 500))
		for i := range commits {
			old := task
			old.Token = core.Token(1 + rnd.Uint64N(uint64(task.Token)))
			effects := []core.Op{pointUpsert("w0", rnd.IntN(100)), &core.VectorDelete{Collection: "ws", ID: "w0"}, pointUpsert(fmt.Sprint("new", i), i)}
			if commits[i] = complete(old, effects[rnd.IntN(len(effects))]); rnd.IntN(2) == 0 { // a fence instead of a completion
				commits[i].Fence, commits[i].Ops = &core.Fence{Task: old.Task, Token: old.Token}, commits[i].Ops[1:]
			}
		}
		p := r.propose(commits...)
		if p.Err != nil {
			t.Fatal(p.Err)
		}
		for i := range p.Results {
			if f := p.Results[i].Refusal; f == nil || f.Fact != (core.LeaseLost{Task: task.Task, Given: commitToken(&commits[i])}) {
				t.Fatalf("a stale completion: %+v", p.Results[i])
			}
		}
	}
	after, err := r.stored()
	found, _, searched := r.found(t.Context(), pointQuery(0, false))
	if err != nil || searched != nil || len(after) != 1 || after["w0"] != before["w0"] || len(found) != 1 || found["w0"] != before["w0"] {
		t.Errorf("stored %v, found %v, want %v, %v, %v", after, found, before, err, searched)
	}
	r.proposeIn(complete(again, pointUpsert("w1", 1)))
	if found, _, err := r.found(t.Context(), pointQuery(0, false)); err != nil || found["w1"] == 0 {
		t.Errorf("under the token that holds: %v, %v", found, err)
	}
}

func commitToken(c *core.Commit) core.Token {
	if c.Fence != nil {
		return c.Fence.Token
	}
	return c.Ops[0].(*core.TaskComplete).Token
}
