package rest

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Keys and keyspaces, by their routes.

type restPair struct {
	Key        string  `json:"key"`
	KeyBytes   []byte  `json:"key_base64"`
	Value      *string `json:"value"`
	ValueBytes []byte  `json:"value_base64"`
	Rev        uint64  `json:"rev,string"`
	Found      bool    `json:"found"`
}

func (p *restPair) value() []byte {
	if p.Value != nil {
		return []byte(*p.Value)
	}
	return p.ValueBytes
}

func (p *restPair) key() []byte {
	if p.KeyBytes != nil {
		return p.KeyBytes
	}
	return []byte(p.Key)
}

type restAts []struct {
	Partition uint32 `json:"partition"`
	Index     uint64 `json:"index,string"`
}

func (list restAts) wire() (out []*millracev1.At) {
	for _, at := range list {
		out = append(out, &millracev1.At{Partition: at.Partition, Index: at.Index})
	}
	return out
}

func keyspacePath(name, tail string) (string, error) {
	if name == "" {
		return "", refusedHere("keyspace", "must not be empty")
	}
	return "/v1/kv/" + restSegment(name) + tail, nil
}

func keyPath(keyspace string, key []byte) (string, error) {
	if len(key) == 0 {
		return "", refusedHere("key", "must not be empty")
	}
	return keyspacePath(keyspace, "/keys/"+restSegment(string(key)))
}

func (r *Conn) batchGet(ctx context.Context, in *millracev1.KVBatchGetRequest, out *millracev1.KVBatchGetResponse) error {
	path, err := keyspacePath(in.GetKeyspace(), "/get")
	if err != nil {
		return err
	}
	q := post(path, 64*len(in.GetKeys())+64, func(w *restBody) {
		w.key("keys_base64")
		w.b = append(w.b, '[')
		for i, key := range in.GetKeys() {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.b = append(w.b, '"')
			w.b = base64.StdEncoding.AppendEncode(w.b, key)
			w.b = append(w.b, '"')
		}
		w.b = append(w.b, ']')
		w.comma = true
		w.flag("stale", in.GetStale())
		w.duration("max_staleness", in.GetMaxStaleness())
	})
	var body struct {
		Results []restPair
		At      restAts
	}
	if _, err := r.call(ctx, q, &body); err != nil {
		return err
	}
	out.Results = restWire(body.Results, func(p *restPair) *millracev1.KVRead {
		return &millracev1.KVRead{Value: p.value(), Rev: p.Rev, Found: p.Found}
	})
	out.At = body.At.wire()
	return nil
}

func (r *Conn) putKey(ctx context.Context, in *millracev1.KVPutRequest, out *millracev1.KVPutResponse) error {
	var c millracev1.CommitResponse
	op := &millracev1.Op{Op: &millracev1.Op_KvPut{KvPut: in.GetPut()}}
	if err := r.commit(ctx, &millracev1.CommitRequest{Ops: []*millracev1.Op{op}, RequestId: in.GetRequestId()}, &c); err != nil {
		return err
	}
	one := c.Results[0]
	out.Rev, out.Prev, out.Existed, out.At = one.Rev, one.Prev, one.Existed, c.At
	return nil
}

func (r *Conn) deleteKey(ctx context.Context, in *millracev1.KVDeleteRequest, out *millracev1.KVDeleteResponse) error {
	path, err := keyPath(in.GetDelete().GetKeyspace(), in.GetDelete().GetKey())
	if err != nil {
		return err
	}
	query := url.Values{}
	if in.GetDelete().IfRev != nil {
		query.Set("if_rev", strconv.FormatUint(in.GetDelete().GetIfRev(), 10))
	}
	var body struct{ Existed bool }
	a, err := r.call(ctx, restRequest{method: http.MethodDelete, path: path, query: query}, &body)
	if err != nil {
		return err
	}
	out.Existed, out.At = body.Existed, a.at()
	return nil
}

// rangeQuery names a range; all keys by an empty prefix.
func rangeQuery(from, to, prefix []byte) url.Values {
	query := url.Values{}
	for name, b := range map[string][]byte{"from": from, "to": to, "prefix": prefix} {
		if len(b) > 0 {
			query.Set(name, string(b))
		}
	}
	if len(query) == 0 {
		query.Set("prefix", "")
	}
	return query
}

func (r *Conn) deleteKeys(ctx context.Context, in *millracev1.KVDeleteRangeRequest, out *millracev1.KVDeleteRangeResponse) error {
	rng := in.GetRange()
	path, err := keyspacePath(rng.GetKeyspace(), "")
	if err != nil {
		return err
	}
	query := rangeQuery(rng.GetFrom(), rng.GetTo(), rng.GetPrefix())
	if rng.GetCount() {
		query.Set("count", "true")
	}
	var body struct {
		Count uint64
		At    restAts
	}
	if _, err := r.call(ctx, restRequest{method: http.MethodDelete, path: path, query: query}, &body); err != nil {
		return err
	}
	out.Count, out.At = body.Count, body.At.wire()
	return nil
}

// restRange reads a range page by page, as a stream of chunks.
type restRange struct {
	grpc.ClientStream
	r    *Conn
	ctx  context.Context
	in   *millracev1.KVRangeRequest
	next string
	over bool
	left uint64
}

func (s *restRange) SendMsg(m any) error {
	in, ok := m.(*millracev1.KVRangeRequest)
	if !ok {
		return status.Errorf(codes.Internal, "%T asks for no range", m)
	}
	s.in, s.left = in, in.GetLimit()
	return nil
}

func (s *restRange) CloseSend() error { return nil }

func (s *restRange) Context() context.Context { return s.ctx }

