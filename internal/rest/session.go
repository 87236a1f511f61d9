package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// headerSession has what a page shows in addition to the cookie of its session. A page of another origin can send the cookie, but not
	// this header: a browser asks the server first whether it may, and is never told so.
	headerSession = "Millrace-Session"
	// helloWord stands in that header for a page that was loaded again and asks for its session. GET /v1/session alone takes it.
	helloWord = "hello"
	// headerSealed has the cookie in a request that one node sends on to another. It counts on connections of nodes only.
	headerSealed = "Millrace-Sealed"
	// codePath is the route that makes codes. It takes tokens alone.
	codePath = "/v1/session:code"
	// signInBytes bounds the body of who signs in, who is a stranger.
	signInBytes = 8 * kib
)

// Sessions are what the routes of sessions need. Without them there are no such routes, and no request is judged by a cookie.
type Sessions struct {
	// Table seals and opens sessions.
	Table *auth.Sessions
	// Cookie is the name of the cookie; Secure says that browsers send it over TLS alone.
	Cookie string
	Secure bool
	// End ends all sessions of all nodes.
	End func(ctx context.Context) error
	// About is what a page is told of the server.
	About About
}

// About is what a page is told of the server.
type About struct {
	Node       string
	Cluster    string // id of the cluster, or of the data directory of a server by itself
	Version    string
	Durability string
	// Insecure says that the page and its token came in plain text over a network.
	Insecure bool
	// Label and Colour are shown on each page, so that an operator sees which server it is; empty: nothing is shown.
	Label, Colour string
	Services      []string
}

// sessionRoutes sign browsers in and out.
func sessionRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodPost, Path: "/v1/session", Repeat: RepeatSame, Body: "SignIn", Answer: "Session", Headers: []string{"Set-Cookie"}, Status: statusOK,
			rule: edge.Public(), SignsIn: true, ofSessions: true, most: signInBytes, fields: fieldNames(signInFields), handle: (*restCall).signIn,
			Doc: "Begin a session of a browser: a token, or a code that was made of one, is exchanged for a cookie. It lasts 12 hours, and ends with its token. Of one address 10 attempts may fail in a minute. A code signs in once, at the node that has made it; another node of the cluster refuses it by the field code. Such a request cannot be repeated with the same code.",
		},
		{
			Method: http.MethodGet, Path: "/v1/session", Answer: "Session", Headers: []string{"Set-Cookie"}, Status: statusOK, rule: edge.AnyToken(), ofSessions: true, handle: (*restCall).session,
			Header: []Param{{Name: headerSession, Type: "string", Form: Form{MaxLength: 64}, Doc: "The csrf of the session; or hello, of a page that does not have it any more."}},
			Doc:    "Tell who is signed in, and what this server is.",
		},
		{
			Method: http.MethodDelete, Path: "/v1/session", Repeat: RepeatSame, Headers: []string{"Set-Cookie"}, Status: []int{http.StatusNoContent}, rule: edge.AnyToken(), ofSessions: true, handle: (*restCall).signOut,
			Doc: "Take the cookie of the session away from the browser.",
		},
		{
			Method: http.MethodPost, Path: codePath, Repeat: RepeatSame, Answer: "SessionCode", Status: statusOK, rule: edge.AnyToken(), ofSessions: true, handle: (*restCall).sessionCode,
			Doc: "Make a code that signs the holder of the token in once, within 60 seconds, at the node that has made it. It takes the token itself: a session is refused.",
		},
		{
			Method: http.MethodPost, Path: "/v1/sessions:end", Repeat: RepeatSame, Status: []int{http.StatusNoContent}, rule: edge.Needs(auth.Cluster), ofSessions: true, handle: (*restCall).endSessions,
			Doc: "End all sessions of all tenants and nodes, the caller's too.",
		},
	}
}

// signInBody is the body of POST /v1/session.
type signInBody struct{ token, code string }

