package api

import (
	"context"
	"math"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Report keeps what the holder of a task tells of its work, and renews the lease.
// The two are commits of their own: while the disk is full a report is refused, and the lease goes on.
func (ts *TaskService) Report(ctx context.Context, in *pb.ReportRequest) (*pb.ReportResponse, error) {
	op, fact := readReport(in)
	if fact != nil {
		return nil, fact
	}
	lost := core.LeaseLost{Task: op.Task, Given: op.Token}
	c, err := ts.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return nil, lost
	}
	if err != nil {
		return nil, err
	}
	if err := c.goTo(ctx, op.Task); edge.Is[core.NotFound](err) {
		return nil, lost
	} else if err != nil {
		return nil, err
	}
	hold := core.TaskHold{Task: op.Task, Token: op.Token}
	p, err := c.proposeEach(ctx, []core.Commit{
		c.t.commitOf([]core.Op{&core.TaskRenew{Items: []core.TaskHold{hold}}}), c.t.commitOf([]core.Op{op}),
	})
	if err != nil {
		return nil, err
	}
	for i := range p.Results {
		if r := p.Results[i].Refusal; r != nil {
			return nil, edge.Refused(r, 0)
		}
	}
	renewed := Heartbeats(p.Results[:1], ts.s.node.places.Shift(c.t.part))[0]
	if renewed.GetLost() {
		return nil, lost
	}
	return &pb.ReportResponse{
		LeaseUntil: renewed.GetLeaseUntil(), Cancel: renewed.GetCancel(), Replayed: p.Results[1].Ops[0].Replayed, At: ShowAt(p.At),
	}, nil
}

// readReport reads a report. What is only too long is cut.
func readReport(in *pb.ReportRequest) (*core.TaskReport, core.Fact) {
	h, fact := hold("id", "token", in.GetId(), in.GetToken())
	if fact != nil {
		return nil, fact
	}
	op := &core.TaskReport{Task: h.Task, Token: h.Token, Number: in.GetNumber(), Dropped: in.GetLinesDropped()}
	if p := in.GetProgress(); p != nil {
		op.HasProgress, op.Percent = true, uint8(min(p.GetPercent(), math.MaxUint8)) // above 100 it is refused, however much
		op.Message = core.Cut(p.GetMessage(), core.MaxProgressMessage)
	}
	for _, line := range in.GetLines() {
		op.Lines = append(op.Lines, core.Cut(line, core.MaxLogLine))
	}
	op.HasCheckpoint, op.Checkpoint = in.Checkpoint != nil, in.GetCheckpoint()
	return op, op.Misfit()
}

// Logs reads the lines that the holders of a task told.
func (ts *TaskService) Logs(ctx context.Context, in *pb.LogsRequest) (*pb.LogsResponse, error) {
	if _, fact := ReadTaskID("id", in.GetId()); fact != nil {
		return nil, fact
	}
	limit, fact := ts.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	c, id, err := ts.one(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	log, at, err := ts.tasks.Logs(ctx, c.t.part, id, core.LogQuery{Attempt: in.GetAttempt(), After: in.GetAfter(), Limit: limit}, readOptions(0, in.GetStale()))
	if err != nil {
		return nil, sameTask(err, in.GetId())
	}
	out := &pb.LogsResponse{Dropped: log.Dropped, Last: log.Last, More: log.More, At: ShowAt(at)}
	for i := range log.Lines {
		l := &log.Lines[i]
		out.Lines = append(out.Lines, &pb.LogLine{Number: l.Number, Attempt: l.Attempt, At: TimeOf(l.At), Line: l.Text})
	}
	return out, nil
}
