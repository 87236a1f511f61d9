package record

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// keyName is a key and its keyspace.
type keyName struct{ space, key string }

// row is what a key holds. The zero row is that of a key that is absent.
type row struct {
	value []byte
	rev   uint64 // the index of the commit that wrote it; 0: it is absent
}

// set writes a key; the zero row removes it. It needs mu.
func (s *Server) set(k keyName, r row) {
	old := s.keys[k]
	s.undo = append(s.undo, func() { s.restore(k, old) })
	s.restore(k, r)
}

// restore is set without a way back.
func (s *Server) restore(k keyName, r row) {
	if r.rev == 0 {
		delete(s.keys, k)
	} else {
		s.keys[k] = r
	}
}

// named checks the names of a key.
func named(space string, key []byte) (keyName, *millracev1.Error) {
	switch {
	case !validName(space, "._-"):
		return keyName{}, invalid("keyspace", "not a name of a keyspace")
	case len(key) == 0:
		return keyName{}, invalid("key", "must not be empty")
	}
	return keyName{space, string(key)}, nil
}

// mismatch is the refusal of a condition, with the revision and value that were found.
func (r row) mismatch(k keyName) *millracev1.Error {
	e := &millracev1.Error{
		Code: wire.PreconditionFailed, Details: map[string]string{"rev": strconv.FormatUint(r.rev, 10)},
		Message: fmt.Sprintf("key %q of keyspace %q is at revision %d", k.key, k.space, r.rev),
	}
	if r.rev == 0 {
		e.Message = fmt.Sprintf("key %q of keyspace %q is absent", k.key, k.space)
	} else if len(r.value) <= 1<<10 && utf8.Valid(r.value) {
		e.Details["value"] = string(r.value)
	}
	return e
}

// check judges a condition. It needs mu.
func (s *Server) check(c *millracev1.KVCheck) *millracev1.Error {
	k := keyName{c.Keyspace, string(c.Key)}
	if r := s.keys[k]; !r.holds(c) {
		return r.mismatch(k)
	}
	return nil
}

// holds judges a comparison. An absent key has revision 0 and no value: it is unequal to every value, and neither less nor greater
// than one.
func (r row) holds(c *millracev1.KVCheck) bool {
	there := r.rev != 0
	switch c.Compare {
	case millracev1.KVCheck_EXISTS:
		return there
	case millracev1.KVCheck_ABSENT:
		return !there
	}
	order := bytes.Compare(r.value, c.GetValue())
	if x, ok := c.Operand.(*millracev1.KVCheck_Rev); ok {
		order = 0
		if r.rev != x.Rev {
			order = 1
			if r.rev < x.Rev {
				order = -1
			}
		}
	} else if !there {
		return c.Compare == millracev1.KVCheck_NOT_EQUAL
	}
	switch c.Compare {
	case millracev1.KVCheck_EQUAL:
		return order == 0
	case millracev1.KVCheck_NOT_EQUAL:
		return order != 0
	case millracev1.KVCheck_LESS:
		return order < 0
	default:
		return order > 0
	}
}

// put stores a value. It needs mu.
func (s *Server) put(op *millracev1.KVPut) (*millracev1.OpResult, *millracev1.Error) {
	k := keyName{op.Keyspace, string(op.Key)}
	r := s.keys[k]
	if op.IfAbsent && r.rev != 0 || op.IfRev != nil && *op.IfRev != r.rev {
		return nil, r.mismatch(k)
	}
	out := &millracev1.OpResult{Rev: s.index}
	if op.WantPrev {
		out.Prev, out.Existed = r.value, r.rev != 0
	}
	s.set(k, row{slices.Clone(op.Value), s.index})
	return out, nil
}

// remove deletes a key. It needs mu.
func (s *Server) remove(op *millracev1.KVDelete) (*millracev1.OpResult, *millracev1.Error) {
	k := keyName{op.Keyspace, string(op.Key)}
	r := s.keys[k]
	if op.IfRev != nil && *op.IfRev != r.rev {
		return nil, r.mismatch(k)
	}
	s.set(k, row{})
	return &millracev1.OpResult{Existed: r.rev != 0}, nil
}

// sum adds to a number. It needs mu.
func (s *Server) sum(op *millracev1.KVAdd) (*millracev1.OpResult, *millracev1.Error) {
	k := keyName{op.Keyspace, string(op.Key)}
	r := s.keys[k]
	if op.IfRev != nil && *op.IfRev != r.rev {
		return nil, r.mismatch(k)
	}
	n, why := r.plus(op)
	if why != "" {
		return nil, &millracev1.Error{
			Code: wire.PreconditionFailed, Reason: why, Message: "nothing was added to the key: " + why,
			Details: map[string]string{"rev": strconv.FormatUint(r.rev, 10)},
		}
	}
	s.set(k, row{strconv.AppendInt(nil, n, 10), s.index})
	return &millracev1.OpResult{Rev: s.index, Sum: n}, nil
}