var signInFields = []jsonField[signInBody]{
	{"token", func(d *jsonReader, m *signInBody) { m.token = d.Text() }},
	{"code", func(d *jsonReader, m *signInBody) { m.code = d.Text() }},
}

// signIn serves POST /v1/session.
func (c *restCall) signIn() error {
	if !sameOrigin(c.r) {
		return edge.Invalid("Origin", "must be this server: who signs in does so on a page of it")
	}
	// A form of another page can send any text, but not as JSON.
	if kind, _, _ := strings.Cut(c.r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind), contentJSON[0]) {
		return edge.Invalid("Content-Type", "must be application/json")
	}
	var in signInBody
	if err := readBody(c, &in, signInFields); err != nil {
		return err
	}
	switch {
	case in.token != "" && in.code != "":
		return edge.Invalid("code", "and token are mutually exclusive")
	case in.token == "" && in.code == "":
		return edge.Invalid("token", "is required, or code")
	}
	// This goes by the text of the code alone, and so tells nothing that its holder does not know.
	if node, elsewhere := c.h.o.Sessions.Table.MadeElsewhere(in.code); elsewhere {
		return edge.Invalid("code", fmt.Sprintf("is of node %d, and good there alone: open the link at that node, or have this one make a code", node))
	}
	// Before anything is looked up: who must wait learns nothing.
	if wait, ok := c.h.attempts.Begin(c.r.RemoteAddr); !ok {
		return core.RateLimited{Limit: auth.LimitAttempts, RetryAfter: core.MillisOf(wait)}
	}
	table := c.h.o.Sessions.Table
	begin, text := table.Begin, in.token
	if in.code != "" {
		begin, text = table.Redeem, in.code
	}
	session, who, ok := begin(text)
	if !ok {
		return core.Unauthenticated{}
	}
	c.h.attempts.Succeeded(c.r.RemoteAddr)
	table.Prepare(c.ctx)
	c.setSession(session)
	return c.showSession(who, session)
}

// setSession sets the cookie of a session, until it ends.
func (c *restCall) setSession(session *auth.Session) {
	c.setCookie(session.Seal(), max(int(session.Ends.Sub(c.s.Clock.Wall()).Seconds()), 1))
}

// setCookie sets the cookie of the session. age is in seconds; a negative one takes it away.
func (c *restCall) setCookie(value string, age int) {
	http.SetCookie(c.w, &http.Cookie{
		Name: c.h.o.Sessions.Cookie, Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: c.h.o.Sessions.Secure,
	})
}

// session serves GET /v1/session.
func (c *restCall) session() error {
	if s := c.who.Session; s != nil && s.Stale() {
		c.setSession(s)
	}
	return c.showSession(c.who.Principal, c.who.Session)
}

// showSession answers with who is signed in. Without a session the caller has sent a token.
func (c *restCall) showSession(who auth.Principal, session *auth.Session) error {
	about := &c.h.o.Sessions.About
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.Str("principal", who.Name)
		w.Str("tenant", who.Tenant)
		w.texts("scopes", who.Scopes.Names())
		w.texts("repos", who.Repos)
		w.texts("queues", who.Queues)
		switch {
		case session != nil:
			w.Time("expires_at", session.Ends)
			w.Str("csrf", session.CSRF)
		case !who.Expires.IsZero():
			w.Time("expires_at", who.Expires)
		}
		w.Str("node", about.Node)
		w.Str("cluster_id", about.Cluster)
		w.Str("version", about.Version)
		w.Str("durability", about.Durability)
		w.Bool("insecure", about.Insecure)
		if about.Label != "" {
			w.Object("label", func() {
				w.Str("text", about.Label)
				w.OptStr("colour", about.Colour)
			})
		}
		w.texts("services", about.Services)
	})
}

// texts is a list of texts, written also when it is empty: a page must not have to tell that from one that is missing.
func (w *jsonWriter) texts(name string, list []string) {
	w.List(name, len(list), func(i int) { w.Quote(list[i]) })
}

