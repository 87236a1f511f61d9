package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/transport"
)

// ClusterStatus is how a cluster looks from one of its nodes.
type ClusterStatus struct {
	Cluster string        `json:"cluster_id,omitempty"` // none: a server by itself
	Asked   uint64        `json:"asked"`                // the node that says so
	Nodes   []NodeStatus  `json:"nodes"`                // by id
	Shards  []ShardStatus `json:"shards"`               // by number
	Format  uint16        `json:"format"`               // of the entries that are written
	Job     *JobStatus    `json:"job,omitempty"`        // the change of membership under way, or the last one
	IfLost  []LossRow     `json:"if_lost"`              // by node, for each that was reached
}

// NodeStatus is one node. What it says of itself is there when it was reached.
type NodeStatus struct {
	// The number of the node.
	ID      uint64 `json:"id"`
	Name    string `json:"name,omitempty"`
	Address string `json:"address,omitempty"` // for its peers
	GRPC    string `json:"grpc"`
	HTTP    string `json:"http,omitempty"`
	// It answered this question; a node that is up but slow may be shown as not reached.
	Reachable bool   `json:"reachable"`
	Error     string `json:"error,omitempty"` // why it was not reached
	Version   string `json:"version,omitempty"`
	Knows     uint16 `json:"knows_format,omitempty"` // the newest format that its program knows
	// Id of its replicas in the logs.
	Replica  uint64       `json:"replica,omitempty"`
	State    string       `json:"state,omitempty"`   // joining, catching_up, learner, promoting, voter or removing
	Drained  bool         `json:"drained,omitempty"` // it is to lead nothing
	Unready  string       `json:"unready,omitempty"` // why it does not serve all it should
	Leads    []int        `json:"leads"`             // shards
	Lag      uint64       `json:"lag"`               // of the shard that is most behind
	Replicas []ReplicaRow `json:"replicas,omitempty"`
	Figures
}

// ReplicaRow is how one shard stands on one node.
type ReplicaRow struct {
	// Shard is the number of the shard.
	Shard  int    `json:"shard"`
	Leader uint64 `json:"leader"` // node that leads, as far as this one knows; 0: none
	Leads  bool   `json:"leads"`  // this node leads and serves
	// Term is the term of its log, as far as this node knows.
	Term uint64 `json:"term"`
	// Indexes of log entries: committed as far as this node knows, and applied by it.
	Commit  uint64 `json:"committed"`
	Applied uint64 `json:"applied"`
	Lag     uint64 `json:"lag"` // entries that any node knows to be committed and this one has not applied
	// Durable is the index up to which its state survives a power cut without the log.
	Durable uint64 `json:"durable,omitempty"`
}

// ShardStatus is one shard over all nodes that were reached.
type ShardStatus struct {
	Shard  int    `json:"shard"`
	Leader uint64 `json:"leader"` // the node that leads and serves; 0: none that was reached
	Term   uint64 `json:"term"`   // the highest that a node knows
	// Commit is the highest index that a node knows to be committed.
	Commit uint64 `json:"committed"`
	// What lies on it, as the node that was asked has applied it.
	Partitions []PartitionRow `json:"partitions,omitempty"` // the first 100
	Count      int            `json:"partition_count"`
	// Entries that the node which was asked applied per second; absent: not known.
	EntriesPerSecond *float64 `json:"entries_per_second,omitempty"`
}

// PartitionRow is a partition of a namespace.
type PartitionRow struct {
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace"`
	Partition uint16 `json:"partition"`
}

// Bounds of what nodes ask each other for operators: the kind of the streams, the sizes of a
// question and an answer in bytes, how long a question may take, and how long a transfer may take
// including the wait for a leader.
const (
	askKind      = "cluster"
	askBytes     = 8 << 10
	toldBytes    = 1 << 20 // a row for each of 64 shards takes some 10 KiB
	askWait      = 2 * time.Second
	transferWait = 10 * time.Second
)

// query is what one node asks another on behalf of an operator, as JSON on a stream. Nodes of
// different versions may talk: one that does not know Do refuses it.
type query struct {
	Do string `json:"do"` // status, transfer, keep, balance or change
	// Shard is the one that the question is about, and To the node that is to lead it.
	Shard  core.ShardID `json:"shard"`
	To     uint64       `json:"to"`
	Change []byte       `json:"change,omitempty"` // an entry with the change of membership
}

