package millrace

import (
	"context"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// ErrorGroup counts the errors of a queue that are alike: those that have the same kind of task and code, or without a code messages
// that differ in digits alone.
type ErrorGroup struct {
	// Fingerprint finds the tasks whose last error it was: see ListQuery and TaskFilter. It is "other" for the errors that found no room
	// in a group.
	Fingerprint string
	Queue       string
	Kind        string // of the tasks
	Code        string // timeout, crashed or expired where no worker reported one; empty: errors without one
	Message     string // of the last error, at most 256 bytes
	Count       uint64
	// First and Last are when it was seen first and last.
	First time.Time
	Last  time.Time
	Trend []int // errors in each of the last 24 hours, the current one last
	// Sample has the ids of the tasks that had it last, the last one first, at most 5.
	Sample []string
}

// ErrorQuery says which groups of errors are wanted: those that have everything that it names.
type ErrorQuery struct {
	Queue string        // empty: any
	Kind  string        // empty: any
	Since time.Duration // seen last within it; 0: ever
}

// ErrorList has groups of errors, those with the most errors first, at most 1,000. Partial says that there are more, or that a queue has
// errors that found no room in a group.
type ErrorList struct {
	Groups  []ErrorGroup
	Partial bool
}

// Errors lists the errors of attempts in groups: what goes wrong, how often, and since when.
func (c *Client) Errors(ctx context.Context, q ErrorQuery) (*ErrorList, error) {
	for name, text := range map[string]string{"queue": q.Queue, "kind": q.Kind} {
		if !utf8.ValidString(text) {
			return nil, badText(name)
		}
	}
	req := &millracev1.ListErrorsRequest{Queue: q.Queue, Kind: q.Kind}
	if q.Since != 0 {
		req.Span = durationpb.New(q.Since)
	}
	var resp *millracev1.ListErrorsResponse
	err := c.read(ctx, anywhere, func(ctx context.Context) (err error) {
		resp, err = c.errors.List(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &ErrorList{Partial: resp.Partial, Groups: make([]ErrorGroup, len(resp.Errors))}
	for i, g := range resp.Errors {
		out.Groups[i] = ErrorGroup{
			Fingerprint: g.Fingerprint, Queue: g.Queue, Kind: g.Kind, Code: g.Code, Message: g.Message, Count: g.Count,
			First: timeOf(g.First), Last: timeOf(g.Last), Trend: make([]int, len(g.Trend)), Sample: g.Sample,
		}
		for hour, n := range g.Trend {
			out.Groups[i].Trend[hour] = int(n)
		}
	}
	return out, nil
}