func (s *restRange) RecvMsg(m any) error {
	out, ok := m.(*millracev1.KVRangeResponse)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a chunk", m)
	}
	if s.over {
		return io.EOF
	}
	path, err := keyspacePath(s.in.GetKeyspace(), "")
	if err != nil {
		return err
	}
	query := rangeQuery(s.in.GetFrom(), s.in.GetTo(), s.in.GetPrefix())
	limit := uint64(wire.BatchGet)
	if s.left > 0 {
		limit = min(limit, s.left)
	}
	query.Set("limit", strconv.FormatUint(limit, 10))
	if s.next != "" {
		query.Set("cursor", s.next)
	}
	if s.in.GetKeysOnly() {
		query.Set("keys_only", "true")
	}
	if s.in.GetStale() {
		query.Set("consistency", "stale")
	}
	if d := s.in.GetMaxStaleness(); d != nil {
		query.Set("max_staleness", d.AsDuration().String())
	}
	var body struct {
		Items  []restPair
		Cursor string
		At     restAts
	}
	if _, err := s.r.call(s.ctx, get(path, query), &body); err != nil {
		return err
	}
	out.Items = restWire(body.Items, func(p *restPair) *millracev1.KVPair {
		return &millracev1.KVPair{Key: p.key(), Value: p.value(), Rev: p.Rev}
	})
	out.At = body.At.wire()
	s.next = body.Cursor
	n := uint64(len(out.Items))
	s.over = s.next == "" || s.left > 0 && n >= s.left
	if s.left > 0 {
		s.left -= min(n, s.left)
	}
	return nil
}

type restKeyspaceConfig struct {
	Version uint64 `json:"version,string"`
	Quota   struct {
		Bytes           int64 `json:"bytes"`
		WritesPerSecond int64 `json:"writes_per_second"`
		BytesPerSecond  int64 `json:"bytes_per_second"`
	} `json:"quota"`
}

type restKeyspace struct {
	Keyspace  string             `json:"keyspace"`
	Config    restKeyspaceConfig `json:"config"`
	Keys      uint64             `json:"keys"`
	MoreKeys  bool               `json:"more_keys"`
	Bytes     uint64             `json:"bytes"`
	Measured  uint64             `json:"measured_bytes"`
	OverQuota bool               `json:"over_quota"`
}

func (k *restKeyspace) wire() *millracev1.KeyspaceStats {
	q := k.Config.Quota
	c := &millracev1.KeyspaceConfig{Version: k.Config.Version}
	if q.Bytes != 0 || q.WritesPerSecond != 0 || q.BytesPerSecond != 0 {
		c.Quota = &millracev1.KeyspaceQuota{Bytes: q.Bytes, WritesPerSecond: q.WritesPerSecond, BytesPerSecond: q.BytesPerSecond}
	}
	return &millracev1.KeyspaceStats{
		Keyspace: k.Keyspace, Config: c, Keys: k.Keys, MoreKeys: k.MoreKeys, Bytes: k.Bytes, MeasuredBytes: k.Measured,
		OverQuota: k.OverQuota,
	}
}

const routeKeyspaces = "/v1/keyspaces"

func spacePath(name string) (string, error) {
	if name == "" {
		return "", refusedHere("keyspace", "must not be empty")
	}
	return routeKeyspaces + "/" + restSegment(name), nil
}

func (r *Conn) setKeyspace(ctx context.Context, in *millracev1.SetKeyspaceRequest, out *millracev1.SetKeyspaceResponse) error {
	path, err := spacePath(in.GetKeyspace())
	if err != nil {
		return err
	}
	q := put(path, in.IfVersion, func(w *restBody) {
		if in.GetConfig().GetKind() == millracev1.KeyspaceConfig_HISTORY {
			w.text("kind", "history")
		}
		if quota := in.GetConfig().GetQuota(); quota != nil {
			w.object("quota", func() {
				w.int("bytes", quota.GetBytes())
				w.int("writes_per_second", quota.GetWritesPerSecond())
				w.int("bytes_per_second", quota.GetBytesPerSecond())
			})
		}
	})
	var answer configured
	a, err := r.call(ctx, q, &answer)
	if err != nil {
		return enclosed(err, "config")
	}
	out.Version, out.At = answer.Version, a.at()
	return nil
}

func (r *Conn) getKeyspace(ctx context.Context, in *millracev1.GetKeyspaceRequest, out *millracev1.GetKeyspaceResponse) error {
	path, err := spacePath(in.GetKeyspace())
	if err != nil {
		return err
	}
	var body restKeyspace
	a, err := r.call(ctx, get(path, nil), &body)
	if err != nil {
		return err
	}
	out.Stats, out.At = body.wire(), a.at()
	return nil
}

func (r *Conn) listKeyspaces(ctx context.Context, in *millracev1.ListKeyspacesRequest, out *millracev1.ListKeyspacesResponse) error {
	var body struct {
		Keyspaces []restKeyspace
		Cursor    string
	}
	a, err := r.call(ctx, get(routeKeyspaces, pageOf(in.GetLimit(), in.GetCursor())), &body)
	if err != nil {
		return err
	}
	out.Keyspaces, out.Cursor, out.At = restWire(body.Keyspaces, (*restKeyspace).wire), body.Cursor, a.at()
	return nil
}

func (r *Conn) deleteKeyspace(ctx context.Context, in *millracev1.DeleteKeyspaceRequest, out *millracev1.DeleteKeyspaceResponse) error {
	path, err := spacePath(in.GetKeyspace())
	if err != nil {
		return err
	}
	var body struct{ Existed bool }
	a, err := r.call(ctx, restRequest{method: http.MethodDelete, path: path}, &body)
	if err != nil {
		return err
	}
	out.Existed, out.At = body.Existed, a.at()
	return nil
}
