package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// Route is one row of the table of REST routes, from which requests are served and the OpenAPI document is made.
type Route struct {
	// Method and Path say what a request must be to come here. In Path {name} stands for one segment,
	// percent-encoded.
	Method string
	Path   string
	// Native is the gRPC method that does the same, whose rule is the same too; empty for none.
	Native string
	// Doc is one sentence, or a few: what stands in the OpenAPI document.
	Doc string
	// Query and Header are the parameters of its own, besides those that all routes have.
	Query  []Param
	Header []Param
	// Repeat says how its requests are repeated; empty for GET.
	Repeat Repeat
	// Body is the name of the schema of the request; empty for none.
	Body string
	// Raw says that the body is any bytes, and may be empty.
	Raw bool
	// Bare says that the body may be left out.
	Bare bool
	// Answer is the name of the schema of the answer; empty for one that is not an object.
	Answer string
	// Lines is the name of the schema of each line, of an answer where lines are asked for.
	Lines string
	// SignsIn says that the body has a token or what stands for one, so that a request without a header of one may be refused.
	SignsIn bool
	// Streams says that the answer is server-sent events, which go on for minutes.
	Streams bool
	// Status lists the statuses of answers other than errors, the most frequent first.
	Status []int
	// Headers lists those of such answers that have a meaning of their own, besides Millrace-Index.
	Headers []string
	// Failed is the name of the schema of errors; empty for that of all other routes.
	Failed string

	// rule is that of its method, or of the route itself where Native is empty.
	rule edge.Rule
	// rights are what a call needs to go on, by its rule.
	rights auth.Rights
	// waits says that the request may wait for a task, or for its end: it gets more time.
	waits bool
	// bounds says that the handler sets a deadline itself, at the call's limit or before: one timer less.
	bounds bool
	// ofSessions says that the route is of sessions of browsers: a server without them does not have it.
	ofSessions bool
	// most bounds the body in bytes; 0: the limit rest_body does.
	most int64
	// fields are those that the body may have: a test holds the document to them.
	fields []string
	// handle serves a request that was let in. An error is the answer, unless one was begun.
	handle func(*restCall) error
	// failure writes errors in another form than all other routes have.
	failure func(w *jsonWriter, status int, e *pb.Error)
}

// Indexed says whether answers have the header Millrace-Index: those about one partition.
func (r *Route) Indexed() bool {
	// These answer for the whole server or namespace.
	for _, whole := range []string{api.ClusterMethods, tenantsService, workersService, overviewsService + "History", serversService, searchesService + "Embed", tasksService + "EndClaim", cronService + "Preview", queuesService + "CreateNamespace", queuesService + "DeleteNamespace"} {
		if strings.HasPrefix(r.Native, whole) {
			return false
		}
	}
	return r.Native != ""
}

// Param is a parameter of a query, or a header, of one route.
type Param struct {
	Name string
	// Type is string, integer, number of a version, duration, time, or words joined by |.
	Type string
	// Form is what a value looks like.
	Form     Form
	Required bool
	// Many says that it may be given several times.
	Many bool
	Doc  string
}

// check refuses a word that is not of the set, and an empty text where that would count as left out: that the sender meant
// something else is more likely.
func (p *Param) check(value string) core.Fact {
	switch {
	case strings.Contains(p.Type, "|"):
		for word := range strings.SplitSeq(p.Type, "|") {
			if word == value {
				return nil
			}
		}
		return edge.Invalid(p.Name, strictjson.MustBe(strings.Split(p.Type, "|")))
	case value == "" && p.Form.MinLength > 0:
		return edge.Invalid(p.Name, "must not be empty; leave the parameter out instead")
	}
	return nil
}

// Words lists the words of a parameter of a closed set.
func (p *Param) Words() []string {
	if !strings.Contains(p.Type, "|") {
		return nil
	}
	return strings.Split(p.Type, "|")
}

// Shared lists the parameters that every route takes.
func Shared() []Param { return slices.Clone(sharedParams) }

