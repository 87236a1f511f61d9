package githttp

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// exception is a fact that leaves this door with another status or text than the table of package edge gives it.
type exception struct {
	// is tells the fact by its type, and by its content where the type has several meanings.
	is     func(error) bool
	status int    // 0: that of the table
	text   string // empty: the fact's own
}

// exceptions are all of them, each with its reason; the first that matches counts.
var exceptions = []exception{
	// One text for all that is not there, a namespace too: it must not tell a repository that is hidden from one that does not exist.
	{missing, 0, "repository not found"},
	// 429 has the header that makes a client come again: this one would be as slow as before.
	{isSlow, http.StatusRequestTimeout, ""},
	// Every node serves git and hands proposals on. The address of a leader is not one of git, so there is nothing to redirect to.
	{edge.Is[core.NotLeader], http.StatusServiceUnavailable, "no leader now"},
	// Nothing was proposed when this ends a request. 503 has the header that makes a client come again.
	{edge.Is[core.DeadlineExceeded], http.StatusServiceUnavailable, ""},
}

// isNoRepo tells the refusal of a repository that is not there from others.
func isNoRepo(err error) bool {
	f, ok := errors.AsType[core.RefRefused](err)
	return ok && len(f.Failures) > 0 && f.Failures[0].Reason == core.RefRepoNotFound
}

// isSlow tells a client that sends or takes less than the least rate.
func isSlow(err error) bool {
	f, ok := errors.AsType[core.Exhausted](err)
	return ok && f.Limit == limitRate
}

// refusal ends a request that has no meaning here, whatever repository it is of.
type refusal struct {
	status int
	text   string
}

// Error returns the text.
func (e *refusal) Error() string { return e.text }

// describe gives an error its status and its text for people. The text may hold what a client sent:
// line makes it safe to show.
func describe(err error) (status int, text string) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status, r.text
	}
	// What has no row is an internal error: its text stays in the log.
	status, text = edge.RowOf(err).HTTP, edge.Text(err)
	if u, ok := errors.AsType[core.Unavailable](err); ok && u.Limit != "" {
		text += ": " + u.Limit // other doors have a field for it
	}
	for _, e := range exceptions {
		if e.is(err) {
			return cmp.Or(e.status, status), cmp.Or(e.text, text)
		}
	}
	return status, text
}

// count counts an error that ends a request, writes to the log what this server has to answer for, and returns the text
// for people.
func (q *request) count(err error) (text string) {
	status, text := describe(err)
	q.s.stats.refused(status)
	if status == http.StatusInternalServerError {
		q.s.log.Error("git request failed", "path", q.r.URL.Path, "err", err)
	}
	return text
}

// retryAfter is how many seconds a client that was refused for want of room should wait. It is the
// same for all: how long want of room lasts is not known.
const retryAfter = "5"

// fail ends a request that has no answer yet. A client that is gone gets no answer, except where
// what ended the reading is itself the reason, such as a body that came too slowly.
func (q *request) fail(err error) {
	told := edge.Is[core.DeadlineExceeded](err) || edge.Is[core.Invalid](err) || isSlow(err) // though reading has ended
	if q.gone(err) && !told {
		return
	}
	status, _ := describe(err)
	text := q.count(err)
	h := q.w.Header()
	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Basic realm="millrace"`)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", retryAfter)
	}
	if q.unread() {
		h.Set("Connection", "close") // else package http waits for the rest of the body before it writes this
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	q.w.WriteHeader(status)
	_, _ = q.w.Write([]byte(line(text) + "\n"))
}

// line makes one line of a text that may hold what a client sent.
func line(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
