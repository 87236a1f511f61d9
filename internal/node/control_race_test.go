package node

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// perRound is how many races run at the same time: each round creates this many tasks.
const perRound = 50

// claimers is how many goroutines take the tasks of a round that edits race with, one by one.
const claimers = 4

// oldPriority is that of a task before its edit.
const oldPriority = 4

// controls is races between the ops of an operator and those of a worker. Each race is of two ops on one task, which
// goroutines of their own propose at the same time.
type controls struct {
	*long
	rnd   *rand.Rand
	ctx   context.Context // ends when a claim has failed, for which edits would wait
	stop  context.CancelFunc
	tasks int // created up to now
}

// create makes the tasks of a round in one proposal.
func (c *controls) create(queue string) []core.TaskID {
	c.t.Helper()
	ids, commits := make([]core.TaskID, perRound), make([]core.Commit, perRound)
	for i := range ids {
		ids[i] = taskID(c.tasks)
		c.tasks++
		commits[i] = core.Commit{Ops: []core.Op{&core.TaskCreate{ID: ids[i], Queue: queue, Payload: []byte("old"), Priority: oldPriority}}}
	}
	p := c.propose(commits...)
	if p.Err != nil {
		c.t.Fatal(p.Err)
	}
	for i := range p.Results {
		c.applied(i, p.Results[i])
	}
	return ids
}

// together calls all functions at the same time, each in a goroutine, begun in a random order, and waits for them.
func (c *controls) together(all []func()) {
	c.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var open sync.WaitGroup
	begin := make(chan struct{})
	for _, do := range all {
		open.Go(func() {
			<-begin
			do()
		})
	}
	close(begin)
	open.Wait()
}

// ask proposes one commit, keeps its result, and returns the index of its entry. A proposal that failed is an error of the test.
func (c *controls) ask(into *core.Result, commit core.Commit) (index uint64) {
	p := c.propose(commit)
	if p.Err != nil {
		c.t.Errorf("proposal: %v", p.Err)
		return 0
	}
	*into = p.Results[0]
	return p.At.Index
}

// completion completes an attempt, with a key as the effect.
func completion(a core.Assigned) core.Commit {
	return complete(a, &core.KVPut{Keyspace: "done", Key: []byte(a.Task.String()), Value: []byte(strconv.FormatUint(uint64(a.Token), 10))})
}

// control is one op of an operator that ends an attempt of another.
type control struct {
	queue string
	op    func(a core.Assigned) core.Op
	after core.State // of the task whose completion lost
	races int
}

// against races completions with an op that ends their attempts.
func (c *controls) against(k control) (won int) {
	t := c.t
	for range k.races / perRound {
		c.create(k.queue)
		held := c.claimUpTo(k.queue, perRound)
		if len(held) != perRound {
			t.Fatalf("%d of %d tasks are given out", len(held), perRound)
		}
		done, ended := make([]core.Result, perRound), make([]core.Result, perRound)
		var all []func()
		for i, a := range held {
			all = append(all,
				func() { c.ask(&done[i], completion(a)) },
				func() { c.ask(&ended[i], core.Commit{Ops: []core.Op{k.op(a)}}) })
		}
		c.together(all)
		if t.Failed() {
			t.FailNow()
		}
		for i, a := range held {
			if c.judge(k, a, done[i], ended[i]) {
				won++
			}
		}
		if k.after == core.Ready {
			c.completeAgain(k.queue)
		}
	}
	return won
}

