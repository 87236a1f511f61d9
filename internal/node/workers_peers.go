package node

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

const (
	// workersWait is for how long a node waits for what another one knows of workers.
	workersWait = 2 * time.Second
	// workersBytes bounds one answer to another node, in bytes: what it lists beyond that is left out.
	workersBytes = 4 << 20
)

// workersAsk is what one node asks another: for the workers of a namespace, or, with Set, to make one quiet or not, or, with End, to end
// the claim of that name, or, with Refusals, for what bounds refused. A node that does not know End or Refusals lists workers.
type workersAsk struct {
	Tenant    core.TenantID
	Namespace core.NamespaceID
	Set       bool
	ID        string
	On        bool
	End       []byte `json:",omitempty"` // a core.RequestID
	Refusals  bool   `json:",omitempty"`
}

// wait is for how long an answer is waited for.
func (a *workersAsk) wait() time.Duration {
	if a.Refusals {
		return refusalsWait
	}
	return workersWait
}

// workersAnswer is what it is answered: workers, or whether something changed or was ended, or what bounds refused.
type workersAnswer struct {
	Workers []core.Worker
	Partial bool
	Changed bool
	Ended   bool `json:",omitempty"`

	Refusals *core.Refusals `json:",omitempty"`
}

// Workers lists the workers of a namespace, as the leaders of its partitions know them, sorted by id and host. partial says that
// a leader was not known or did not answer, or that there are more.
func (n *Node) Workers(ctx context.Context, parts []core.PartitionInfo) (list []core.Worker, partial bool) {
	p := parts[0].Partition
	leaders, missing := n.leadersOf(parts)
	answers, answered := n.askWorkers(ctx, leaders, workersAsk{Tenant: p.Tenant, Namespace: p.Namespace})
	partial = missing || answered < len(leaders)
	for _, a := range answers {
		list = append(list, a.Workers...)
		partial = partial || a.Partial
	}
	list = MergeWorkers(list)
	if len(list) > maxWorkers {
		list, partial = list[:maxWorkers], true
	}
	return list, partial
}

// Quiet makes a worker of a namespace quiet at all nodes, or takes that back; changed says that one of them had it otherwise. Unless
// all leaders of the namespace have answered the outcome is unknown, and the call may be repeated.
func (n *Node) Quiet(ctx context.Context, parts []core.PartitionInfo, id string, on bool) (changed bool, err error) {
	p := parts[0].Partition
	leaders, missing := n.leadersOf(parts)
	if missing {
		return false, core.Unavailable{Reason: "no_leader"}
	}
	ask := workersAsk{Tenant: p.Tenant, Namespace: p.Namespace, Set: true, ID: id, On: on}
	var others []uint64 // they may lead soon, so they are told, and their answers are not waited for
	n.others(func(m *core.Member) {
		if !slices.Contains(leaders, m.Replica) {
			others = append(others, m.Replica)
		}
	})
	if !slices.Contains(leaders, n.o.Replica) {
		n.setQuiet(workerKey{p.Tenant, p.Namespace, id}, on)
	}
	for _, to := range others {
		n.tellWorkers(to, 0, ask)
	}
	answers, answered := n.askWorkers(ctx, leaders, ask)
	if answered < len(leaders) {
		return false, core.Unavailable{Reason: "leader_unreached", Unknown: true}
	}
	return slices.ContainsFunc(answers, func(a workersAnswer) bool { return a.Changed }), nil
}

// leadersOf returns the replicas that lead partitions, each once. missing says that one has no leader that this node knows.
func (n *Node) leadersOf(parts []core.PartitionInfo) (out []uint64, missing bool) {
	for _, p := range parts {
		s, err := n.shardOf(p.Partition)
		if err != nil {
			return out, true
		}
		leader := s.view.leader.Load()
		if leader == 0 {
			missing = true
		} else if !slices.Contains(out, leader) {
			out = append(out, leader)
		}
	}
	return out, missing
}

// askWorkers puts a question to replicas, this one perhaps among them. It returns the answers that came in time, and how many did.
func (n *Node) askWorkers(ctx context.Context, to []uint64, ask workersAsk) (out []workersAnswer, answered int) {
	late := n.o.Clock.NewTimer(ask.wait())
	defer late.Stop()
	var waits []chan workersAnswer
	for _, replica := range to {
		if replica == n.o.Replica {
			out = append(out, n.answerWorkers(ask))
			continue
		}
		id, answer := n.workersAsks.begin(replica)
		defer n.workersAsks.forget(id)
		if n.tellWorkers(replica, id, ask) {
			waits = append(waits, answer)
		}
	}
	over := false
	for _, answer := range waits {
		if over { // what is there by now counts
			select {
			case a := <-answer:
				out = append(out, a)
			default:
			}
			continue
		}
		select {
		case a := <-answer:
			out = append(out, a)
		case <-late.C():
			over = true
		case <-ctx.Done():
			over = true
		case <-n.stopping:
			over = true
		}
	}
	return out, len(out)
}

// tellWorkers sends a question; 0: its answer is not waited for.
func (n *Node) tellWorkers(to, id uint64, ask workersAsk) bool {
	body, err := json.Marshal(ask)
	return err == nil && n.send(to, 0, Bulk, append(binary.BigEndian.AppendUint64([]byte{peerWorkersAsk}, id), body...))
}

// answerWorkers does what a question is about at this node.
func (n *Node) answerWorkers(ask workersAsk) (a workersAnswer) {
	switch {
	case ask.Set:
		a.Changed = n.setQuiet(workerKey{ask.Tenant, ask.Namespace, ask.ID}, ask.On)
	case len(ask.End) == len(core.RequestID{}):
		a.Ended = n.claims.end(claimKey{ask.Tenant, ask.Namespace, core.RequestID(ask.End)})
	case ask.Refusals:
		here := n.refusalsHere(ask.Tenant, ask.Namespace)
		a.Refusals = &here
	default:
		a.Workers, a.Partial = n.workersHere(ask.Tenant, ask.Namespace)
	}
	return a
}

// takeWorkersAsk answers another node. What cannot be read is not answered.
func (n *Node) takeWorkersAsk(from uint64, b []byte) {
	var ask workersAsk
	if len(b) < 8 || json.Unmarshal(b[8:], &ask) != nil {
		return
	}
	a := n.answerWorkers(ask)
	body, err := json.Marshal(a)
	for ; err == nil && len(body) > workersBytes; body, err = json.Marshal(a) {
		a.Workers, a.Partial = a.Workers[:len(a.Workers)/2], true
	}
	if err == nil {
		n.send(from, 0, Bulk, append(append([]byte{peerWorkers}, b[:8]...), body...))
	}
}

// takeWorkers gives an answer to who waits for it, once.
func (n *Node) takeWorkers(from uint64, b []byte) {
	if len(b) < 8 || len(b) > 8+workersBytes {
		return
	}
	var a workersAnswer
	if json.Unmarshal(b[8:], &a) == nil {
		n.workersAsks.end(from, binary.BigEndian.Uint64(b), a)
	}
}
