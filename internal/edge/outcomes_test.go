package edge

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

func TestEveryEndOfACallHasACode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "OK"},
		{core.LeaseLost{}, "LEASE_LOST"},
		{Refusal{&core.Refusal{Fact: core.NotFound{}}, 0}, "NOT_FOUND"},
		{context.Canceled, cancelled},
		{fmt.Errorf("wait: %w", context.Canceled), cancelled},
		{status.Error(codes.Canceled, "gone"), cancelled},
		{context.DeadlineExceeded, "DEADLINE_EXCEEDED"},
		{status.Error(codes.DeadlineExceeded, "late"), "DEADLINE_EXCEEDED"},
		{status.Error(codes.ResourceExhausted, "message larger than max"), "TOO_LARGE"},
		{status.Error(codes.Unavailable, "closing"), "UNAVAILABLE"},
		{status.Error(codes.Unimplemented, "compressor"), "INVALID_ARGUMENT"},
		{status.Error(codes.Internal, "flow control"), "INTERNAL"},
		{errs.Corruptf("x"), "DATA_LOSS"},
		{errors.New("x"), "INTERNAL"},
	} {
		var o outcomes
		o.Of("m").Count(c.err)
		if got := o.List(); len(got) != 1 || got[0] != (Outcome{"m", c.want, 1}) {
			t.Errorf("%v: %v, want %s", c.err, got, c.want)
		}
	}
	for _, code := range errs.Codes() {
		if int(code) >= outcomeCodes-1 {
			t.Errorf("%s has no counter", code)
		}
	}
}
