package auth

import "strings"

// Scopes is a set of what a token allows.
type Scopes uint32

// The scopes. Admin covers configuration, running a task at once and removing one, within the tenant; it includes no other
// scope. Backup, Cluster and TenantAdmin do not belong to a tenant: their holder can read everything that the server has, takes nodes in
// and out, and bounds tenants.
const (
	TaskCreate Scopes = 1 << iota
	TaskWork
	TaskRead
	KVRead
	KVWrite
	Admin
	RefRead
	RefWrite
	RefForce  // updates that do not descend from what was there
	RefCreate // repositories
	RefAdmin  // hidden refs, settings and deletion of repositories
	Backup    // of all tenants

	// All is every scope.
	All = TaskCreate | TaskWork | TaskRead | TaskOperate | KVRead | KVWrite | Admin | refs | RefCreate | RefAdmin | Backup | allSearch | Cluster | TenantAdmin

	// refs is what who works with repositories needs.
	refs = RefRead | RefWrite | RefForce
	// reads is all reads of a tenant's data, but for protected fields.
	reads = TaskRead | KVRead | RefRead | SearchRead
)

// The scopes of search. SearchAdmin covers definitions and rulesets; SearchProtected shows fields that are protected.
const (
	SearchRead Scopes = 1 << (12 + iota)
	SearchWrite
	SearchAdmin
	SearchProtected

	// Cluster is operating the whole cluster: its members, its leaders, its format.
	Cluster Scopes = 1 << 16
	// TenantAdmin is what bounds tenants, of all of them.
	TenantAdmin Scopes = 1 << 17

	// TaskOperate is acting on tasks and queues that are there: pause, resume, cancel, retry, run now, force release. It gives
	// neither configuration nor removal.
	TaskOperate Scopes = 1 << 18

	allSearch = SearchRead | SearchWrite | SearchAdmin | SearchProtected
)

var scopeNames = [...]struct {
	scope Scopes
	name  string
}{
	{TaskCreate, "task:create"},
	{TaskWork, "task:work"},
	{TaskRead, "task:read"},
	{TaskOperate, "task:operate"},
	{KVRead, "kv:read"},
	{KVWrite, "kv:write"},
	{Admin, "admin"},
	{RefRead, "ref:read"},
	{RefWrite, "ref:write"},
	{RefForce, "ref:force"},
	{RefCreate, "ref:create"},
	{RefAdmin, "ref:admin"},
	{Backup, "backup"},
	{SearchRead, "search:read"},
	{SearchWrite, "search:write"},
	{SearchAdmin, "search:admin"},
	{SearchProtected, "search:protected"},
	{Cluster, "cluster"},
	{TenantAdmin, "tenant:admin"},
}

// Has reports whether s holds every scope of want.
func (s Scopes) Has(want Scopes) bool { return s&want == want }

// Any reports whether s holds at least one scope of want.
func (s Scopes) Any(want Scopes) bool { return s&want != 0 }

// Names lists the scopes of s in a fixed order.
func (s Scopes) Names() []string {
	var out []string
	for _, n := range scopeNames {
		if s.Has(n.scope) {
			out = append(out, n.name)
		}
	}
	return out
}

// String joins the names of s by commas.
func (s Scopes) String() string { return strings.Join(s.Names(), ",") }

// ParseScope reads one scope's name.
func ParseScope(name string) (Scopes, bool) {
	for _, n := range scopeNames {
		if n.name == name {
			return n.scope, true
		}
	}
	return 0, false
}

// ParseRole reads the name of a role, which stands for the scopes that its holder needs: producer, worker, viewer (reads all),
// responder (a viewer who acts on tasks and queues that are there), admin (of a tenant) or operator (of the server).
func ParseRole(name string) (Scopes, bool) {
	switch name {
	case "producer":
		return TaskCreate | TaskRead | KVRead | KVWrite | refs | SearchRead | SearchWrite, true
	case "worker":
		return TaskCreate | TaskWork | TaskRead | KVRead | KVWrite | refs | SearchRead | SearchWrite, true
	case "viewer":
		return reads, true
	case "responder":
		return reads | TaskOperate, true
	case "admin":
		return All &^ (Backup | Cluster | TenantAdmin), true
	case "operator":
		return Backup | Cluster | TenantAdmin, true
	}
	return 0, false
}

// Family is all scopes of the kinds that s has one of: of ref:read, all of refs.
func (s Scopes) Family() Scopes {
	var all Scopes
	for _, n := range scopeNames {
		if !s.Has(n.scope) {
			continue
		}
		kind, _, _ := strings.Cut(n.name, ":")
		for _, other := range scopeNames {
			if k, _, _ := strings.Cut(other.name, ":"); k == kind {
				all |= other.scope
			}
		}
	}
	return all
}