// told is the answer to a query. Which fields are set depends on what was asked.
type told struct {
	// For status: what the node says of itself.
	Node *NodeStatus `json:"node,omitempty"`
	// Error is why the node did not do it; empty: it did.
	Error string `json:"error,omitempty"`
	Wrong bool   `json:"wrong,omitempty"` // the question was
	Moved bool   `json:"moved,omitempty"` // who was asked does not lead the shard: any more, or yet
	Fact  []byte `json:"fact,omitempty"`  // a result whose refusal is why
	Dir   []byte `json:"dir,omitempty"`   // a directory of members
}

// coordinator answers operators for the whole cluster; any node can be asked. It keeps no state of
// the cluster: each question is answered from what the nodes say now.
type coordinator struct {
	// o are the options of the server.
	o *Options
	// For its clock, and what else belongs to the process.
	server *Running
	peers  *transport.Transport // nil without a cluster
	// The node is there. Handlers of the transport check it before they use node.
	ready atomic.Bool
	// Set once by begin, before ready.
	node *node.Node
	// To whom the members are being told.
	tells telling
	// How long the syncs of the log took lately.
	syncs syncTimes
}

// begin sets the node. Questions are answered from now on.
func (c *coordinator) begin(n *node.Node) {
	c.node = n
	c.ready.Store(true)
}

// refusal is an error with a text for the operator, and what it means for another try.
type refusal struct {
	text string
	// wrong: the request can never succeed. silent: it was sent and not answered, so it may have
	// been carried out. moved: the node that was asked does not lead and serve the shard, so it did
	// nothing.
	wrong, silent, moved bool
}

// Error returns the text for the operator.
func (r refusal) Error() string { return r.text }

// own returns what this node says of itself.
func (c *coordinator) own() NodeStatus {
	n := NodeStatus{
		ID: max(c.o.Cluster.Node, 1), Name: c.o.Name, GRPC: c.o.Listen, HTTP: c.o.HTTP, Reachable: true, Version: c.o.Version, Knows: core.NewestFormat(),
		Unready: c.node.Unready(), Leads: []int{}, Figures: c.figures(),
	}
	for _, s := range c.node.Standings() {
		if s.Serves {
			n.Leads = append(n.Leads, int(s.Shard))
		}
		n.Replicas = append(n.Replicas, ReplicaRow{
			Shard: int(s.Shard), Leader: s.Leader, Leads: s.Serves, Term: s.Term, Commit: s.Commit, Applied: s.Applied, Durable: s.Durable,
		})
	}
	return n
}

// status asks all members at the same time and puts their answers together. A member that does not
// answer is in the result with the reason. What a node says of itself counts for its own state;
// what the directory says counts for membership and addresses.
func (c *coordinator) status(ctx context.Context) ClusterStatus {
	out := ClusterStatus{Cluster: c.o.Cluster.ID, Asked: max(c.o.Cluster.Node, 1), Format: c.node.Format()}
	if c.peers == nil {
		out.Nodes = []NodeStatus{c.own()}
		out.sum()
		c.fill(&out)
		return out
	}
	d := c.node.Members()
	members := latest(d.Members)
	out.Nodes = make([]NodeStatus, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			n := c.own
			if m.Node != c.o.Cluster.Node {
				n = func() NodeStatus { return c.of(ctx, m.Node) }
			}
			st := n()
			st.ID, st.Address, st.GRPC, st.HTTP = m.Node, known(m.Peer), cmp.Or(m.API, st.GRPC), cmp.Or(m.HTTP, st.HTTP)
			st.Name, st.Replica, st.State = cmp.Or(st.Name, m.Name), m.Replica, m.State.String()
			st.Drained = m.Drained
			out.Nodes[i] = st
		})
	}
	all.Wait()
	out.Job = jobStatus(&d)
	out.sum()
	c.fill(&out)
	return out
}

// fill adds what this node knows of the shards, and what losses would stop.
func (c *coordinator) fill(s *ClusterStatus) {
	s.IfLost = s.losses()
	content, err := c.node.Content()
	if err != nil {
		c.o.Logger.Warn("the partitions of shards cannot be read", "error", err)
	}
	standings := c.node.Standings()
	for i := range s.Shards {
		row := &s.Shards[i]
		if row.Shard < len(content) {
			row.Count = content[row.Shard].Count
			for _, p := range content[row.Shard].Partitions {
				row.Partitions = append(row.Partitions, PartitionRow{p.Tenant, p.Namespace, p.Index})
			}
		}
		if row.Shard < len(standings) && standings[row.Shard].Pace >= 0 {
			row.EntriesPerSecond = &standings[row.Shard].Pace
		}
	}
}

