package millrace

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// web is REST as a test plays it. A route that is not there is answered as by a proxy.
type web struct {
	t      *testing.T
	server *httptest.Server

	mu     sync.Mutex // guards the fields below
	routes map[string]http.HandlerFunc
	asked  map[string][]string // bodies, by route
}

func newWeb(t *testing.T) *web {
	t.Helper()
	w := &web{t: t, routes: map[string]http.HandlerFunc{}, asked: map[string][]string{}}
	w.on("GET /v1/status", `{"version":"1","durability":"fsync","node":"n","shards":1}`)
	w.server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.server.Close)
	return w
}

func (w *web) serve(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name := r.Method + " " + r.URL.Path
	w.mu.Lock()
	w.asked[name] = append(w.asked[name], string(body))
	h := w.routes[name]
	w.mu.Unlock()
	if h == nil {
		http.Error(out, "not here", http.StatusNotFound)
		return
	}
	h(out, r)
}

// on answers a route with JSON.
func (w *web) on(route, answer string) {
	w.handle(route, func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		out.Header().Set("Millrace-Index", "0/0/7")
		_, _ = io.WriteString(out, answer)
	})
}

func (w *web) handle(route string, h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[route] = h
}

func (w *web) bodies(route string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[route]
}

func (w *web) address() string { return w.server.Listener.Addr().String() }

// client dials the fake for gRPC and w for REST.
func (w *web) client(f *fake, opts ...Option) *Client {
	w.t.Helper()
	var d net.Dialer
	return f.client(append([]Option{RESTAddress(w.address()), Dialer(func(ctx context.Context, address string) (net.Conn, error) {
		if address == w.address() {
			return d.DialContext(ctx, "tcp", address)
		}
		return f.lis.DialContext(ctx)
	})}, opts...)...)
}

// goOver makes c take REST though gRPC works.
func goOver(t *testing.T, c *Client) {
	t.Helper()
	if !c.router.TurnToREST(t.Context(), c.router.Acquire()) {
		t.Fatal("the client did not go over to REST")
	}
}

func TestACreateThatLeftOnTheStreamIsRepeatedOverRESTUnderItsID(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f)
	defer f.end(c)
	w.on("POST /v1/tasks:batch", `{"results":[{"id":"holder","replayed":true,"payload_matches":true}],"index":"7"}`)
	out := make(chan *Handle[int], 1)
	go func() { out <- must(thumb.Add(t.Context(), c, thumbArgs{})) }()
	st := f.welcome(nil)
	sent := st.create()
	goOver(t, c)
	st.cut()
	if h := receive(t, out); h.ID != "holder" || !h.Replayed {
		t.Errorf("got %+v, want the answer over REST", h)
	}
	if got := w.bodies("POST /v1/tasks:batch"); len(got) != 1 || !strings.Contains(got[0], sent.Tasks[0].Id) {
		t.Errorf("got %v, want one request for %s", got, sent.Tasks[0].Id)
	}
}

// A number of a session means nothing to REST: sent there, the commit could be applied twice.
func TestACommitThatLeftOnTheStreamIsUnknownWhenTheClientGoesOverToREST(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f)
	defer f.end(c)
	w.on("POST /v1/commit", `{"results":[{"rev":"9"}],"replayed":false,"index":"7"}`)
	out := commits(t.Context(), c, 1)
	st := f.welcome(nil)
	st.commit()
	goOver(t, c)
	st.cut()
	if err := receive(t, out); OutcomeOf(err) != Unknown || asError(t, err).Reason != wire.ReasonSessionExpired {
		t.Errorf("got %v, want unknown, as the session is gone", err)
	}
	if got := w.bodies("POST /v1/commit"); len(got) != 0 {
		t.Errorf("it was sent again: %v", got)
	}
	if err := receive(t, commits(t.Context(), c, 1)); err != nil {
		t.Errorf("the next commit: %v", err)
	}
	var sent struct {
		RequestID string `json:"request_id"`
	}
	got := w.bodies("POST /v1/commit")
	if err := json.Unmarshal([]byte(got[0]), &sent); err != nil || len(sent.RequestID) != 32 {
		t.Errorf("got %s, want a request id", got)
	}
}

