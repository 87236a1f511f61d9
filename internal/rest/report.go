package rest

import (
	"math"
	"net/http"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// reportDoc is what the route of reports does.
const reportDoc = "Tell of the work on a task: progress, lines for its log, and a checkpoint that later attempts are given. The lease is extended as by a heartbeat. A task may report five times at once, and once a second in the long run; beyond that the report is refused as rate limited, and is sent again with what came since. With a number, a report that is sent again is kept once."

// whole reads a parameter that is a number of at most most; 0 where it is not given.
func (c *restCall) whole(name string, most uint64) (uint64, core.Fact) {
	s, ok := c.query.get(name)
	if !ok {
		return 0, nil
	}
	n, wrong := strictjson.ParseUnsigned(s)
	switch {
	case wrong != "":
		return 0, edge.Invalid(name, wrong)
	case n > most:
		return 0, edge.Invalid(name, "is out of range")
	}
	return n, nil
}

// taskLogs serves GET /v1/tasks/{id}/logs.
func (c *restCall) taskLogs() error {
	in := &pb.LogsRequest{Id: c.params[0]}
	attempt, fact := c.whole("attempt", math.MaxUint32)
	if fact != nil {
		return fact
	}
	in.Attempt = uint32(attempt)
	if in.After, fact = c.whole("after", math.MaxUint64); fact != nil {
		return fact
	}
	// The service judges how long a page may be, after the id, as it does for other doors.
	limit, fact := c.whole("limit", math.MaxUint32)
	if _, given := c.query.get("limit"); fact == nil && given && limit == 0 {
		fact = edge.Beyond("limit", "list_items", c.s.Limits.ListItems, "is out of range")
	}
	if fact != nil {
		return fact
	}
	in.Limit = uint32(limit)
	out, err := c.s.Tasks().Logs(c.ctx, in)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) { writeLogsResponse(w, out) })
}
