package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/live"
)

const (
	// eventsFor is how long a stream of events lasts. Then its client opens another one, perhaps at another node, and so streams spread
	// over nodes again after a restart.
	eventsFor = 15 * time.Minute
	// eventQueues is how many queues the topics queues and overview show: the first ones by name. It is as many as a namespace is meant
	// to have; a frame of all of them has about 4 MB.
	eventQueues = 10_000
)

// headerLastEvent names the last event that the client has got, in the form of package http.
const headerLastEvent = "Last-Event-Id"

// eventRoutes tell what changes.
func eventRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/events", Streams: true, rule: edge.Needs(auth.TaskRead), Status: statusOK,
			Doc: "Tell what changes, as server-sent events, for 15 minutes. An event has the name of its topic, and as data an object: topic, stamp and at (when and where it was read), rows, those that have changed, and gone, the ids of rows that are not there any more. With whole, rows are all there are. With partial, rows are not all there are. A row of a queue is a QueueStats, of a task a Task without its payload and its result, of a job a BulkJob, and of a worker a Worker, whose times are to 10 seconds. The id of a row is its name or id; that of a worker is its id, a line feed and its host. Topics are read each second, those of a task four times. A comment comes each 15 seconds.",
			Query: []Param{
				{Name: "topics", Type: "string", Form: topicsForm(), Required: true, Doc: "1 to 64, separated by commas: overview (all queues in sum), queues, queue:NAME, task:ID, bulk:ID, workers."},
			},
			Header: []Param{
				{Name: headerLastEvent, Type: "string", Form: Form{MaxLength: 64}, Doc: "The id of the last event of a stream of the same topics: what has changed since is sent. Without it, and at another node, each topic begins with all its rows."},
			},
			handle: (*restCall).events,
		},
	}
}

// topicsForm is of the topics of a stream.
func topicsForm() Form {
	inner := func(pattern string) string { return strings.TrimSuffix(strings.TrimPrefix(pattern, "^"), "$") }
	topic := `(overview|queues|workers|queue:` + inner(queueForm.Pattern) + `|(task|bulk):` + inner(taskForm.Pattern) + `)`
	return Form{Pattern: `^` + topic + `(,` + topic + `)*$`, Examples: []string{"overview,queue:mail"}}
}

// events serves GET /v1/events.
// It is written by hand: the answer has no end of its own.
func (c *restCall) events() error {
	topics, fact := c.topics()
	if fact != nil {
		return fact
	}
	for i := range topics {
		kind, of, _ := strings.Cut(topics[i].Name, ":")
		if err := c.s.Hears(c.ctx, kind, of); err != nil {
			return err
		}
	}
	l, err := c.h.live.Listen(c.ctx, topics, c.r.Header.Get(headerLastEvent))
	if err != nil {
		return err
	}
	defer l.Close()
	h := c.w.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["X-Accel-Buffering"] = []string{"no"} // proxies must pass each event on at once
	c.head(http.StatusOK, nil, 0)
	// The first sign of life: to a client that has missed nothing an event may not come for long.
	if err := c.sendEvents(nil); err != nil {
		return err
	}
	for {
		frames, err := l.Next(c.ctx)
		if err != nil {
			return nil //nolint:nilerr // the stream has ended: its time is over, its token or its client gone, or the topic is elsewhere
		}
		if err := c.sendEvents(frames); err != nil {
			return err
		}
	}
}

// sendEvents writes frames, or a comment where there are none.
func (c *restCall) sendEvents(frames []live.Frame) error {
	c.setDeadline(c.control.SetWriteDeadline, c.s.Limits.SendStallMs)
	if len(frames) == 0 {
		if _, err := c.w.Write([]byte(": \n\n")); err != nil {
			return errGone
		}
	}
	for i := range frames {
		if _, err := c.w.Write(frames[i].Bytes); err != nil {
			return errGone
		}
	}
	if err := c.control.Flush(); err != nil {
		return errGone
	}
	// Until the next frame nothing is written, so nothing can stall.
	_ = c.control.SetWriteDeadline(time.Time{}) // where that cannot be, the stream ends early
	return nil
}

// topics reads what the client wants to be told of.
func (c *restCall) topics() ([]live.Topic, core.Fact) {
	md, _ := metadata.FromIncomingContext(c.ctx)
	space, fact := edge.NamespaceOf(md)
	if fact != nil {
		return nil, fact
	}
	text, _ := c.query.get("topics")
	if text == "" {
		return nil, edge.Invalid("topics", "is required")
	}
	names := strings.SplitN(text, ",", int(c.s.Limits.EventTopics)+1)
	if int64(len(names)) > c.s.Limits.EventTopics {
		return nil, core.TooLarge{Field: "topics", Limit: edge.LimitEventTopics, Max: c.s.Limits.EventTopics}
	}
	out := make([]live.Topic, len(names))
	for i, name := range names {
		t := live.Topic{Tenant: c.who.Tenant, Namespace: space, Name: name, Every: live.Every}
		kind, of, named := strings.Cut(name, ":")
		switch {
		case !named && (kind == "overview" || kind == "queues" || kind == "workers"):
		case named && kind == "queue":
			if fact := api.QueueName("topics", of); fact != nil {
				return nil, fact
			}
		case named && (kind == "task" || kind == "bulk"):
			id, err := core.ParseTaskID(of)
			if err != nil || id.IsZero() {
				return nil, edge.Invalid("topics", "has an id of a task or a job that is malformed")
			}
			t.Name = kind + ":" + id.String()
			if kind == "task" {
				t.Every = live.EveryTask
			}
		case !named && kind == "cluster":
			return nil, edge.NotSupported("topics")
		default:
			return nil, edge.Invalid("topics", "must be of overview, queues, queue:NAME, task:ID, bulk:ID, workers")
		}
		out[i] = t
	}
	return out, nil
}

