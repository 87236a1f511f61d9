package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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
	// eventQueues is how many queues the topic queues shows: the first ones by name. It is as many as a namespace is meant to have; a
	// frame of all of them has about 4 MB.
	eventQueues = 10_000
	// eventCrons is how many crons the topic crons shows: the first ones by name, as many as a page of them has. Each is read with the
	// rules of its zone, which takes about 25 us.
	eventCrons = 100
	// everyCrons is how often they are read. What is told of them is to the second at best.
	everyCrons = 2 * time.Second
)

// headerLastEvent names the last event that the client has got, in the form of package http.
const headerLastEvent = "Last-Event-Id"

// eventRoutes tell what changes.
func eventRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/events", Streams: true, rule: edge.Needs(auth.TaskRead), Status: statusOK,
			Doc: "Tell what changes, as server-sent events, for 15 minutes. An event has the name of its topic, and as data an object: topic, stamp and at (when and where it was read), rows, those that have changed, and gone, the ids of rows that are not there any more. With whole, rows are all there are. With partial, rows are not all there are. With error, the topic is of what is not there, or of what the token may not be told, and is not told of further; the others are. A row of a queue is a QueueStats, of a task a Task without its payload and its result, of a job a BulkJob, of overview an Overview, of a limiter a Limiter as a list has it, of crons a Cron, of a batch a Batch, both without the payloads of their templates, and of a worker a Worker, whose times are to 10 seconds. Of crons the first 100 by name are told. Of cluster a row has one field, and its id follows from that: node is a ClusterNode (node:NUMBER), shard a ClusterShard (shard:NUMBER), link a ClusterLink (link:FROM:TO), loss a ClusterLoss (loss:NODE), and cluster has the other fields of a ClusterStatusResponse (cluster). The id of another row is its name or id, or overview; that of a worker is its id, a line feed and its host. Topics are read each second, crons every other one, those of a task four times. A comment comes each 15 seconds.",
			Query: []Param{
				{Name: "topics", Type: "string", Form: topicsForm(), Required: true, Doc: "1 to 64, separated by commas: overview (as GET /v1/overview), queues, queue:NAME, task:ID, bulk:ID, batch:ID, crons, limiters, workers, cluster (scope cluster)."},
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
	topic := `(overview|queues|workers|crons|limiters|cluster|queue:` + inner(queueForm.Pattern) + `|(task|bulk|batch):` + inner(taskForm.Pattern) + `)`
	return Form{Pattern: `^` + topic + `(,` + topic + `)*$`, Examples: []string{"overview,queue:mail"}}
}

// events serves GET /v1/events.
// It is written by hand: the answer has no end of its own.
func (c *restCall) events() error {
	topics, fact := c.topics()
	if fact != nil {
		return fact
	}
	// A task that a token does not reach is as one that is not there. A topic that it may not be told of does not close the others: a
	// client asks for all that it shows together.
	var absent []live.Absent
	heard := make([]live.Topic, 0, len(topics))
	for _, t := range topics {
		kind, of, _ := strings.Cut(t.Name, ":")
		switch err := c.s.Hears(c.ctx, kind, of); {
		case edge.Is[core.NotFound](err) || edge.Is[core.Denied](err):
			absent = append(absent, live.Absent{Topic: t, Err: err})
		case err != nil:
			return err
		default:
			heard = append(heard, t)
		}
	}
	if len(heard) == 0 {
		return absent[0].Err
	}
	l, gone, err := c.h.live.Listen(c.ctx, heard, c.r.Header.Get(headerLastEvent))
	if err != nil {
		return err
	}
	absent = append(absent, gone...)
	defer l.Close()
	h := c.w.Header()
	h["Content-Type"] = []string{"text/event-stream"}
	h["X-Accel-Buffering"] = []string{"no"} // proxies must pass each event on at once
	c.head(http.StatusOK, nil, 0)
	// The first sign of life: to a client that has missed nothing an event may not come for long.
	if err := c.sendEvents(c.absentFrames(absent)); err != nil {
		return err
	}
	for {
		frames, err := l.Next(c.ctx)
		if err != nil || !c.stillSees(heard) {
			return nil //nolint:nilerr // the stream has ended: its time is over, its token or its client gone, or the topic is elsewhere
		}
		if err := c.sendEvents(frames); err != nil {
			return err
		}
	}
}

// absentFrames tells which topics are of what is not there, or not for the caller. They have no id: a stream that goes on asks for these topics again.
func (c *restCall) absentFrames(absent []live.Absent) (out []live.Frame) {
	for _, a := range absent {
		w := &jsonWriter{l: &c.s.Limits, lean: true}
		w.B = append(w.B, "event: "+a.Topic.Name+"\ndata: "...)
		w.Open('{')
		w.Str("topic", a.Topic.Name)
		w.Time("stamp", c.s.Clock.Wall())
		w.Bool("whole", true)
		w.List("rows", 0, nil)
		writeErrorAnswer(w, edge.Wire(a.Err, false))
		w.Close('}')
		out = append(out, live.Frame{Topic: a.Topic.Name, Bytes: append(w.B, "\n\n"...)})
	}
	return out
}

