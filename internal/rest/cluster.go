package rest

import (
	"net/http"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
)

var memberVerbWords = []string{"", "add", "remove", "replace", "promote", "set", "cancel", "drain", "undrain"}

var changeMembersFields = []jsonField[pb.ChangeMembersRequest]{
	{"verb", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Verb = pb.MemberVerb(d.OneOf(memberVerbWords)) }},
	{"node", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Node = d.Unsigned() }},
	{"with", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.With = d.Unsigned() }},
	{"learner", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Learner = d.Boolean() }},
	{"name", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Name = d.Text() }},
	{"peer", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Peer = d.Text() }},
	{"grpc", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Grpc = d.Text() }},
	{"http", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Http = d.Text() }},
}

var transferShardFields = []jsonField[pb.TransferShardRequest]{
	{"shard", func(d *jsonReader, m *pb.TransferShardRequest) { m.Shard = d.Uint32() }},
	{"to", func(d *jsonReader, m *pb.TransferShardRequest) { m.To = d.Unsigned() }},
}

// clusterStatus serves GET /v1/cluster.
func (c *restCall) clusterStatus() error {
	out, err := c.s.Cluster().Status(c.ctx, new(pb.ClusterStatusRequest))
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) { writeClusterStatus(w, out) })
}

// changeMembers serves POST /v1/cluster/members.
func (c *restCall) changeMembers() error {
	in := new(pb.ChangeMembersRequest)
	if err := readBody(c, in, changeMembersFields); err != nil {
		return err
	}
	out, err := c.s.Cluster().ChangeMembers(c.ctx, in)
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.Exact("version", out.GetVersion())
		w.List("members", len(out.GetMembers()), func(i int) {
			w.Open('{')
			writeClusterMember(w, out.GetMembers()[i])
			w.Close('}')
		})
		if out.GetJob() != nil {
			w.Object("job", func() { writeMemberJob(w, out.GetJob()) })
		}
		w.OptStr("join_token", out.GetJoinToken())
	})
}

// transferShard serves POST /v1/cluster/transfer.
func (c *restCall) transferShard() error {
	in := new(pb.TransferShardRequest)
	if err := readBody(c, in, transferShardFields); err != nil {
		return err
	}
	out, err := c.s.Cluster().TransferShard(c.ctx, in)
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.Count("shard", uint64(out.GetShard()))
		w.Count("leader", out.GetLeader())
	})
}

// balanceShards serves POST /v1/cluster/balance.
func (c *restCall) balanceShards() error {
	out, err := c.s.Cluster().BalanceShards(c.ctx, new(pb.BalanceShardsRequest))
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.Object("before", func() { writeClusterStatus(w, out.GetBefore()) })
	})
}

// finalizeFormat serves POST /v1/cluster/finalize.
func (c *restCall) finalizeFormat() error {
	out, err := c.s.Cluster().FinalizeFormat(c.ctx, new(pb.FinalizeFormatRequest))
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.Count("format", uint64(out.GetFormat()))
		w.Count("before", uint64(out.GetBefore()))
	})
}

func writeClusterStatus(w *jsonWriter, s *pb.ClusterStatusResponse) {
	w.OptStr("cluster_id", s.GetClusterId())
	w.Count("asked", s.GetAsked())
	w.List("nodes", len(s.GetNodes()), func(i int) {
		w.Open('{')
		writeClusterNode(w, s.GetNodes()[i])
		w.Close('}')
	})
	w.List("shards", len(s.GetShards()), func(i int) {
		w.Open('{')
		x := s.GetShards()[i]
		w.Count("shard", uint64(x.GetShard()))
		w.Count("leader", x.GetLeader())
		w.Count("term", x.GetTerm())
		w.Count("committed", x.GetCommitted())
		w.Close('}')
	})
	w.Count("format", uint64(s.GetFormat()))
	if s.GetJob() != nil {
		w.Object("job", func() { writeMemberJob(w, s.GetJob()) })
	}
	w.List("warnings", len(s.GetWarnings()), func(i int) { w.Quote(s.GetWarnings()[i]) })
}

