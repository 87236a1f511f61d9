package checktest

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/core"
)

func TestTheModelAllowsEveryAnswerOfTheMachines(t *testing.T) {
	histories := 60
	if testing.Short() {
		histories = 15
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
	}
	t.Logf("%+v", sum)
	if sum.Refused == 0 || sum.Replayed == 0 || sum.Granted == 0 || sum.Expired == 0 || sum.Restarts == 0 {
		t.Errorf("the histories missed what they are for: %+v", sum)
	}
}

// Each distortion is an answer that no correct machine gives; the first one must be found.
func TestTheModelCatchesADistortedAnswer(t *testing.T) {
	for name, distort := range map[string]func(r *rand.Rand, c *core.Commit, got *core.Result) bool{
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
	} {
		found, tried := 0, 0
		for seed := range uint64(12) {
			armed := true
			s, err := Run(Options{Seed: 1000 + seed, Entries: 300, Distort: func(r *rand.Rand, c *core.Commit, got *core.Result) bool {
				armed = armed && !distort(r, c, got)
				return !armed
			}})
			if s.Distorted == 0 {
				continue
			}
			tried++
			if _, ok := errors.AsType[*check.Mismatch](err); ok {
				found++
			}
		}
		if tried == 0 || found < tried {
			t.Errorf("%s: found in %d of %d histories", name, found, tried)
		}
	}
}
