package server

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/obs"
)

const (
	// largestRepos is the number of repositories with series of their own.
	largestRepos = 100
	// repoSeries bounds the repositories that ever had series in this process. Later ones are added
	// up.
	repoSeries = 1000
	// rankingShare is how many times longer a ranking is used than it took to make. So making it
	// takes at most 1 % of the time.
	rankingShare = 100
)

// ranking holds the largest repositories. A scrape makes a new one if the last one is too old.
type ranking struct {
	// mu guards the fields below, and lets one scrape at a time make a ranking.
	mu   sync.Mutex
	list []node.RepoSize
	// When the list is too old, as a time of the boot clock.
	until time.Duration
}

// viewRepos returns the largest repositories, from the last ranking or a new one. It returns false
// if the node does not run, or on an error, which it logs.
func (a *admin) viewRepos() ([]node.RepoSize, bool) {
	p := a.parts.Load()
	if p == nil {
		return nil, false
	}
	r := &a.largest
	r.mu.Lock()
	defer r.mu.Unlock()
	// The boot clock, so that a step of the wall clock makes no ranking too old or too new.
	begin := a.o.Clock.Boot()
	if begin < r.until {
		return r.list, true
	}
	list, err := p.node.LargestRepos(context.Background(), largestRepos)
	if err != nil {
		a.o.Logger.Warn("largest repositories", "err", err)
		return nil, false
	}
	end := a.o.Clock.Boot()
	r.list, r.until = list, end+rankingShare*(end-begin)
	return list, true
}

// repoMetrics are those of the largest repositories.
func repoMetrics() []obs.Metric[[]node.RepoSize] {
	row := func(name, help string, read func(*node.RepoSize) int64) obs.Metric[[]node.RepoSize] {
		return obs.Metric[[]node.RepoSize]{
			Name: name, Help: help, Labels: []string{"tenant", "namespace", "repo"}, Bound: repoSeries,
			Values: func(list []node.RepoSize, put func(float64, ...string)) {
				for i := range list {
					put(float64(read(&list[i])), list[i].Tenant, list[i].Namespace, list[i].Name)
				}
			},
		}
	}
	return []obs.Metric[[]node.RepoSize]{
		row("millrace_refs_repository_refs", "Refs of the 100 largest repositories, as this node has applied them", func(r *node.RepoSize) int64 { return r.Refs }),
		row("millrace_refs_repository_bytes", "Bytes of packs and indexes of the 100 largest repositories", func(r *node.RepoSize) int64 { return r.Bytes }),
		row("millrace_refs_repository_packs", "Packs of the 100 largest repositories", func(r *node.RepoSize) int64 { return r.Packs }),
	}
}
