package api

import (
	"slices"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// The names of services in settings. A disabled service has no methods and no routes on this server, and this server refuses
// commits with its ops. Commits of other nodes are still applied: replicas must have the same state.
const (
	ServiceQueue  = "queue"
	ServiceKV     = "kv"
	ServiceRefs   = "refs"
	ServiceSearch = "search"
)

// AllServices are those names. Queues are always open.
func AllServices() []string { return []string{ServiceQueue, ServiceKV, ServiceRefs, ServiceSearch} }

// doors are the prefixes of methods by the service that they are of.
var doors = map[string][]string{
	ServiceKV:     {"/millrace.v1.KVService/", "/millrace.v1.KVStream/", "/millrace.v1.KeyspaceService/"},
	ServiceRefs:   {refsService},
	ServiceSearch: {"/millrace.v1.SearchService/"},
}

// closed reports whether a service is not open here.
func (o *Options) closed(service string) bool { return slices.Contains(o.Closed, service) }

// shut reports whether a method is of a service that is not open here.
func (s *Server) shut(method string) bool {
	return slices.ContainsFunc(s.o.Closed, func(service string) bool {
		return slices.ContainsFunc(doors[service], func(prefix string) bool { return strings.HasPrefix(method, prefix) })
	})
}

// open refuses what is of a service that is not open here.
func (o *Options) open(service string) core.Fact {
	if o.closed(service) {
		return core.NotFound{Kind: "service", ID: service}
	}
	return nil
}

// open refuses an op of a service that is not open here.
func (t *translator) open(in *pb.Op) core.Fact {
	if t.edge.s == nil || len(t.edge.s.o.Closed) == 0 {
		return nil
	}
	switch in.GetOp().(type) {
	case *pb.Op_KvPut, *pb.Op_KvDelete, *pb.Op_KvCheck, *pb.Op_KvAdd, *pb.Op_KvDeleteRange:
		return t.edge.s.o.open(ServiceKV)
	case *pb.Op_RefTransaction:
		return t.edge.s.o.open(ServiceRefs)
	case *pb.Op_VectorUpsert, *pb.Op_VectorDelete:
		return t.edge.s.o.open(ServiceSearch)
	}
	return nil
}
