package rest

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Repeat says how a request that may change something is sent again when its answer was lost. It continues "such a request is
// repeated". Each route other than GET has one: it must be decided when a route is added.
type Repeat string

// How requests are repeated.
const (
	// RepeatByKey is of what makes another thing each time it is asked for.
	RepeatByKey Repeat = "with the same Idempotency-Key"
	// RepeatByID is of what makes things that have names of their own, or none.
	RepeatByID Repeat = "as it is where all that it makes has an id or a unique key"
	// RepeatByToken is of the end of an attempt: a token ends one attempt, once.
	RepeatByToken Repeat = "as it is: the token of the lease tells a repetition"
	// RepeatSame is of what can be asked for twice and is done once.
	RepeatSame Repeat = "as it is: what it asks for is a state, in which a repetition finds things"
	// RepeatCondition is of a change with a condition that the first try may have made untrue.
	RepeatCondition Repeat = "as it is: a refusal of the repetition can mean that the first try was applied"
	// RepeatClaim is of claims, RepeatRead of reads that are posted.
	RepeatClaim Repeat = "as it is: what a claim took that was not heard of returns to its queue when the lease ends"
	RepeatRead  Repeat = "as it is: it changes nothing"
)

// headerKey names a request, so that its repetition is known.
const headerKey = "Idempotency-Key"

// keyParam is the header on routes that take it as a request id.
var keyParam = Param{
	Name: headerKey, Type: "string", Form: keyForm,
	Doc: "1 to 256 bytes that name the request, good for at least 10 minutes in the partition that the request is about: a repetition gets the first answer and changes nothing, the same key with other content is refused. A refused request is judged again.",
}

// meaningful are headers of requests by which a caller asks for something that no answer shows to be left out: a condition, a
// check, a part, another method, or that a request counts once. A route that does not take one refuses it by name. Those that
// begin with the product's own name are refused likewise. All other headers are taken for descriptions, and passed over.
var meaningful = map[string]string{
	headerKey: "", "X-Idempotency-Key": headerKey, "Idempotency-Token": headerKey,
	"If-Match": "", "If-None-Match": "", "If-Modified-Since": "", "If-Unmodified-Since": "", "If-Range": "", "Range": "", "Content-Range": "",
	"Content-Md5": "", "Digest": "", "Content-Digest": "", "Repr-Digest": "", "Want-Digest": "", "Want-Content-Digest": "", "Want-Repr-Digest": "",
	"Prefer": "", "X-Http-Method": "", "X-Http-Method-Override": "", "X-Method-Override": "",
	"Millrace-Namespace": "the parameter ns",
}

// ownHeaders begins the names of the product's headers, in requests and answers.
const ownHeaders = "Millrace-"

// checkHeaders refuses headers that ask for what the route does not do, and one that is given twice.
func (c *restCall) checkHeaders() core.Fact {
	for name, values := range c.r.Header {
		// Names come in the form of package http: capitals after hyphens.
		instead, known := meaningful[name]
		switch {
		case c.route.takesHeader(name):
			if len(values) > 1 {
				return edge.Invalid(name, "must be given only once")
			}
		// It belongs to who asks: it was looked at with the cookie, or a token makes it needless.
		case name == headerSession && c.h.o.Sessions != nil && len(values) == 1:
		// Package http answers 100-continue by itself.
		case name == "Expect" && !strings.EqualFold(strings.Join(values, ","), "100-continue"):
			return edge.Invalid(name, "must be 100-continue")
		case known || strings.HasPrefix(name, ownHeaders):
			return core.Invalid{Field: core.Cut(name, api.NameBytes), Reason: "not_supported", Message: c.route.refusedHeader(name, instead)}
		}
	}
	return nil
}

// takesHeader reports whether a route has a header as a parameter.
func (r *Route) takesHeader(name string) bool {
	return slices.ContainsFunc(r.Header, func(p Param) bool { return p.Name == name })
}

// refusedHeader says why a route does not take a header, and what to do instead.
func (r *Route) refusedHeader(name, instead string) string {
	text := "is not taken on this route"
	switch {
	case name == headerKey && r.Repeat != "":
		return text + ": such a request is repeated " + string(r.Repeat)
	case instead != "" && (instead != headerKey || r.takesHeader(instead)):
		return text + ": give " + instead
	}
	return text
}

// requestKey makes the request id of an Idempotency-Key, which no other tenant has for the same key. given is the request id
// of the body, which excludes the header.
func (c *restCall) requestKey(given []byte) ([]byte, core.Fact) {
	values := c.r.Header[headerKey]
	switch {
	case len(values) == 0:
		return given, nil
	case values[0] == "":
		return nil, edge.Invalid(headerKey, "must not be empty")
	case len(given) > 0:
		return nil, edge.Invalid(headerKey, "and request_id are mutually exclusive")
	}
	// The bounds of a unique key: both are named by the client and kept by the server.
	if fact := api.TextUpTo(headerKey, values[0], "unique_key_bytes", c.s.Limits.UniqueKeyBytes); fact != nil {
		return nil, fact
	}
	sum := sha256.Sum256([]byte("millrace idempotency key\x00" + c.who.Tenant + "\x00" + values[0]))
	return sum[:api.RequestIDBytes], nil
}

// keyTaken names the Idempotency-Key in the refusal of one that was used for other content.
func (c *restCall) keyTaken(err error) error {
	// The service knows only the request id, which the client has not seen.
	f, ok := errors.AsType[core.AlreadyExists](err)
	if values := c.r.Header[headerKey]; ok && f.Kind == "request" && len(values) > 0 {
		return core.AlreadyExists{Kind: headerKey, ID: values[0]}
	}
	return err
}

// checkRepeats finds a route that does not say how its requests are repeated, or that says what its headers do not.
func (r *Route) checkRepeats() bool {
	byKey := r.takesHeader(headerKey)
	return (r.Repeat == "") == (r.Method == http.MethodGet) && byKey == (r.Repeat == RepeatByKey)
}
