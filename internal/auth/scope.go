package auth

import "strings"

// Scopes is a set of what a token allows.
type Scopes uint16

// The scopes. Admin covers configuration, running a task at once and removing one; it includes no other scope.
const (
	TaskCreate Scopes = 1 << iota
	TaskWork
	TaskRead
	KVRead
	KVWrite
	Admin

	// All is every scope.
	All = TaskCreate | TaskWork | TaskRead | KVRead | KVWrite | Admin | allSearch
)

// The scopes of search. SearchAdmin covers definitions and rulesets; SearchProtected shows fields that are protected.
const (
	SearchRead Scopes = 1 << (12 + iota)
	SearchWrite
	SearchAdmin
	SearchProtected

	allSearch = SearchRead | SearchWrite | SearchAdmin | SearchProtected
)

var scopeNames = [...]struct {
	scope Scopes
	name  string
}{
	{TaskCreate, "task:create"},
	{TaskWork, "task:work"},
	{TaskRead, "task:read"},
	{KVRead, "kv:read"},
	{KVWrite, "kv:write"},
	{Admin, "admin"},
	{SearchRead, "search:read"},
	{SearchWrite, "search:write"},
	{SearchAdmin, "search:admin"},
	{SearchProtected, "search:protected"},
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

// ParseRole reads the name of a role, which stands for the scopes that its holder needs: producer, worker or admin.
func ParseRole(name string) (Scopes, bool) {
	switch name {
	case "producer":
		return TaskCreate | TaskRead | KVRead | KVWrite | SearchRead | SearchWrite, true
	case "worker":
		return TaskCreate | TaskWork | TaskRead | KVRead | KVWrite | SearchRead | SearchWrite, true
	case "admin":
		return All, true
	}
	return 0, false
}
