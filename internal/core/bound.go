package core

import (
	"errors"
	"strings"
	"time"
)

// Bound is a limit as counts of refusals name it: whose it is, and what it is called.
type Bound struct {
	Tenant    TenantID
	Namespace NamespaceID // 0: the bound is of the tenant, over all of its namespaces
	// Name is that of the field which sets the bound, in the configuration of the tenant or of the namespace. Any other limit has the
	// name that it has in errors.
	Name string
}

// RateHeld is a rate that holds something up.
type RateHeld struct {
	Limit string // the name of the limit in errors
	Bound Bound  // the same limit, as counts of refusals name it
}

// BoundOf returns the bound by which a commit of a partition was refused; ok is false where no bound was the reason.
func BoundOf(p Partition, fact Fact) (b Bound, ok bool) {
	var limit string
	if f, is := errors.AsType[Exhausted](fact); is {
		limit = f.Limit
	} else if f, is := errors.AsType[RateLimited](fact); is {
		limit = f.Limit
	}
	if limit == "" || p.Tenant == 0 {
		return b, false
	}
	if name, is := strings.CutPrefix(limit, "tenant_"); is {
		return Bound{Tenant: p.Tenant, Name: name}, true
	}
	return Bound{Tenant: p.Tenant, Namespace: p.Namespace, Name: strings.TrimPrefix(limit, "namespace_")}, true
}

// Refused is how often a bound refused something in the last day.
type Refused struct {
	Name  string // of the bound
	Count uint64
	Last  time.Time // by the wall clock of the node that refused
}

// Refusals are what the bounds of a tenant, or of a namespace, refused in the last day.
type Refusals struct {
	// Bounds are those that refused anything, the one that refused most first.
	Bounds []Refused
	// Nodes are those whose counts these are, by name.
	Nodes []Counting
	// Partial says that a node did not answer, or that one has more names of bounds than it counts by themselves.
	Partial bool
}

// Counting is a node that counts refusals in its memory.
type Counting struct {
	Node  string    // its name
	Since time.Time // its start
}
