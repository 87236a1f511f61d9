package commit_test

import (
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
	"github.com/millrace/millrace/internal/machine/queue"
)

// step is one entry of the exhaustive suite: one commit, after time has passed.
type step struct {
	text    string
	advance core.ShardTime
}

// allSteps are the moves of two workers on two tasks and two keys. Tokens are guessed: both that a short sequence can
// issue, so every sequence meets live, stale and future ones. A completion always puts the key done/<task>.
func allSteps() []step {
	texts := []string{
		"create t1 queue=q", "create t2 queue=q",
		"grant queue=q lease=5s session=w1", "grant queue=q n=2 lease=5s session=w2",
		"put ks a 1", "put ks b 1 if_absent", "delete ks a",
	}
	for _, task := range []string{"t1", "t2"} {
		for token := 1; token <= 2; token++ {
			hold := fmt.Sprintf("%s token=%d", task, token)
			fence := fmt.Sprintf("commit fence=%s/%d\n", task, token)
			texts = append(texts,
				"complete "+hold+"\nput done "+task+" x",
				"put done "+task+" x\nput ks a 2 if_absent\ncomplete "+hold,
				fence+"if check ks b absent\ncomplete "+hold+"\nput done "+task+" x\ncreate t2 queue=q",
				"commit fail_on_refusal\ncomplete "+hold+"\nput done "+task+" x\nput ks a 3 if_absent",
				fence+"put ks b 2",
				"fail "+hold, "fail "+hold+" fatal", "release "+hold, "snooze "+hold+" delay=1s", "renew "+hold,
			)
		}
	}
	steps := []step{{"tick max=10", 6000}}
	for _, text := range texts {
		steps = append(steps, step{text: text})
	}
	return steps
}

// explorer walks all sequences of steps from the empty state. Sequences of one length that lead to the same bytes are
// walked on once: Apply is a function of bytes and entry.
type explorer struct {
	o       commit.Options
	w       *world // to parse
	steps   []step
	depth   int
	seen    map[uint64]bool
	seed    maphash.Seed
	applied int
}

// explore walks all sequences of at most depth steps after the entries of start, and returns how many were applied.
func explore(o commit.Options, depth int, start ...string) (int, error) {
	w, err := newWorld(o)
	if err != nil {
		return 0, err
	}
	for _, text := range start {
		if _, err := w.pair.Apply(w.parseCommits(text)...); err != nil {
			return 0, err
		}
	}
	x := &explorer{o: o, w: w, steps: allSteps(), depth: depth, seen: map[uint64]bool{}, seed: maphash.MakeSeed()}
	err = x.walk(w.pair.TxA, nil)
	return x.applied, err
}

func (x *explorer) walk(tx *machinetest.Txn, path []string) error {
	if len(path) == x.depth {
		return nil
	}
	before, err := observe(x.o, tx)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	for _, s := range x.steps {
		next := tx.Clone()
		x.applied++
		here := append(path[:len(path):len(path)], s.text)
		if err := x.take(before, next, s, x.w.pair.Index+uint64(len(here))); err != nil {
			return fmt.Errorf("%q: %w", here, err)
		}
		h := maphash.String(x.seed, fmt.Sprint(len(here))+next.Dump())
		if x.seen[h] {
			continue
		}
		x.seen[h] = true
		if err := x.walk(next, here); err != nil {
			return err
		}
	}
	return nil
}

// take applies one step to tx by a machine opened from its bytes, and checks what must hold of it.
func (x *explorer) take(before observed, tx *machinetest.Txn, s step, index uint64) error {
	m := commit.New(x.o)
	if err := m.Open(tx); err != nil {
		return err
	}
	c := x.w.parseCommits(s.text)[0]
	e := &core.Entry{Format: 1, Stamp: max(epoch, m.LastStamp()) + s.advance, Commits: []core.Commit{c}}
	a, err := m.Apply(tx, index, e)
	if err != nil {
		return err
	}
	after, err := observe(x.o, tx)
	if err != nil {
		return err
	}
	return judge(before, after, &c, &a.Results[0])
}

