package millrace

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// ClusterStatus is how a cluster looks from one of its nodes.
type ClusterStatus struct {
	Cluster  string         // id; empty: a server by itself
	Asked    uint64         // the node that says so
	Nodes    []ClusterNode  // by id
	Shards   []ClusterShard // by number
	Format   int            // of the log entries that are written
	Job      *MemberJob     // the change of membership under way, or the last one; nil: there was none
	Warnings []string       // what to look at though all is well
}

// ClusterNode is one node. What it says of itself is there when it was reached.
type ClusterNode struct {
	// ID is the node's number; Name is for people.
	ID      uint64
	Name    string
	Address string // host:port for its peers
	// GRPC and HTTP are what clients use, host:port each; empty: the node has no such door.
	GRPC string
	HTTP string
	// Reachable says that the node answered the one that was asked.
	Reachable   bool
	Error       string // why it was not reached
	Program     string // the version of its program
	KnowsFormat int    // the newest that its program knows
	// Replica is the node's number in the log's own protocol: another one each time that it joins.
	Replica uint64
	State   string // joining, catching_up, learner, promoting, voter or removing
	Drained bool   // it is to lead nothing
	Unready string // why it does not serve all it should
	Leads   []int  // shards
	Lag     uint64 // entries, of the shard that is most behind
	// Replicas are by number of shard.
	Replicas []ClusterReplica
}

// ClusterReplica is how one shard stands on one node.
type ClusterReplica struct {
	Shard  int
	Leader uint64 // node that leads, as far as this one knows; 0: none
	Leads  bool   // this node leads and serves
	// Term counts elections. Committed and Applied are indexes of the shard's log.
	Term      uint64
	Committed uint64
	Applied   uint64
	Lag       uint64 // entries that any node knows to be committed and this one has not applied
}

// ClusterShard is one shard over all nodes that were reached.
type ClusterShard struct {
	// Shard is its number. Term and Committed are the highest that any node told.
	Shard     int
	Leader    uint64 // the node that leads and serves; 0: none that was reached
	Term      uint64
	Committed uint64
}

// MemberJob is a change of membership.
type MemberJob struct {
	// ID is the job's, and Node the one that it is about.
	ID     uint64
	Kind   string // add, remove, replace, promote or rejoin
	State  string // running, returning, done, failed or cancelled
	Node   uint64
	Ending string // it is being undone, and ends so
	Reason string // why it failed
}

// Membership is who the members of a cluster are, after a change.
type Membership struct {
	Version uint64 // rises with every change
	// Members are by node. Job is the change that was begun; nil: nothing was to be done.
	Members   []ClusterMember
	Job       *MemberJob
	JoinToken string // of a node that was added: it holds once, for an hour, and is shown once
}

// ClusterMember is one member.
type ClusterMember struct {
	Replica uint64 // given once, never again
	// Node is its number; Peer, GRPC and HTTP are addresses, host:port each, as the node announces them.
	Node uint64
	Name string
	Peer string
	GRPC string
	HTTP string
	// State is joining, catching_up, learner, promoting, voter or removing. Drained says that the node is to lead nothing.
	State   string
	Drained bool
}

// Operator operates the whole cluster, by any of its nodes. Its calls need the scope cluster, which no tenant's admin has,
// and are made once: one whose outcome is unknown is looked up by Status.
type Operator struct{ c *Client }

// Operator returns the operator's view of the cluster that the client is connected to.
func (c *Client) Operator() Operator { return Operator{c} }

// service is the generated client. It is made for each call, as few clients are operators.
func (o Operator) service() millracev1.ClusterServiceClient {
	return millracev1.NewClusterServiceClient(o.c.router)
}

// once is the error of a call that is made once.
func (o Operator) once(err error) error {
	if err == nil {
		return nil
	}
	return fromStatus(err)
}

