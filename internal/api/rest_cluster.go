package api

import (
	"net/http"
	"strconv"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

var memberVerbWords = []string{"", "add", "remove", "replace", "promote", "set", "cancel", "drain", "undrain"}

var changeMembersFields = []jsonField[pb.ChangeMembersRequest]{
	{"verb", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Verb = pb.MemberVerb(d.oneOf(memberVerbWords)) }},
	{"node", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Node = d.unsigned() }},
	{"with", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.With = d.unsigned() }},
	{"learner", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Learner = d.boolean() }},
	{"name", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Name = d.text() }},
	{"peer", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Peer = d.text() }},
	{"grpc", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Grpc = d.text() }},
	{"http", func(d *jsonReader, m *pb.ChangeMembersRequest) { m.Http = d.text() }},
}

var transferShardFields = []jsonField[pb.TransferShardRequest]{
	{"shard", func(d *jsonReader, m *pb.TransferShardRequest) { m.Shard = d.uint32() }},
	{"to", func(d *jsonReader, m *pb.TransferShardRequest) { m.To = d.unsigned() }},
}

func (c *restCall) cluster() *clusterService { return &clusterService{s: c.s} }

// clusterStatus serves GET /v1/cluster.
func (c *restCall) clusterStatus() error {
	out, err := c.cluster().Status(c.ctx, new(pb.ClusterStatusRequest))
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
	out, err := c.cluster().ChangeMembers(c.ctx, in)
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.exact("version", out.GetVersion())
		w.list("members", len(out.GetMembers()), func(i int) {
			w.open('{')
			writeClusterMember(w, out.GetMembers()[i])
			w.close('}')
		})
		if out.GetJob() != nil {
			w.object("job", func() { writeMemberJob(w, out.GetJob()) })
		}
		w.optStr("join_token", out.GetJoinToken())
	})
}

// transferShard serves POST /v1/cluster/transfer.
func (c *restCall) transferShard() error {
	in := new(pb.TransferShardRequest)
	if err := readBody(c, in, transferShardFields); err != nil {
		return err
	}
	out, err := c.cluster().TransferShard(c.ctx, in)
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.count("shard", uint64(out.GetShard()))
		w.count("leader", out.GetLeader())
	})
}

// balanceShards serves POST /v1/cluster/balance.
func (c *restCall) balanceShards() error {
	out, err := c.cluster().BalanceShards(c.ctx, new(pb.BalanceShardsRequest))
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.object("before", func() { writeClusterStatus(w, out.GetBefore()) })
	})
}

// finalizeFormat serves POST /v1/cluster/finalize.
func (c *restCall) finalizeFormat() error {
	out, err := c.cluster().FinalizeFormat(c.ctx, new(pb.FinalizeFormatRequest))
	if err != nil {
		return err
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.count("format", uint64(out.GetFormat()))
		w.count("before", uint64(out.GetBefore()))
	})
}

func writeClusterStatus(w *jsonWriter, s *pb.ClusterStatusResponse) {
	w.optStr("cluster_id", s.GetClusterId())
	w.count("asked", s.GetAsked())
	w.list("nodes", len(s.GetNodes()), func(i int) {
		w.open('{')
		writeClusterNode(w, s.GetNodes()[i])
		w.close('}')
	})
	w.list("shards", len(s.GetShards()), func(i int) {
		w.open('{')
		x := s.GetShards()[i]
		w.count("shard", uint64(x.GetShard()))
		w.count("leader", x.GetLeader())
		w.count("term", x.GetTerm())
		w.count("committed", x.GetCommitted())
		w.close('}')
	})
	w.count("format", uint64(s.GetFormat()))
	if s.GetJob() != nil {
		w.object("job", func() { writeMemberJob(w, s.GetJob()) })
	}
	w.list("warnings", len(s.GetWarnings()), func(i int) { w.quote(s.GetWarnings()[i]) })
}

func writeClusterNode(w *jsonWriter, n *pb.ClusterNode) {
	w.count("id", n.GetId())
	w.optStr("name", n.GetName())
	w.optStr("address", n.GetAddress())
	w.str("grpc", n.GetGrpc())
	w.optStr("http", n.GetHttp())
	w.bool("reachable", n.GetReachable())
	w.optStr("error", n.GetError())
	w.optStr("program", n.GetProgram())
	w.count("knows_format", uint64(n.GetKnowsFormat()))
	w.count("replica", n.GetReplica())
	w.optStr("state", n.GetState())
	w.optBool("drained", n.GetDrained())
	w.optStr("unready", n.GetUnready())
	w.list("leads", len(n.GetLeads()), func(i int) { w.number(uint64(n.GetLeads()[i])) })
	w.count("lag", n.GetLag())
	w.list("replicas", len(n.GetReplicas()), func(i int) {
		w.open('{')
		r := n.GetReplicas()[i]
		w.count("shard", uint64(r.GetShard()))
		w.count("leader", r.GetLeader())
		w.bool("leads", r.GetLeads())
		w.count("term", r.GetTerm())
		w.count("committed", r.GetCommitted())
		w.count("applied", r.GetApplied())
		w.count("lag", r.GetLag())
		w.close('}')
	})
}

// number is an element of a list.
func (w *jsonWriter) number(n uint64) {
	w.sep()
	w.b = strconv.AppendUint(w.b, n, 10)
	w.comma = true
}

func writeMemberJob(w *jsonWriter, j *pb.MemberJob) {
	w.count("id", j.GetId())
	w.str("kind", j.GetKind())
	w.str("state", j.GetState())
	w.count("node", j.GetNode())
	w.optStr("ending", j.GetEnding())
	w.optStr("reason", j.GetReason())
}

func writeClusterMember(w *jsonWriter, m *pb.ClusterMember) {
	w.count("replica", m.GetReplica())
	w.count("node", m.GetNode())
	w.optStr("name", m.GetName())
	w.str("peer", m.GetPeer())
	w.optStr("grpc", m.GetGrpc())
	w.optStr("http", m.GetHttp())
	w.str("state", m.GetState())
	w.optBool("drained", m.GetDrained())
}
