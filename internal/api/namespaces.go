package api

import (
	"context"
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// countedUpTo bounds how many keyspaces, repositories and collections of a namespace are counted.
	countedUpTo = 1000
	// summedUpTo bounds the queues of a namespace whose counters are added up.
	summedUpTo = 10_000
	// NamespacesPage is the most namespaces of one page: each costs a reading of all its partitions.
	NamespacesPage = 100
)

// NamespaceSums is what a namespace holds, as far as the caller may know. A number is -1 where a scope is missing, or the service is
// closed.
type NamespaceSums struct {
	Name        string
	Partitions  int
	Queues      int
	Sum         *pb.QueueStats // counters of those queues
	Keyspaces   int            // countedUpTo at most, as the next two
	Repos       int
	Collections int
}

// Namespaces reads a page of the namespaces of the caller's tenant by name, from this node's copy of the directory, and what each holds
// as this node has it. next is the cursor of the next page; empty: there is none.
func (s *Server) Namespaces(ctx context.Context, cursor string, limit int) (list []NamespaceSums, next string, err error) {
	after, fact := readNameCursor(cursor, false)
	if fact != nil {
		return nil, "", fact
	}
	who, _, fact := s.asks(ctx)
	if fact != nil {
		return nil, "", fact
	}
	all, err := s.node.spaces.Namespaces(who.Tenant, after, limit)
	if err != nil {
		return nil, "", err
	}
	for i := range all {
		one, err := s.namespaceSums(edge.WithNamespace(ctx, all[i].Name))
		if edge.UnknownNamespace(err) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, "", err
		}
		one.Name = all[i].Name
		list = append(list, one)
	}
	if len(all) == limit {
		next = showCursor([]byte(all[limit-1].Name))
	}
	return list, next, nil
}

// namespaceSums reads what the namespace of a call holds.
func (s *Server) namespaceSums(ctx context.Context) (n NamespaceSums, err error) {
	c, err := s.begin(ctx, false)
	if err != nil {
		return n, err
	}
	n = NamespaceSums{Partitions: len(c.partitions), Queues: -1, Keyspaces: -1, Repos: -1, Collections: -1}
	may := func(scope auth.Scopes, service string) bool {
		return c.who.Scopes.Has(scope) && !s.o.disabled(service)
	}
	if may(auth.TaskRead, ServiceQueue) {
		if err := c.sumQueues(ctx, &n); err != nil {
			return n, err
		}
	}
	if may(auth.KVRead, ServiceKV) {
		n.Keyspaces, err = c.countNames(func(p core.Partition) (names []string, at core.At, err error) {
			list, at, err := s.node.keys.Keyspaces(ctx, p, "", countedUpTo, asLive)
			for i := range list {
				names = append(names, list[i].Name)
			}
			return names, at, err
		})
	}
	if err == nil && may(auth.RefRead, ServiceRefs) && s.o.Refs != nil {
		n.Repos, err = c.countNames(func(p core.Partition) (names []string, at core.At, err error) {
			list, at, err := s.o.Refs.Repos(ctx, p, "", countedUpTo, false, asLive)
			for i := range list {
				if c.who.ReachesRepo(c.t.space, list[i].Name) {
					names = append(names, list[i].Name)
				}
			}
			return names, at, err
		})
	}
	if err == nil && may(auth.SearchRead, ServiceSearch) {
		var list []core.CollectionInfo
		list, _, err = s.node.search.Collections(ctx, c.t.part, asLive)
		n.Collections = min(len(list), countedUpTo)
	}
	return n, err
}

// sumQueues adds up the counters of the queues that the caller reaches.
func (c *call) sumQueues(ctx context.Context, n *NamespaceSums) error {
	all, _, err := c.allQueues(ctx, summedUpTo, nil)
	if err != nil {
		return err
	}
	n.Queues = 0
	var q core.QueueStats
	for i := range all {
		if c.who.ReachesQueue(all[i].Queue) {
			n.Queues++
			sum(&q, &all[i])
		}
	}
	n.Sum = showStats(&q)
	return nil
}

// countNames counts what has a name in any of the partitions, once, up to countedUpTo.
func (c *call) countNames(read func(p core.Partition) ([]string, core.At, error)) (int, error) {
	var mu sync.Mutex // guards seen
	seen := make(map[string]bool)
	_, err := c.liveEach(func(p core.Partition) (core.At, error) {
		names, at, err := read(p)
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			if len(seen) < countedUpTo {
				seen[name] = true
			}
		}
		return at, err
	})
	return len(seen), err
}