// sharedParams are the parameters of every route.
var sharedParams = []Param{
	{Name: "ns", Type: "string", Form: spaceForm, Doc: "The namespace; default \"default\"."},
	{Name: forwardParam, Type: "0|1", Doc: "1: in a cluster, the node fetches the leader's answer; 0: it answers 307 and names the leader. The default is the server's."},
	{Name: hopParam, Type: "0|1", Doc: "1: the node that is asked answers by itself, or not at all. It is on addresses that a node names."},
}

// Routes lists every route, in the order of the document.
func Routes() []*Route {
	out := routes()
	_ = setRules(out) // a server with a route without a rule is not made
	return out
}

// setRules gives each route the rule of its method. It fails when a route has neither a method with a rule nor a rule of its own.
func setRules(routes []*Route) error {
	for _, r := range routes {
		if r.Native != "" {
			r.rule = api.RuleOf(r.Native)
		}
		if r.rule.Empty() {
			return fmt.Errorf("route %s: who may call it is not said: name its method, or a rule", r.name())
		}
	}
	return nil
}

// Scopes says who may call a route: the scopes that a token needs, all of them. public says that it needs no token.
func (r *Route) Scopes() (names []string, public bool) { return r.rule.Scope.Names(), r.rule.Public }

// OrScopes lists scopes any of which opens the route too.
func (r *Route) OrScopes() []string { return r.rule.Or.Names() }

// BySession says that a session will do in place of a token.
func (r *Route) BySession() bool { return !r.rule.Public && r.Path != codePath }

// name is the route's name in tables and logs.
func (r *Route) name() string { return r.Method + " " + r.Path }

// params are the values of a path's {name} segments, by their place.
type params [2]string

// router finds the route of a request. There are few routes, so it looks at each of the same length.
type router struct {
	// byLength has the patterns of paths of that many segments, in the order in which they are tried.
	byLength [8][]*pattern
}

// pattern is one path of the table, with the routes of its methods.
type pattern struct {
	// segments are those of the path; empty for a parameter.
	segments []string
	// suffix is what the last segment, which is a parameter, ends with, such as :pause; empty for none.
	suffix string
	routes []*Route
}

// add puts a route into the table. Routes of one path share a pattern.
func (rt *router) add(r *Route) {
	segments := strings.Split(r.Path[1:], "/")
	suffix := ""
	for i, s := range segments {
		if s[0] == '{' {
			segments[i] = ""
			_, suffix, _ = strings.Cut(s, "}")
		}
	}
	same := &rt.byLength[len(segments)]
	for _, p := range *same {
		if slices.Equal(p.segments, segments) && p.suffix == suffix {
			p.routes = append(p.routes, r)
			return
		}
	}
	p := &pattern{segments, suffix, []*Route{r}}
	if suffix != "" { // it is looked at before the pattern that takes the whole segment
		*same = slices.Insert(*same, 0, p)
		return
	}
	*same = append(*same, p)
}

// find returns the route of a request and fills in the parameters of its path.
func (rt *router) find(r *http.Request, out *params) (*Route, core.Fact) {
	// As it was sent: a segment may hold an escaped slash.
	path := joinName(r.URL.EscapedPath())
	var buf [len(rt.byLength)]string
	if segments, ok := splitPath(path, buf[:0]); ok {
		for _, p := range rt.byLength[len(segments)] {
			if p.match(segments, out) && p.fits(r.Method, out) {
				return p.route(r.Method)
			}
		}
	}
	return nil, core.NotFound{Kind: "route", ID: core.Cut(path, 2*api.NameBytes)}
}

// splitPath takes a path apart, each segment as it came.
func splitPath(path string, out []string) ([]string, bool) {
	rest, ok := strings.CutPrefix(path, "/")
	for more := ok; more; {
		// No route is so long: out is not grown for what a stranger sends.
		if len(out) == cap(out)-1 {
			return nil, false
		}
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		out = append(out, segment)
	}
	return out, ok
}

// match fills in the parameters, each unescaped by itself, so that a slash within one stays in it. The other segments must
// stand as they are: a rule of a proxy in front, which compares paths, sees the route that is served.
func (p *pattern) match(segments []string, out *params) bool {
	for i, s := range p.segments {
		if s != "" && s != segments[i] || segments[i] == "" {
			return false
		}
	}
	// Only a path that fits is unescaped.
	n := 0
	for i, s := range p.segments {
		if s != "" {
			continue
		}
		out[n] = segments[i]
		if strings.IndexByte(out[n], '%') >= 0 {
			var err error
			if out[n], err = url.PathUnescape(out[n]); err != nil {
				return false
			}
		}
		n++
	}
	return true
}

