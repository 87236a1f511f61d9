package edge

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
)

// oneSpace is a directory with one namespace, of one tenant.
type oneSpace struct{ partitions int }

func (o oneSpace) Namespace(_ context.Context, tenant, name string, _ bool) (core.NamespaceInfo, error) {
	if tenant != "acme" || name != "jobs" {
		return core.NamespaceInfo{}, core.NotFound{Kind: "namespace", ID: name}
	}
	return core.NamespaceInfo{TenantName: tenant, Name: name, Partitions: make([]core.PartitionInfo, o.partitions)}, nil
}

func TestANamespaceIsFoundInTheTenantOfTheTokenAlone(t *testing.T) {
	find := func(tenant, name string, partitions int) (core.NamespaceInfo, error) {
		return FindNamespace(t.Context(), oneSpace{partitions}, Caller{Principal: auth.Principal{Tenant: tenant}}, name, false)
	}
	if ns, err := find("acme", "jobs", 2); err != nil || len(ns.Partitions) != 2 {
		t.Errorf("of its tenant: %+v, %v", ns, err)
	}
	for _, c := range [][2]string{{"globex", "jobs"}, {"acme", "other"}, {"", "jobs"}} {
		if _, err := find(c[0], c[1], 2); !UnknownNamespace(err) {
			t.Errorf("%s of %s: %v", c[1], c[0], err)
		}
	}
	if _, err := find("acme", "jobs", 0); !errors.Is(err, errNoPartition) || UnknownNamespace(err) {
		t.Errorf("without a partition: %v", err)
	}
	if UnknownNamespace(core.NotFound{Kind: "task"}) || UnknownNamespace(nil) {
		t.Error("another error counts as an unknown namespace")
	}
}

func TestACallNamesOneNamespaceOrNone(t *testing.T) {
	md, _ := metadata.FromIncomingContext(WithNamespace(t.Context(), "jobs"))
	if name, fact := NamespaceOf(md); name != "jobs" || fact != nil {
		t.Errorf("of a door without metadata: %q, %v", name, fact)
	}
	if name, fact := NamespaceOf(nil); name != "default" || fact != nil {
		t.Errorf("without a name: %q, %v", name, fact)
	}
	for _, values := range [][]string{{"a", "b"}, {""}, {"a:b"}} {
		if _, fact := NamespaceOf(metadata.MD{NamespaceKey: values}); fact == nil {
			t.Errorf("%q is taken", values)
		}
	}
}
