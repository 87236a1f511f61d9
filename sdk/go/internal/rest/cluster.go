package rest

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

const routeCluster = "/v1/cluster"

var memberVerbs = []string{"", "add", "remove", "replace", "promote", "set", "cancel", "drain", "undrain"}

// restClusterStatus is how a cluster looks, in JSON.
type restClusterStatus struct {
	Cluster  string             `json:"cluster_id"`
	Asked    uint64             `json:"asked"`
	Nodes    []restClusterNode  `json:"nodes"`
	Shards   []restClusterShard `json:"shards"`
	Format   uint32             `json:"format"`
	Job      *restMemberJob     `json:"job"`
	Warnings []string           `json:"warnings"`
}

type restClusterNode struct {
	ID          uint64               `json:"id"`
	Name        string               `json:"name"`
	Address     string               `json:"address"`
	GRPC        string               `json:"grpc"`
	HTTP        string               `json:"http"`
	Reachable   bool                 `json:"reachable"`
	Error       string               `json:"error"`
	Program     string               `json:"program"`
	KnowsFormat uint32               `json:"knows_format"`
	Replica     uint64               `json:"replica"`
	State       string               `json:"state"`
	Drained     bool                 `json:"drained"`
	Unready     string               `json:"unready"`
	Leads       []uint32             `json:"leads"`
	Lag         uint64               `json:"lag"`
	Replicas    []restClusterReplica `json:"replicas"`
}

func (n *restClusterNode) wire() *millracev1.ClusterNode {
	return &millracev1.ClusterNode{
		Id: n.ID, Name: n.Name, Address: n.Address, Grpc: n.GRPC, Http: n.HTTP, Reachable: n.Reachable, Error: n.Error, Program: n.Program,
		KnowsFormat: n.KnowsFormat, Replica: n.Replica, State: n.State, Drained: n.Drained, Unready: n.Unready, Leads: n.Leads, Lag: n.Lag,
		Replicas: restWire(n.Replicas, (*restClusterReplica).wire),
	}
}

type restClusterReplica struct {
	Shard     uint32 `json:"shard"`
	Leader    uint64 `json:"leader"`
	Leads     bool   `json:"leads"`
	Term      uint64 `json:"term"`
	Committed uint64 `json:"committed"`
	Applied   uint64 `json:"applied"`
	Lag       uint64 `json:"lag"`
}

func (r *restClusterReplica) wire() *millracev1.ClusterReplica {
	return &millracev1.ClusterReplica{
		Shard: r.Shard, Leader: r.Leader, Leads: r.Leads, Term: r.Term, Committed: r.Committed, Applied: r.Applied, Lag: r.Lag,
	}
}

type restClusterShard struct {
	Shard     uint32 `json:"shard"`
	Leader    uint64 `json:"leader"`
	Term      uint64 `json:"term"`
	Committed uint64 `json:"committed"`
}

func (s *restClusterShard) wire() *millracev1.ClusterShard {
	return &millracev1.ClusterShard{Shard: s.Shard, Leader: s.Leader, Term: s.Term, Committed: s.Committed}
}

type restMemberJob struct {
	ID     uint64 `json:"id"`
	Kind   string `json:"kind"`
	State  string `json:"state"`
	Node   uint64 `json:"node"`
	Ending string `json:"ending"`
	Reason string `json:"reason"`
}

func (j *restMemberJob) wire() *millracev1.MemberJob {
	if j == nil {
		return nil
	}
	return &millracev1.MemberJob{Id: j.ID, Kind: j.Kind, State: j.State, Node: j.Node, Ending: j.Ending, Reason: j.Reason}
}

type restClusterMember struct {
	Replica uint64 `json:"replica"`
	Node    uint64 `json:"node"`
	Name    string `json:"name"`
	Peer    string `json:"peer"`
	GRPC    string `json:"grpc"`
	HTTP    string `json:"http"`
	State   string `json:"state"`
	Drained bool   `json:"drained"`
}

func (m *restClusterMember) wire() *millracev1.ClusterMember {
	return &millracev1.ClusterMember{
		Replica: m.Replica, Node: m.Node, Name: m.Name, Peer: m.Peer, Grpc: m.GRPC, Http: m.HTTP, State: m.State, Drained: m.Drained,
	}
}

// fill gives out what s says.
func (s *restClusterStatus) fill(out *millracev1.ClusterStatusResponse) {
	out.ClusterId, out.Asked, out.Format, out.Warnings, out.Job = s.Cluster, s.Asked, s.Format, s.Warnings, s.Job.wire()
	out.Nodes, out.Shards = restWire(s.Nodes, (*restClusterNode).wire), restWire(s.Shards, (*restClusterShard).wire)
}

func (r *Conn) clusterStatus(ctx context.Context, _ *millracev1.ClusterStatusRequest, out *millracev1.ClusterStatusResponse) error {
	var body restClusterStatus
	if _, err := r.call(ctx, get(routeCluster, nil), &body); err != nil {
		return err
	}
	body.fill(out)
	return nil
}

func (r *Conn) changeMembers(ctx context.Context, in *millracev1.ChangeMembersRequest, out *millracev1.ChangeMembersResponse) error {
	var body struct {
		Version uint64              `json:"version,string"`
		Members []restClusterMember `json:"members"`
		Job     *restMemberJob      `json:"job"`
		Token   string              `json:"join_token"`
	}
	_, err := r.call(ctx, post(routeCluster+"/members", 256, func(w *restBody) {
		w.word("verb", memberVerbs, int32(in.GetVerb()))
		w.exact("node", in.GetNode())
		w.exact("with", in.GetWith())
		w.flag("learner", in.GetLearner())
		w.text("name", in.GetName())
		w.text("peer", in.GetPeer())
		w.text("grpc", in.GetGrpc())
		w.text("http", in.GetHttp())
	}), &body)
	if err != nil {
		return err
	}
	out.Version, out.Members, out.Job, out.JoinToken = body.Version, restWire(body.Members, (*restClusterMember).wire), body.Job.wire(), body.Token
	return nil
}

func (r *Conn) transferShard(ctx context.Context, in *millracev1.TransferShardRequest, out *millracev1.TransferShardResponse) error {
	var body struct {
		Shard  uint32 `json:"shard"`
		Leader uint64 `json:"leader"`
	}
	_, err := r.call(ctx, post(routeCluster+"/transfer", 64, func(w *restBody) {
		w.int("shard", int64(in.GetShard()))
		w.exact("to", in.GetTo())
	}), &body)
	if err != nil {
		return err
	}
	out.Shard, out.Leader = body.Shard, body.Leader
	return nil
}

func (r *Conn) balanceShards(ctx context.Context, _ *millracev1.BalanceShardsRequest, out *millracev1.BalanceShardsResponse) error {
	var body struct {
		Before restClusterStatus `json:"before"`
	}
	if _, err := r.call(ctx, restRequest{method: "POST", path: routeCluster + "/balance"}, &body); err != nil {
		return err
	}
	out.Before = new(millracev1.ClusterStatusResponse)
	body.Before.fill(out.Before)
	return nil
}

func (r *Conn) finalizeFormat(ctx context.Context, _ *millracev1.FinalizeFormatRequest, out *millracev1.FinalizeFormatResponse) error {
	var body struct {
		Format uint32 `json:"format"`
		Before uint32 `json:"before"`
	}
	if _, err := r.call(ctx, restRequest{method: "POST", path: routeCluster + "/finalize"}, &body); err != nil {
		return err
	}
	out.Format, out.Before = body.Format, body.Before
	return nil
}
