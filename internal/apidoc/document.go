package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/rest"
)

// about is what the document says first: what all routes have in common.
const about = `A durable work queue whose side effects commit with the task.

Every request but that of this document and that of who signs in needs a token: "Authorization: Bearer ...". A browser may have a session in
place of it. x-millrace-scope lists the scopes that a route needs, all of them; with any of x-millrace-scope-or it is open too. The namespace is the query
parameter ns, by default "default".

Durations are text such as "90s"; times are RFC 3339. Numbers that are handed back or compared (token, index, rev,
version) are strings of digits in answers, and strings or integers in requests; the sum of an addition is a string too. A
payload or result is any JSON value, kept byte for byte, or base64 of any bytes under the name with _base64; keys and
values of keyspaces are text, or base64 under that name. Requests are read strictly: an unknown or repeated field, a wrong type or a number out of range is
refused with its path.

Answers carry Millrace-Index: partition/epoch/index, of which the epoch is reserved. A read with min_index sees at least
what that answer saw.

An error is {"error": {...}}. Its outcome is "refused" when nothing was changed. It is "unknown" when the request may
have been applied: repeat it under the same id, token, key or request id.`

// sessions tells what a cookie is good for.
const sessions = `The cookie of a session of a browser, which POST /v1/session sets. Its name begins with millrace_, or with
__Host-millrace_ over TLS. It is looked at only together with the header Millrace-Session, which has the csrf of the session, on a request of a page of
this server, and not where there is a token.`

