package node

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// blocking are rules that block points by an expression.
func blocking(when string) *core.RulesetPut {
	return &core.RulesetPut{Name: "r", Rules: core.AppendRules(nil, &core.RulesetRules{
		Collection: "ws", Rules: []core.Rule{{ID: "b", When: when, Severity: "block"}},
	})}
}

// judged searches under a version of the ruleset r, the newest for 0.
func judged(version uint32) *core.SearchQuery {
	q := pointQuery(0, false)
	q.Ruleset, q.Version = "r", version
	return q
}

var noRuleset = core.NotFound{Kind: "ruleset", ID: "r"}

// A node keeps compiled rules by name and version. None of them judges a search after the ruleset was removed, nor when
// there are other rules under its name.
func TestNoSearchIsJudgedByRulesThatWereRemoved(t *testing.T) {
	t.Parallel()
	disk := replogtest.NewDisk()
	r := openRig(t, rigOptions{disk: disk})
	r.must(pointsDefinition())
	for n := range 10 {
		r.must(pointUpsert("w"+string(rune('0'+n)), n))
	}
	blocks := func(version uint32, blocked uint64) {
		t.Helper()
		_, a, err := r.found(t.Context(), judged(version))
		if err != nil || a.Blocked != blocked {
			t.Fatalf("version %d: %+v, %v, want %d blocked", version, a, err, blocked)
		}
	}
	absent := func(versions ...uint32) {
		t.Helper()
		for _, version := range versions {
			if _, _, err := r.found(t.Context(), judged(version)); !errors.Is(err, noRuleset) {
				t.Fatalf("version %d: %v", version, err)
			}
		}
	}
	absent(0, 1)
	r.must(blocking("n < 3"))
	blocks(0, 3)
	blocks(1, 3)
	if res := r.must(&core.RulesetDelete{Name: "r"}); !res.Ops[0].Existed {
		t.Error("the ruleset did not exist")
	}
	absent(0, 1)
	if _, _, err := r.node.Ruleset(t.Context(), r.ns, "r", 1, core.ReadOptions{}); !errors.Is(err, noRuleset) {
		t.Errorf("the removed version is read: %v", err)
	}
	r.must(blocking("n < 7"))
	blocks(0, 7)
	absent(1)
	r.must(&core.RulesetDelete{Name: "r"}, blocking("n < 5")) // in one entry
	blocks(0, 5)
	absent(1, 2)
	r.must(&core.RulesetDelete{Name: "r"})
	r.close()

	r = openRig(t, rigOptions{disk: disk})
	defer r.close()
	absent(0, 1, 2, 3)
	if res := r.must(blocking("n < 4")); res.Ops[0].Version != 4 {
		t.Errorf("after a restart the first version is %d", res.Ops[0].Version)
	}
	blocks(4, 4)
	absent(1, 2, 3)
}

// The index up to which a search waits is one of its partition's shard, and says nothing of the shard that has the ruleset.
func TestASearchFindsItsRulesetInAnotherShardThatIsBehind(t *testing.T) {
	t.Parallel()
	r := openRig(t, rigOptions{node: Options{Shards: 2}})
	defer r.close()
	info, _, err := r.node.CreateNamespace(t.Context(), "acme", "wide", 2)
	if err != nil {
		t.Fatal(err)
	}
	home, away := info.Partitions[0], info.Partitions[1]
	if home.Shard == away.Shard {
		t.Fatal("both partitions are of one shard")
	}
	for _, p := range []core.Partition{home.Partition, away.Partition} {
		if refused := r.in(p, pointsDefinition()); refused != nil {
			t.Fatal(refused)
		}
	}
	if refused := r.in(home.Partition, blocking("n < 3")); refused != nil {
		t.Fatal(refused)
	}
	for n := range 50 {
		if refused := r.in(away.Partition, pointUpsert("w", n%5)); refused != nil {
			t.Fatal(refused)
		}
	}
	q := judged(1)
	_, at, err := r.node.Collection(t.Context(), away.Partition, "ws", core.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q.Read = range []core.ReadOptions{{Stale: true, MinIndex: at.Index}, {MinIndex: at.Index}, {}} {
		a, err := r.node.Search(t.Context(), away.Partition, q)
		if err != nil || a.Version != 1 || a.Gate.Passed != 1 {
			t.Errorf("%+v: %+v, %v", q.Read, a, err)
		}
	}
	if refused := r.in(home.Partition, &core.RulesetDelete{Name: "r"}); refused != nil {
		t.Fatal(refused)
	}
	if _, err := r.node.Search(context.Background(), away.Partition, q); !errors.Is(err, noRuleset) {
		t.Errorf("after the removal: %v", err)
	}
}