// judge checks that one of two ops won, and that the task and the effect of its completion are the winner's.
func (c *controls) judge(k control, a core.Assigned, done, ended core.Result) (completed bool) {
	t := c.t
	t.Helper()
	completed = done.Refusal == nil
	task := c.task(a.Task)
	value, effect := c.key("done", a.Task.String())
	if completed {
		wrong, is := refused[core.WrongState](ended)
		if !is || wrong.State != core.Completed || task.State != core.Completed || !effect || value != strconv.FormatUint(uint64(a.Token), 10) {
			t.Fatalf("%s: the completion won, the other op got %+v, the task is %s, its effect is %q", k.queue, ended.Refusal, task.State, value)
		}
		return true
	}
	lost, is := refused[core.LeaseLost](done)
	if !is || lost.Task != a.Task || lost.Given != a.Token {
		t.Fatalf("%s: the completion is refused with %+v", k.queue, done.Refusal)
	}
	if ended.Refusal != nil || task.State != k.after || effect {
		t.Fatalf("%s: the completion lost, the other op got %+v, the task is %s, its effect is %q", k.queue, ended.Refusal, task.State, value)
	}
	if task.Failures != 0 || task.Crashes != 0 {
		t.Fatalf("%s: %d failures and %d crashes are counted", k.queue, task.Failures, task.Crashes)
	}
	return false
}

// completeAgain completes what was put back, by another attempt.
func (c *controls) completeAgain(queue string) {
	t := c.t
	t.Helper()
	for _, a := range c.claimUpTo(queue, perRound) {
		if a.Attempt != 2 {
			t.Fatalf("what was put back has attempt %d", a.Attempt)
		}
		var r core.Result
		c.ask(&r, completion(a))
		if v, _ := c.key("done", a.Task.String()); r.Refusal != nil || v != strconv.FormatUint(uint64(a.Token), 10) {
			t.Fatalf("the next attempt got %+v, its effect is %q", r.Refusal, v)
		}
	}
}

// refused returns the fact for which a commit was refused, if it is a T.
func refused[T core.Fact](r core.Result) (fact T, ok bool) {
	if r.Refusal == nil {
		return fact, false
	}
	fact, ok = r.Refusal.Fact.(T)
	return fact, ok
}

// given is a task as a claim returned it, and the index of the entry that gave it out.
type given struct {
	core.Assigned
	index uint64
}

// taken is what claims have returned in a round.
type taken struct {
	mu    sync.Mutex // guards given
	given map[core.TaskID]given
	moved [perRound + 1]chan struct{} // [n] is closed when n tasks were given out
}

func newTaken() *taken {
	k := &taken{given: make(map[core.TaskID]given, perRound)}
	for i := range k.moved {
		k.moved[i] = make(chan struct{})
	}
	close(k.moved[0])
	return k
}

// add keeps what a claim returned.
func (k *taken) add(t testing.TB, a given) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, twice := k.given[a.Task]; twice {
		t.Errorf("task %s is given out twice", a.Task)
		return
	}
	k.given[a.Task] = a
	close(k.moved[len(k.given)])
}

// claimAll takes tasks one by one until all of a round are taken.
func (c *controls) claimAll(queue string, k *taken) {
	for {
		select {
		case <-k.moved[perRound]:
			return
		default:
		}
		tasks, at, err := c.node.Claim(c.ctx, c.ns, core.ClaimSpec{
			Queues: []core.GrantQueue{{Name: queue, Weight: 1}}, Max: 1, Worker: "w",
		})
		if err != nil {
			c.t.Errorf("claim: %v", err)
			c.stop()
			return
		}
		for _, a := range tasks {
			k.add(c.t, given{a, at.Index})
		}
	}
}

