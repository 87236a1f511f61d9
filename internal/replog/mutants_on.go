//go:build mutants

package replog

import (
	"os"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
)

// plantedBug says whether this run carries a planted bug, to prove that a test catches it: the simulator's.
func plantedBug(name string) bool { return os.Getenv("MILLRACE_MUTANT") == name }

// pretend makes the answer of a peer that has not yet seen an append.
func (k *Core) pretend(m *pb.Message) {
	if !plantedBug("ack_before_quorum") || m.GetType() != pb.MsgApp || len(m.GetEntries()) == 0 {
		return
	}
	last := m.GetEntries()[len(m.GetEntries())-1].GetIndex()
	pretended.mu.Lock()
	defer pretended.mu.Unlock()
	pretended.of[k] = append(pretended.of[k], &pb.Message{
		Type: pb.MsgAppResp.Enum(), From: m.To, To: m.From, Term: m.Term, Index: &last,
	})
}

func (k *Core) believe() {
	pretended.mu.Lock()
	in := pretended.of[k]
	delete(pretended.of, k)
	pretended.mu.Unlock()
	for _, m := range in {
		_ = k.rn.Step(m) // what it refuses, it refuses
	}
}

var pretended = struct {
	mu sync.Mutex // guards of
	of map[*Core][]*pb.Message
}{of: make(map[*Core][]*pb.Message)}
