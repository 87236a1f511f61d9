package gitobj

import (
	"context"

	"github.com/millrace/millrace/internal/core"
)

// plan notes that a push makes a repository that no state has yet: sweeps leave it alone.
func (a *Area) plan(at Place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.planned[at] = true
}

// isPlanned reports whether a push that makes this repository is under way.
func (a *Area) isPlanned(at Place) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.planned[at]
}

// endPlanned ends the push of a repository that it makes. When nothing of it is left, neither are
// its directories. Until that is done sweeps leave the repository alone.
func (a *Area) endPlanned(at Place, left bool) {
	if left {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.planned, at)
		return
	}
	a.later(func() { a.dropPlanned(at) })
}

// dropPlanned removes a repository whose first push came to nothing, unless its state is there nevertheless.
func (a *Area) dropPlanned(at Place) {
	_, found, err := a.o.Manifests.Packs(context.Background(), at)
	if err == nil && !found {
		err = a.purge(at)
	}
	if err != nil {
		a.o.Logger.Warn("what a first push left could not be removed; a sweep will", "err", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.planned, at)
}

// lookupFresh is Lookup for a repository of which there is nothing but what was received.
func (a *Area) lookupFresh(p *openPack, id core.ObjectID) (core.ObjectType, core.ObjectID, error) {
	var t core.ObjectType
	var peeled core.ObjectID
	for depth := 0; p != nil; depth++ {
		found, kind, target, err := p.lookup(id)
		switch {
		case err != nil || !found:
			return core.ObjectMissing, core.ObjectID{}, err
		case depth == 0:
			t = kind
		case depth > peelDepth:
			return core.ObjectMissing, core.ObjectID{}, core.Exhausted{Limit: "tag_depth", Max: peelDepth}
		}
		if target.IsZero() {
			return t, peeled, nil
		}
		id, peeled = target, target
	}
	return core.ObjectMissing, core.ObjectID{}, nil
}
