package replog

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/internal/core"
)

// Claims is what a message between replicas says of its sender that must be durable before it is sent. A test that sees all
// messages can check replicas against it.
type Claims struct {
	Term uint64 // of the message
	Vote uint64 // the sender votes for this replica in Term; 0: the message grants no vote
	Has  uint64 // the sender has all entries up to here; 0: the message acknowledges none
}

// ClaimsOf reads the claims of an encoded message, after Config.Head.
func ClaimsOf(data []byte) (Claims, error) {
	m := new(pb.Message)
	if err := proto.Unmarshal(data, m); err != nil {
		return Claims{}, fmt.Errorf("decode peer message: %w", err)
	}
	c := Claims{Term: m.GetTerm()}
	switch {
	case m.GetReject():
	case m.GetType() == pb.MsgVoteResp:
		c.Vote = m.GetTo()
	case m.GetType() == pb.MsgAppResp:
		c.Has = m.GetIndex()
	}
	return c, nil
}

// DurableVote returns the term and the vote that a log holds of a shard; zeros without any.
func DurableVote(log *Log, shard core.ShardID) (term, vote uint64, err error) {
	hard := log.State(shard).HardState
	if hard == nil {
		return 0, 0, nil
	}
	h, err := decodeHardState(hard)
	if err != nil {
		return 0, 0, fmt.Errorf("hard state of shard %d: %w", shard, err)
	}
	return h.GetTerm(), h.GetVote(), nil
}
