package server

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/env"
)

// TokenSpec is what a new token allows. Its scopes are those of the roles and those that are
// listed, together. A zero Expires is never.
type TokenSpec struct {
	Name, Tenant string
	Roles        []string
	Scopes       []string
	Repos        []string // globs of namespace/repository; none: all of the tenant
	Queues       []string // patterns of queues; none: all of the tenant
	Expires      time.Time
}

// MakeToken returns a random token, and a tokens file in YAML with this token alone. It refuses
// what serve would refuse.
func MakeToken(spec TokenSpec) (token string, file []byte, err error) {
	who := auth.Principal{Name: spec.Name, Tenant: spec.Tenant, Repos: spec.Repos, Queues: spec.Queues, Expires: spec.Expires}
	// Roles and scopes add up.
	for _, name := range spec.Roles {
		scopes, ok := auth.ParseRole(name)
		if !ok {
			return "", nil, fmt.Errorf("role: %q must be producer, worker, viewer, responder, admin or operator", name)
		}
		who.Scopes |= scopes
	}
	for _, name := range spec.Scopes {
		scope, ok := auth.ParseScope(name)
		if !ok {
			return "", nil, fmt.Errorf("scope: %q must be one of %s", name, auth.All)
		}
		who.Scopes |= scope
	}
	token = auth.Generate(env.SystemRand{})
	file, err = auth.Format([]auth.Token{{Hash: auth.Hash(token), Principal: who}})
	return token, file, err
}
