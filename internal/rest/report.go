package rest

import (
	"math"
	"net/http"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/edge"
)

// reportDoc is what the route of reports does.
const reportDoc = "Tell of the work on a task: progress, lines for its log, and a checkpoint that later attempts are given. The lease is extended as by a heartbeat. A task may report five times at once, and once a second in the long run; beyond that the report is refused as rate limited, and is sent again with what came since. With a number, a report that is sent again is kept once."

// taskLogs serves GET /v1/tasks/{id}/logs.
func (c *restCall) taskLogs() error {
	in := &pb.LogsRequest{Id: c.params[0]}
	attempt, _, fact := c.number("attempt")
	if fact == nil && attempt > math.MaxUint32 {
		fact = edge.Invalid("attempt", "is out of range")
	}
	if fact != nil {
		return fact
	}
	in.Attempt = uint32(attempt)
	if in.After, _, fact = c.number("after"); fact != nil {
		return fact
	}
	// The service judges the limit, after the id, as it does for other doors. They cannot say 0.
	limit, given, fact := c.number("limit")
	if fact == nil && (given && limit == 0 || limit > math.MaxUint32) {
		fact = edge.Beyond("limit", "list_items", c.s.Limits.ListItems, "is out of range")
	}
	if fact != nil {
		return fact
	}
	in.Limit, in.Stale = uint32(limit), c.stale()
	out, err := c.s.Tasks().Logs(c.ctx, in)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) { writeLogsResponse(w, out) })
}
