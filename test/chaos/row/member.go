package row

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

// ChangeMembers changes the membership of a cluster n times under a mixed load: it begins with one node, grows to five and
// shrinks to three, again and again; a node is replaced, or comes back without its disk. During most changes another node is
// killed, or cut off for a while.
func ChangeMembers(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &memberRun{clusterRun: clusterRun{e: e, size: 6, from: 1, rand: rand.New(rand.NewPCG(e.Seed, 16))}}
	return r.run(ctx, false, func(ctx context.Context) error {
		for i := range n {
			pause(ctx, time.Duration(100+r.rand.IntN(700))*time.Millisecond)
			if err := r.change(ctx); err != nil {
				return fmt.Errorf("change %d: %w", i+1, err)
			}
			r.o.Done++
		}
		return ctx.Err()
	})
}

// memberRun is a run whose members come and go.
type memberRun struct {
	clusterRun
	// shrinks says that the way is from five members to three, and not from three to five.
	shrinks bool
	// changed says that there was a change of members, which the nodes can tell of.
	changed bool
}

// changeWithin bounds a change of membership; one that takes longer hangs.
const changeWithin = 90 * time.Second

// change draws one change, makes it and waits for its end. With less than three members it adds one.
func (r *memberRun) change(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	defer cancel()
	in := r.c.Members()
	switch len(in) {
	case 3:
		r.shrinks = false
	case 5:
		r.shrinks = true
	}
	some := in[r.rand.IntN(len(in))]
	switch kind := r.rand.IntN(4); {
	case len(in) >= 3 && kind == 0:
		return r.loseDisk(ctx, some)
	case len(in) >= 3 && kind == 1:
		return r.replace(ctx, some)
	case len(in) >= 3 && r.shrinks:
		return r.remove(ctx, some)
	}
	_, err := r.add(ctx)
	return err
}

// spare returns a node that is outside. There is one, because a cluster of six nodes has at most
// five members when a change begins.
func (r *memberRun) spare() *proc.Node {
	i := slices.IndexFunc(r.c.Nodes, func(n *proc.Node) bool { return n.Outside })
	return r.c.Nodes[i]
}

// add has a node that is outside join, and waits until it is a member. flags are those of the
// operator's command.
func (r *memberRun) add(ctx context.Context, flags ...string) (*proc.Node, error) {
	n := r.spare()
	var told struct {
		Token string `json:"join_token"`
	}
	args := append([]string{"add", fmt.Sprint("n", n.ID)}, flags...)
	if err := r.ask(ctx, nil, &told, args...); err != nil {
		return nil, err
	}
	r.changed = true
	n.JoinAt(r.other(n), told.Token)
	n.Outside = false
	if _, err := n.Start(ctx); err != nil {
		return nil, fmt.Errorf("node %d joins: %w, see %s", n.ID, err, n.LogFile())
	}
	disturbed, err := r.disturb(ctx, n)
	if err == nil {
		err = r.ends(ctx)
	}
	if err == nil {
		err = disturbed()
	}
	r.o.Faults["add"]++
	return n, err
}

// remove has an operator remove a node, and waits until it has ended for good.
func (r *memberRun) remove(ctx context.Context, n *proc.Node) error {
	if err := r.ask(ctx, n, &struct{}{}, "remove", fmt.Sprint("n", n.ID)); err != nil {
		return err
	}
	disturbed, err := r.disturb(ctx, n)
	if err == nil {
		err = r.ends(ctx)
	}
	if err == nil {
		err = disturbed()
	}
	r.o.Faults["remove"]++
	if err != nil {
		return err
	}
	return r.leaves(n)
}

// replace has a new node join as a learner, which an operator then puts in the place of n.
func (r *memberRun) replace(ctx context.Context, n *proc.Node) error {
	with, err := r.add(ctx, "--learner")
	if err != nil {
		return err
	}
	if err := r.ask(ctx, n, &struct{}{}, "replace", fmt.Sprint("n", n.ID), fmt.Sprint("n", with.ID)); err != nil {
		return err
	}
	if err := r.ends(ctx); err != nil {
		return err
	}
	r.o.Faults["replace"]++
	return r.leaves(n)
}

// goesWithin bounds how long a node that was removed may serve on.
const goesWithin = 50 * time.Second

// leaves waits for the end of a node that was removed, and that it does not start again: status 23
// says so. Then its files go, so that it can join as a new one.
func (r *memberRun) leaves(n *proc.Node) error {
	for range 2 {
		if code := n.ExitCode(goesWithin); code != 23 {
			return fmt.Errorf("node %d was removed, and ended with %d, see %s", n.ID, code, n.LogFile())
		}
		if _, err := n.Launch(); err != nil {
			return err
		}
	}
	if code := n.ExitCode(goesWithin); code != 23 {
		return fmt.Errorf("node %d was removed, started again and ended with %d, see %s", n.ID, code, n.LogFile())
	}
	n.Outside = true
	return n.Clear()
}

