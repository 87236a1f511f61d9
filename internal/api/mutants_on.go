//go:build mutants

package api

import (
	"context"
	"os"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
)

// planted is the bug that this run carries, to prove that a test catches it.
var planted = sync.OnceValue(func() string { return os.Getenv("MILLRACE_MUTANT") })

func mutant(name string) bool { return planted() == name }

// firstTenant is who called the route first that does not look at its caller's tenant.
var firstTenant atomic.Pointer[string]

// tenantOf is the tenant whose namespaces a call reaches. With the bug, reading a key shows the first caller's
// value to the next caller.
func (s *Server) tenantOf(ctx context.Context, who caller) string {
	method, _ := grpc.Method(ctx)
	if !mutant("tenant_check_missing_on_one_route") || method != "/millrace.v1.KVService/Get" {
		return who.Tenant
	}
	firstTenant.CompareAndSwap(nil, &who.Tenant)
	return *firstTenant.Load()
}
