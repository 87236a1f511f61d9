package edge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
)

// Auth tells who holds a token.
type Auth = auth.Lookup

// Rule says who may use a method, a stream's frame or a commit's op.
type Rule struct {
	Public bool        // without a token
	Any    bool        // with any token: its parts have rules of their own, or it gives nothing away
	Scope  auth.Scopes // with all of these scopes
	Or     auth.Scopes // or with any of these
}

// Public is the rule of what needs no token.
func Public() Rule { return Rule{Public: true} }

// AnyToken is the rule of what every token allows.
func AnyToken() Rule { return Rule{Any: true} }

// Needs is the rule of what a token with all of some scopes allows.
func Needs(scope auth.Scopes) Rule { return Rule{Scope: scope} }

// Empty reports whether r says nothing: it allows nothing.
func (r Rule) Empty() bool { return r == Rule{} }

// OrAny is r for those too who have any of some scopes.
func (r Rule) OrAny(scopes auth.Scopes) Rule {
	r.Or = scopes
	return r
}

// Missing refuses a caller who lacks a scope, and names it.
func (r Rule) Missing(have auth.Scopes) core.Fact {
	switch {
	case r.Public || r.Any || have.Any(r.Or):
		return nil
	// A zero rule allows nothing, so a method without a decision is closed.
	case r.Scope == 0:
		return core.Denied{Scope: "unknown"} // a zero rule allows nothing
	case !have.Has(r.Scope):
		return core.Denied{Scope: (r.Scope &^ have).String()}
	}
	return nil
}

// ReadsValues is what a caller must have to be shown the value of a key.
const ReadsValues = auth.KVRead

// callerKey is the key under which a context has its caller.
type callerKey struct{}

// Caller is who asks. It is made from the token alone.
type Caller = auth.Holder

// Asker tells who asks, for logs: the holder of a token, by its name and tenant, and the client's address.
func Asker(ctx context.Context) (who, from string) {
	c, ok := CallerOf(ctx)
	if !ok {
		return "this server", ""
	}
	return fmt.Sprintf("token %s of tenant %s", c.Name, c.Tenant), c.From
}

// CallerOf is who makes the call that a context is of, with the rights that they have now.
func CallerOf(ctx context.Context) (Caller, bool) {
	// A call that is looked after knows what its token allows now, which may be less than at its begin.
	if call, ok := auth.CallOf(ctx); ok {
		return *call.Holder(), true
	}
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// Authenticate finds the caller, whose address is from, by the metadata key authorization, which must be there once at most.
func (e *Edge) Authenticate(md metadata.MD, from string) (Caller, core.Fact) {
	var token string
	switch values := md.Get("authorization"); len(values) {
	case 0:
	case 1:
		var ok bool
		if token, ok = Bearer(values[0]); !ok {
			return Caller{}, core.Unauthenticated{}
		}
	default:
		return Caller{}, core.Unauthenticated{}
	}
	return e.CallerBy(token, from)
}

// Bearer returns the token of a header Authorization; ok is false for another scheme.
func Bearer(authorization string) (token string, ok bool) {
	scheme, rest, _ := strings.Cut(authorization, " ")
	return strings.TrimSpace(rest), strings.EqualFold(scheme, "bearer")
}

// CallerBy finds the caller, whose address is from, by a token's text.
func (e *Edge) CallerBy(token, from string) (Caller, core.Fact) {
	who, ok := auth.Find(e.o.Auth, token, from, e.Clock.Wall(), e.o.Refused)
	if !ok {
		return Caller{}, core.Unauthenticated{}
	}
	return who, nil
}

// WithCaller is a context whose caller is known.
func WithCaller(ctx context.Context, who Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// RightsOf are what a call needs to go on whose rule is r. A stream goes on with the rights that it was begun with, so it must
// not lose one of their kind.
func RightsOf(r Rule, stream bool) auth.Rights {
	out := auth.Rights{
		Allows: func(have auth.Scopes) bool { return r.Missing(have) == nil },
		Repos:  r.Scope.Family().Any(auth.RefRead),
		Queues: r.Any || (r.Scope | r.Or).Any(auth.OfQueues),
	}
	if stream {
		out.Keeps = r.Scope.Family()
	}
	return out
}

// EndedMeanwhile is Unauthenticated of a call that was proposed when its token ended, and may have been applied.
type EndedMeanwhile struct{ core.Unauthenticated }

// Unwrap returns the fact.
func (f EndedMeanwhile) Unwrap() error { return f.Unauthenticated }

// tokenEnded is the fact of a call whose token has ended.
func tokenEnded(unknown bool) core.Fact {
	if unknown {
		return EndedMeanwhile{}
	}
	return core.Unauthenticated{}
}

// Revoked is how a call ended whose handler returned err. The end of its token makes Unauthenticated of what came of that, and
// leaves any other answer: of a commit that was proposed, what became of it, or that this is unknown.
func Revoked(call *auth.Call, err error) error {
	if err == nil || call == nil || !call.Revoked() {
		return err
	}
	if f, ok := errors.AsType[core.Unavailable](err); ok {
		return tokenEnded(f.Unknown)
	}
	if f, ok := errors.AsType[core.DeadlineExceeded](err); ok {
		return tokenEnded(f.Unknown)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, auth.ErrEnded) {
		return core.Unauthenticated{}
	}
	return err
}
