package node

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// TestTotalsAreThoseOfAllQueues has more queues than are counted at a time.
func TestTotalsAreThoseOfAllQueues(t *testing.T) {
	const queues = totalsStep + 7
	r := openRig(t, rigOptions{noSync: true})
	defer r.close()
	var commits []core.Commit
	for i := range queues {
		commits = append(commits, core.Commit{Ops: []core.Op{
			&core.TaskCreate{ID: taskID(i), Queue: fmt.Sprintf("q%d", i), Payload: []byte("ab")},
		}})
	}
	if p := r.propose(commits...); p.Err != nil {
		t.Fatal(p.Err)
	}
	task := r.claim("q0", 1, 60_000)[0]
	r.must(&core.TaskComplete{Task: task.Task, Token: task.Token})
	r.claim("q1", 1, 60_000)
	st := r.node.Stats()
	s := st.Shards[0]
	q := s.Queues
	if q.Queues != queues || q.Created != queues || q.Completed != 1 || q.Bytes != 2*queues || s.Partitions != 1 {
		t.Errorf("totals %+v of %d partitions", q, s.Partitions)
	}
	if q.States[core.Ready] != queues-2 || q.States[core.Running] != 1 || q.States[core.Completed] != 1 {
		t.Errorf("states %v", q.States)
	}
	if !s.Ready || s.Applied == 0 || s.Term == 0 || s.Entries != 0 || s.Proposals != 0 || s.ProposalBytes != 0 || s.WaitedQueues != 0 {
		t.Errorf("shard %+v", s)
	}
	if st.Batches.Count() == 0 || st.Batches.Sum < queues || st.Namespaces != 1 {
		t.Errorf("node %+v", st)
	}
}
