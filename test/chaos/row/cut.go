package row

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/check"
	"github.com/millrace/millrace/internal/check/checktest"
	"github.com/millrace/millrace/test/chaos/proc"
)

// CutLinks cuts links between the nodes of a cluster, under a mixed load on all nodes, until about n calls were made at
// registers. A majority that is left goes on, a node that is cut off answers neither reads nor writes, and afterwards all agree.
func CutLinks(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &clusterRun{e: e, size: 3, rand: rand.New(rand.NewPCG(e.Seed, 14))}
	if r.rand.IntN(3) == 0 {
		r.size = 5
	}
	o, err := r.run(ctx, true, func(ctx context.Context) error {
		first := r.rand.IntN(len(cuts)) // so that short runs make other cuts too
		for i := 0; r.l.count() < n && ctx.Err() == nil; i++ {
			pause(ctx, time.Duration(200+r.rand.IntN(800))*time.Millisecond)
			c := cuts[(first+i)%len(cuts)]
			if err := r.cut(ctx, c.kind, c.make); err != nil {
				return fmt.Errorf("cut %d, %s: %w", i+1, c.kind, err)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	o.Done = min(n, r.l.count())
	// A run whose cuts met no message proves nothing.
	fired := 0
	for kind, times := range o.Faults {
		if kind != neverFired {
			fired += times
		}
	}
	if fired == 0 && o.Invalid == "" {
		o.Invalid = "no cut met a message"
	}
	return o, nil
}

// neverFired counts, among the faults, those that met nothing: no message on the links, or no call
// of the disk.
const neverFired = "met_nothing"

// plan is one cut: steps one after another, with the links that are cut in each. The others pass. A
// cut whose last step is empty heals by itself.
type plan struct {
	steps [][]proc.Link
	// each is how long a step lasts, but for the last.
	each time.Duration
	// isolated is a node that no other hears, or that hears no other, from the first step to the
	// last; 0 means none.
	isolated int
}

// cuts are the kinds of cuts, each with what draws one. lead is the leader's id.
var cuts = []struct {
	kind string
	make func(r *clusterRun, lead int) plan
}{
	// The leader is cut off from all others.
	{"leader_cut", func(r *clusterRun, lead int) plan {
		return plan{steps: [][]proc.Link{both(lead, r.others(lead)...)}, isolated: lead}
	}},
	// A follower is.
	{"follower_cut", func(r *clusterRun, lead int) plan {
		lonely := r.others(lead)[r.rand.IntN(r.size-1)]
		return plan{steps: [][]proc.Link{both(lonely, r.others(lonely)...)}, isolated: lonely}
	}},
	// What the leader says is lost, and it hears the others.
	{"leader_mute", func(r *clusterRun, lead int) plan {
		return plan{steps: [][]proc.Link{from(lead, r.others(lead)...)}, isolated: lead}
	}},
	// The others hear the leader, which hears none of them.
	{"leader_deaf", func(r *clusterRun, lead int) plan {
		return plan{steps: [][]proc.Link{to(lead, r.others(lead)...)}, isolated: lead}
	}},
	{"minority", func(r *clusterRun, lead int) plan { // as many as can be spared, the leader among them, hear each other alone
		with := r.others(lead)
		r.rand.Shuffle(len(with), func(i, k int) { with[i], with[k] = with[k], with[i] })
		few := append([]int{lead}, with[:(r.size-1)/2-1]...)
		var cut []proc.Link
		for _, id := range few {
			cut = append(cut, both(id, with[len(few)-1:]...)...)
		}
		return plan{steps: [][]proc.Link{cut}, isolated: lead}
	}},
	{"bridge", func(r *clusterRun, lead int) plan { // one follower hears both sides, which do not hear each other
		rest := r.others(lead)
		r.rand.Shuffle(len(rest), func(i, k int) { rest[i], rest[k] = rest[k], rest[i] })
		here, there := append([]int{lead}, rest[:(r.size-1)/2-1]...), rest[(r.size-1)/2:]
		var cut []proc.Link
		for _, id := range here {
			cut = append(cut, both(id, there...)...)
		}
		return plan{steps: [][]proc.Link{cut}}
	}},
	// The leader is cut off and let back, again and again.
	{"flapping", func(r *clusterRun, lead int) plan {
		p := plan{each: time.Duration(100+r.rand.IntN(900)) * time.Millisecond}
		for range 4 {
			p.steps = append(p.steps, both(lead, r.others(lead)...), nil)
		}
		return p
	}},
	{"swizzle", func(r *clusterRun, _ int) plan { // cut off one after another, and let back in in another order
		p := plan{each: time.Duration(100+r.rand.IntN(400)) * time.Millisecond}
		off := map[int]bool{}
		for _, order := range [][]int{r.rand.Perm(r.size), r.rand.Perm(r.size)} {
			for _, i := range order {
				off[i+1] = !off[i+1]
				var step []proc.Link
				for id := range r.size {
					if off[id+1] {
						step = append(step, both(id+1, r.others(id+1)...)...)
					}
				}
				p.steps = append(p.steps, step)
			}
		}
		return p
	}},
}

// others returns the ids of all nodes but one.
func (r *clusterRun) others(id int) (out []int) {
	for other := range r.size {
		if other+1 != id {
			out = append(out, other+1)
		}
	}
	return out
}

// from, to and both return the links between one node and some others: those on which it speaks,
// those on which it hears, or all.
func from(id int, peers ...int) (out []proc.Link) {
	for _, p := range peers {
		out = append(out, proc.Link{From: id, To: p})
	}
	return out
}

func to(id int, peers ...int) (out []proc.Link) {
	for _, p := range peers {
		out = append(out, proc.Link{From: p, To: id})
	}
	return out
}

func both(id int, peers ...int) []proc.Link { return append(from(id, peers...), to(id, peers...)...) }

// isolation is a time in which a node could not agree with anybody. begin and end are on the clock
// of the registers, in nanoseconds.
type isolation struct {
	node       int
	begin, end int64
}

// cut makes one cut, waits for a write that is acknowledged meanwhile, and heals it. It lasts for
// one to ten seconds, short times as often as long ones.
func (r *clusterRun) cut(ctx context.Context, kind string, make func(*clusterRun, int) plan) error {
	lead, err := r.c.Leader(ctx)
	if err != nil {
		return err
	}
	most := 10.0
	if r.e.Brief {
		most = 3
	}
	end := time.Now().Add(time.Duration(math.Pow(most, r.rand.Float64()) * float64(time.Second)))
	rule, broken := proc.Silence, false
	if r.rand.IntN(3) == 0 { // connections end, and none is made
		rule, broken = proc.Rule{Refuse: true}, true
	}
	p := make(r, lead.ID)
	before := r.hindered()
	for i, step := range p.steps {
		r.set(step, rule, broken)
		if i < len(p.steps)-1 {
			pause(ctx, p.each)
		}
	}
	at := r.l.now()
	healed := len(p.steps[len(p.steps)-1]) == 0
	if healed { // the cut is over: it went on and off
		r.note(kind, before)
		return r.await(ctx, at, kind)
	}
	err = r.await(ctx, at, kind)
	pause(ctx, time.Until(end))
	if p.isolated != 0 {
		r.isolations = append(r.isolations, isolation{p.isolated, at, r.l.now()})
	}
	r.set(nil, proc.Rule{}, false)
	r.note(kind, before)
	return err
}

// note counts a cut under its kind, if it met a message since before.
func (r *clusterRun) note(kind string, before int64) {
	if r.hindered() == before {
		kind = neverFired
	}
	r.o.Faults[kind]++
}

// set lets a rule hold on links, and none on the others. broken also ends the connections on those links.
func (r *clusterRun) set(links []proc.Link, rule proc.Rule, broken bool) {
	now := map[proc.Link]bool{}
	for _, l := range links {
		now[l] = true
	}
	for l, proxy := range r.c.Links {
		switch {
		case !now[l]:
			proxy.Set(proc.Rule{})
		default:
			proxy.Set(rule)
			if broken {
				proxy.Reset()
			}
		}
	}
}

// hindered counts what rules did so far, on all links.
func (r *clusterRun) hindered() (n int64) {
	for _, p := range r.c.Links {
		n += p.Hindered()
	}
	return n
}

// answeredAlone judges that no node answered a call, not even a read, that was made to it and ended while it could not reach a
// majority. Rule: answered. Counts: cut_off (times that a node was), unanswered (calls made to one then).
func (r *clusterRun) answeredAlone() *check.Report {
	report := check.NewReport("answered_alone")
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	for _, i := range r.isolations {
		report.Counts["cut_off"]++
		for k := range r.l.history {
			a := &r.l.history[k]
			if r.l.nodeOf[a.Client] != i.node || a.Invoke < i.begin || a.Invoke > i.end {
				continue
			}
			report.Checked++
			// A swap that is refused is an answer too: it says what the key is not.
			ok := a.Outcome == check.OK || a.Kind == checktest.Swap && a.Outcome == check.Refused
			if ok && a.Return < i.end {
				report.Violate("answered", "node %d was cut off from %d to %d: %s", i.node, i.begin, i.end, a)
			} else {
				report.Counts["unanswered"]++
			}
		}
	}
	return report.Done()
}
