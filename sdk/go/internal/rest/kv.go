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
	grpc.ClientStream // nil: the generated code calls none of its other methods

	r *Conn
	// ctx is the caller's; its end ends the request under way.
	ctx context.Context
	// in is what was asked for.
	in *millracev1.KVRangeRequest
	// next is the cursor of the next page; empty: it is the first.
	next string
	// over says that the last page was read.
	over bool
	// left is how many items may come still, where in bounds them; 0: any number.
	left uint64
}

// SendMsg takes the one request that there is.
func (s *restRange) SendMsg(m any) error {
	in, ok := m.(*millracev1.KVRangeRequest)
	if !ok {
		return status.Errorf(codes.Internal, "%T asks for no range", m)
	}
	s.in, s.left = in, in.GetLimit()
	return nil
}

// CloseSend does nothing: the request goes with the first page.
func (s *restRange) CloseSend() error { return nil }

// Context is the caller's.
func (s *restRange) Context() context.Context { return s.ctx }

// RecvMsg reads the next page, each as of an instant of its own.
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
	// A page is at most what a server gives at once, and no more than is still wanted.
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
	// The message of a chunk has no cursor: a stream needs none.
	if text := restjson.Member(a.body, "cursor"); text != nil && json.Unmarshal(text, &s.next) != nil {
		return restBetween(a)
	}
	// The last page is the one without a cursor, or the one that fills the limit.
	n := uint64(len(out.Items))
	s.over = s.next == "" || s.left > 0 && n >= s.left
	if s.left > 0 {
		s.left -= min(n, s.left)
	}
	return nil
}