// plus adds to what the key holds. why says why that cannot be; empty: it can.
func (r row) plus(op *millracev1.KVAdd) (sum int64, why string) {
	n := int64(0) // what an absent key holds
	if r.rev != 0 {
		var err error
		if n, err = strconv.ParseInt(string(r.value), 10, 64); err != nil {
			return 0, "not_a_number"
		}
	}
	switch {
	case op.Delta > 0 && n > math.MaxInt64-op.Delta, op.Delta < 0 && n < math.MinInt64-op.Delta:
		return 0, "overflow"
	case op.Floor != nil && n+op.Delta < *op.Floor, op.Ceiling != nil && n+op.Delta > *op.Ceiling:
		return 0, "bound"
	}
	return n + op.Delta, ""
}

// ranged checks the bounds of a range.
func ranged(space string, from, to, prefix []byte) *millracev1.Error {
	switch {
	case !validName(space, "._-"):
		return invalid("keyspace", "not a name of a keyspace")
	case len(prefix) > 0 && (len(from) > 0 || len(to) > 0):
		return invalid("prefix", "from or to is given too")
	}
	return nil
}

// within returns the keys of a range in byte order. It needs mu.
func (s *Server) within(space string, from, to, prefix []byte) (out []keyName) {
	for k := range s.keys {
		if k.space == space && strings.HasPrefix(k.key, string(prefix)) && k.key >= string(from) && (len(to) == 0 || k.key < string(to)) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b keyName) int { return strings.Compare(a.key, b.key) })
	return out
}

// removeRange deletes the keys of a range. It needs mu.
func (s *Server) removeRange(op *millracev1.KVDeleteRange) *millracev1.OpResult {
	names := s.within(op.Keyspace, op.From, op.To, op.Prefix)
	for _, k := range names {
		s.set(k, row{})
	}
	out := &millracev1.OpResult{}
	if op.Count {
		out.Count = uint64(len(names))
	}
	return out
}

// getKey reads a key.
func (s *Server) getKey(req *millracev1.KVGetRequest) (*millracev1.KVGetResponse, *millracev1.Error) {
	k, e := named(req.Keyspace, req.Key)
	if e != nil {
		return nil, e
	}
	r := s.keys[k]
	return &millracev1.KVGetResponse{Value: r.value, Rev: r.rev, Found: r.rev != 0, At: s.at()}, nil
}

// getKeys reads several keys.
func (s *Server) getKeys(req *millracev1.KVBatchGetRequest) (*millracev1.KVBatchGetResponse, *millracev1.Error) {
	out := &millracev1.KVBatchGetResponse{At: []*millracev1.At{s.at()}}
	for i, key := range req.Keys {
		k, e := named(req.Keyspace, key)
		if e != nil {
			if e.Field == "key" {
				e = invalid(item("keys", i), "must not be empty")
			}
			return nil, e
		}
		r := s.keys[k]
		out.Results = append(out.Results, &millracev1.KVRead{Value: r.value, Rev: r.rev, Found: r.rev != 0})
	}
	return out, nil
}

// readRange reads the keys of a range: all of them are one part of the stream that answers.
func (s *Server) readRange(req *millracev1.KVRangeRequest) (*millracev1.KVRangeResponse, *millracev1.Error) {
	if e := ranged(req.Keyspace, req.From, req.To, req.Prefix); e != nil {
		return nil, e
	}
	names := s.within(req.Keyspace, req.From, req.To, req.Prefix)
	out := &millracev1.KVRangeResponse{At: []*millracev1.At{s.at()}}
	if req.Limit > 0 && uint64(len(names)) > req.Limit {
		names = names[:req.Limit]
	}
	for _, k := range names {
		r := s.keys[k]
		p := &millracev1.KVPair{Key: []byte(k.key), Value: r.value, Rev: r.rev}
		if req.KeysOnly {
			p.Value = nil
		}
		out.Items = append(out.Items, p)
	}
	return out, nil
}

// deleteRange removes a range of keys outside of a commit.
func (s *Server) deleteRange(req *millracev1.KVDeleteRangeRequest) (*millracev1.KVDeleteRangeResponse, *millracev1.Error) {
	ops := []*millracev1.Op{{Op: &millracev1.Op_KvDeleteRange{KvDeleteRange: req.GetRange()}}}
	if e := shapeOf(ops[0]); e != nil {
		return nil, within(e, "range.")
	}
	results, e := s.apply(nil, ops)
	if e != nil {
		return nil, e
	}
	return &millracev1.KVDeleteRangeResponse{Count: results[0].Count, At: []*millracev1.At{s.at()}}, nil
}
