package checktest

import (
	"maps"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestTheModelAllowsEveryAnswerOfTheMachines(t *testing.T) {
	histories := 60
	if testing.Short() {
		histories = 15
	}
	if os.Getenv("MILLRACE_MUTANT") != "" { // it must be found
		histories = 400
	}
	var sum Stats
	for seed := range uint64(histories) {
		s, err := Run(Options{Seed: seed, Entries: 500})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum.Refused += s.Refused
		sum.Replayed += s.Replayed
		sum.Granted += s.Granted
		sum.Expired += s.Expired
		sum.Restarts += s.Restarts
		sum.Commits += s.Commits
		sum.Closed += s.Closed
		sum.Held += s.Held
		sum.Cleared += s.Cleared
		sum.Gone += s.Gone
		sum.Writers += s.Writers
		sum.addControl(&s)
		sum.addCrons(&s)
		sum.addBatches(&s)
	}
	t.Logf("%+v", sum)
	if sum.Refused == 0 || sum.Replayed == 0 || sum.Granted == 0 || sum.Expired == 0 || sum.Restarts == 0 ||
		sum.Closed == 0 || sum.Held == 0 || sum.Cleared == 0 || sum.Gone == 0 || sum.Writers == 0 || sum.missesControl() || sum.missesCrons() || sum.missesBatches() {
		t.Errorf("the histories missed what they are for: %+v", sum)
	}
}

// Batches are opened, sealed and cancelled in commits of others too, as clients' commits and the effects of tasks do.
func TestTheModelAllowsBatchesInCommitsOfOthers(t *testing.T) {
	histories := 20
	if testing.Short() {
		histories = 6
	}
	joined, effects := 0, 0
	for seed := range uint64(histories) {
		s, err := Run(Options{Seed: seed, Entries: 500, Join: true})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		joined, effects = joined+s.Joined, effects+s.BatchEffects
	}
	if joined == 0 || effects == 0 {
		t.Errorf("ops of batches came into %d commits, and were effects %d times", joined, effects)
	}
}

// distortion changes an answer to one that no correct machine gives; it reports whether it did.
type distortion func(r *rand.Rand, c *core.Commit, got *core.Result) bool

func distortedTasks() map[string]distortion {
	return map[string]distortion{
		"a refused settle is acknowledged": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			if len(c.Ops) != 1 || got.Refusal == nil {
				return false
			}
			if _, ok := c.Ops[0].(*core.TaskComplete); !ok {
				return false
			}
			*got = core.Result{Ops: []core.OpResult{{Kind: core.OpTaskComplete, State: core.Completed}}}
			return true
		},
		"an applied settle is answered as lost": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			if len(c.Ops) != 1 || got.Refusal != nil || got.Replayed {
				return false
			}
			op, ok := c.Ops[0].(*core.TaskComplete)
			if !ok {
				return false
			}
			*got = core.Result{Refusal: &core.Refusal{Fact: core.LeaseLost{Task: op.Task, Given: op.Token}}}
			return true
		},
		"a token is issued twice": func(_ *rand.Rand, _ *core.Commit, got *core.Result) bool {
			if len(got.Ops) != 1 || len(got.Ops[0].Assigned) < 2 {
				return false
			}
			got.Ops[0].Assigned[1].Token = got.Ops[0].Assigned[0].Token
			return true
		},
		"a granted task is kept back": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			if len(got.Ops) != 1 || len(got.Ops[0].Assigned) == 0 {
				return false
			}
			if op, ok := c.Ops[0].(*core.Grant); !ok || len(op.Settles) > 0 || len(op.Queues) < 2 {
				return false
			}
			got.Ops[0].Assigned = got.Ops[0].Assigned[1:]
			return true
		},
	}
}

