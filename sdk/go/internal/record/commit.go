package record

import (
	"slices"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Places of a refusal in a commit, as the contract has them.
const (
	atFence     = -1
	atCondition = -2 // condition i is atCondition-i
)

// commitFrame answers a commit.
func (s *Server) commitFrame(f *millracev1.CommitFrame) *millracev1.Ack {
	s.mu.Lock()
	defer s.mu.Unlock()
	results, e := s.commit(f.GetCommit())
	if e != nil {
		return &millracev1.Ack{Seq: f.Seq, Error: e}
	}
	return &millracev1.Ack{Seq: f.Seq, At: s.at(), Commit: &millracev1.CommitResponse{Results: results, At: s.at()}}
}

// commit carries out a commit. It needs mu.
func (s *Server) commit(req *millracev1.CommitRequest) ([]*millracev1.OpResult, *millracev1.Error) {
	if req.GetFence() != nil && req.Fence.Token == 0 {
		return nil, invalid("fence.token", "is required")
	}
	if e := shape(req.GetConditions(), req.GetOps()); e != nil {
		return nil, e
	}
	if f := req.GetFence(); f != nil {
		if _, e := s.holder(f.Task, f.Token); e != nil {
			return nil, atOp(e, atFence)
		}
	}
	return s.apply(req.GetConditions(), req.GetOps())
}

// shape refuses what no server takes, whatever it holds.
func shape(conditions []*millracev1.KVCheck, ops []*millracev1.Op) *millracev1.Error {
	for i, c := range conditions {
		if _, e := named(c.GetKeyspace(), c.GetKey()); e != nil {
			return within(e, item("conditions", i)+".")
		}
	}
	for i, op := range ops {
		if e := shapeOf(op); e != nil {
			return atOp(within(e, item("ops", i)+"."), i)
		}
	}
	return nil
}

// shapeOf is shape of one op.
func shapeOf(op *millracev1.Op) (e *millracev1.Error) {
	switch x := op.GetOp().(type) {
	case *millracev1.Op_KvPut:
		if _, e = named(x.KvPut.GetKeyspace(), x.KvPut.GetKey()); e == nil && x.KvPut.GetIfAbsent() && x.KvPut.GetIfRev() != 0 {
			e = invalid("if_rev", "and if_absent are mutually exclusive")
		}
	case *millracev1.Op_KvDelete:
		_, e = named(x.KvDelete.GetKeyspace(), x.KvDelete.GetKey())
	case *millracev1.Op_KvAdd:
		_, e = named(x.KvAdd.GetKeyspace(), x.KvAdd.GetKey())
	case *millracev1.Op_KvDeleteRange:
		r := x.KvDeleteRange
		e = ranged(r.GetKeyspace(), r.GetFrom(), r.GetTo(), r.GetPrefix())
	case *millracev1.Op_TaskCreate:
		e = judge(x.TaskCreate)
	}
	return e
}

// written is what an op writes: a key, or a point of a collection. ok is false for other ops.
func written(op *millracev1.Op) (w keyName, field string, ok bool) {
	switch x := op.GetOp().(type) {
	case *millracev1.Op_KvPut:
		return keyName{"kv " + x.KvPut.Keyspace, string(x.KvPut.Key)}, "key", true
	case *millracev1.Op_KvDelete:
		return keyName{"kv " + x.KvDelete.Keyspace, string(x.KvDelete.Key)}, "key", true
	case *millracev1.Op_KvAdd:
		return keyName{"kv " + x.KvAdd.Keyspace, string(x.KvAdd.Key)}, "key", true
	case *millracev1.Op_VectorUpsert:
		return keyName{"points " + x.VectorUpsert.Collection, x.VectorUpsert.GetPoint().GetId()}, "id", true
	case *millracev1.Op_VectorDelete:
		return keyName{"points " + x.VectorDelete.Collection, x.VectorDelete.Id}, "id", true
	}
	return keyName{}, "", false
}

// twice refuses the first op that writes what an op before it writes too.
func twice(ops []*millracev1.Op) *millracev1.Error {
	seen := map[keyName]bool{}
	for i, op := range ops {
		w, field, ok := written(op)
		if ok && seen[w] {
			e := invalid(item("ops", i)+"."+field, "an op before it writes the same key")
			e.Reason = "duplicate_key"
			return atOp(e, i)
		}
		seen[w] = ok
	}
	return nil
}

// atOp says at which part of a commit a refusal is.
func atOp(e *millracev1.Error, op int) *millracev1.Error {
	at := int32(op)
	e.Op = &at
	return e
}

// apply applies ops in order, if all conditions hold: all of them, or none. shape has let them pass. It needs mu.
func (s *Server) apply(conditions []*millracev1.KVCheck, ops []*millracev1.Op) ([]*millracev1.OpResult, *millracev1.Error) {
	if e := twice(ops); e != nil {
		return nil, e
	}
	s.next()
	for i, c := range conditions {
		if e := s.check(c); e != nil {
			return nil, atOp(e, atCondition-i)
		}
	}
	results := make([]*millracev1.OpResult, len(ops))
	for i, op := range ops {
		var e *millracev1.Error
		if results[i], e = s.op(op); e != nil {
			s.rollback()
			return nil, atOp(e, i)
		}
	}
	s.ops = append(s.ops, ops...)
	return results, nil
}

// op applies one op. One that is not of keys or tasks is kept alone. It needs mu.
func (s *Server) op(op *millracev1.Op) (*millracev1.OpResult, *millracev1.Error) {
	switch x := op.Op.(type) {
	case *millracev1.Op_KvPut:
		return s.put(x.KvPut)
	case *millracev1.Op_KvDelete:
		return s.remove(x.KvDelete)
	case *millracev1.Op_KvAdd:
		return s.sum(x.KvAdd)
	case *millracev1.Op_KvDeleteRange:
		return s.removeRange(x.KvDeleteRange), nil
	case *millracev1.Op_TaskCreate:
		r, e := s.create(x.TaskCreate)
		return &millracev1.OpResult{Task: r.GetId(), Replayed: r.GetReplayed(), PayloadMatches: r.GetPayloadMatches(), Replaced: r.GetReplaced()}, e
	case *millracev1.Op_TaskCancel:
		state, replayed, e := s.cancelTask(x.TaskCancel.Id, x.TaskCancel.Reason, x.TaskCancel.Force)
		return &millracev1.OpResult{Task: x.TaskCancel.Id, State: state, Replayed: replayed}, e
	case *millracev1.Op_BatchOpen:
		return &millracev1.OpResult{Batch: x.BatchOpen.Id}, nil
	case *millracev1.Op_BatchSeal:
		return &millracev1.OpResult{Batch: x.BatchSeal.Id}, nil
	case *millracev1.Op_BatchCancel:
		return &millracev1.OpResult{Batch: x.BatchCancel.Id}, nil
	case *millracev1.Op_QueuePause, *millracev1.Op_RefTransaction, *millracev1.Op_VectorUpsert, *millracev1.Op_VectorDelete:
		return &millracev1.OpResult{}, nil
	}
	return nil, &millracev1.Error{Code: wire.InvalidArgument, Reason: Reason, Message: "a Recorder does not know this op"}
}

// Ops returns the ops of all commits, and of the effects of completions, in order.
func (s *Server) Ops() []*millracev1.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ops)
}