// stillSees reports whether the token still allows what the topics show besides their tenant's tasks.
func (c *restCall) stillSees(topics []live.Topic) bool {
	now := uint8(api.SightOf(c.call.Holder().Scopes))
	return !slices.ContainsFunc(topics, func(t live.Topic) bool { return t.Sight&^now != 0 })
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
		case !named && kind == "overview":
			t.Sight = uint8(api.SightOf(c.who.Scopes))
		case !named && (kind == "queues" || kind == "workers" || kind == "limiters"):
		case !named && kind == "crons":
			t.Every = everyCrons
		case named && kind == "queue":
			if fact := api.QueueName("topics", of); fact != nil {
				return nil, fact
			}
		case named && (kind == "task" || kind == "bulk" || kind == "batch"):
			id, err := core.ParseTaskID(of)
			if err != nil || id.IsZero() {
				return nil, edge.Invalid("topics", "has an id of a task, a job or a batch that is malformed")
			}
			t.Name = kind + ":" + id.String()
			if kind == "task" {
				t.Every = live.EveryTask
			}
		case !named && kind == "cluster": // it is of no tenant: all who may see it have the same topic
			t.Tenant, t.Namespace, t.Sight = "", "", uint8(api.SeesCluster)
		default:
			return nil, edge.Invalid("topics", "must be of overview, queues, queue:NAME, task:ID, bulk:ID, batch:ID, crons, limiters, workers, cluster")
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
	case "task", "bulk", "batch":
		s, err = e.one(ctx, in, kind, of)
	case "crons":
		var list []*pb.Cron
		list, s.At, err = e.h.s.LiveCrons(ctx, in, eventCrons)
		for _, one := range list {
			s.Rows = append(s.Rows, e.row(one.GetName(), func(w *jsonWriter) { writeCron(w, one) }))
		}
	case "limiters":
		var list []*pb.Limiter
		list, s.At, err = e.h.s.LiveLimiters(ctx, in)
		for _, one := range list {
			s.Rows = append(s.Rows, e.row(one.GetName(), func(w *jsonWriter) { writeLimiter(w, one) }))
		}
	case "queue":
		var q *pb.QueueStats
		if q, s.At, err = e.h.s.LiveQueue(ctx, in, of); err == nil {
			s.Rows = []live.Row{e.row(of, func(w *jsonWriter) { writeQueueStats(w, q) })}
		}
	case "overview":
		var o *pb.Overview
		if o, s.At, err = e.h.s.LiveOverview(ctx, in, api.Sight(t.Sight), nil); err == nil {
			s.Rows = []live.Row{e.row(kind, func(w *jsonWriter) { writeOverview(w, o) })}
		}
	case "cluster":
		s.Rows, err = e.cluster(ctx)
	case "workers":
		var list []*pb.Worker
		list, s.Partial, err = e.h.s.LiveWorkers(ctx, in)
		for _, one := range list {
			s.Rows = append(s.Rows, e.row(one.GetId()+"\n"+one.GetHost(), func(w *jsonWriter) { writeWorker(w, one) }))
		}
	default:
		s, err = e.queues(ctx, in)
	}
	s.Stamp = e.h.s.LiveStamp(s.At)
	return s, err
}

// one reads a task, a job about many, or a batch of them.
func (e eventSource) one(ctx context.Context, in api.Space, kind, of string) (s live.Sample, err error) {
	id, err := core.ParseTaskID(of)
	if err != nil {
		return s, err
	}
	switch kind {
	case "bulk":
		var job *pb.BulkJob
		if job, s.At, err = e.h.s.LiveBulk(ctx, in, id); err == nil {
			s.Rows = []live.Row{e.row(job.GetId(), func(w *jsonWriter) { writeBulkJob(w, job) })}
		}
		return s, err
	case "batch":
		var batch *pb.Batch
		if batch, s.At, err = e.h.s.LiveBatch(ctx, in, id); err == nil {
			s.Rows = []live.Row{e.row(batch.GetId(), func(w *jsonWriter) { writeBatch(w, batch) })}
		}
		return s, err
	}
	var task *pb.Task
	if task, s.At, err = e.h.s.LiveTask(ctx, in, id); err == nil {
		s.Rows = []live.Row{e.row(task.GetId(), func(w *jsonWriter) { writeTask(w, task) })}
	}
	return s, err
}

// cluster reads how the cluster is, with a row for each of its parts.
func (e eventSource) cluster(ctx context.Context) (rows []live.Row, err error) {
	status, err := e.h.s.Cluster().Status(ctx, nil)
	if err != nil {
		return nil, err
	}
	add := func(id, field string, fields func(w *jsonWriter)) {
		rows = append(rows, e.row(id, func(w *jsonWriter) { w.Object(field, func() { fields(w) }) }))
	}
	for _, n := range status.GetNodes() {
		add(fmt.Sprint("node:", n.GetId()), "node", func(w *jsonWriter) { writeClusterNode(w, n) })
	}
	for _, s := range status.GetShards() {
		add(fmt.Sprint("shard:", s.GetShard()), "shard", func(w *jsonWriter) { writeClusterShard(w, s) })
	}
	for _, l := range status.GetLinks() {
		add(fmt.Sprint("link:", l.GetFrom(), ":", l.GetTo()), "link", func(w *jsonWriter) { writeClusterLink(w, l) })
	}
	for _, l := range status.GetIfLost() {
		add(fmt.Sprint("loss:", l.GetNode()), "loss", func(w *jsonWriter) { writeClusterLoss(w, l) })
	}
	status.Nodes, status.Shards, status.Links, status.IfLost = nil, nil, nil, nil
	add("cluster", "cluster", func(w *jsonWriter) { writeClusterStatusResponse(w, status) })
	return rows, nil
}

// queues reads all queues.
func (e eventSource) queues(ctx context.Context, in api.Space) (s live.Sample, err error) {
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
