package replog

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/wal"
)

// FirstIndex and FirstTerm are where every shard's log begins: nothing is stored at them, so that a replica that joins
// later, with an empty log, is told apart from one that has the beginning.
const (
	FirstIndex uint64 = 1
	FirstTerm  uint64 = 1
)

// Bootstrap begins the log of a shard that has none, durably. It does nothing when there is one.
func Bootstrap(log *wal.Log, shard core.ShardID) error {
	if st := log.State(shard); st.CutIndex > 0 || st.Last > 0 {
		return nil
	}
	return Reset(log, shard, FirstIndex, FirstTerm)
}

// Reset restarts the log of a shard after (index, term), durably.
func Reset(log *wal.Log, shard core.ShardID, index, term uint64) error {
	return reset(log, shard, index, term, &pb.HardState{Term: new(term), Commit: new(index), Vote: new(uint64(0))})
}

// reset restarts the log and waits until that is durable. It steps a log that has no goroutine.
func reset(log *wal.Log, shard core.ShardID, index, term uint64, hard *pb.HardState) error {
	done := make(chan error, 1)
	log.ResetTo(shard, index, term, encodeHardState(hard), func(err error) { done <- err })
	if log.Manual() {
		for len(done) == 0 {
			log.Step()
		}
	}
	if err := <-done; err != nil {
		return fmt.Errorf("begin log of shard %d: %w", shard, err)
	}
	return nil
}
