package node

import (
	"sync"

	"github.com/millrace/millrace/internal/core"
)

// apart makes a proposal of each commit of p, for a node that writes one commit per entry. p is answered when all of them
// are: with their results, or with the first failure, which leaves open what became of the others.
func (p *proposal) apart() []*proposal {
	g := &gathered{p: p, left: len(p.commits), results: make([]core.Result, len(p.commits))}
	out := make([]*proposal, len(p.commits))
	for i := range p.commits {
		out[i] = &proposal{
			commits: p.commits[i : i+1 : i+1], bytes: p.bytes/len(p.commits) + 1,
			done: func(d core.Proposed) { g.take(i, d) },
		}
		if s := p.settles; s != nil {
			out[i].settles = &settling{session: s.session, holds: s.holds[i : i+1 : i+1]}
		}
	}
	return out
}

// gathered puts the answers of a proposal's parts together.
type gathered struct {
	// The proposal that was taken apart.
	p *proposal

	// Guards the fields below.
	mu sync.Mutex
	// How many parts have no answer yet.
	left int
	// The result of each commit, in order; zero where there is none yet.
	results []core.Result
	// The highest position of a part.
	at core.At
	// The first failure; nil: none so far.
	err core.Fact
}

// take takes in the answer of part i, and answers the whole after the last one. It answers without holding mu.
func (g *gathered) take(i int, d core.Proposed) {
	g.mu.Lock()
	switch {
	case d.Err != nil && g.err == nil:
		g.err = d.Err
		if u, ok := d.Err.(core.Unavailable); ok {
			u.Unknown = true // others may have been applied
			g.err = u
		}
	case d.Err == nil:
		g.results[i] = d.Results[0]
		if d.At.Index > g.at.Index {
			g.at = d.At
		}
	}
	g.left--
	last := g.left == 0
	g.mu.Unlock()
	if !last {
		return
	}
	if g.err != nil {
		g.p.done(core.Proposed{Err: g.err})
		return
	}
	g.p.done(core.Proposed{Results: g.results, At: g.at})
}
