package api

import (
	"context"

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
		if p.GetPercent() > 100 {
			return nil, edge.Invalid("progress.percent", "must be at most 100")
		}
		op.HasProgress, op.Percent, op.Message = true, uint8(p.GetPercent()), core.Cut(p.GetMessage(), core.MaxProgressMessage)
	}
	if len(in.GetLines()) > core.MaxReportLines {
		return nil, edge.TooLarge("lines", "report_lines", core.MaxReportLines)
	}
	size := 0
	for _, line := range in.GetLines() {
		line = core.Cut(line, core.MaxLogLine)
		size += len(line)
		op.Lines = append(op.Lines, line)
	}
	if size > core.MaxReportBytes {
		return nil, edge.TooLarge("lines", "report_bytes", core.MaxReportBytes)
	}
	if in.Checkpoint != nil {
		op.HasCheckpoint, op.Checkpoint = true, in.GetCheckpoint()
		if len(op.Checkpoint) > core.MaxCheckpoint {
			return nil, edge.TooLarge("checkpoint", "checkpoint", core.MaxCheckpoint)
		}
	}
	return op, nil
}

// Logs reads the lines that the holders of a task told.
func (ts *TaskService) Logs(ctx context.Context, in *pb.LogsRequest) (*pb.LogsResponse, error) {
	if _, fact := readTaskID("id", in.GetId()); fact != nil {
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
	log, at, err := ts.tasks.Logs(ctx, c.t.part, id, in.GetAttempt(), in.GetAfter(), limit)
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
