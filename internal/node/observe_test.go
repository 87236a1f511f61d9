package node

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// openManual opens a node whose loop the test runs itself, so that nothing happens while it looks.
func openManual(t *testing.T) *rig {
	t.Helper()
	r, err := startRig(t, rigOptions{node: Options{Manual: true}})
	if err != nil {
		t.Fatal(err)
	}
	r.stepUntil(t, "the node does not serve", func() bool { return r.node.shards[0].view.ready.Load() })
	return r
}

func (r *rig) stepUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 5000 {
		r.node.Step()
		if done() {
			return
		}
		select { // the log syncs in a goroutine of its own
		case <-r.node.shards[0].wake:
			r.node.shards[0].poke()
		case <-time.After(10 * time.Millisecond): // a tick may be due
		}
	}
	t.Fatal(what)
}

// proposeManual proposes one commit and returns what became of it.
func (r *rig) proposeManual(t *testing.T, c core.Commit) core.Result {
	t.Helper()
	var got *core.Proposed
	r.node.Propose(c.Partition, []core.Commit{c}, func(p core.Proposed) { got = &p })
	r.stepUntil(t, "a proposal is not answered", func() bool { return got != nil })
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	return got.Results[0]
}

func TestObserversAreToldOfAnEntryBeforeAndAfterItIsPublished(t *testing.T) {
	t.Parallel()
	r := openManual(t)
	defer r.close()
	s := r.node.shards[0]
	var told []string
	index := uint64(0)
	note := func(what string, a *appliedEntry, published bool) {
		told = append(told, what)
		if got := s.view.applied.Load() >= a.index; got != published {
			t.Errorf("%s: the entry is published: %v, want %v", what, got, published)
		}
		if index = a.index; a.own == nil || len(a.Results) != len(a.entry.Commits) {
			t.Errorf("%s: own %v, %d results of %d commits", what, a.own, len(a.Results), len(a.entry.Commits))
		}
	}
	for _, name := range []string{"first", "second"} {
		s.observe(observer{
			name: name,
			held: func(a *appliedEntry) {
				if note(name+" held", a, false); s.applier.machineMu.TryRLock() {
					s.applier.machineMu.RUnlock()
					t.Error("the machine is not held")
				}
			},
			before: func(a *appliedEntry) error {
				if note(name+" before", a, false); !s.applier.machineMu.TryLock() {
					t.Error("the machine is held")
				} else {
					s.applier.machineMu.Unlock()
				}
				return nil
			},
			after: func(a *appliedEntry) { note(name+" after", a, true) },
		})
	}
	s.observe(observer{name: "silent"})
	r.proposeManual(t, core.Commit{Ops: []core.Op{&core.NamespaceCreate{Tenant: "t", Name: "n", Partitions: 1}}})
	want := []string{"first held", "second held", "first before", "second before", "first after", "second after"}
	if !slices.Equal(told, want) || index == 0 {
		t.Errorf("told at entry %d: %q, want %q", index, told, want)
	}
}

func TestAnObserverThatFailsEndsTheNodeAndIsNamed(t *testing.T) {
	t.Parallel()
	r := openManual(t)
	defer r.close()
	s := r.node.shards[0]
	fault := errors.New("no room")
	s.observe(observer{name: "ledger", before: func(*appliedEntry) error { return fault }})
	before := s.view.applied.Load()
	r.node.Propose(core.Partition{}, []core.Commit{{Ops: []core.Op{&core.NamespaceCreate{Tenant: "t", Name: "n", Partitions: 1}}}}, func(core.Proposed) {})
	var err error
	r.stepUntil(t, "the node goes on", func() bool {
		select {
		case err = <-r.node.Fatal():
			return true
		default:
			return false
		}
	})
	if !errors.Is(err, fault) || !strings.Contains(err.Error(), "ledger") {
		t.Errorf("the node ends with %v", err)
	}
	if s.view.applied.Load() != before {
		t.Error("the entry was published")
	}
}
