package api

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// The names of services in settings. A disabled service has no methods and no routes on this server, and this server refuses
// commits with its ops. Commits of other nodes are still applied: replicas must have the same state.
const (
	ServiceQueue  = "queue"
	ServiceKV     = "kv"
	ServiceRefs   = "refs"
	ServiceSearch = "search"
	// ServiceUI is the web interface, and the sessions of browsers. It has no methods.
	ServiceUI = "ui"
)

// serviceNames are those names by service.
var serviceNames = map[core.Service]string{
	core.ServiceQueue: ServiceQueue, core.ServiceKV: ServiceKV, core.ServiceRefs: ServiceRefs, core.ServiceSearch: ServiceSearch,
}

// AllServices are those names. Queues cannot be disabled.
func AllServices() []string {
	return []string{ServiceQueue, ServiceKV, ServiceRefs, ServiceSearch, ServiceUI}
}

// optional are the prefixes of methods of the services that can be disabled.
var optional = map[string][]string{
	ServiceKV:     {"/millrace.v1.KVService/", "/millrace.v1.KVStream/", "/millrace.v1.KeyspaceService/"},
	ServiceRefs:   {RefsService},
	ServiceSearch: {"/millrace.v1.SearchService/"},
}

// disabled reports whether a service is disabled here.
func (o *Options) disabled(service string) bool { return slices.Contains(o.Closed, service) }

// Enabled reports whether a method is of an enabled service. So is one of a service that cannot be disabled.
func (s *Server) Enabled(method string) bool {
	return !slices.ContainsFunc(s.o.Closed, func(service string) bool {
		return slices.ContainsFunc(optional[service], func(prefix string) bool { return strings.HasPrefix(method, prefix) })
	})
}

// enabled refuses what is of a service that is disabled here.
func (o *Options) enabled(service string) core.Fact {
	if o.disabled(service) {
		return core.NotFound{Kind: "service", ID: service}
	}
	return nil
}

// enabled refuses an op of a service that is disabled here.
func (t *Translator) enabled(service core.Service) core.Fact {
	if t.edge.s == nil || len(t.edge.s.o.Closed) == 0 {
		return nil
	}
	return t.edge.s.o.enabled(serviceNames[service])
}
