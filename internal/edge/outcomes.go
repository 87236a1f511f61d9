package edge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/internal/errs"
)

// cancelled is the code under which a call is counted whose caller gave up and does not read the answer.
const cancelled = "CANCELLED"

// outcomes counts how calls ended: one row for each method of the contract, one counter for each code. Both are closed
// sets.
type outcomes struct {
	mu   sync.Mutex // guards rows; a row's counters are atomic
	rows map[string]*Ended
}

// Ended are the counters of one method.
type Ended struct {
	byCode [outcomeCodes]atomic.Uint64
}

// outcomeCodes is how many counters a method has: one for every code, and one for cancelled at the end.
const outcomeCodes = int(errs.DataLoss) + 2

// Of returns the counters of a method, made on first use.
func (o *outcomes) Of(method string) *Ended {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rows == nil {
		o.rows = make(map[string]*Ended)
	}
	if o.rows[method] == nil {
		o.rows[method] = new(Ended)
	}
	return o.rows[method]
}

// Count notes how a call ended, nil being OK, and returns the code.
func (e *Ended) Count(err error) errs.Code {
	code, gone := outcomeOf(err)
	i := int(code)
	if gone {
		i = len(e.byCode) - 1
	}
	e.byCode[i].Add(1)
	return code
}

// outcomeOf is the code of an answer. gone says that its caller gave up. An error of the transport has the code that
// comes nearest.
func outcomeOf(err error) (code errs.Code, gone bool) {
	if err == nil {
		return errs.OK, false
	}
	if code := RowOf(err).code; code != errs.Internal {
		return code, false
	}
	st, transport := status.FromError(err)
	switch {
	case errors.Is(err, context.Canceled), transport && st.Code() == codes.Canceled:
		return errs.OK, true
	case errors.Is(err, context.DeadlineExceeded), transport && st.Code() == codes.DeadlineExceeded:
		return errs.DeadlineExceeded, false
	case transport && st.Code() == codes.ResourceExhausted:
		return errs.TooLarge, false // what the transport refuses for its size
	case transport && st.Code() == codes.Unavailable:
		return errs.Unavailable, false
	case transport && st.Code() == codes.Unimplemented:
		return errs.InvalidArgument, false
	}
	return errs.Internal, false
}

// Outcome says how many calls of a method ended with a code.
type Outcome struct {
	Method string // such as /millrace.v1.TaskService/Create
	Code   string // such as OK or LEASE_LOST; CANCELLED when the caller gave up
	Calls  uint64 // a stream is one, at its end
}

// List returns all counts that are not 0, by method.
func (o *outcomes) List() []Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []Outcome
	for method, row := range o.rows {
		for code := range row.byCode {
			n := row.byCode[code].Load()
			if n == 0 {
				continue
			}
			name := errs.Code(code).String()
			if code == len(row.byCode)-1 {
				name = cancelled
			}
			out = append(out, Outcome{method, name, n})
		}
	}
	slices.SortFunc(out, func(a, b Outcome) int {
		return strings.Compare(a.Method+" "+a.Code, b.Method+" "+b.Code)
	})
	return out
}
