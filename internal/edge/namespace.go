package edge

import (
	"context"
	"errors"

	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/internal/core"
)

const (
	// NamespaceKey is the metadata key that names the namespace of a unary call. Doors that are told it in another way put it there.
	NamespaceKey = "millrace-namespace"
	// defaultNamespace is where calls go that name none.
	defaultNamespace = "default"
	// NameRule is the alphabet of names, in the words of a refusal.
	NameRule = "letters, digits, dot, underscore and hyphen, from a letter or digit on, at most 128"
)

// Directory finds namespaces: it is the node, as each door needs it.
type Directory interface {
	// Namespace finds a namespace of a tenant by name; with create it makes one that is missing. NotFound otherwise, as of a moment
	// that a majority confirms. One that this node has found before comes from its memory until the node has applied its removal;
	// partitions of a removed namespace refuse what comes to them.
	Namespace(ctx context.Context, tenant, name string, create bool) (core.NamespaceInfo, error)
}

// SpaceName holds names of namespaces and keyspaces to their alphabet, which lacks the colon: it separates them where
// they are written together.
func SpaceName(field, s string) core.Fact {
	if !core.ValidName(s) {
		return Invalid(field, "must be made of "+NameRule)
	}
	return nil
}

// NamespaceOf reads which namespace the metadata of a call names; without one it is the default.
func NamespaceOf(md metadata.MD) (string, core.Fact) {
	switch values := md.Get(NamespaceKey); len(values) {
	case 0:
		return defaultNamespace, nil
	case 1:
		return values[0], SpaceName("namespace", values[0])
	}
	return "", Invalid("namespace", "must be given only once")
}

// WithNamespace is a context of a call that names a namespace, for doors whose clients have no metadata.
func WithNamespace(ctx context.Context, name string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.MD{NamespaceKey: {name}})
}

// errNoPartition is a fault of the node: calls count on a first partition.
var errNoPartition = errors.New("a namespace has no partition")

// FindNamespace finds the namespace of a call, which has at least one partition. The tenant is that of who calls, always: so no door
// can name another's namespace. A missing one is made when create is set, and NotFound otherwise.
func FindNamespace(ctx context.Context, d Directory, who Caller, name string, create bool) (core.NamespaceInfo, error) {
	ns, err := d.Namespace(ctx, who.Tenant, name, create)
	if err == nil && len(ns.Partitions) == 0 {
		err = errNoPartition
	}
	return ns, err
}

// UnknownNamespace reports whether err says that the namespace of a call does not exist.
func UnknownNamespace(err error) bool {
	f, ok := errors.AsType[core.NotFound](err)
	return ok && f.Kind == "namespace"
}
