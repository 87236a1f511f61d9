package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// commitCollection is the collection of the effects' vectors.
const (
	commitCollection = "bench"
	// commitFollow is the queue of follow-ups, which has no workers.
	commitFollow = "follow"
)

// commitKinds are the kinds of slices: completions without effects, with all effects in their
// commit, and with calls of their own before them. The order is that of effectsRun.kind.
var commitKinds = []string{"bare", "one_commit", "separate"}

// commitRun completes tasks with a key, a ref, a vector and a follow-up task each. In turn they are
// in the commit that completes the task, done by separate calls before it, and left out.
type commitRun struct {
	*effectsRun
	// stock has the commits that refs are put at, of which the first is used.
	stock refsStock
	// client makes the separate calls and counts the effects. Handlers share it.
	client *millrace.Client
	// model and vector are those of every point: what is stored costs the same each time.
	model  string
	vector []float32
	// follow makes the follow-up tasks.
	follow *millrace.JobOf[[]byte, []byte]
}

// CommitEffects is the cycle with four effects for each task. Afterwards it reads a sample of the
// effects back, and proves that each kind was applied equally often.
func CommitEffects(ctx context.Context, rig *bench.Rig) (err error) {
	if rig.Ceiling {
		return errors.New("no null server takes effects")
	}
	c := &commitRun{effectsRun: &effectsRun{rig: rig, q: newQueueRun(rig)}}
	c.follow = millrace.Job[[]byte, []byte](commitFollow).Queue(commitFollow)
	// The order is that of commitKinds, without bare.
	c.effects = []func(t *millrace.Task){c.together, func(t *millrace.Task) { c.apart(ctx, t) }}
	c.find = c.there
	if c.stock, err = newRefsStock(ctx, rig); err != nil {
		return err
	}
	if c.client, err = rig.Dial(ctx, 0); err != nil {
		return err
	}
	defer c.client.Close() //nolint:errcheck // every call was answered, or an error tells
	k := c.client.Collection(commitCollection)
	if _, err := k.Create(ctx, millrace.CollectionConfig{}); err != nil {
		return fmt.Errorf("make a collection: %w", err)
	}
	config, err := k.Config(ctx)
	if err != nil {
		return fmt.Errorf("read the collection: %w", err)
	}
	c.model, c.vector = config.Model, make([]float32, config.Dim)
	// The values do not matter: no search reads them.
	for i := range c.vector {
		c.vector[i] = float32(i%7) + 1
	}
	err = c.turns(ctx, commitKinds...)
	c.report()
	if err != nil {
		return err
	}
	read, err := c.readBack(ctx)
	rig.Metric("tasks_read_back", float64(read), "tasks")
	if err != nil {
		return err
	}
	return c.once(ctx)
}

// point is the vector of a task, under the task's id.
func (c *commitRun) point(t *millrace.Task) millrace.Point {
	return millrace.Point{ID: t.ID, Vector: c.vector, Model: c.model, Payload: map[string]string{"task": t.ID}}
}

// together attaches all effects to the completion, so that they are applied with it or not at all.
func (c *commitRun) together(t *millrace.Task) {
	tx := t.Effects()
	tx.KV(effectsKeyspace).Put(t.ID, effectsValue)
	tx.Repo(refsRepo).Update(tasksPrefix+t.ID, "", c.stock.commits[0])
	tx.Collection(commitCollection).Upsert(c.point(t))
	c.follow.AddTx(tx, c.rig.Payload)
}

// apart does the same by calls of their own, one after the other, as a program with four separate
// services does.
func (c *commitRun) apart(ctx context.Context, t *millrace.Task) {
	_, err := c.client.KV(effectsKeyspace).Put(ctx, t.ID, effectsValue)
	if err == nil {
		_, err = c.client.Repo(refsRepo).Update(ctx, millrace.CreateRef(tasksPrefix+t.ID, c.stock.commits[0]))
	}
	if err == nil {
		_, err = c.client.Collection(commitCollection).Upsert(ctx, c.point(t))
	}
	if err == nil {
		_, err = c.follow.Add(ctx, c.client, c.rig.Payload)
	}
	// The task is completed all the same: a failure shows in the run, and in the audit.
	if err != nil {
		c.rig.Fail("separate", err)
	}
}

// report tells the rate of each kind, and the ratios of the one commit to both others.
func (c *commitRun) report() {
	// rates are by the name of the kind, in completions a second.
	rates := map[string]float64{}
	for i, name := range commitKinds {
		rates[name] = c.sides[i].rate()
		c.rig.Metric(name+"_cycles_per_s", rates[name], "cycles/s")
	}
	for name, under := range map[string]string{"ratio_to_separate_calls": "separate", "ratio_to_bare_cycle": "bare"} {
		if rates[under] > 0 {
			c.rig.Metric(name, rates["one_commit"]/rates[under], "×")
		}
	}
}

// there looks for the effects of a completed task, on any server. An error says which one is missing.
func (c *commitRun) there(ctx context.Context, client *millrace.Client, id string) error {
	if _, err := client.KV(effectsKeyspace).Get(ctx, id); err != nil {
		return fmt.Errorf("its key: %w", err)
	}
	if _, err := client.Repo(refsRepo).Get(ctx, tasksPrefix+id); err != nil {
		return fmt.Errorf("its ref: %w", err)
	}
	points, err := client.Collection(commitCollection).Points(ctx, []string{id})
	if err != nil {
		return fmt.Errorf("its vector: %w", err)
	}
	// A point that is not there is left out of the answer, which is not an error.
	if len(points) != 1 || points[0].ID != id {
		return fmt.Errorf("lost: task %s is completed, and its vector is not there", id)
	}
	return nil
}

// once proves that each effect was applied as often as every other: once for each task that had
// them. A repeated completion that applied an effect twice would show as a difference. The counts
// are read here; the proof is judged in the audit.
func (c *commitRun) once(ctx context.Context) error {
	keys := uint64(0)
	for _, err := range c.client.KV(effectsKeyspace).Keys(ctx, millrace.Prefix("")) {
		if err != nil {
			return fmt.Errorf("count keys: %w", err)
		}
		keys++
	}
	refs := uint64(0)
	_, err := c.client.Repo(refsRepo).Each(ctx, millrace.RefQuery{Prefix: tasksPrefix}, func(millrace.Ref) error {
		refs++
		return nil
	})
	if err != nil {
		return fmt.Errorf("count refs: %w", err)
	}
	collection, err := c.client.Collection(commitCollection).Stats(ctx)
	if err != nil {
		return fmt.Errorf("count vectors: %w", err)
	}
	follow, err := c.client.Queue(commitFollow).Stats(ctx)
	if err != nil {
		return fmt.Errorf("count follow-ups: %w", err)
	}
	c.rig.Metric("tasks_with_effects", float64(keys), "tasks")
	points := collection.Points
	c.rig.Proofs = append(c.rig.Proofs, func(context.Context) ([]string, error) {
		if keys == refs && keys == points && keys == follow.Created {
			return nil, nil
		}
		return []string{fmt.Sprintf("not once each: %d keys, %d refs, %d vectors, %d follow-ups", keys, refs, points, follow.Created)}, nil
	})
	return nil
}
