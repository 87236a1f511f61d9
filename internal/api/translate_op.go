package api

import (
	"reflect"
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// opRow is what the edge knows of an op of a commit. The rows of a service stand where its ops are read: taskOps, batchOps,
// keyOps, refOps, pointOps.
type opRow struct {
	// kind is the op of the log. Its name is that of the contract's member, and its service must not be
	// disabled.
	kind core.OpKind
	// rule says who may use it. A commit needs the rules of all its ops.
	rule edge.Rule
	// member is the type that the contract's Op has for it, and read makes the op of such a member.
	member reflect.Type
	read   func(t *Translator, member any) (core.Op, core.Fact)
}

// opOf is the row of the op that M, a member of the contract's Op, is read as.
func opOf[M any](kind core.OpKind, needs auth.Scopes, read func(t *Translator, member M) (core.Op, core.Fact)) opRow {
	return opRow{kind, edge.Needs(needs), reflect.TypeFor[M](), func(t *Translator, member any) (core.Op, core.Fact) {
		return read(t, member.(M))
	}}
}

// orAny is the row of an op that those may use too who have any of some scopes.
func (r opRow) orAny(scopes auth.Scopes) opRow {
	r.rule = r.rule.OrAny(scopes)
	return r
}

// ops are the rows of all ops, by the type of their member.
var ops = func() map[reflect.Type]opRow {
	out := make(map[reflect.Type]opRow)
	for _, row := range slices.Concat(taskOps, batchOps, keyOps, refOps, pointOps) {
		out[row.member] = row
	}
	return out
}()

// opRules says who may use an op, by its name in the contract.
func opRules() map[string]edge.Rule {
	out := map[string]edge.Rule{"reserved": edge.AnyToken()} // refused as not supported
	for _, row := range ops {
		out[row.kind.Name()] = row.rule
	}
	return out
}

// ops appends the ops of a commit, or of effects.
func (t *Translator) ops(out []core.Op, in []*pb.Op) ([]core.Op, core.Fact) {
	t.opens = nil
	for i, o := range in {
		op, fact := t.op(o)
		if fact != nil {
			return nil, edge.AtOp{Fact: edge.Within(edge.Item("ops", i), fact), Op: i} // not all facts have a field
		}
		out = append(out, op)
	}
	return out, nil
}

// op reads one op, if the caller may use it.
func (t *Translator) op(in *pb.Op) (core.Op, core.Fact) {
	row, ok := ops[reflect.TypeOf(in.GetOp())]
	// A member that the contract has and no service serves yet.
	if !ok {
		return nil, edge.NotSupported("")
	}
	if fact := t.enabled(row.kind.Service()); fact != nil {
		return nil, fact
	}
	if fact := row.rule.Missing(t.who.Scopes); fact != nil {
		return nil, fact
	}
	op, fact := row.read(t, in.GetOp())
	if fact == nil {
		fact = t.reachesOp(op)
	}
	return op, fact
}

// asOp keeps a nil op of a concrete type from looking like an op.
func asOp[T core.Op](op T, fact core.Fact) (core.Op, core.Fact) {
	if fact != nil {
		return nil, fact
	}
	return op, nil
}
