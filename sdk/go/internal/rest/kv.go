package rest

import (
	"context"
	"encoding/json"
	"io"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/restjson"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

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
	c, err := prepare(millracev1.KVService_Range_FullMethodName, s.in, room)
	if err != nil {
		return err
	}
	c.allKeys()
	limit := uint64(wire.BatchGet)
	if s.left > 0 {
		limit = min(limit, s.left)
	}
	c.q.query.Set("limit", strconv.FormatUint(limit, 10))
	if s.next != "" {
		c.q.query.Set("cursor", s.next)
	}
	a, err := s.r.call(s.ctx, c.q, out)
	if err != nil {
		return err
	}
	s.next = ""
	if text := restjson.Member(a.body, "cursor"); text != nil && json.Unmarshal(text, &s.next) != nil {
		return restBetween(a)
	}
	n := uint64(len(out.Items))
	s.over = s.next == "" || s.left > 0 && n >= s.left
	if s.left > 0 {
		s.left -= min(n, s.left)
	}
	return nil
}
