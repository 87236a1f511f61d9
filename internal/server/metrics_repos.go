package server

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/obs"
)

const (
	// largestRepos is how many repositories have figures of their own.
	largestRepos = 100
	// repoSeries bounds those that ever had, while this process runs: what comes later is added up.
	repoSeries = 1000
	// rankingShare is how much longer a ranking of all repositories is used than it took to make: 1 % of the time at most.
	rankingShare = 100
)

// ranking holds the largest repositories. It is made again when a client asks and it is old.
type ranking struct {
	mu    sync.Mutex // guards the fields below, and lets one make it
	list  []node.RepoSize
	until time.Duration // of the boot clock
}

// viewRepos returns the largest repositories.
func (a *admin) viewRepos() ([]node.RepoSize, bool) {
	p := a.parts.Load()
	if p == nil {
		return nil, false
	}
	r := &a.largest
	r.mu.Lock()
	defer r.mu.Unlock()
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