// loseDisk kills a node, removes its files and starts it. It must come back by itself, as another
// replica, which is a change of members like others. So the end of that change is waited for.
func (r *memberRun) loseDisk(ctx context.Context, n *proc.Node) error {
	at := r.l.now()
	if n.Ended() || !n.Kill() {
		return fmt.Errorf("node %d ended by itself, see %s", n.ID, n.LogFile())
	}
	if err := n.Clear(); err != nil {
		return err
	}
	if err := r.await(ctx, at, "lost_disk"); err != nil {
		return err
	}
	// before is the last change so far. The one to come has a higher number.
	var before proc.Job
	if r.changed {
		var err error
		if before, err = r.job(ctx); err != nil {
			return err
		}
	}
	n.JoinAt(r.other(n), "mrj_lost")
	if err := r.start(ctx, n); err != nil {
		return err
	}
	r.o.Faults["lost_disk"]++
	r.changed = true
	for {
		if j, err := r.job(ctx); err == nil && j.ID > before.ID && j.Over() {
			return r.ended(j)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("node %d does not come back without its disk", n.ID)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// disturb kills a member other than n, or cuts one off, in most changes. later undoes that, and waits for the next
// write.
func (r *memberRun) disturb(ctx context.Context, n *proc.Node) (later func() error, err error) {
	in := slices.DeleteFunc(r.c.Members(), func(m *proc.Node) bool { return m == n })
	nothing := func() error { return nil }
	if len(in) == 0 {
		return nothing, nil
	}
	who, at := in[r.rand.IntN(len(in))], r.l.now()
	switch r.rand.IntN(3) {
	case 0:
		if who.Ended() || !who.Kill() {
			return nil, fmt.Errorf("node %d ended by itself, see %s", who.ID, who.LogFile())
		}
		r.o.Faults["kill"]++
		pause(ctx, time.Duration(r.rand.IntN(600))*time.Millisecond)
		if err := r.start(ctx, who); err != nil {
			return nil, err
		}
		return func() error { return r.await(ctx, at, kindKill) }, nil
	case 1:
		rule := proc.Silence
		if r.rand.IntN(2) == 0 {
			rule = proc.Rule{Refuse: true}
		}
		who.Door.Set(rule)
		if rule.Refuse {
			who.Door.Reset()
		}
		pause(ctx, time.Duration(300+r.rand.IntN(2000))*time.Millisecond)
		who.Door.Set(proc.Rule{})
		r.o.Faults["unreached"]++
		return func() error { return r.await(ctx, at, "unreached") }, nil
	}
	return nothing, nil
}

// other returns a member that runs and is not n, or nil.
func (r *memberRun) other(n *proc.Node) *proc.Node {
	for _, m := range r.c.Members() {
		if m != n && m.Up() {
			return m
		}
	}
	return nil
}

// ask has an operator ask for a change, at a member other than one, until it is taken. Refusals
// that pass, as while another change is under way, are tried again until ctx ends.
func (r *memberRun) ask(ctx context.Context, not *proc.Node, out any, args ...string) error {
	for {
		at := r.other(not)
		if at == nil {
			return fmt.Errorf("cluster %s: no other node runs", args)
		}
		err := at.Operate(ctx, out, args...)
		if err == nil || ctx.Err() != nil {
			return err
		}
		text := err.Error()
		passes := slices.ContainsFunc([]string{"UNAVAILABLE", "DEADLINE", "job_running", "learner_behind", "quorum_loss", "NOT_LEADER"}, func(s string) bool {
			return strings.Contains(text, s)
		})
		if !passes {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// job reads how the last change stands, at any member that tells.
func (r *memberRun) job(ctx context.Context) (j proc.Job, err error) {
	for {
		if at := r.other(nil); at != nil {
			if j, err = at.Job(ctx); err == nil {
				return j, nil
			}
		}
		if ctx.Err() != nil {
			return j, fmt.Errorf("no node tells how the change stands: %w", err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// ends waits for the end of the change under way.
func (r *memberRun) ends(ctx context.Context) error {
	for {
		j, err := r.job(ctx)
		if err != nil {
			return err
		}
		if j.Over() {
			return r.ended(j)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the change %d, %s, does not end", j.ID, j.Kind)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// ended returns an error unless a change was done.
func (r *memberRun) ended(j proc.Job) error {
	if j.State != "done" {
		return fmt.Errorf("the change %d, %s, ended as %s", j.ID, j.Kind, j.State)
	}
	return nil
}