// fits takes the suffix of a pattern that has one off its last parameter. A name may end with the same text, so another method is
// that of the pattern without a suffix.
func (p *pattern) fits(method string, out *params) bool {
	if p.suffix == "" {
		return true
	}
	if !slices.ContainsFunc(p.routes, func(r *Route) bool { return r.Method == method }) {
		return false
	}
	// The suffix ends the last parameter: the second one, where there are two.
	last := &out[0]
	for _, s := range p.segments[:len(p.segments)-1] {
		if s == "" {
			last = &out[1]
		}
	}
	name, ok := strings.CutSuffix(*last, p.suffix)
	if !ok || name == "" {
		return false
	}
	*last = name
	return true
}

// route finds the route of a method, or refuses the method and names those that there are.
func (p *pattern) route(method string) (*Route, core.Fact) {
	var allow []string
	for _, r := range p.routes {
		if r.Method == method {
			return r, nil
		}
		allow = append(allow, r.Method)
	}
	slices.Sort(allow)
	f := edge.WrongMethod{Allow: strings.Join(allow, ", ")}
	f.Field, f.Message = "method", "this path has "+f.Allow
	return nil, f
}

// query holds the parameters of one request: mostly there is one, of which no table is made.
type query struct {
	// name and value are the only parameter, where there is one; values are all of them otherwise.
	name, value string
	values      url.Values // of any others
}

// single reads a query of one parameter without escapes.
func (q *query) single(raw string) bool {
	// What needs unescaping, or is long, goes the usual way.
	if len(raw) > api.NameBytes || strings.ContainsAny(raw, "%+&;") {
		return false
	}
	var ok bool
	q.name, q.value, ok = strings.Cut(raw, "=")
	return ok && q.name != ""
}

// takes reports whether a route has a parameter of the query.
func (r *Route) takes(name string) bool {
	named := func(p Param) bool { return p.Name == name }
	return slices.ContainsFunc(sharedParams, named) || slices.ContainsFunc(r.Query, named)
}

// parse refuses what the route does not have, and what is given twice.
func (q *query) parse(raw string, r *Route) core.Fact {
	if raw == "" {
		return nil
	}
	if q.single(raw) && r.takes(q.name) && !r.many(q.name) {
		return r.checkParam(q.name, q.value)
	}
	q.name = ""
	var err error
	if q.values, err = url.ParseQuery(raw); err != nil {
		return edge.Invalid("query", "is malformed")
	}
	// In order, so that of two mistakes the same one is told each time.
	for _, name := range sortedKeys(q.values) {
		if !r.takes(name) {
			return core.Invalid{Field: core.Cut(name, api.NameBytes), Reason: "unknown_field", Message: "is not known"}
		}
		if len(q.values[name]) > 1 && !r.many(name) {
			return edge.Invalid(name, "must be given only once")
		}
		for _, value := range q.values[name] {
			if fact := r.checkParam(name, value); fact != nil {
				return fact
			}
		}
	}
	return nil
}

// checkParam holds a value of a parameter to what the document says of it.
func (r *Route) checkParam(name, value string) core.Fact {
	for _, list := range [][]Param{r.Query, sharedParams} {
		for i := range list {
			if list[i].Name == name {
				return list[i].check(value)
			}
		}
	}
	return nil
}

// many reports whether a parameter of a route may be given several times.
func (r *Route) many(name string) bool {
	return slices.ContainsFunc(r.Query, func(p Param) bool { return p.Name == name && p.Many })
}

// sortedKeys lists the names in a query, in order.
func sortedKeys(v url.Values) []string {
	out := make([]string, 0, len(v))
	for name := range v {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// get returns a parameter, and whether it was given.
func (q *query) get(name string) (string, bool) {
	if q.values == nil && q.name == name {
		return q.value, true
	}
	v, ok := q.values[name]
	if !ok {
		return "", false
	}
	return v[0], true
}
