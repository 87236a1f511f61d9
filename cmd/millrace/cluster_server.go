package main

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/server"
	millrace "github.com/millrace/millrace/sdk/go"
)

// Without --socket, operators reach a server through its ordinary gRPC listener, with a token that has
// the scope cluster. They get the same answers as through the operator's socket, and commands print
// both with the same code.

// movedShard is a shard that another node leads now, as the answer to a transfer.
type movedShard struct {
	Shard  uint16 `json:"shard"`
	Leader uint64 `json:"leader"`
}

// ask does over gRPC what the operator's socket does at path, and fills out in the form of the
// socket's answer, so that callers need not know which way was taken. The type of out selects the
// call; where one type serves several paths, the path decides. Transfer has no answer of its own:
// what was asked for is what holds once it succeeds.
func (o *operator) ask(ctx context.Context, path string, query url.Values, out any) error {
	opts, err := o.options()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := millrace.Dial(ctx, opts...)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the answer tells what happened
	op := c.Operator()
	switch out := out.(type) {
	// balance and status have the same answer.
	case *server.ClusterStatus:
		var s *millrace.ClusterStatus
		if path == "/cluster/balance" {
			s, err = op.Balance(ctx)
		} else {
			s, err = op.Status(ctx)
		}
		if err == nil {
			*out = statusOf(s)
		}
	case *server.Membership:
		var m *millrace.Membership
		if m, err = changeMembers(ctx, op, strings.TrimPrefix(path, "/cluster/members/"), query); err == nil {
			*out = membershipOf(m)
		}
	case *server.Finalized:
		var format, before int
		format, before, err = op.Finalize(ctx)
		*out = server.Finalized{Format: uint16(format), Before: uint16(before)}
	case *movedShard:
		shard, _ := strconv.ParseUint(query.Get("shard"), 10, 16) // the command wrote it
		out.Shard, out.Leader = uint16(shard), numberOf(query, "to")
		err = op.Transfer(ctx, int(shard), out.Leader)
	}
	return err
}

// numberOf reads a number from a query that this program wrote, so it cannot be malformed; an
// absent one is 0.
func numberOf(query url.Values, name string) uint64 {
	n, _ := strconv.ParseUint(query.Get(name), 10, 64) // the command wrote it
	return n
}

// changeMembers maps a verb of the operator's socket to the SDK's call. Any verb that is not listed
// is cancel.
func changeMembers(ctx context.Context, op millrace.Operator, verb string, q url.Values) (*millrace.Membership, error) {
	node := numberOf(q, "node")
	switch verb {
	case "add":
		return op.Add(ctx, millrace.AddNode{Node: node, Name: q.Get("name"), Learner: q.Get("learner") == "1"})
	case "remove":
		return op.Remove(ctx, node)
	case "replace":
		return op.Replace(ctx, node, numberOf(q, "with"))
	case "promote":
		return op.Promote(ctx, node)
	case "drain":
		return op.Drain(ctx, node)
	case "undrain":
		return op.Undrain(ctx, node)
	}
	return op.Cancel(ctx)
}

// jobOf converts the change of membership that is under way; nil stays nil.
func jobOf(j *millrace.MemberJob) *server.JobStatus {
	if j == nil {
		return nil
	}
	return &server.JobStatus{ID: j.ID, Kind: j.Kind, State: j.State, Node: j.Node, Ending: j.Ending, Reason: j.Reason}
}

// membershipOf converts the answer to a change of membership. Members is never nil, so that JSON
// has a list.
func membershipOf(m *millrace.Membership) server.Membership {
	out := server.Membership{Version: m.Version, Members: []server.MemberStatus{}, Job: jobOf(m.Job), Token: m.JoinToken}
	for _, x := range m.Members {
		out.Members = append(out.Members, server.MemberStatus(x))
	}
	return out
}

// statusOf converts a cluster's status. Leads is never nil either.
func statusOf(s *millrace.ClusterStatus) server.ClusterStatus {
	out := server.ClusterStatus{Cluster: s.Cluster, Asked: s.Asked, Format: uint16(s.Format), Job: jobOf(s.Job)}
	for _, x := range s.Shards {
		out.Shards = append(out.Shards, server.ShardStatus{Shard: x.Shard, Leader: x.Leader, Term: x.Term, Commit: x.Committed})
	}
	for _, n := range s.Nodes {
		node := server.NodeStatus{
			ID: n.ID, Name: n.Name, Address: n.Address, GRPC: n.GRPC, HTTP: n.HTTP, Reachable: n.Reachable, Error: n.Error, Version: n.Program,
			Knows: uint16(n.KnowsFormat), Replica: n.Replica, State: n.State, Drained: n.Drained, Unready: n.Unready, Lag: n.Lag,
			Leads: append([]int{}, n.Leads...),
		}
		for _, r := range n.Replicas {
			node.Replicas = append(node.Replicas, server.ReplicaRow{
				Shard: r.Shard, Leader: r.Leader, Leads: r.Leads, Term: r.Term, Commit: r.Committed, Applied: r.Applied, Lag: r.Lag,
			})
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}