// of returns what another node says of itself, or why it does not answer.
func (c *coordinator) of(ctx context.Context, id uint64) NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	r, err := c.ask(ctx, id, query{Do: "status"})
	if err == nil && r.Node == nil {
		err = errors.New("the answer says nothing")
	}
	if err != nil {
		return NodeStatus{Error: err.Error(), Leads: []int{}}
	}
	n := *r.Node
	n.Reachable, n.Error = true, ""
	return n
}

// sum derives the shards' rows and the lags from what the nodes say. If two nodes say that they
// lead a shard, the one with the higher term counts, as the other has not noticed yet that it was
// replaced. Lag is relative to the highest commit index that any node knows.
func (s *ClusterStatus) sum() {
	at := make(map[int]*ShardStatus)
	for _, n := range s.Nodes {
		// All nodes have the same shards; one that does not answer has no rows.
		for len(s.Shards) < len(n.Replicas) {
			s.Shards = append(s.Shards, ShardStatus{Shard: len(s.Shards)})
		}
	}
	for i := range s.Shards {
		at[i] = &s.Shards[i]
	}
	for _, n := range s.Nodes {
		for _, r := range n.Replicas {
			shard := at[r.Shard]
			if shard == nil {
				continue
			}
			if r.Leads && (shard.Leader == 0 || r.Term >= shard.Term) {
				shard.Leader = n.ID
			}
			shard.Term, shard.Commit = max(shard.Term, r.Term), max(shard.Commit, r.Commit)
		}
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Replicas {
			r := &s.Nodes[i].Replicas[k]
			if shard := at[r.Shard]; shard != nil && shard.Commit > r.Applied {
				r.Lag = shard.Commit - r.Applied
			}
			s.Nodes[i].Lag = max(s.Nodes[i].Lag, r.Lag)
		}
	}
}

// transfer moves the leadership of a shard to a node that then keeps it, and logs who asked for it.
// The error is a refusal.
func (c *coordinator) transfer(ctx context.Context, shard core.ShardID, to uint64) error {
	err := c.give(ctx, shard, to)
	c.o.audit(ctx, "transfer", err, "shard", shard, "to", to)
	return err
}

// give checks the request, asks the shard's leader until it has moved the shard, then tells the new
// leader to keep the shard: otherwise it would send the shard home again. If that last step is not
// answered, the shard has moved but may go home later.
func (c *coordinator) give(ctx context.Context, shard core.ShardID, to uint64) error {
	ctx, cancel := context.WithTimeout(ctx, transferWait)
	defer cancel()
	standings := c.node.Standings()
	switch {
	case c.peers == nil:
		return refusal{text: "this is a single-node server: no other node can lead", wrong: true}
	case int(shard) >= len(standings):
		return refusal{text: fmt.Sprintf("shard %d does not exist; shards are 0 to %d", shard, len(standings)-1), wrong: true}
	case !c.knows(to):
		return refusal{text: fmt.Sprintf("there is no node %d", to), wrong: true}
	}
	err := moveUntil(func() error { return c.askLeader(ctx, shard, to) }, func() bool { return c.server.pause(ctx, changeAgain) == nil })
	if err != nil {
		return err
	}
	if to == c.o.Cluster.Node {
		c.node.Keep(shard)
		return nil
	}
	_, err = c.ask(ctx, to, query{Do: "keep", Shard: shard})
	return err
}

// moveUntil repeats once while the node that it asks does not lead the shard, and pause says that
// there is time. Shards also move by themselves, when a node stops and when they go home, and an
// elected leader serves only a moment later.
func moveUntil(once func() error, pause func() bool) error {
	for {
		err := once()
		if r, _ := errors.AsType[refusal](err); !r.moved || !pause() {
			return err
		}
	}
}