func distortedControl() map[string]distortion {
	return map[string]distortion{
		"a holder is not told of a cancel": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			if _, ok := c.Ops[0].(*core.TaskRenew); !ok || got.Refusal != nil {
				return false
			}
			for i := range got.Ops[0].Renewed {
				if r := &got.Ops[0].Renewed[i]; r.Cancel {
					r.Cancel = false
					return true
				}
			}
			return false
		},
		"a stop without a cancel is done": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			if _, ok := c.Ops[0].(*core.TaskStop); !ok || len(c.Ops) > 1 || got.Refusal == nil {
				return false
			}
			if _, ok := got.Refusal.Fact.(core.WrongState); !ok {
				return false
			}
			*got = core.Result{Ops: []core.OpResult{{Kind: core.OpTaskStop, State: core.Cancelled}}}
			return true
		},
		"a redrive is lost": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			if _, ok := c.Ops[0].(*core.TaskRedrive); !ok || len(c.Ops) > 1 || got.Refusal != nil {
				return false
			}
			*got = core.Result{Refusal: &core.Refusal{Fact: core.WrongState{Task: c.Ops[0].(*core.TaskRedrive).Task, State: core.Completed}}}
			return true
		},
		"a create beyond a ceiling is applied": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			op, ok := c.Ops[0].(*core.TaskCreate)
			if !ok || len(c.Ops) > 1 || got.Refusal == nil {
				return false
			}
			if f, ok := got.Refusal.Fact.(core.Invalid); !ok || f.Reason != "ceiling" {
				return false
			}
			*got = core.Result{Ops: []core.OpResult{{Kind: core.OpTaskCreate, Task: op.ID, State: core.Ready}}}
			return true
		},
	}
}

func distortedCommits() map[string]distortion {
	return map[string]distortion{
		"a repeated number of a fenced commit is judged again": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			if c.Fence == nil || c.Seq == 0 || !got.Replayed || got.Refusal != nil {
				return false
			}
			*got = core.Result{Refusal: &core.Refusal{Op: core.FenceOp, Fact: core.LeaseLost{Task: c.Fence.Task, Given: c.Fence.Token}}}
			return true
		},
		"a configuration out of bounds is applied": func(_ *rand.Rand, c *core.Commit, got *core.Result) bool {
			if _, ok := c.Ops[0].(*core.QueueSet); !ok || got.Refusal == nil {
				return false
			}
			if _, ok := got.Refusal.Fact.(core.Invalid); !ok {
				return false
			}
			*got = core.Result{Ops: []core.OpResult{{Kind: core.OpQueueSet, Version: 1}}}
			return true
		},
		"a revision is used twice": func(_ *rand.Rand, _ *core.Commit, got *core.Result) bool {
			if len(got.Ops) != 1 || got.Ops[0].Rev < 8 || got.Replayed {
				return false
			}
			got.Ops[0].Rev = 1
			return true
		},
		"the wrong op is blamed": func(_ *rand.Rand, _ *core.Commit, got *core.Result) bool {
			if got.Refusal == nil || got.Refusal.Op < 1 {
				return false
			}
			got.Refusal.Op--
			return true
		},
	}
}

func TestTheModelCatchesADistortedAnswer(t *testing.T) {
	all := distortedTasks()
	maps.Copy(all, distortedCommits())
	maps.Copy(all, distortedControl())
	for name, distort := range all {
		found, tried := 0, 0
		for seed := uint64(0); seed < 60 && tried < 12; seed++ {
			armed := true
			s, err := Run(Options{Seed: 1700 + seed, Entries: 300, Distort: func(r *rand.Rand, c *core.Commit, got *core.Result) bool {
				armed = armed && !distort(r, c, got)
				return !armed
			}})
			if s.Distorted == 0 {
				continue
			}
			tried++
			if err != nil { // by the answer itself, or where it leaves room for doubt by what is read back
				found++
			}
		}
		if tried == 0 || found < tried {
			t.Errorf("%s: found in %d of %d histories", name, found, tried)
		}
	}
}
