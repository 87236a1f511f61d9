package node

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// openStopped opens a node whose clock stands still once it serves and its loop has begun to apply small entries, so that no entry takes
// long unless a test says so.
func openStopped(t *testing.T) (*rig, *stopClock) {
	t.Helper()
	clock := new(stopClock)
	r := openRig(t, rigOptions{clock: clock})
	clock.stop()
	for range 4 * slowRuns { // an entry before may have taken long
		if r.appliedByLoop(10, nil) {
			return r, clock
		}
	}
	t.Fatal("the loop applies nothing")
	return nil, nil
}

// appliedByLoop puts a key, and reports whether the loop applied that, and not the applier. during is called meanwhile.
func (r *rig) appliedByLoop(bytes int, during func()) bool {
	by := make(chan bool, 1)
	put := &core.KVPut{Keyspace: "k", Key: []byte("k"), Value: make([]byte, bytes)}
	r.node.Propose(r.ns, []core.Commit{{Partition: r.ns, Principal: "test", Ops: []core.Op{put}}}, func(core.Proposed) {
		if during != nil {
			during()
		}
		by <- strings.Contains(string(debug.Stack()), ".(*shard).applyHere(")
	})
	return <-by
}

func TestTheLoopAppliesSmallEntriesItself(t *testing.T) {
	t.Parallel()
	r, _ := openStopped(t)
	defer r.close()
	const entries = 200
	small := 0
	for range entries {
		if r.appliedByLoop(10, nil) {
			small++
		}
	}
	if small < entries/2 { // a reader may hold the store, or the applier not have ended its last work
		t.Errorf("the loop applied %d of %d small entries", small, entries)
	}
	for i := range 50 {
		if r.appliedByLoop(hereBytes, nil) {
			t.Fatalf("large entry %d did not go to the applier", i)
		}
	}
}

func TestEntriesGoToTheApplierAfterOneThatTookLong(t *testing.T) {
	t.Parallel()
	r, clock := openStopped(t)
	defer r.close()
	for !r.appliedByLoop(10, func() { clock.at.Add(int64(2 * hereMost)) }) {
	}
	for i := range slowRuns / 2 { // entries of others count, too
		if r.appliedByLoop(10, nil) {
			t.Fatalf("entry %d after the slow one did not go to the applier", i)
		}
	}
	for range 2 * slowRuns {
		if r.appliedByLoop(10, nil) {
			return
		}
	}
	t.Error("the applier goes on with small entries")
}