func TestAWriterOverRESTIsATaskAndItsToken(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f, Transport(TransportREST))
	defer f.end(c)
	var header atomic.Value // what a request is answered with; one that was given up may still read it
	w.handle("GET /v1/kv/n/keys/k", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Millrace-Index", "0/0/7")
		out.Header().Set("Millrace-Rev", "7")
		out.Header().Set("Millrace-Writer", header.Load().(string))
		_, _ = io.WriteString(out, "v")
	})
	for _, wrong := range []string{"nonsense", "01J x", " 3", "01J 3 4"} {
		header.Store(wrong)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if v, err := c.KV("n").Get(ctx, "k"); !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: got %+v, %v", wrong, v.Writer, err)
		}
		cancel()
	}
	header.Store("01J 18446744073709551615")
	v, err := c.KV("n").Get(t.Context(), "k")
	if err != nil || v.Writer == nil || *v.Writer != (KeyWriter{Task: "01J", Token: math.MaxUint64}) {
		t.Errorf("got %+v, %v", v.Writer, err)
	}
}

func TestARequestThatNeverLeftIsRefused(t *testing.T) {
	c, err := Dial(t.Context(), Address("server.test:1"), Insecure(), Transport(TransportREST), Dialer(
		func(context.Context, string) (net.Conn, error) { return nil, errors.New("no route") }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Claim(t.Context(), ClaimQuery{Queues: []string{"q"}}); OutcomeOf(err) != Refused || !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want unavailable, refused", err)
	}
	for range 100 { // time may be up in the middle of a try, on a busy machine often
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err = c.Delete(ctx, "t1")
		cancel()
		if OutcomeOf(err) != Refused {
			t.Errorf("got %v, want refused", err)
		}
		if strings.Contains(err.Error(), "no route") {
			break
		}
	}
	if e := asError(t, err); OutcomeOf(err) != Refused || !strings.Contains(e.Message, "no route") {
		t.Errorf("got %v, want refused, with the reason", err)
	}
}

func TestARequestThatIsGivenUpBeforeItLeftIsRefused(t *testing.T) {
	dials := make(chan struct{}, 8)
	c, err := Dial(t.Context(), Address("server.test:1"), Insecure(), Transport(TransportREST), Dialer(
		func(ctx context.Context, _ string) (net.Conn, error) {
			dials <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-dials
		cancel()
	}()
	err = c.Delete(ctx, "t1")
	if e := asError(t, err); e.Outcome != Refused || e.Code != CodeDeadlineExceeded || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v with outcome %v, want a call that was given up and changed nothing", err, e.Outcome)
	}
}

func TestARequestThatIsGivenUpWithoutItsAnswerIsUnknown(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f, Transport(TransportREST))
	defer f.end(c)
	ctx, cancel := context.WithCancel(t.Context())
	w.handle("DELETE /v1/tasks/t1", func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if err := c.Delete(ctx, "t1"); OutcomeOf(err) != Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want unknown", err)
	}
}

func TestARequestWithoutAnAnswerIsUnknown(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f, Transport(TransportREST))
	defer f.end(c)
	w.handle("POST /v1/tasks:claim", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := c.Claim(t.Context(), ClaimQuery{Queues: []string{"q"}})
	if OutcomeOf(err) != Unknown || !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v, want unavailable, unknown", err)
	}
}

