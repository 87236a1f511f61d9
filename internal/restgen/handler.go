package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	"github.com/millrace/millrace/internal/contract"
)

// byHand are the routes whose handlers are written by hand, each with the reason.
var byHand = map[string]string{
	"POST /v1/tasks":                      "a key in a header, and where the task is",
	"GET /v1/tasks":                       "tasks of a list are short",
	"GET /v1/tasks/{id}":                  "a view is a word",
	"GET /v1/tasks/{id}/payload":          "the answer is the payload",
	"GET /v1/tasks/{id}/output":           "the answer is the result",
	"GET /v1/tasks/{id}/result":           "it waits",
	"GET /v1/batches/{id}/result":         "it waits",
	"POST /v1/tasks:get":                  "tasks of a list are short",
	"POST /v1/tasks:claim":                "what was taken goes back when the caller is gone",
	"POST /v1/tasks/{id}/complete":        "one item of a batch",
	"POST /v1/tasks/{id}/fail":            "one item of a batch",
	"POST /v1/tasks/{id}/snooze":          "one item of a batch",
	"POST /v1/tasks/{id}/release":         "one item of a batch",
	"POST /v1/tasks/{id}/stop":            "one item of a batch",
	"POST /v1/tasks/{id}/heartbeat":       "one item of a batch",
	"GET /v1/tasks/{id}/logs":             "parameters of its own",
	"PUT /v1/queues/{queue}":              "it says whether the queue is new",
	"GET /v1/kv/{keyspace}/keys/{key}":    "the answer is the value",
	"PUT /v1/kv/{keyspace}/keys/{key}":    "the body is the value",
	"DELETE /v1/kv/{keyspace}/keys/{key}": "its fields are those of a message",
	"GET /v1/kv/{keyspace}":               "a page of a stream",
	"DELETE /v1/kv/{keyspace}":            "a range must be named",
	"GET /v1/repos/{repo}/refs":           "a page of a stream, or lines",
	"GET /v1/repos/{repo}/refs/{name}":    "the path itself says refs/",
	"POST /v1/repos/{repo}/refs:get":      "its schema is that of a page",
	"GET /v1/repos/{repo}/reflog":         "parameters of its own",
	"PUT /v1/collections/{collection}":    "the name may stand in the body too",
	"POST /v1/embed":                      "vectors are written without a message",
	"POST /v1/matrix/search":              "rows are written without a message",
	"GET /v1/status":                      "what is told depends on who asks",
}

// services are the methods of the edge that give the service of each name.
var services = map[string]string{
	"TaskService": "Tasks", "CommitService": "Commits", "KVService": "Keys", "KeyspaceService": "Keyspaces", "QueueService": "Queues",
	"RefService": "Refs", "SearchService": "Searches", "TenantService": "Tenants", "ClusterService": "Cluster", "ServerService": "Info",
	"BulkService": "Bulk", "CronService": "Crons", "BatchService": "Batches", "LimiterService": "Limiters", "WorkerService": "Workers", "ErrorService": "Errors", "OverviewService": "Overviews",
}

// handlerName is the name of the function that serves a route: of its service, its method, and where a method has several routes of
// their number.
func handlerName(r *contract.Route, n int) string {
	name := lower(strings.TrimSuffix(string(r.Method.Parent().Name()), "Service")) + string(r.Method.Name())
	// The first route of a method has its name, the next one ends with 2.
	if n > 0 {
		name += fmt.Sprint(n + 1)
	}
	return name
}

// handlers writes the functions that serve routes.
func (g *generator) handlers(c *contract.Contract) error {
	count := make(map[string]int)
	for _, r := range c.Routes() {
		n := count[r.Native()]
		count[r.Native()]++
		// They are counted all the same, so that a name does not change when another route is written by
		// hand.
		if byHand[r.Verb+" "+r.Path] != "" {
			continue
		}
		if err := g.handler(r, handlerName(r, n)); err != nil {
			return fmt.Errorf("%s %s: %w", r.Verb, r.Path, err)
		}
	}
	return nil
}

