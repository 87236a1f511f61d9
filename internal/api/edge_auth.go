package api

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

// rule says who may use a method, a stream's frame or a commit's op.
type rule struct {
	public bool        // without a token
	any    bool        // with any token: its parts have rules of their own, or it gives nothing away
	scope  auth.Scopes // with all of these scopes
	or     auth.Scopes // or with any of these
}

func public() rule                 { return rule{public: true} }
func anyToken() rule               { return rule{any: true} }
func needs(scope auth.Scopes) rule { return rule{scope: scope} }
func (r rule) empty() bool         { return r == rule{} }

// orAny is r for those too who have any of some scopes.
func (r rule) orAny(scopes auth.Scopes) rule {
	r.or = scopes
	return r
}

func (r rule) missing(have auth.Scopes) core.Fact {
	switch {
	case r.public || r.any || have.Any(r.or):
		return nil
	case r.scope == 0:
		return core.Denied{Scope: "unknown"} // a zero rule allows nothing
	case !have.Has(r.scope):
		return core.Denied{Scope: (r.scope &^ have).String()}
	}
	return nil
}

// readsValues is what a caller must have to be shown the value of a key.
const readsValues = auth.KVRead

type callerKey struct{}

// caller is who asks. It is made from the token alone.
type caller = auth.Holder

// Asker tells who asks, for logs: the holder of a token, by its name and tenant, and the client's address.
func Asker(ctx context.Context) (who, from string) {
	c, ok := callerOf(ctx)
	if !ok {
		return "this server", ""
	}
	return fmt.Sprintf("token %s of tenant %s", c.Name, c.Tenant), c.From
}

// callerOf is who makes the call that a context is of, with the rights that they have now.
func callerOf(ctx context.Context) (caller, bool) {
	if call, ok := auth.CallOf(ctx); ok {
		return *call.Holder(), true
	}
	c, ok := ctx.Value(callerKey{}).(caller)
	return c, ok
}

// authenticate finds the caller, whose address is from, by the metadata key authorization, which must be there once at most.
func (e *edge) authenticate(md metadata.MD, from string) (caller, core.Fact) {
	var token string
	switch values := md.Get("authorization"); len(values) {
	case 0:
	case 1:
		scheme, rest, _ := strings.Cut(values[0], " ")
		if !strings.EqualFold(scheme, "bearer") {
			return caller{}, core.Unauthenticated{}
		}
		token = strings.TrimSpace(rest)
	default:
		return caller{}, core.Unauthenticated{}
	}
	return e.callerBy(token, from)
}

// callerBy finds the caller, whose address is from, by a token's text.
func (e *edge) callerBy(token, from string) (caller, core.Fact) {
	who, ok := auth.Find(e.o.Auth, token, from, e.o.Clock.Wall(), e.o.Refused)
	if !ok {
		return caller{}, core.Unauthenticated{}
	}
	return who, nil
}

// withCaller is a context whose caller is known.
func withCaller(ctx context.Context, who caller) context.Context {
	return context.WithValue(ctx, callerKey{}, who)
}

// rightsOf are what a call needs to go on whose rule is r. A stream goes on with the rights that it was begun with, so it must
// not lose one of their kind.
func rightsOf(r rule, stream bool) auth.Rights {
	out := auth.Rights{
		Allows: func(have auth.Scopes) bool { return r.missing(have) == nil },
		Repos:  r.scope.Family().Any(auth.RefRead),
	}
	if stream {
		out.Keeps = r.scope.Family()
	}
	return out
}

// endedMeanwhile is Unauthenticated of a call that was proposed when its token ended, and may have been applied.
type endedMeanwhile struct{ core.Unauthenticated }

// Unwrap returns the fact.
func (f endedMeanwhile) Unwrap() error { return f.Unauthenticated }

// tokenEnded is the fact of a call whose token has ended.
func tokenEnded(unknown bool) core.Fact {
	if unknown {
		return endedMeanwhile{}
	}
	return core.Unauthenticated{}
}

// revoked is how a call ended whose handler returned err. The end of its token makes Unauthenticated of what came of that, and
// leaves any other answer: of a commit that was proposed, what became of it, or that this is unknown.
func revoked(call *auth.Call, err error) error {
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