// askLeader asks the leader of the shard that this node knows to move it to a node. It does nothing
// if that node leads already.
func (c *coordinator) askLeader(ctx context.Context, shard core.ShardID, to uint64) error {
	switch leader := c.node.Standings()[shard].Leader; leader {
	case to: // but perhaps it may go home
		return nil
	case 0:
		return refusal{text: fmt.Sprintf("no node leads shard %d now", shard), moved: true}
	case c.o.Cluster.Node:
		return c.move(ctx, shard, to)
	default:
		_, err := c.ask(ctx, leader, query{Do: "transfer", Shard: shard, To: to})
		return err
	}
}

// knows reports whether a node is a member.
func (c *coordinator) knows(id uint64) bool {
	d := c.node.Members()
	return d.OfNode(id) != nil
}

// move moves a shard that this node leads. The error is a refusal.
func (c *coordinator) move(ctx context.Context, shard core.ShardID, to uint64) error {
	err := c.node.Transfer(ctx, shard, to)
	if err == nil {
		return nil
	}
	return notMoved(err, c.o.Cluster.Node, shard, to)
}

// notMoved turns the error of a transfer into a refusal with a text that names the nodes.
func notMoved(err error, own uint64, shard core.ShardID, to uint64) refusal {
	out := refusal{text: err.Error(), moved: leadsNot(err)}
	_, out.wrong = errors.AsType[core.Invalid](err)
	u, _ := errors.AsType[core.Unavailable](err)
	switch {
	case out.moved:
		out.text = fmt.Sprintf("node %d does not lead shard %d now", own, shard)
	case u.Reason == "node_unreached":
		out.text = fmt.Sprintf("node %d is not reached by node %d, which leads shard %d", to, own, shard)
	case u.Reason == "not_taken_over":
		out.text = fmt.Sprintf("node %d did not take shard %d over from node %d: it is behind, or about to stop", to, shard, own)
	}
	return out
}

// ask sends one query to another node and returns its answer. The error is a refusal: not reached,
// not answered, or refused by that node. The stream is closed when ctx ends, which ends a read that
// waits.
func (c *coordinator) ask(ctx context.Context, id uint64, q query) (r told, err error) {
	s, err := c.peers.OpenStream(ctx, transport.NodeID(id), askKind)
	if err != nil {
		return r, refusal{text: fmt.Sprintf("node %d is not reached: %v", id, err)}
	}
	defer s.Close() //nolint:errcheck // it returns none
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	text, err := json.Marshal(q)
	if err == nil {
		_, err = s.Write(text)
	}
	if err == nil {
		err = s.CloseWrite()
	}
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(s, toldBytes))
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	switch {
	case err != nil:
		return r, refusal{text: fmt.Sprintf("node %d gave no answer: %v", id, err), silent: true}
	case r.Error != "":
		return r, refusal{text: r.Error, wrong: r.Wrong, moved: r.Moved}
	}
	return r, nil
}

// serve answers one query of another node. A query that cannot be read gets no answer, which the
// other node reports as such.
func (c *coordinator) serve(from transport.NodeID, s transport.Stream) {
	if !c.ready.Load() {
		return // it is asked again
	}
	if err := s.SetDeadline(c.o.Clock.Wall().Add(transferWait + askWait)); err != nil {
		return
	}
	var q query
	text, err := io.ReadAll(io.LimitReader(s, askBytes))
	if err != nil || json.Unmarshal(text, &q) != nil {
		return // who asked sees that nothing was answered
	}
	text, err = json.Marshal(c.answer(uint64(from), q))
	if err != nil {
		return
	}
	if _, err := s.Write(text); err == nil {
		_ = s.CloseWrite() // who asked is gone if it fails
	}
}

// answer carries out one query on this node. A query that this version does not know is a refusal
// that will not pass.
func (c *coordinator) answer(from uint64, q query) (r told) {
	var err error
	switch q.Do {
	case "status":
		n := c.own()
		r.Node = &n
	case "transfer":
		ctx, cancel := context.WithTimeout(context.Background(), transferWait)
		defer cancel()
		err = c.move(ctx, q.Shard, q.To)
	case "keep":
		c.node.Keep(q.Shard)
	case "balance":
		c.node.Balance()
	case "change":
		return c.answerChange(from, q.Change)
	default:
		err = refusal{text: fmt.Sprintf("%q is not known to this node", q.Do), wrong: true}
	}
	if err != nil {
		r.Error = err.Error()
		if f, ok := errors.AsType[refusal](err); ok {
			r.Wrong, r.Moved = f.wrong, f.moved
		}
	}
	return r
}