// handler writes one function: it makes the request of body, path, query and headers, calls the service, and writes the answer:
//
//	func (c *restCall) keyspaceSet() error {
//		in := new(pb.SetKeyspaceRequest)
//		in.Config = new(pb.KeyspaceConfig)
//		if err := readBody(c, in.Config, keyspaceConfigFields); err != nil {
//			return err
//		}
//		in.Keyspace = c.params[0]
//		...
//		out, err := c.s.Keyspaces().Set(c.ctx, in)
//		if err != nil {
//			return edge.Unprefixed("config", err)
//		}
//		c.tag(out.GetVersion())
//		return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) { writeSetKeyspaceResponse(w, out) })
//	}
func (g *generator) handler(r *contract.Route, name string) error {
	in := r.Method.Input()
	g.line("\n// %s serves %s %s.\nfunc (c *restCall) %s() error {", name, r.Verb, r.Path, name)
	// nil where the body is the whole request, or there is none.
	body := contract.Find(in, r.GetBody())
	if r.GetBody() == "*" && special(in) {
		g.line("in, err := readWhole(c, read%s)\nif err != nil {\nreturn err\n}", typeName(in))
	} else {
		g.line("in := new(pb.%s)", typeName(in))
	}
	switch {
	case r.GetBody() == "*" && special(in):
	case r.GetBare():
		g.line("if err := readIfGiven(c, in, %sFields); err != nil {\nreturn err\n}", lower(r.BodyName()))
	case r.GetBody() == "*":
		g.line("if err := readBody(c, in, %sFields); err != nil {\nreturn err\n}", lower(r.BodyName()))
	case body != nil:
		g.line("in.%s = new(pb.%s)", goName(body), typeName(body.Message()))
		g.line("if err := readBody(c, in.%s, %sFields); err != nil {\nreturn err\n}", goName(body), lower(r.BodyName()))
	}
	// The path comes after the body, so that it decides what a body cannot name anyway.
	for i, s := range r.Fixed {
		g.line("in.%s = c.params[%d]", goName(contract.Find(in, s.Field)), i)
	}
	if err := g.parameters(r); err != nil {
		return err
	}
	service := services[string(r.Method.Parent().Name())]
	keyed := slices.ContainsFunc(r.Header, func(p *restpb.Param) bool { return p.GetName() == "Idempotency-Key" })
	g.line("out, err := c.s.%s().%s(c.ctx, in)\nif err != nil {", service, r.Method.Name())
	switch {
	case body != nil:
		g.line("return edge.Unprefixed(%q, err)", body.Name())
		g.use("edge")
	case keyed:
		g.line("return c.keyTaken(err)")
	default:
		g.line("return err")
	}
	g.line("}")
	return g.answer(r)
}