// edits races edits of payload and priority with claims.
func (c *controls) edits(queue string, races int) (won int) {
	t := c.t
	for range races / perRound {
		ids := c.create(queue)
		edited, index := make([]core.Result, perRound), make([]uint64, perRound)
		took := newTaken()
		all := make([]func(), 0, perRound+claimers)
		for i, id := range ids {
			// Unless it waits until about that many tasks are taken, nearly every edit is ahead of the claim.
			begin := took.moved[min(max(i+c.rnd.IntN(30)-26, 0), perRound-1)]
			all = append(all, func() {
				select {
				case <-begin:
				case <-c.ctx.Done():
				}
				index[i] = c.ask(&edited[i], core.Commit{Ops: []core.Op{&core.TaskUpdate{
					Task: id, HasPayload: true, Payload: []byte("new"), HasPriority: true, Priority: editedPriority(i),
				}}})
			})
		}
		for range claimers {
			all = append(all, func() { c.claimAll(queue, took) })
		}
		c.together(all)
		if t.Failed() {
			t.FailNow()
		}
		for i, id := range ids {
			if c.judgeEdit(took.given[id], editedPriority(i), edited[i], index[i]) {
				won++
			}
		}
	}
	return won
}

// judgeEdit checks that a claim got what an edit made of the task exactly when the edit won, and completes the attempt.
func (c *controls) judgeEdit(a given, priority uint8, edited core.Result, index uint64) (won bool) {
	t := c.t
	t.Helper()
	won = edited.Refusal == nil
	payload, first := "new", index <= a.index
	if !won {
		payload, priority, first = "old", oldPriority, index >= a.index
		if wrong, is := refused[core.WrongState](edited); !is || wrong.State != core.Running {
			t.Fatalf("the edit is refused with %+v", edited.Refusal)
		}
	}
	task := c.task(a.Task)
	if string(a.Payload) != payload || a.Priority != priority || string(task.Payload) != payload || task.Priority != priority {
		t.Fatalf("edited: %v, and the claim got %q with priority %d, stored is %q with %d",
			won, a.Payload, a.Priority, task.Payload, task.Priority)
	}
	if !first {
		t.Fatalf("edited: %v, in entry %d, and given out in entry %d", won, index, a.index)
	}
	var r core.Result
	if c.ask(&r, completion(a.Assigned)); r.Refusal != nil {
		t.Fatalf("the completion after the race is refused: %+v", r.Refusal)
	}
	return won
}

// editedPriority is the priority that the i-th edit of a round sets: some rise and some fall.
func editedPriority(i int) uint8 { return uint8(i % 10) }

// TestOfTwoOpsOnOneTaskExactlyOneWins races completions with cancels by force and with forced releases, and edits with
// claims.
func TestOfTwoOpsOnOneTaskExactlyOneWins(t *testing.T) {
	l := openLong(t, longOptions{})
	defer l.close()
	c := &controls{long: l, rnd: rand.New(rand.NewPCG(11, 11))}
	c.ctx, c.stop = context.WithCancel(t.Context())
	defer c.stop()
	cancels, releases, edits := shorter(4000), shorter(3000), shorter(3000)
	won := c.against(control{
		queue: "cancel", races: cancels, after: core.Cancelled,
		op: func(a core.Assigned) core.Op { return &core.TaskCancel{Task: a.Task, Force: true} },
	})
	c.bothWin("completions against cancels", won, cancels)
	if st := l.stats("cancel"); st.States[core.Completed] != uint64(won) || st.States[core.Cancelled] != uint64(cancels-won) {
		t.Errorf("after cancels: %v, of which %d are completed", st.States, won)
	}
	won = c.against(control{
		queue: "release", races: releases, after: core.Ready,
		op: func(a core.Assigned) core.Op { return &core.TaskForceRelease{Task: a.Task, Attempt: a.Attempt} },
	})
	c.bothWin("completions against releases", won, releases)
	if st := l.stats("release"); st.States[core.Completed] != uint64(releases) {
		t.Errorf("after releases: %v", st.States)
	}
	c.bothWin("edits against claims", c.edits("edit", edits), edits)
	l.audit()
}

// bothWin checks that each side of the races won some of them.
func (c *controls) bothWin(what string, won, total int) {
	c.t.Helper()
	c.t.Logf("%s won %d of %d races", what, won, total)
	if won < total/100 || won > total*99/100 {
		c.t.Errorf("%s won %d of %d races: the other side hardly ran", what, won, total)
	}
}
