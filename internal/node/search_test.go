package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/search"
	"github.com/millrace/millrace/internal/retrieval"
)

func pointVec(xs ...float32) []byte {
	var out []byte
	for _, x := range xs {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

func pointsDefinition() *core.CollectionSet {
	return &core.CollectionSet{Collection: core.Collection{
		Name: "ws", UID: 7, Embedder: "default", Model: "m", Dim: 2, Metric: core.MetricDot,
		Texts: []core.TextField{{Name: "text", Weight: 100}},
		Fields: []core.SchemaField{
			{Name: "role", Type: core.FieldKeyword, Index: true, Gate: core.GateRole}, {Name: "n", Type: core.FieldInt, Index: true},
		},
	}}
}

func pointUpsert(id string, n int) *core.VectorUpsert {
	return &core.VectorUpsert{
		Collection: "ws", ID: id, Vector: pointVec(float32(n%17), 1), Payload: fmt.Appendf(nil, `{"role":"r%d","n":%d}`, n%3, n),
	}
}

func pointQuery(min uint64, stale bool) *core.SearchQuery {
	return &core.SearchQuery{
		Collection: "ws", Vector: []float32{1, 0.5}, K: 1000, Dense: 1, Payload: true, Gate: core.SearchGate{ValidAt: time.Now().UnixNano()},
		Read: core.ReadOptions{MinIndex: min, Stale: stale},
	}
}

// found is what a search for everything returns: versions by id.
func (r *rig) found(ctx context.Context, q *core.SearchQuery) (map[string]uint64, *core.SearchAnswer, error) {
	a, err := r.node.Search(ctx, r.ns, q)
	if err != nil {
		return nil, nil, err
	}
	out := make(map[string]uint64)
	for _, h := range a.Hits {
		out[h.ID] = h.Version
	}
	return out, a, nil
}

// stored is what the store has: versions by id.
func (r *rig) stored() (map[string]uint64, error) {
	out := make(map[string]uint64)
	_, err := r.node.read(context.Background(), r.ns, core.ReadOptions{}, func(v core.View) error {
		infos, err := search.Collections(v, r.ns)
		if err != nil || len(infos) == 0 {
			return err
		}
		return search.EachPoint(v, r.ns, infos[0].Incarnation, "", func(p core.StoredPoint) bool {
			out[p.ID] = p.Version
			return true
		})
	})
	return out, err
}

func TestAPointIsFoundFromItsAcknowledgementOn(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	r.must(pointsDefinition())
	for i := range 50 {
		id := fmt.Sprint("w", i%7)
		if i%5 == 4 {
			r.must(&core.VectorDelete{Collection: "ws", ID: id})
			if got, _, err := r.found(t.Context(), pointQuery(0, false)); err != nil || got[id] != 0 {
				t.Fatalf("step %d: a deleted point is found: %v, %v", i, got, err)
			}
			continue
		}
		res := r.must(pointUpsert(id, i))
		got, a, err := r.found(t.Context(), pointQuery(0, false))
		if err != nil || got[id] != res.Ops[0].Rev {
			t.Fatalf("step %d: found %v, %v, want version %d", i, got, err, res.Ops[0].Rev)
		}
		if a.Gate.Considered != uint64(len(got)) || a.Plan != "scan" {
			t.Fatalf("step %d: %+v", i, a)
		}
	}
	r.must(&core.KVPut{Keyspace: "k", Key: []byte("a")}, pointUpsert("w1", 3), &core.VectorDelete{Collection: "ws", ID: "w2"})
	if got, _, _ := r.found(t.Context(), pointQuery(0, false)); got["w2"] != 0 || got["w1"] == 0 {
		t.Errorf("after a commit of several: %v", got)
	}
	r.must(&core.CollectionDelete{Name: "ws"})
	if _, _, err := r.found(t.Context(), pointQuery(0, false)); !errors.Is(err, core.NotFound{Kind: "collection", ID: "ws"}) {
		t.Errorf("a collection that is gone: %v", err)
	}
	r.must(pointsDefinition())
	if got, _, err := r.found(t.Context(), pointQuery(0, false)); err != nil || len(got) != 0 {
		t.Errorf("a new collection of that name: %v, %v", got, err)
	}
}

// Whatever a power cut takes, what was acknowledged is found by the first search after it, and what was deleted is not.
func TestNoAcknowledgedPointIsLostAndNoneComesBackAfterAPowerCut(t *testing.T) {
	cuts := 12
	if testing.Short() {
		cuts = 4
	}
	r := openRig(t, rigOptions{segment: 64 << 10})
	defer r.close()
	rnd := rand.New(rand.NewPCG(1, 2))
	r.must(pointsDefinition())
	acked := make(map[string]uint64)
	for cut := range cuts {
		for range 1 + rnd.IntN(60) {
			id := fmt.Sprint("w", rnd.IntN(20))
			if rnd.IntN(4) == 0 {
				r.must(&core.VectorDelete{Collection: "ws", ID: id})
				delete(acked, id)
			} else {
				acked[id] = r.must(pointUpsert(id, rnd.IntN(1000))).Ops[0].Rev
			}
		}
		after, err := tryRig(t, rigOptions{disk: r.disk.Crash(rnd.IntN(101), rnd.Uint64()), segment: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := after.found(t.Context(), pointQuery(0, false))
		if err != nil || !reflect.DeepEqual(got, acked) {
			t.Errorf("cut %d: found %v, %v, want %v", cut, got, err, acked)
		}
		if stored, err := after.stored(); err != nil || !reflect.DeepEqual(stored, acked) {
			t.Errorf("cut %d: stored %v, %v, want %v", cut, stored, err, acked)
		}
		after.close()
	}
}

// Followers answer at the index of an acknowledgement, nodes give equal verdicts, a node that loses its leader goes on, and
// one that gets a snapshot searches what is in it.
func TestEveryNodeFindsThePointsOfTheLeader(t *testing.T) {
	c := openCluster(t, 3, tight)
	ctx := within(t, 60*time.Second)
	lead := c.commit(ctx, 0, pointsDefinition())
	c.known(ctx)
	rules := core.AppendRules(nil, &core.RulesetRules{Collection: "ws", Rules: []core.Rule{
		{ID: "b", When: "n % 2 == 1", Severity: "block"}, {ID: "p", When: "n > 10", Severity: "penalty", Weight: 0.25},
	}})
	c.commit(ctx, 0, &core.RulesetPut{Name: "r", Rules: rules})
	for i := range 40 {
		lead.ns = c.ns
		p := lead.propose(core.Commit{Ops: []core.Op{pointUpsert(fmt.Sprint("w", i), i)}})
		if p.Err != nil {
			t.Fatal(p.Err)
		}
		for id, r := range c.rigs {
			r.ns = c.ns
			if got, _, err := r.found(ctx, pointQuery(p.At.Index, true)); err != nil || got[fmt.Sprint("w", i)] == 0 {
				t.Fatalf("node %d at index %d: %d rows, %v", id, p.At.Index, len(got), err)
			}
		}
	}
	judged := pointQuery(0, false)
	judged.Ruleset, judged.Explain = "r", true
	want := c.sameAnswers(ctx, judged)
	if len(want.Hits) != 20 || want.Blocked != 20 || want.Version != 1 {
		t.Errorf("judged: %d hits, %+v", len(want.Hits), want)
	}

	away, _ := c.outrun(true)
	c.commit(ctx, away, pointUpsert("late", 500), &core.VectorDelete{Collection: "ws", ID: "w0"})
	c.start(away)
	c.until(ctx, "the node gets no snapshot", func() bool { return c.rigs[away].node.shards[0].snap.count.installed.Load() > 0 })
	c.known(ctx)
	judged.Read = core.ReadOptions{}
	after := c.sameAnswers(ctx, judged)
	if len(after.Hits) != 20 { // late came, w0 went
		t.Errorf("after a snapshot %d hits", len(after.Hits))
	}
	lead = c.leader(ctx, 0, 0)
	c.stop(lead.node.o.Replica)
	c.leader(ctx, 0, 0)
	if again := c.sameAnswers(ctx, judged); !reflect.DeepEqual(again.Hits, after.Hits) {
		t.Error("another leader answers otherwise")
	}
}

// sameAnswers searches on every node and holds the answers against each other.
func (c *cluster) sameAnswers(ctx context.Context, q *core.SearchQuery) (first *core.SearchAnswer) {
	c.t.Helper()
	for id, r := range c.rigs {
		r.ns = c.ns
		_, a, err := r.found(ctx, q)
		if err != nil {
			c.t.Fatalf("node %d: %v", id, err)
		}
		if first == nil {
			first = a
		} else if !reflect.DeepEqual(a.Hits, first.Hits) || a.Gate != first.Gate {
			c.t.Errorf("node %d answers %+v, another %+v", id, a, first)
		}
	}
	return first
}

func TestPointsBeyondTheMemoryAreRefusedBeforeTheyAreProposed(t *testing.T) {
	r := openRig(t, rigOptions{node: Options{SearchBytes: 200_000}})
	defer r.close()
	r.must(pointsDefinition())
	def, ok := r.node.Definition(r.ns, "ws")
	if !ok {
		t.Fatal("the collection is not known")
	}
	if fact := r.node.RoomFor(r.ns, &def, 10); fact != nil {
		t.Errorf("ten points: %v", fact)
	}
	if fact := r.node.RoomFor(r.ns, &def, 10_000); fact != (core.Exhausted{Limit: "search_memory", Max: 200_000}) {
		t.Errorf("ten thousand points: %v", fact)
	}
	for payload, want := range map[string]string{`{"n":"x"}`: "payload.n", `[]`: "payload", `{"role":1}`: "payload.role"} {
		if _, fact := r.node.CheckPayload(&def, []byte(payload)); fact == nil || fact.(core.Invalid).Field != want {
			t.Errorf("%s: %v, want %s", payload, fact, want)
		}
	}
	if text, fact := r.node.CheckPayload(&def, []byte(`{"text":"hello","n":1}`)); text != "hello" || fact != nil {
		t.Errorf("text %q, %v", text, fact)
	}
}

func TestBeyondItsKeywordsACollectionTakesNoPointsUntilSomeAreGone(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	set := pointsDefinition()
	set.Collection.Fields = append(set.Collection.Fields, core.SchemaField{Name: "words", Type: core.FieldKeywords, Index: true})
	r.must(set)
	def, _ := r.node.Definition(r.ns, "ws")
	next := 0
	words := func(id string, n int) *core.VectorUpsert {
		text := []byte(`{"words":["x"`)
		for range n {
			text = fmt.Appendf(text, `,"w%d"`, next)
			next++
		}
		return &core.VectorUpsert{Collection: "ws", ID: id, Vector: pointVec(1, 1), Payload: append(text, "]}"...)}
	}
	for i := 0; next+1 < retrieval.MaxDistinct; i++ {
		r.must(words(fmt.Sprint("w", i), min(255, retrieval.MaxDistinct-1-next)))
	}
	room := func() core.Fact {
		if _, _, err := r.found(t.Context(), pointQuery(0, false)); err != nil { // waits until the index has it
			t.Fatal(err)
		}
		return r.node.RoomFor(r.ns, &def, 1)
	}
	if fact := room(); fact != nil {
		t.Errorf("with as many keywords as there may be: %v", fact)
	}
	r.must(words("one", 1))
	if fact := room(); fact != (core.Exhausted{Limit: "distinct_keywords", Max: retrieval.MaxDistinct}) {
		sh, _ := r.node.shardOf(r.ns)
		t.Errorf("with one more: %v; %d", fact, sh.points.byName(r.ns, "ws").index.Distinct())
	}
	r.must(&core.VectorDelete{Collection: "ws", ID: "w0"})
	if fact := room(); fact != nil {
		t.Errorf("once there are fewer: %v", fact)
	}
}