// parameters writes the statements that read the query and the headers.
func (g *generator) parameters(r *contract.Route) error {
	in := r.Method.Input()
	has := func(id string) bool {
		return slices.ContainsFunc(slices.Concat(r.Query, r.Header), func(p *restpb.Param) bool { return p.GetId() == id })
	}
	// span says whether a parameter is a duration.
	span := func(p *restpb.Param) bool {
		f := contract.Find(in, p.GetField())
		return f != nil && f.Message() != nil && f.Message().FullName() == "google.protobuf.Duration"
	}
	// whole says whether a parameter is a whole number of its own.
	whole := func(p *restpb.Param) bool {
		f := contract.Find(in, p.GetField())
		return f != nil && f.Kind() == protoreflect.Uint64Kind && p.GetId() == ""
	}
	// Read by helpers that refuse, whose fact needs a variable.
	if has("limit") || has("min_index") || has("if_match") || has("request_key") || slices.ContainsFunc(r.Query, span) || slices.ContainsFunc(r.Query, whole) {
		g.line("var fact core.Fact")
		g.use("core")
	}
	refuse := "; fact != nil {\nreturn fact\n}"
	for _, p := range slices.Concat(r.Query, r.Header) {
		f := contract.Find(in, p.GetField())
		switch {
		case p.GetId() == "limit":
			g.line("if in.Limit, in.Cursor, fact = c.page()" + refuse)
		case p.GetId() == "min_index":
			g.line("if in.MinIndex, in.Stale, fact = c.readOptions()" + refuse)
		case p.GetId() == "stale" && !has("min_index"):
			g.line("in.Stale = c.stale()")
		// Read together with limit and min_index.
		case p.GetId() == "cursor" || p.GetId() == "stale":
		case p.GetId() == "if_match":
			g.line("if in.IfVersion, fact = c.ifMatch()" + refuse)
		case p.GetId() == "request_key":
			g.line("if in.RequestId, fact = c.requestKey(in.RequestId)" + refuse)
		case f != nil && f.Kind() == protoreflect.StringKind && !f.IsList():
			g.line("in.%s, _ = c.query.get(%q)", goName(f), p.GetName())
		case f != nil && f.Kind() == protoreflect.BoolKind:
			g.line("in.%s = c.flag(%q)", goName(f), p.GetName())
		case whole(p):
			g.line("if in.%s, _, fact = c.number(%q)"+refuse, goName(f), p.GetName())
		case p.GetId() == "" && span(p):
			g.line("if in.%s, fact = c.span(%q)"+refuse, goName(f), p.GetName())
		default:
			return fmt.Errorf("the parameter %s has no code yet", p.GetName())
		}
	}
	return nil
}

// answer writes the statements that answer with what a method returned.
func (g *generator) answer(r *contract.Route) error {
	out := r.Method.Output()
	for _, h := range r.GetAnswerHeader() {
		// A header that this does not know must not be left out silently.
		if h != "ETag" {
			return fmt.Errorf("the header %s has no code yet", h)
		}
		// An ETag is the version of what was read or changed.
		path := versionOf(out, "out")
		if path == "" {
			return fmt.Errorf("%s has no version, which the ETag is", out.Name())
		}
		g.line("c.tag(%s)", path)
	}
	status := "http.StatusOK"
	g.use("net/http")
	replayed := out.Fields().ByName("replayed")
	// Of two statuses the message says which one it is.
	switch list := r.GetStatus(); {
	case len(list) == 1 && list[0] == 204:
		g.line("c.showIndex(out.GetAt())\nc.head(http.StatusNoContent, nil, 0)\nreturn nil\n}")
		return nil
	case len(list) == 2 && list[0] == 201 && replayed != nil:
		status = "madeOr(out.GetReplayed())"
	case len(list) == 2 && list[0] == 202 && replayed != nil && out.Fields().ByName("job") != nil:
		status = "begunIf(out.GetJob() != nil && !out.GetReplayed())"
	case len(list) > 0:
		return fmt.Errorf("the statuses %v have no code yet", list)
	}
	write := fmt.Sprintf("func(w *jsonWriter) { write%s(w, out) }", typeName(out))
	if f := contract.Find(out, r.GetAnswer()); f != nil {
		write = fmt.Sprintf("func(w *jsonWriter) { write%s(w, out.Get%s()) }", typeName(f.Message()), goName(f))
	}
	// Where an answer stands: nowhere, in several partitions, or in one.
	switch at := out.Fields().ByName("at"); {
	case at == nil:
		g.line("return c.object(%s, %s)\n}", status, write)
	case at.IsList():
		g.line("return c.ats(out.GetAt(), %s)\n}", write)
	default:
		g.line("return c.ok(%s, out.GetAt(), %s)\n}", status, write)
	}
	return nil
}

// versionOf is the expression of the nearest version that a message has.
func versionOf(m protoreflect.MessageDescriptor, get string) string {
	if f := m.Fields().ByName("version"); f != nil && f.Kind() == protoreflect.Uint64Kind {
		return get + ".GetVersion()"
	}
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); f.Message() != nil && !f.IsList() && !contract.IsAt(f) && !wellKnown(f) {
			if path := versionOf(f.Message(), get+".Get"+goName(f)+"()"); path != "" {
				return path
			}
		}
	}
	return ""
}