// eventSource reads topics, and writes their rows as answers have them.
type eventSource struct{ h *Server }

// Sample implements live.Source.
func (e eventSource) Sample(ctx context.Context, t live.Topic) (s live.Sample, err error) {
	err = e.h.s.Safely(func() error {
		s, err = e.sample(ctx, t)
		return err
	})
	return s, err
}

// sample reads a topic that was checked.
func (e eventSource) sample(ctx context.Context, t live.Topic) (s live.Sample, err error) {
	in := api.Space{Tenant: t.Tenant, Name: t.Namespace}
	switch kind, of, _ := strings.Cut(t.Name, ":"); kind {
	case "task", "bulk":
		s, err = e.one(ctx, in, kind, of)
	case "queue":
		var q *pb.QueueStats
		if q, s.At, err = e.h.s.LiveQueue(ctx, in, of); err == nil {
			s.Rows = []live.Row{e.row(of, func(w *jsonWriter) { writeQueueStats(w, q) })}
		}
	case "workers":
		var list []*pb.Worker
		list, s.Partial, err = e.h.s.LiveWorkers(ctx, in)
		for _, one := range list {
			s.Rows = append(s.Rows, e.row(one.GetId()+"\n"+one.GetHost(), func(w *jsonWriter) { writeWorker(w, one) }))
		}
	default:
		s, err = e.queues(ctx, in, kind)
	}
	if err != nil {
		return s, err
	}
	s.Stamp = e.h.s.Clock.Wall()
	for _, at := range s.At {
		if stamp := api.TimeOf(at.Stamp); stamp != nil && stamp.AsTime().Before(s.Stamp) {
			s.Stamp = stamp.AsTime()
		}
	}
	return s, nil
}

// one reads a task, or a job about many.
func (e eventSource) one(ctx context.Context, in api.Space, kind, of string) (s live.Sample, err error) {
	id, err := core.ParseTaskID(of)
	if err != nil {
		return s, err
	}
	if kind == "bulk" {
		var job *pb.BulkJob
		if job, s.At, err = e.h.s.LiveBulk(ctx, in, id); err == nil {
			s.Rows = []live.Row{e.row(job.GetId(), func(w *jsonWriter) { writeBulkJob(w, job) })}
		}
		return s, err
	}
	var task *pb.Task
	if task, s.At, err = e.h.s.LiveTask(ctx, in, id); err == nil {
		s.Rows = []live.Row{e.row(task.GetId(), func(w *jsonWriter) { writeTask(w, task) })}
	}
	return s, err
}

// queues reads all queues, as a row each or, for overview, in sum.
func (e eventSource) queues(ctx context.Context, in api.Space, kind string) (s live.Sample, err error) {
	if kind == "overview" {
		var all api.Overview
		if all, s.At, err = e.h.s.LiveOverview(ctx, in, eventQueues); err == nil {
			s.Rows = []live.Row{e.row(kind, func(w *jsonWriter) { writeOverview(w, &all) })}
		}
		return s, err
	}
	var queues []*pb.QueueStats
	if queues, s.At, err = e.h.s.LiveQueues(ctx, in, eventQueues); err != nil {
		return s, err
	}
	for _, q := range queues {
		s.Rows = append(s.Rows, e.row(q.GetQueue(), func(w *jsonWriter) { writeQueueStats(w, q) }))
	}
	return s, nil
}

// row writes a row. The bytes are kept, so they are not those of a pooled writer.
func (e eventSource) row(id string, fields func(w *jsonWriter)) live.Row {
	w := &jsonWriter{l: &e.h.s.Limits, lean: true}
	w.Open('{')
	fields(w)
	w.Close('}')
	return live.Row{ID: id, JSON: w.B}
}

// writeOverview writes all queues in sum.
func writeOverview(w *jsonWriter, o *api.Overview) {
	w.Count("queues", uint64(o.Queues))
	w.Count("paused_queues", uint64(o.Paused))
	w.Count("blocked", o.Sum.GetBlocked())
	w.Count("scheduled", o.Sum.GetScheduled())
	w.Count("ready", o.Sum.GetReady())
	w.Count("running", o.Sum.GetRunning())
	w.Count("completed", o.Sum.GetCompleted())
	w.Count("dead", o.Sum.GetDead())
	w.Count("cancelled", o.Sum.GetCancelled())
	w.Count("created", o.Sum.GetCreated())
	w.Count("purged", o.Sum.GetPurged())
	w.Count("completed_total", o.Sum.GetCompletedTotal())
	w.Count("failed_total", o.Sum.GetFailedTotal())
	w.Count("crashed_total", o.Sum.GetCrashedTotal())
	w.Count("bytes", o.Sum.GetBytes())
	w.time("oldest_ready", o.Sum.GetOldestReady())
}
