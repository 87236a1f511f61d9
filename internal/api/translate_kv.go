package api

import (
	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// keyOps are the ops on keys.
var keyOps = []opRow{
	opOf(core.OpKVPut, auth.KVWrite, func(t *Translator, in *pb.Op_KvPut) (core.Op, core.Fact) { return asOp(t.kvPut(in.KvPut)) }),
	opOf(core.OpKVDelete, auth.KVWrite, func(t *Translator, in *pb.Op_KvDelete) (core.Op, core.Fact) { return asOp(t.kvDelete(in.KvDelete)) }),
	opOf(core.OpKVCheck, auth.KVWrite, func(t *Translator, in *pb.Op_KvCheck) (core.Op, core.Fact) { return asOp(t.kvCheck(in.KvCheck)) }),
	opOf(core.OpKVAdd, auth.KVWrite, func(t *Translator, in *pb.Op_KvAdd) (core.Op, core.Fact) { return asOp(t.kvAdd(in.KvAdd)) }),
	opOf(core.OpKVDeleteRange, auth.KVWrite, func(t *Translator, in *pb.Op_KvDeleteRange) (core.Op, core.Fact) {
		return asOp(t.kvRangeOp(in.KvDeleteRange))
	}),
}

// kvAdd reads an addition to a number, with bounds that its sum must keep.
func (t *Translator) kvAdd(in *pb.KVAdd) (*core.KVAdd, core.Fact) {
	if fact := t.key(in.GetKeyspace(), in.GetKey()); fact != nil {
		return nil, fact
	}
	if in.Floor != nil && in.Ceiling != nil && in.GetFloor() > in.GetCeiling() {
		return nil, edge.Invalid("floor", "must not be above the ceiling")
	}
	return &core.KVAdd{
		Keyspace: in.GetKeyspace(), Key: in.GetKey(), Delta: in.GetDelta(), HasRev: in.IfRev != nil, IfRev: in.GetIfRev(),
		HasFloor: in.Floor != nil, Floor: in.GetFloor(), HasCeiling: in.Ceiling != nil, Ceiling: in.GetCeiling(),
	}, nil
}

// kvRangeOp is kvDeleteRange for a commit, whose keys are of one partition.
// Errors: Invalid where the keys may be of several partitions.
func (t *Translator) kvRangeOp(in *pb.KVDeleteRange) (*core.KVDeleteRange, core.Fact) {
	op, fact := t.kvDeleteRange(in)
	if fact != nil || !t.several() {
		return op, fact
	}
	// Only bounds that share one {tag} are sure to have all their keys in one partition.
	if _, one := core.PlaceRange(op.From, op.To, op.Prefix, t.parts); !one {
		return nil, core.Invalid{
			Field: rangeField(op), Reason: "several_partitions", Message: "the keys of a range in a commit share one {tag}",
		}
	}
	return op, nil
}

// kvDeleteRange reads a range of keys to remove, which may lie in any partitions.
func (t *Translator) kvDeleteRange(in *pb.KVDeleteRange) (*core.KVDeleteRange, core.Fact) {
	if fact := t.keyRange(in.GetKeyspace(), in.GetFrom(), in.GetTo(), in.GetPrefix()); fact != nil {
		return nil, fact
	}
	return &core.KVDeleteRange{
		Keyspace: in.GetKeyspace(), From: in.GetFrom(), To: in.GetTo(), Prefix: in.GetPrefix(), Count: in.GetCount(),
	}, nil
}

// keyRange checks a keyspace and the bounds of a range of its keys.
// Bounds that are empty are none; from is in the range, to is not.
func (t *Translator) keyRange(keyspace string, from, to, prefix []byte) core.Fact {
	if fact := edge.SpaceName("keyspace", keyspace); fact != nil {
		return fact
	}
	for _, bound := range []struct {
		field string
		key   []byte
	}{{"from", from}, {"to", to}, {"prefix", prefix}} {
		if int64(len(bound.key)) > t.l.KeyBytes {
			return edge.TooLarge(bound.field, "key_bytes", t.l.KeyBytes)
		}
	}
	// A prefix says both bounds.
	if len(prefix) > 0 && (len(from) > 0 || len(to) > 0) {
		return edge.Invalid("prefix", "and from or to are mutually exclusive")
	}
	return nil
}

// rangeField is the field that says which keys a range has.
func rangeField(op *core.KVDeleteRange) string {
	if len(op.Prefix) > 0 {
		return "prefix"
	}
	return "from"
}
