package node

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestAProposalIsAnsweredWhileItsEntryIsAppliedAndReadersWaitForTheRest(t *testing.T) {
	r := openRig(t, rigOptions{})
	defer r.close()
	s, err := r.node.shardOf(r.ns)
	if err != nil {
		t.Fatal(err)
	}
	type seen struct {
		proposed core.Proposed
		applied  uint64 // when it was answered
		read     chan error
		at       chan uint64 // index that the read tells
	}
	answered := make(chan seen, 1)
	commits := make([]core.Commit, 20)
	for i := range commits {
		commits[i] = core.Commit{Partition: r.ns, Principal: "test", Ops: []core.Op{&core.TaskCreate{ID: taskID(i), Queue: "q"}}}
	}
	r.node.Propose(r.ns, commits, func(p core.Proposed) {
		read, at := make(chan error, 1), make(chan uint64, 1)
		go func() {
			_, a, err := r.node.Task(t.Context(), r.ns, taskID(len(commits)-1), core.ReadOptions{})
			read <- err
			at <- a.Index
		}()
		answered <- seen{p, s.view.applied.Load(), read, at}
	})
	got := <-answered
	if got.proposed.Err != nil || len(got.proposed.Results) != len(commits) {
		t.Fatalf("answer %+v, want %d results", got.proposed, len(commits))
	}
	if got.applied >= got.proposed.At.Index {
		t.Errorf("answered after entry %d was published", got.proposed.At.Index)
	}
	if err := <-got.read; err != nil {
		t.Errorf("read of what was answered: %v", err)
	}
	if at := <-got.at; at < got.proposed.At.Index {
		t.Errorf("a read after the answer of entry %d tells index %d", got.proposed.At.Index, at)
	}
}

func TestEachProposalIsAnsweredOnceWhenItsCommitsAreJudged(t *testing.T) {
	var order []int
	f := &inflight{}
	for i, n := range []int{2, 1, 3, 1} {
		p := &proposal{commits: make([]core.Commit, n), done: func(d core.Proposed) {
			if len(d.Results) != n {
				t.Errorf("proposal %d has %d results, want %d", i, len(d.Results), n)
			}
			order = append(order, i)
		}}
		if i == 1 {
			p.settles = &settling{}
		}
		f.proposals = append(f.proposals, p)
	}
	at := func(core.Partition) core.At { return core.At{} }
	judged := f.early(at, func(core.Partition, []core.Result) {})
	want := [][]int{{}, {0}, {0}, {0}, {0}, {0, 2}, {0, 2, 3}, {0, 2, 3}}
	results := make([]core.Result, len(want)) // one more than the proposals have: a grant's
	for i := range want {
		judged(results[:i+1])
		if !slices.Equal(order, want[i]) {
			t.Errorf("after %d commits proposals %v are answered, want %v", i+1, order, want[i])
		}
	}
	(&shard{}).answer(f, nil, results, at)
	if want := []int{0, 2, 3, 1}; !slices.Equal(order, want) {
		t.Errorf("in the end proposals %v are answered, want %v: what settles waits for the entry", order, want)
	}
}
