package api

import (
	"context"
	"math"
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// ErrorBackend reads groups of errors.
type ErrorBackend interface {
	// Errors reads the groups of errors of a partition, those with the highest counts first.
	Errors(ctx context.Context, p core.Partition, q core.ErrorQuery) (core.ErrorPage, core.At, error)
}

// ErrorService shows the errors of a namespace in groups.
type ErrorService struct {
	pb.UnimplementedErrorServiceServer
	s      *Server // what all services share
	errors ErrorBackend
}

// Errors is the service of groups of errors.
func (s *Server) Errors() *ErrorService { return &ErrorService{s: s, errors: s.o.Backend} }

// List lists groups of errors of all partitions of a namespace: the same error of a queue is one group.
func (es *ErrorService) List(ctx context.Context, in *pb.ListErrorsRequest) (*pb.ListErrorsResponse, error) {
	q := core.ErrorQuery{Queue: in.GetQueue(), Kind: in.GetKind()}
	for _, name := range [...]struct{ field, value string }{{"queue", q.Queue}, {"kind", q.Kind}} {
		if name.value == "" {
			continue
		}
		if fact := QueueName(name.field, name.value); fact != nil {
			return nil, fact
		}
	}
	q.Read = readOptions(0, in.GetStale())
	var fact core.Fact
	if q.Span, fact = Millis("span", in.GetSpan(), HorizonSpan(&es.s.Limits)); fact != nil {
		return nil, fact
	}
	if fact := es.s.reachesQueue(ctx, q.Queue); fact != nil {
		return nil, fact
	}
	c, err := es.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListErrorsResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	page, at, err := es.read(ctx, c, q)
	if err != nil {
		return nil, err
	}
	// At most 1,000 groups of about a kilobyte: they have room in one answer.
	out := &pb.ListErrorsResponse{Errors: make([]*pb.ErrorGroup, len(page.Groups)), Partial: page.More, At: ShowAt(at)}
	for i := range page.Groups {
		g := &page.Groups[i]
		out.Partial = out.Partial || g.Fingerprint == 0
		out.Errors[i] = showErrorGroup(g)
	}
	return out, nil
}

// read reads the groups of all partitions.
func (es *ErrorService) read(ctx context.Context, c *call, q core.ErrorQuery) (page core.ErrorPage, at core.At, err error) {
	if !c.t.several() {
		return es.errors.Errors(ctx, c.t.part, q)
	}
	type place struct {
		queue string
		fp    core.Fingerprint
	}
	var mu sync.Mutex // guards the answer
	known := make(map[place]int)
	err = c.each(0, func(p core.Partition) error {
		one, oneAt, err := es.errors.Errors(ctx, p, q)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		merge(&at, oneAt)
		page.More = page.More || one.More
		for i := range one.Groups {
			g := &one.Groups[i]
			n, ok := known[place{g.Queue, g.Fingerprint}]
			if !ok {
				known[place{g.Queue, g.Fingerprint}] = len(page.Groups)
				page.Groups = append(page.Groups, *g)
				continue
			}
			page.Groups[n].Merge(g)
		}
		return nil
	})
	page.Cut()
	return page, at, err
}

// showErrorGroup shows a group of errors.
func showErrorGroup(g *core.ErrorGroup) *pb.ErrorGroup {
	out := &pb.ErrorGroup{
		Fingerprint: g.Fingerprint.String(), Queue: g.Queue, Kind: g.Kind, Code: g.Code, Message: g.Message, Count: g.Count,
		First: TimeOf(g.First), Last: TimeOf(g.Last), Trend: make([]uint32, core.ErrorHours),
	}
	for i, n := range g.Trend {
		out.Trend[i] = uint32(min(n, math.MaxUint32))
	}
	if g.Fingerprint == 0 {
		out.Fingerprint = core.OtherErrors
	}
	for _, id := range g.Sample {
		out.Sample = append(out.Sample, id.String())
	}
	return out
}

// fingerprint reads the fingerprint of an error; empty: 0.
func fingerprint(field, s string) (core.Fingerprint, core.Fact) {
	if s == "" {
		return 0, nil
	}
	f, ok := core.ParseFingerprint(s)
	if !ok {
		return 0, edge.Invalid(field, "must be 16 lower-case hexadecimal digits, not all of them 0")
	}
	return f, nil
}
