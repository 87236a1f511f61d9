package api

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// showRefusals shows what the bounds of a namespace, or of a tenant where namespace is 0, refused in the last day.
func (s *Server) showRefusals(ctx context.Context, tenant core.TenantID, namespace core.NamespaceID) *pb.Refusals {
	r := s.node.history.Refusals(ctx, tenant, namespace)
	out := &pb.Refusals{Partial: r.Partial}
	for _, b := range r.Bounds {
		out.Bounds = append(out.Bounds, &pb.BoundRefusals{Bound: b.Name, Count: b.Count, Last: timestamppb.New(b.Last)})
	}
	for _, n := range r.Nodes {
		out.Nodes = append(out.Nodes, &pb.RefusalNode{Node: n.Node, Since: timestamppb.New(n.Since)})
	}
	return out
}
