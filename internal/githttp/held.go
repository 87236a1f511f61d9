package githttp

import (
	"context"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// hold has the token looked at while the request is served: once it does not allow scope, or the repository, any more, the
// request's work ends. A commit that was proposed by then is waited for all the same.
//
// The token is not asked at each step: the call is told when its token changes or ends, and cancels
// the context then. A read that waits for the client does not see that, so its deadline is set to
// one that has passed.
func (q *request) hold(token string, scope auth.Scopes) (release func()) {
	if q.s.o.Calls == nil {
		return func() {}
	}
	q.call = q.s.o.Calls.Begin(q.r.Context(), auth.Holder{Principal: q.who, Token: token}, edge.RightsOf(edge.Needs(scope), true))
	stop := context.AfterFunc(q.call, func() {
		if q.call.Revoked() {
			_ = q.control.SetReadDeadline(edge.LongAgo) // it may be waiting for what the client sends
		}
	})
	return func() {
		stop()
		q.call.End()
	}
}

// context is that of the request's work.
func (q *request) context() context.Context {
	if q.call != nil {
		return q.call
	}
	return q.r.Context()
}

// revoked reports whether the request's token has ended before the request.
func (q *request) revoked() bool { return q.call != nil && q.call.Revoked() }

// outcome is the error of a request whose work ended with err: that of its token, if that is why.
func (q *request) outcome(err error) error {
	if q.revoked() && isSlow(err) {
		return core.Unauthenticated{} // the deadline that hold set
	}
	// As at the other doors.
	return edge.Revoked(q.call, err)
}