func TestAnErrorOverRESTSaysWhatOneOverGRPCSays(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f, Transport(TransportREST))
	defer f.end(c)
	w.handle("POST /v1/tasks:claim", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		out.Header().Set("Retry-After", "9")
		out.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(out, `{"error":{"code":"RATE_LIMITED","reason":"r","message":"m","field":"f","op":-3,"details":{"rev":"18446744073709551615"},
			"limit":"l","max":9007199254740993,"retry_after_ms":1500,"leader":"a","outcome":"refused"}}`)
	})
	_, err := c.Claim(t.Context(), ClaimQuery{Queues: []string{"q"}})
	got := asError(t, err)
	want := Error{
		Code: CodeRateLimited, Reason: "r", Message: "m", Field: "f", Op: OpCondition - 1, Limit: "l", Max: 9007199254740993,
		RetryAfter: 1500 * time.Millisecond, Outcome: Refused,
	}
	if got.Details["rev"] != "18446744073709551615" {
		t.Errorf("got details %v", got.Details)
	}
	got.Details = nil
	if got.Error() != want.Error() || got.Max != want.Max || got.RetryAfter != want.RetryAfter || got.Outcome != want.Outcome {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAnAnswerThatMillraceDidNotWriteIsJudgedByItsStatus(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f, Transport(TransportREST))
	defer f.end(c)
	for _, tc := range []struct {
		status int
		code   Code
		out    Outcome
	}{
		{200, CodeUnavailable, Unknown}, // a page for people to log in
		{302, CodeUnavailable, Unknown},
		{401, CodeUnauthenticated, Refused},
		{403, CodePermissionDenied, Refused},
		{404, CodeInvalidArgument, Refused},
		{413, CodeTooLarge, Refused},
		{429, CodeRateLimited, Refused},
		{502, CodeUnavailable, Unknown},
		{503, CodeUnavailable, Unknown},
		{504, CodeUnavailable, Unknown},
	} {
		w.handle("POST /v1/tasks:claim", func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Type", "text/html")
			out.Header().Set("Retry-After", "3")
			out.WriteHeader(tc.status)
			_, _ = io.WriteString(out, "<html>")
		})
		_, err := c.Claim(t.Context(), ClaimQuery{Queues: []string{"q"}})
		if e := asError(t, err); e.Code != tc.code || e.Outcome != tc.out || e.RetryAfter != 3*time.Second {
			t.Errorf("%d: got %v after %v, want %s, %v", tc.status, err, e.RetryAfter, tc.code, tc.out)
		}
	}
}

func TestARedirectOfTheServerIsFollowedWithTheToken(t *testing.T) {
	f, w, leader := newFake(t), newWeb(t), newWeb(t)
	var d net.Dialer
	c := f.client(Transport(TransportREST), RESTAddress(w.address()), Token("secret"), Dialer(func(ctx context.Context, address string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", address)
	}))
	defer f.end(c)
	w.handle("DELETE /v1/tasks/t1", func(out http.ResponseWriter, r *http.Request) {
		http.Redirect(out, r, leader.server.URL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	})
	tokens := make(chan string, 1)
	leader.handle("DELETE /v1/tasks/t1", func(out http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("Authorization") + " " + r.URL.RawQuery
		out.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(out, `{"index":"1"}`)
	})
	if err := c.Delete(t.Context(), "t1"); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, tokens); got != "Bearer secret ns=default" {
		t.Errorf("the leader got %q", got)
	}
}

func TestANewTokenIsSentWithTheNextRequest(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f, Transport(TransportREST), Token("old"))
	defer f.end(c)
	tokens := make(chan string, 2)
	w.handle("POST /v1/tasks:batch", func(out http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("Authorization")
		out.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(out, `{"results":[{"id":"t"}]}`)
	})
	must(thumb.Add(t.Context(), c, thumbArgs{}))
	c.SetToken("new")
	must(thumb.Add(t.Context(), c, thumbArgs{}))
	if a, b := receive(t, tokens), receive(t, tokens); a != "Bearer old" || b != "Bearer new" {
		t.Errorf("got tokens %s and %s", a, b)
	}
}