// Status tells how the cluster looks from the node that is asked, which asks the others.
func (o Operator) Status(ctx context.Context) (*ClusterStatus, error) {
	var resp *millracev1.ClusterStatusResponse
	err := o.c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = o.service().Status(ctx, &millracev1.ClusterStatusRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return clusterStatus(resp), nil
}

// AddNode describes a node that is to join. Its addresses it announces itself.
type AddNode struct {
	// Node is the number that it gets, from 1.
	Node    uint64
	Name    string // default n and the number
	Learner bool   // it stays one: it has all data and no vote
	Peer    string // not used: the node announces its own address when it joins
}

// Add lets a node join, with the token that is in the answer. Errors: ErrAlreadyExists, ErrWrongState (job_running),
// ErrResourceExhausted.
func (o Operator) Add(ctx context.Context, n AddNode) (*Membership, error) {
	return o.change(ctx, &millracev1.ChangeMembersRequest{
		Verb: millracev1.MemberVerb_MEMBER_VERB_ADD, Node: n.Node, Name: n.Name, Learner: n.Learner,
	})
}

// Remove takes a node out of the cluster for good. Errors: ErrWrongState (quorum_loss, job_running), ErrNotFound.
func (o Operator) Remove(ctx context.Context, node uint64) (*Membership, error) {
	return o.verb(ctx, millracev1.MemberVerb_MEMBER_VERB_REMOVE, node)
}

// Replace puts a learner in the place of a node, in one step of each shard. Errors: ErrWrongState (not_learner,
// learner_behind, job_running), ErrNotFound.
func (o Operator) Replace(ctx context.Context, node, with uint64) (*Membership, error) {
	return o.change(ctx, &millracev1.ChangeMembersRequest{Verb: millracev1.MemberVerb_MEMBER_VERB_REPLACE, Node: node, With: with})
}

// Promote makes a voter of a learner. Errors: as Replace.
func (o Operator) Promote(ctx context.Context, node uint64) (*Membership, error) {
	return o.verb(ctx, millracev1.MemberVerb_MEMBER_VERB_PROMOTE, node)
}

// Cancel undoes the change of membership that is under way. Errors: ErrWrongState (no_job, too_late).
func (o Operator) Cancel(ctx context.Context) (*Membership, error) {
	return o.verb(ctx, millracev1.MemberVerb_MEMBER_VERB_CANCEL, 0)
}

// Drain has a node lead nothing, until Undrain. Errors: ErrWrongState (nobody_leads), ErrNotFound.
func (o Operator) Drain(ctx context.Context, node uint64) (*Membership, error) {
	return o.verb(ctx, millracev1.MemberVerb_MEMBER_VERB_DRAIN, node)
}

// Undrain lets a node lead again.
func (o Operator) Undrain(ctx context.Context, node uint64) (*Membership, error) {
	return o.verb(ctx, millracev1.MemberVerb_MEMBER_VERB_UNDRAIN, node)
}

// verb begins a change of one member.
func (o Operator) verb(ctx context.Context, verb millracev1.MemberVerb, node uint64) (*Membership, error) {
	return o.change(ctx, &millracev1.ChangeMembersRequest{Verb: verb, Node: node})
}

// change begins a change of the membership, and returns it as it is then.
func (o Operator) change(ctx context.Context, in *millracev1.ChangeMembersRequest) (*Membership, error) {
	resp, err := o.service().ChangeMembers(ctx, in)
	if err := o.once(err); err != nil {
		return nil, err
	}
	out := &Membership{Version: resp.Version, Job: memberJob(resp.Job), JoinToken: resp.JoinToken}
	for _, m := range resp.Members {
		out.Members = append(out.Members, ClusterMember{
			Replica: m.Replica, Node: m.Node, Name: m.Name, Peer: m.Peer, GRPC: m.Grpc, HTTP: m.Http, State: m.State, Drained: m.Drained,
		})
	}
	return out, nil
}

// Transfer has a node lead a shard, and keep it. Errors: ErrWrongState (not_moved), ErrInvalidArgument.
func (o Operator) Transfer(ctx context.Context, shard int, to uint64) error {
	_, err := o.service().TransferShard(ctx, &millracev1.TransferShardRequest{Shard: uint32(max(shard, 0)), To: to})
	return o.once(err)
}

// Balance has every shard led by the node that it is at home with, and returns how the cluster looked before.
func (o Operator) Balance(ctx context.Context) (before *ClusterStatus, err error) {
	resp, err := o.service().BalanceShards(ctx, &millracev1.BalanceShardsRequest{})
	if err := o.once(err); err != nil {
		return nil, err
	}
	return clusterStatus(resp.Before), nil
}

// Finalize ends an upgrade: from then on the cluster writes the newest format that the programs of its members know. It returns
// that and the one before, equal where there was nothing to raise. Errors: ErrWrongState (format_held), whose details name the
// nodes with older programs, and those that were not reached.
func (o Operator) Finalize(ctx context.Context) (format, before int, err error) {
	resp, err := o.service().FinalizeFormat(ctx, &millracev1.FinalizeFormatRequest{})
	if err := o.once(err); err != nil {
		return 0, 0, err
	}
	return int(resp.Format), int(resp.Before), nil
}

// memberJob reads a job of the contract; nil stays nil.
func memberJob(j *millracev1.MemberJob) *MemberJob {
	if j == nil {
		return nil
	}
	return &MemberJob{ID: j.Id, Kind: j.Kind, State: j.State, Node: j.Node, Ending: j.Ending, Reason: j.Reason}
}

// clusterStatus reads the status of the contract.
func clusterStatus(s *millracev1.ClusterStatusResponse) *ClusterStatus {
	out := &ClusterStatus{
		Cluster: s.GetClusterId(), Asked: s.GetAsked(), Format: int(s.GetFormat()), Job: memberJob(s.GetJob()), Warnings: s.GetWarnings(),
	}
	for _, x := range s.GetShards() {
		out.Shards = append(out.Shards, ClusterShard{Shard: int(x.Shard), Leader: x.Leader, Term: x.Term, Committed: x.Committed})
	}
	for _, n := range s.GetNodes() {
		node := ClusterNode{
			ID: n.Id, Name: n.Name, Address: n.Address, GRPC: n.Grpc, HTTP: n.Http, Reachable: n.Reachable, Error: n.Error, Program: n.Program,
			KnowsFormat: int(n.KnowsFormat), Replica: n.Replica, State: n.State, Drained: n.Drained, Unready: n.Unready, Lag: n.Lag,
		}
		for _, shard := range n.Leads {
			node.Leads = append(node.Leads, int(shard))
		}
		for _, r := range n.Replicas {
			node.Replicas = append(node.Replicas, ClusterReplica{
				Shard: int(r.Shard), Leader: r.Leader, Leads: r.Leads, Term: r.Term, Committed: r.Committed, Applied: r.Applied, Lag: r.Lag,
			})
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}