func writeClusterNode(w *jsonWriter, n *pb.ClusterNode) {
	w.Count("id", n.GetId())
	w.OptStr("name", n.GetName())
	w.OptStr("address", n.GetAddress())
	w.Str("grpc", n.GetGrpc())
	w.OptStr("http", n.GetHttp())
	w.Bool("reachable", n.GetReachable())
	w.OptStr("error", n.GetError())
	w.OptStr("program", n.GetProgram())
	w.Count("knows_format", uint64(n.GetKnowsFormat()))
	w.Count("replica", n.GetReplica())
	w.OptStr("state", n.GetState())
	w.OptBool("drained", n.GetDrained())
	w.OptStr("unready", n.GetUnready())
	w.List("leads", len(n.GetLeads()), func(i int) { w.Number(uint64(n.GetLeads()[i])) })
	w.Count("lag", n.GetLag())
	w.List("replicas", len(n.GetReplicas()), func(i int) {
		w.Open('{')
		r := n.GetReplicas()[i]
		w.Count("shard", uint64(r.GetShard()))
		w.Count("leader", r.GetLeader())
		w.Bool("leads", r.GetLeads())
		w.Count("term", r.GetTerm())
		w.Count("committed", r.GetCommitted())
		w.Count("applied", r.GetApplied())
		w.Count("lag", r.GetLag())
		w.Close('}')
	})
}

func writeMemberJob(w *jsonWriter, j *pb.MemberJob) {
	w.Count("id", j.GetId())
	w.Str("kind", j.GetKind())
	w.Str("state", j.GetState())
	w.Count("node", j.GetNode())
	w.OptStr("ending", j.GetEnding())
	w.OptStr("reason", j.GetReason())
}

func writeClusterMember(w *jsonWriter, m *pb.ClusterMember) {
	w.Count("replica", m.GetReplica())
	w.Count("node", m.GetNode())
	w.OptStr("name", m.GetName())
	w.Str("peer", m.GetPeer())
	w.OptStr("grpc", m.GetGrpc())
	w.OptStr("http", m.GetHttp())
	w.Str("state", m.GetState())
	w.OptBool("drained", m.GetDrained())
}

// clusterRoutes are for operators.
func clusterRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/cluster", Native: api.ClusterMethods + "Status", Answer: "ClusterStatusResponse", Status: statusOK,
			Doc: "Tell how the cluster looks from the node that is asked, which asks the others.", handle: (*restCall).clusterStatus,
		},
		{
			Method: http.MethodPost, Path: "/v1/cluster/members", Repeat: RepeatCondition, Native: api.ClusterMethods + "ChangeMembers", Body: "ChangeMembersRequest", Answer: "ChangeMembersResponse", Status: statusOK,
			Doc:    "Begin or cancel a change of membership, or drain a node.",
			fields: fieldNames(changeMembersFields), handle: (*restCall).changeMembers,
		},
		{
			Method: http.MethodPost, Path: "/v1/cluster/transfer", Repeat: RepeatSame, Native: api.ClusterMethods + "TransferShard", Body: "TransferShardRequest", Answer: "TransferShardResponse", Status: statusOK,
			Doc:    "Have a node lead a shard, and keep it.",
			fields: fieldNames(transferShardFields), handle: (*restCall).transferShard,
		},
		{
			Method: http.MethodPost, Path: "/v1/cluster/balance", Repeat: RepeatSame, Native: api.ClusterMethods + "BalanceShards", Answer: "BalanceShardsResponse", Status: statusOK,
			Doc: "Have every shard led by the node that it is at home with.", handle: (*restCall).balanceShards,
		},
		{
			Method: http.MethodPost, Path: "/v1/cluster/finalize", Repeat: RepeatSame, Native: api.ClusterMethods + "FinalizeFormat", Answer: "FinalizeFormatResponse", Status: statusOK,
			Doc: "End an upgrade: write what the newest programs write, which the programs of all members must know.", handle: (*restCall).finalizeFormat,
		},
	}
}
