package main

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/rest"
)

// errorAnswer is the name of the schema of answers that are errors.
const errorAnswer = "ErrorAnswer"

// refusalStatuses lists the statuses of errors, each once.
func refusalStatuses() []int {
	var out []int
	for _, c := range edge.Codes() {
		out = append(out, c.Status)
	}
	// Several codes have the same status.
	slices.Sort(out)
	return slices.Compact(out)
}

// refused lists the statuses of errors that a route may have. A route that the document names has the method; one without a
// token asks for no right; only a condition can fail.
func refused(r *rest.Route) []int {
	_, public := r.Scopes()
	return slices.DeleteFunc(refusalStatuses(), func(status int) bool {
		switch status {
		case http.StatusMethodNotAllowed:
			return true
		case http.StatusUnauthorized:
			return public && !r.SignsIn
		case http.StatusForbidden:
			return public
		}
		return false
	})
}

// refusalName is the name of the shared answer of a status.
func refusalName(status int) string {
	return "Status" + strconv.Itoa(status)
}

// refusal documents the answers of one status.
func refusal(status int, schema object) object {
	// Headers that come with the status alone, whatever the code.
	out := object{{"description", http.StatusText(status) + ": " + strings.Join(codesOf(status), ", ") + "."}}
	switch status {
	case http.StatusTemporaryRedirect:
		out = append(out, field{"headers", headersOf("Location")})
	case http.StatusUnauthorized:
		out = append(out, field{"headers", headersOf("Www-Authenticate")})
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		out = append(out, field{"headers", headersOf("Retry-After")})
	}
	return append(out, field{"content", object{{"application/json", object{{"schema", schema}}}}})
}

// codesOf lists the codes of errors that have a status.
func codesOf(status int) []string {
	var out []string
	for _, c := range edge.Codes() {
		if c.Status == status && !slices.Contains(out, c.Code) {
			out = append(out, c.Code)
		}
	}
	return out
}

// refusals are the answers that all routes share, by their status.
func refusals() object {
	var out object
	for _, status := range refusalStatuses() {
		// No route of the document has it.
		if status != http.StatusMethodNotAllowed {
			out = append(out, field{refusalName(status), refusal(status, object{{"$ref", "#/components/schemas/" + errorAnswer}})})
		}
	}
	return out
}

// headers documents the headers of answers.
func headers() object {
	// All of them are texts.
	text := func(doc string) object {
		return object{{"description", doc}, {"schema", object{{"type", "string"}}}}
	}
	return object{
		{"Millrace-Index", text("Where the answer stands: partition/epoch/index.")},
		{"Millrace-Rev", text("The revision of the key, or of the repository's refs.")},
		{"Millrace-Writer", text("The task that wrote the key last, and the token of its attempt behind a blank.")},
		{"Millrace-Size", text("The length of the whole content in bytes, where the body may be a part of it.")},
		{"Millrace-Type", text("The content type that the client gave.")},
		{"Content-Disposition", text("attachment: a browser saves the content and does not show it.")},
		{"ETag", text("The version, for If-Match.")},
		{"Location", text("The address of the task that was made; or the leader's address for the same request.")},
		{"Set-Cookie", text("The cookie of the session, or that there is none any more.")},
		{"Retry-After", text("After how many seconds to try again.")},
		{"Www-Authenticate", text("Bearer: a token is needed.")},
	}
}

// headersOf refers to some of them.
func headersOf(names ...string) object {
	var out object
	for _, name := range names {
		out = append(out, field{name, object{{"$ref", "#/components/headers/" + name}}})
	}
	return out
}

// answerHeaders are those of an answer other than an error.
func answerHeaders(r *rest.Route, status int) object {
	if status == http.StatusNoContent {
		return headersOf(r.Headers...)
	}
	// The table is shared by all that read it.
	names := slices.Clone(r.Headers)
	if r.Indexed() {
		names = append(names, "Millrace-Index")
	}
	return headersOf(names...)
}
