package row

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

// HinderLinks slows and breaks the links between three nodes, without cutting them for good, for about n seconds: bytes
// come late, stall, come at a megabit a second, one way alone, or connections are reset again and again. Writes go on under
// all of that, nothing is lost, and nodes do not hold more and more connections.
func HinderLinks(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &clusterRun{e: e, size: 3, rand: rand.New(rand.NewPCG(e.Seed, 21))}
	return r.run(ctx, true, func(ctx context.Context) error {
		first := r.rand.IntN(len(hindrances)) // so that short runs hinder in other ways too
		// normal is the number of connections before anything is hindered.
		begin, normal := time.Now(), r.open()
		for i := 0; time.Since(begin) < time.Duration(n)*time.Second && ctx.Err() == nil; i++ {
			h := hindrances[(first+i)%len(hindrances)]
			if err := r.hinder(ctx, h.kind, h.make(r), normal); err != nil {
				return fmt.Errorf("%s: %w", h.kind, err)
			}
			r.o.Done = min(n, int(time.Since(begin).Seconds()))
			pause(ctx, time.Duration(200+r.rand.IntN(800))*time.Millisecond)
		}
		return ctx.Err()
	})
}

// hindrance is a rule that holds on some links, all the time, or on one of them at a time for now and then.
type hindrance struct {
	// links are those that may be hindered.
	links []proc.Link
	rule  proc.Rule
	// share is for how much of the time the rule holds, on a link that is drawn again each time; 0
	// means on all links all the time.
	share float64
	// reset says that connections are reset in place of the rule.
	reset bool
}

// megabit is a megabit a second, in bytes.
const megabit = 1_000_000 / 8

// hindrances are the kinds of hindrances, each with what draws one.
var hindrances = []struct {
	kind string
	make func(r *clusterRun) hindrance
}{
	{"late", func(r *clusterRun) hindrance { // each way of each link
		way := proc.Way{Delay: time.Duration(20+r.rand.IntN(80)) * time.Millisecond}
		return hindrance{links: r.links(), rule: proc.Rule{Forward: way, Back: way}}
	}},
	{"late_one", func(r *clusterRun) hindrance { // those of one node
		way := proc.Way{Delay: time.Duration(20+r.rand.IntN(180)) * time.Millisecond}
		id := 1 + r.rand.IntN(r.size)
		return hindrance{links: both(id, r.others(id)...), rule: proc.Rule{Forward: way, Back: way}}
	}},
	// One link at a time passes nothing for a moment.
	{"stalls", func(r *clusterRun) hindrance {
		return hindrance{links: r.links(), rule: proc.Silence, share: 0.01 + 0.19*r.rand.Float64()}
	}},
	// Connections end, on one link after the other.
	{"resets", func(r *clusterRun) hindrance {
		return hindrance{links: r.links(), share: 0.2, reset: true}
	}},
	{"half_open", func(r *clusterRun) hindrance { // what one node says arrives nowhere, and it hears the others
		id := 1 + r.rand.IntN(r.size)
		return hindrance{links: from(id, r.others(id)...), rule: proc.Rule{Forward: proc.Way{Stall: true}}}
	}},
	// Each way carries a megabit a second.
	{"narrow", func(r *clusterRun) hindrance {
		way := proc.Way{Rate: megabit}
		return hindrance{links: r.links(), rule: proc.Rule{Forward: way, Back: way}}
	}},
}

// links are all links between nodes.
func (r *clusterRun) links() (out []proc.Link) {
	for id := range r.size {
		out = append(out, from(id+1, r.others(id+1)...)...)
	}
	return out
}

// open counts the connections between nodes.
func (r *clusterRun) open() (n int) {
	for _, p := range r.c.Links {
		n += p.Open()
	}
	return n
}

// hinder hinders for two to eight seconds and waits for a write that is acknowledged meanwhile, or afterwards.
// normal is how many connections there were before: more than twice as many are an error.
func (r *clusterRun) hinder(ctx context.Context, kind string, h hindrance, normal int) error {
	most := 8
	if r.e.Brief {
		most = 3
	}
	before, at := r.hindered(), r.l.now()
	end := time.Now().Add(time.Duration(2000+r.rand.IntN(1000*(most-1))) * time.Millisecond)
	if h.share == 0 {
		r.set(h.links, h.rule, false)
	}
	err := r.await(ctx, at, kind)
	for h.share > 0 && time.Now().Before(end) && ctx.Err() == nil {
		l := h.links[r.rand.IntN(len(h.links))]
		if h.reset {
			r.c.Links[l].Reset()
		} else {
			r.set([]proc.Link{l}, h.rule, false)
		}
		// A link is hindered for d, and then all are left alone for p. With L links each is
		// hindered for d/(L(d+p)) of the time, which is share if p is what is waited for below.
		d := time.Duration(20+r.rand.IntN(180)) * time.Millisecond
		pause(ctx, d)
		r.set(nil, proc.Rule{}, false)
		pause(ctx, time.Duration(float64(d)*(1/(h.share*float64(len(h.links)))-1))) // the others have their turns
	}
	pause(ctx, time.Until(end))
	if open := r.open(); open > 2*normal {
		r.mu.Lock()
		r.o.fail(fmt.Errorf("%d connections between nodes under %s, %d before", open, kind, normal))
		r.mu.Unlock()
	}
	r.set(nil, proc.Rule{}, false)
	r.note(kind, before)
	return err
}