// A port that speaks TLS and offers no HTTP/2 is what most proxies of HTTP/1.1 look like.
func TestATLSPortWithoutHTTP2IsServedOverREST(t *testing.T) {
	w := newWeb(t)
	tls := httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	tls.EnableHTTP2 = false
	tls.StartTLS()
	defer tls.Close()
	w.on("POST /v1/tasks:batch", `{"results":[{"id":"t"}]}`)
	trust := tls.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trust.NextProtos = nil
	c, err := Dial(t.Context(), Address(tls.Listener.Addr().String()), TLS(trust), Logger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	if _, err := thumb.Add(ctx, c, thumbArgs{}); err != nil || c.Transport() != TransportREST {
		t.Errorf("got %v by %v, want a task by rest", err, c.Transport())
	}
}

// Something on the way speaks HTTP/2, and answers the stream as a web server does.
func TestAStreamThatIsRefusedAsAProtocolEndsNobodyWhereRESTServes(t *testing.T) {
	f, w := newFake(t), newWeb(t)
	c := w.client(f)
	defer f.end(c)
	w.on("POST /v1/tasks:batch", `{"results":[{"id":"t"}]}`)
	go func() {
		f.accept().end(status.Error(codes.Unimplemented, "unexpected HTTP status code received from server: 404"))
	}()
	if _, err := thumb.Add(t.Context(), c, thumbArgs{}); err != nil {
		t.Errorf("got %v, want a task by REST", err)
	}
	if got := c.Transport(); got != TransportREST {
		t.Errorf("the transport in use is %v, want rest", got)
	}
}

func TestRESTIsLookedForAtTheAddressAndBesideItsOwnPort(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []Option
		want string
	}{
		"a proxy for both":  {[]Option{Address("lb.test:443")}, "lb.test:443"},
		"the server itself": {[]Option{Address("node.test:7081")}, "node.test:7081 node.test:7080"},
		"where it is said":  {[]Option{Address("node.test:7081"), RESTAddress("web.test:80")}, "web.test:80"},
	} {
		o, err := newOptions(tc.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.restHosts(), " "); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if _, err := newOptions([]Option{RESTAddress("no port")}); err == nil {
		t.Error("an address of REST without a port was taken")
	}
	if _, err := newOptions([]Option{Transport(7)}); err == nil {
		t.Error("a transport that is none was taken")
	}
}

func TestTheEnvironmentChoosesTheTransport(t *testing.T) {
	t.Setenv("MILLRACE_TRANSPORT", "rest")
	if o, err := newOptions(nil); err != nil || o.transport != TransportREST {
		t.Errorf("got %v, %v, want rest", o.transport, err)
	}
	if o, err := newOptions([]Option{Transport(TransportStream)}); err != nil || o.transport != TransportStream {
		t.Errorf("got %v, %v, want the option to win", o.transport, err)
	}
	t.Setenv("MILLRACE_TRANSPORT", "pigeon")
	if _, err := newOptions(nil); err == nil {
		t.Error("a transport that is none was taken")
	}
}

func TestATokenFollowsNoRedirectInClearTextBeyondThisMachine(t *testing.T) {
	w := newWeb(t)
	beyond := make(chan string, 8)
	var d net.Dialer
	c, err := Dial(t.Context(), Transport(TransportREST), Address(w.address()), Token("secret"), Dialer(func(ctx context.Context, address string) (net.Conn, error) {
		if address != w.address() {
			beyond <- address
		}
		return d.DialContext(ctx, "tcp", w.address())
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is under way
	for _, to := range []string{"http://queue.example:7080", "http://queue.example", "http://192.0.2.7:7080", "http://[2001:db8::1]"} {
		w.handle("DELETE /v1/tasks/t1", func(out http.ResponseWriter, r *http.Request) {
			http.Redirect(out, r, to+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := c.Delete(ctx, "t1"); err == nil {
			t.Errorf("a redirect to %s was followed", to)
		}
		cancel()
	}
	if len(beyond) > 0 {
		t.Errorf("the client went to %s", <-beyond)
	}
}