// signOut serves DELETE /v1/session.
func (c *restCall) signOut() error {
	c.setCookie("", -1)
	c.head(http.StatusNoContent, nil, 0)
	return nil
}

// sessionCode serves POST /v1/session:code.
func (c *restCall) sessionCode() error {
	// Otherwise a session could go on for ever, by one code after another.
	if c.who.Session != nil {
		return edge.Invalid("Authorization", "is required: a session makes no codes")
	}
	code, fact := c.h.o.Sessions.Table.Code(c.who.Token)
	if fact != nil {
		return fact
	}
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.Str("code", code)
		w.Key("expires_in")
		w.Seconds(auth.CodeLasts.Milliseconds())
	})
}

// endSessions serves POST /v1/sessions:end.
func (c *restCall) endSessions() error {
	// This node's own keys first: they need no majority.
	c.h.o.Sessions.Table.Turn()
	if err := c.h.o.Sessions.End(c.ctx); err != nil {
		return err
	}
	c.s.Live.Sweep()
	c.head(http.StatusNoContent, nil, 0)
	return nil
}

// authenticate finds who calls: by a token, or by the cookie of a session.
func (c *restCall) authenticate() core.Fact {
	var fact core.Fact
	// What comes with a token is not looked at, so that a program that sends both has the token's rights alone.
	if values := c.r.Header["Authorization"]; len(values) > 0 || c.h.o.Sessions == nil {
		c.who, fact = c.s.Authenticate(map[string][]string{"authorization": values}, c.r.RemoteAddr)
		return fact
	}
	session, who, ok := c.openSession()
	if !ok {
		return core.Unauthenticated{}
	}
	c.who = edge.Caller{Principal: who, From: c.r.RemoteAddr, Session: session}
	return nil
}

// openSession opens the session of a request. It is looked at only where the page has shown what belongs to it, and where the
// browser does not say that another page asks.
func (c *restCall) openSession() (*auth.Session, auth.Principal, bool) {
	shown := c.r.Header[headerSession]
	if len(shown) != 1 || shown[0] == "" {
		return nil, auth.Principal{}, false
	}
	sealed, ok := c.sealed()
	if !ok {
		return nil, auth.Principal{}, false
	}
	session, who, ok := c.h.o.Sessions.Table.Open(sealed)
	if !ok {
		return nil, auth.Principal{}, false
	}
	hello := shown[0] == helloWord && c.route.ofSessions && c.r.Method == http.MethodGet
	return session, who, hello || session.Shows(shown[0])
}

// sealed returns the sealed session of a request: of its cookie, or as another node has sent it on, which has looked at the rest.
func (c *restCall) sealed() (string, bool) {
	if edge.WasForwarded(c.r.Context()) {
		values := c.r.Header[headerSealed]
		delete(c.r.Header, headerSealed) // a client must not set it: elsewhere it is refused by its name
		return strings.Join(values, ","), len(values) == 1
	}
	if !sameOrigin(c.r) {
		return "", false
	}
	// Of two cookies of one name one was planted, by a page of another host of the same domain.
	cookies := c.r.CookiesNamed(c.h.o.Sessions.Cookie)
	if len(cookies) != 1 {
		return "", false
	}
	return cookies[0].Value, true
}

// sameOrigin reports whether a request is a fetch of a page of this origin, as far as the browser tells.
func sameOrigin(r *http.Request) bool {
	if site := r.Header["Sec-Fetch-Site"]; len(site) > 0 && strings.Join(site, ",") != "same-origin" {
		return false
	}
	// A form, a frame, an image or a link has another destination.
	if dest := r.Header["Sec-Fetch-Dest"]; len(dest) > 0 && strings.Join(dest, ",") != "empty" {
		return false
	}
	// It looks at methods that may change something. The same holds here for reads, since a cookie makes each of them private.
	return http.NewCrossOriginProtection().Check(&http.Request{Method: http.MethodPost, Host: r.Host, Header: r.Header}) == nil
}