// document makes the whole of it, as an object that keeps the order of its fields. Schemas are made as routes name them; since a schema of requests is stricter than one of answers,
// and a name has one schema, those of all requests are made first.
func document(c *contract.Contract, routes []*rest.Route) (object, error) {
	s := &schemas{contract: c, made: make(map[string]object), forms: rest.FieldForms()}
	s.input = true
	for _, r := range routes {
		if r.Body != "" {
			s.ref(r.Body)
		}
	}
	s.input = false
	s.ref("Error")
	var paths object
	for _, r := range routes {
		op := operation(s, r)
		// Routes of one path are methods of it, in the order of the table.
		if i := indexOf(paths, r.Path); i >= 0 {
			paths[i].value = append(paths[i].value.(object), op)
		} else {
			paths = append(paths, field{r.Path, object{op}})
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	var made object
	// In the order in which they were asked for first, so that a new route changes few lines.
	for _, name := range s.order {
		made = append(made, field{name, s.made[name]})
	}
	made = append(made, field{errorAnswer, object{
		{"type", "object"}, {"description", failures()}, {"properties", object{{"error", s.ref("Error")}}}, {"required", []string{"error"}},
	}})
	return object{
		{"openapi", "3.1.0"},
		{"info", object{{"title", "Millrace"}, {"version", "v1"}, {"description", about}}},
		{"paths", paths},
		{"components", object{
			{"schemas", made},
			{"responses", refusals()},
			{"headers", headers()},
			{"securitySchemes", object{
				{"token", object{{"type", "http"}, {"scheme", "bearer"}}},
				{"session", object{{"type", "apiKey"}, {"in", "cookie"}, {"name", "millrace"}, {"description", sessions}}},
			}},
		}},
	}, nil
}

// failures tells the statuses of the codes.
func failures() string {
	var out strings.Builder
	// In the order of the table of errors.
	out.WriteString("Codes and their statuses:")
	for i, c := range edge.Codes() {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, " %s %d", c.Code, c.Status)
	}
	out.WriteByte('.')
	return out.String()
}

var (
	// parameter is {name} in a path; separator is what stands between the words of one.
	parameter = regexp.MustCompile(`\{(\w+)\}`)
	separator = regexp.MustCompile(`[^a-zA-Z]+`)
)

// operation documents one route: its name and words, its parameters, its body, all of its answers, and who may call it. x-grpc is the
// method of gRPC that does the same.
func operation(s *schemas, r *rest.Route) field {
	scopes, public := r.Scopes()
	// The summary is the first sentence of the description.
	op := object{{"operationId", operationID(r)}, {"summary", strings.SplitAfter(r.Doc, ". ")[0]}}
	// What a client does without an answer belongs to each request that may change something.
	doc := r.Doc
	if r.Repeat != "" {
		doc += " When no answer came, it is repeated " + string(r.Repeat) + "."
	}
	op = op.with("description", doc)
	var parameters []any
	for _, m := range parameter.FindAllStringSubmatch(r.Path, -1) {
		// Parameters of the path first, then those that all routes have, then the route's own.
		parameters = append(parameters, object{
			{"name", m[1]},
			{"in", "path"},
			{"required", true},
			{"schema", shaped(object{{"type", "string"}}, r.PathForm(m[1]))},
		})
	}
	for _, p := range rest.Shared() {
		parameters = append(parameters, parameterOf("query", p))
	}
	for _, p := range r.Query {
		parameters = append(parameters, parameterOf("query", p))
	}
	for _, p := range r.Header {
		parameters = append(parameters, parameterOf("header", p))
	}
	op = op.with("parameters", parameters)
	if r.Body != "" {
		content := object{{"application/json", object{{"schema", s.ref(r.Body)}}}}
		body := object{{"content", content}}
		// Only a body that may be left out is not required.
		if !r.Bare {
			body = object{{"required", true}, {"content", content}}
		}
		op = append(op, field{"requestBody", body})
	}
	if r.Raw {
		op = append(op, field{"requestBody", object{{"content", object{{"application/octet-stream", object{}}}}}})
	}
	op = append(op, field{"responses", responses(s, r)})
	if public {
		op = append(op, field{"security", []any{}})
	} else {
		// An empty list says that any token will do; a missing one would say that none is needed.
		if scopes == nil {
			scopes = []string{}
		}
		security := []any{object{{"token", scopes}}}
		// A code is made of a token alone.
		if r.BySession() {
			security = append(security, object{{"session", scopes}})
		}
		op = append(op, field{"security", security}, field{"x-millrace-scope", scopes})
		if or := r.OrScopes(); len(or) > 0 {
			op = append(op, field{"x-millrace-scope-or", or})
		}
	}
	return field{strings.ToLower(r.Method), op.with("x-grpc", r.Native)}
}

// operationID is made of the method and the path: GET /v1/queues/{queue}/stats is getQueuesQueueStats.
func operationID(r *rest.Route) string {
	id := strings.ToLower(r.Method)
	for _, word := range separator.Split(strings.TrimPrefix(r.Path, "/v1/"), -1) {
		if word != "" {
			id += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return id
}

// parameterOf documents a parameter: where it stands, its schema, and its bounds in words where a
// schema cannot say them.
func parameterOf(in string, p rest.Param) object {
	out := object{{"name", p.Name}, {"in", in}}.with("description", p.Doc)
	if p.Required {
		out = append(out, field{"required", true})
	}
	// Types of parameters are words of the table: two of them are texts in JSON.
	schema := object{{"type", p.Type}}
	switch p.Type {
	case "duration":
		schema = duration()
	case "time":
		schema = moment()
	}
	if words := p.Words(); words != nil {
		schema = object{{"type", "string"}, {"enum", words}}
	}
	if p.Form.Note != "" {
		out = out.set("description", p.Doc+" "+p.Form.Note)
		p.Form.Note = ""
	}
	// Its form is then that of each value.
	if p.Many {
		schema = object{{"type", "array"}, {"items", schema}}
	}
	return append(out, field{"schema", shaped(schema, p.Form)})
}

// responses documents all answers of a route: the good ones, those refusals that it may have, and any
// other error.
func responses(s *schemas, r *rest.Route) object {
	var out object
	for _, status := range r.Status {
		answer := object{{"description", http.StatusText(status)}}.with("headers", answerHeaders(r, status))
		switch {
		// It has no body, whatever the route answers otherwise.
		case status == http.StatusNoContent:
		case r.Answer != "":
			content := object{{"application/json", object{{"schema", s.ref(r.Answer)}}}}
			if r.Lines != "" {
				content = append(content, field{"application/x-ndjson", object{{"schema", object{{"type", "string"}, {"description", "A line is a " + r.Lines + "."}}}}})
			}
			answer = append(answer, field{"content", content})
		case r.Streams:
			answer = append(answer, field{"content", object{{"text/event-stream", object{{"schema", object{{"type", "string"}}}}}}})
		// The document itself.
		case r.Native == "":
			answer = append(answer, field{"content", object{{"application/json", object{}}}})
		default:
			answer = append(answer, field{"content", object{{"application/octet-stream", object{}}}})
		}
		out = append(out, field{strconv.Itoa(status), answer})
	}
	for _, status := range refused(r) {
		// Refusals that all routes have alike are shared by their status.
		if r.Failed == "" {
			out = append(out, field{strconv.Itoa(status), object{{"$ref", "#/components/responses/" + refusalName(status)}}})
			continue
		}
		out = append(out, field{strconv.Itoa(status), refusal(status, s.ref(r.Failed))})
	}
	// Any other status is that of an error too.
	failure := object{{"$ref", "#/components/schemas/" + errorAnswer}}
	if r.Failed != "" {
		failure = s.ref(r.Failed)
	}
	return append(out, field{"default", object{
		{"description", "An error; its code has the status."},
		{"content", object{{"application/json", object{{"schema", failure}}}}},
	}})
}
