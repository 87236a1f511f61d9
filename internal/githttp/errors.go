package githttp

import (
	"errors"
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// row says how one fact leaves this edge when it ends a request. Git shows people the status only,
// but for what it was told within an answer. The first row that matches counts, so rows of narrower
// facts come first.
type row struct {
	is func(error) bool
	// http is the status of the answer.
	http int
	text string // empty: the fact's own
}

// facts is the only table from a fact to its status. What no row matches is 500, and its text stays in the log.
var facts = []row{
	{is[core.Unauthenticated], http.StatusUnauthorized, ""},
	{isNoRepo, http.StatusNotFound, "repository not found"},
	{is[core.NotFound], http.StatusNotFound, "repository not found"}, // a namespace too
	{is[core.Denied], http.StatusForbidden, ""},
	{is[core.TooLarge], http.StatusRequestEntityTooLarge, ""},
	{is[core.Invalid], http.StatusBadRequest, ""},
	{isDisk, http.StatusInsufficientStorage, ""},
	{isSlow, http.StatusRequestTimeout, ""},
	{is[core.Exhausted], http.StatusTooManyRequests, ""},
	{is[core.NotLeader], http.StatusServiceUnavailable, "no leader now"},
	{is[core.Unavailable], http.StatusServiceUnavailable, ""},
	{is[core.DeadlineExceeded], http.StatusServiceUnavailable, ""},
	{is[*errs.Corruption], http.StatusInternalServerError, "stored data is damaged"},
	{func(error) bool { return true }, http.StatusInternalServerError, "internal error"},
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// isNoRepo tells the refusal of a repository that is not there from others.
func isNoRepo(err error) bool {
	f, ok := errors.AsType[core.RefRefused](err)
	return ok && len(f.Failures) > 0 && f.Failures[0].Reason == core.RefRepoNotFound
}

// isDisk tells a full disk from other limits that are used up.
func isDisk(err error) bool {
	f, ok := errors.AsType[core.Exhausted](err)
	return ok && f.Limit == "disk"
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
	i := 0
	for !facts[i].is(err) {
		i++
	}
	if facts[i].text != "" {
		return facts[i].http, facts[i].text
	}
	if u, ok := errors.AsType[core.Unavailable](err); ok && u.Limit != "" {
		return facts[i].http, u.Error() + ": " + u.Limit
	}
	if fact, ok := errors.AsType[core.Fact](err); ok {
		return facts[i].http, fact.Error()
	}
	return facts[i].http, err.Error()
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
	told := is[core.DeadlineExceeded](err) || is[core.Invalid](err) || isSlow(err) // though reading has ended
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