// observed is what a state shows.
type observed struct {
	dump  string
	live  map[core.TaskID]core.Token // running tasks
	done  map[core.TaskID]bool       // completed tasks
	token core.Token                 // the highest there is
}

// observe reads a state by the read functions and by a machine opened from it, and checks what must hold of any.
func observe(o commit.Options, tx *machinetest.Txn) (observed, error) {
	s := observed{
		dump: withoutClock(tx.Dump()), live: map[core.TaskID]core.Token{}, done: map[core.TaskID]bool{},
	}
	m := commit.New(o)
	if err := m.Open(tx); err != nil {
		return s, err
	}
	q := m.Queue(home)
	if q == nil {
		return s, nil
	}
	tokens := map[core.Token]bool{}
	for _, w := range []string{"w1", "w2"} {
		for _, a := range q.Held(sessionID(w)) {
			if s.live[a.Task] != 0 || tokens[a.Token] {
				return s, fmt.Errorf("task %s has two leases, or token %d two tasks", taskName(a.Task), a.Token)
			}
			s.live[a.Task], tokens[a.Token] = a.Token, true
			s.token = max(s.token, a.Token)
		}
	}
	for _, name := range []string{"t1", "t2"} {
		id := taskID(name)
		t, ok, err := queue.Task(tx, home, id)
		if err != nil {
			return s, err
		}
		if running := ok && t.State == core.Running; running != (s.live[id] != 0) {
			return s, fmt.Errorf("%s: running is %v, its lease %d", name, running, s.live[id])
		}
		s.done[id] = ok && t.State == core.Completed
		_, _, effect, err := kv.Get(tx, home, "done", []byte(name))
		if err != nil {
			return s, err
		}
		if effect != s.done[id] {
			return s, fmt.Errorf("%s: completed is %v, its effect there %v", name, s.done[id], effect)
		}
	}
	stats, ok, err := queue.Stats(tx, home, "q")
	if err != nil || !ok {
		return s, err
	}
	sum := stats.Purged
	for _, n := range stats.States {
		sum += n
	}
	if stats.Created != sum {
		return s, fmt.Errorf("created %d, states and purged %d", stats.Created, sum)
	}
	return s, nil
}

// judge checks one commit's result against the states before and after.
func judge(before, after observed, c *core.Commit, r *core.Result) error {
	if r.Refusal != nil && !r.FailedInstead && before.dump != after.dump {
		return errors.New("refused, and something changed")
	}
	if r.Replayed && before.dump != after.dump {
		return errors.New("replayed, and something changed")
	}
	if r.Refusal != nil || r.Replayed {
		return nil
	}
	if f := c.Fence; f != nil && before.live[f.Task] != f.Token {
		return fmt.Errorf("token %d passed the fence of %s, which is held by %d", f.Token, taskName(f.Task), before.live[f.Task])
	}
	for i, op := range c.Ops {
		switch op := op.(type) {
		case *core.TaskComplete:
			if before.live[op.Task] != op.Token {
				return fmt.Errorf("token %d completed %s, which is held by %d", op.Token, taskName(op.Task), before.live[op.Task])
			}
		case *core.Grant:
			for _, a := range r.Ops[i].Assigned {
				if a.Token <= before.token {
					return fmt.Errorf("token %d follows %d", a.Token, before.token)
				}
			}
		}
	}
	for id, done := range before.done {
		if done && !after.done[id] {
			return fmt.Errorf("%s is completed no more", taskName(id))
		}
	}
	return nil
}

var depth = flag.Int("depth", 4, "steps of the exhaustive suite; 6 takes minutes")

func TestAllShortSequencesFromNothing(t *testing.T) {
	n, err := explore(commit.Options{}, *depth)
	t.Logf("%d entries applied", n)
	if err != nil {
		t.Fatal(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func TestAllShortSequencesFromTwoLeases(t *testing.T) {
	n, err := explore(commit.Options{}, *depth-1, "create t1 queue=q\ncreate t2 queue=q", "grant queue=q n=2 lease=5s session=w1")
	t.Logf("%d entries applied", n)
	if err != nil {
		t.Fatal(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}
