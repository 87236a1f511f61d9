package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/githttp"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/obs"
	"github.com/millrace/millrace/internal/replog/transport"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

// Bounds of the admin listener. It has no tokens, few callers and no large requests.
const (
	adminConnections = 64
	adminHeaderBytes = 16 << 10
	adminBodyBytes   = 64 << 10 // of a form
	adminHeaderWait  = 5 * time.Second
	adminReadWait    = 10 * time.Second
	adminWriteWait   = 30 * time.Second // beyond the seconds that a profile is asked to last
	adminIdleWait    = time.Minute
	// profileSeconds is the longest profile: who asks for more has mistyped, and one at a time is taken.
	profileSeconds = 600
	// maxRate bounds profile rates. A block rate is in nanoseconds: at a second it sees next to nothing.
	maxRate = int(time.Second)
)

// admin serves what operators and monitoring need: figures, health, profiles. It asks for no token, so it only reads: what
// changes anything goes through the API, or the operator's socket. Of tenants' own it says the names of the largest repositories,
// and nothing else. It serves from before the data directory is opened until all else has stopped.
type admin struct {
	o        Options
	registry *obs.Registry
	syncs    *obs.Histogram
	refused  refusedChanges
	http     *http.Server
	served   chan error
	probes   *http.Server // of metrics and health alone; nil: there is none
	probed   chan error
	gate     sync.RWMutex // shared by handlers, taken by close

	parts    atomic.Pointer[parts] // nil until the node runs
	stopping atomic.Bool

	mu    sync.Mutex // guards rates
	rates profileRates

	largest ranking // of repositories
}

// parts are what the figures are read from.
type parts struct {
	opens   *store.Descriptors
	log     *wal.Log
	store   *store.Store
	node    *node.Node
	api     *api.Server
	peers   *transport.Transport // nil without a cluster
	asks    *coordinator
	git     *githttp.Server
	objects *gitobj.Area
	embed   *embedders
	watch   *config.Watcher
	cert    *edgeCertificate // nil without TLS
	tokens  *auth.Static
	clock   env.Clock
	// refusals are of tokens, of all doors.
	refusals *auth.Refusals
}

// profileRates are what the runtime was told to sample: 1 is every event, 0 is none.
type profileRates struct {
	Block int `json:"block"` // sampling period in nanoseconds of blocking
	Mutex int `json:"mutex"` // one contention in this many is sampled
}

// newAdmin makes the listener's server. It fails on a table of metrics that breaks the rules.
func newAdmin(o Options) (*admin, error) {
	a := &admin{o: o, registry: obs.NewRegistry(), syncs: obs.NewSyncTimes(), served: make(chan error, 1)}
	if err := a.register(); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	a.http = a.server(a.handler())
	return a, nil
}

// server makes a server of a handler, whose connections are bounded in number and time.
func (a *admin) server(h http.Handler) *http.Server {
	s := &http.Server{
		Handler: h, MaxHeaderBytes: adminHeaderBytes, ReadHeaderTimeout: adminHeaderWait, ReadTimeout: adminReadWait,
		WriteTimeout: adminWriteWait, IdleTimeout: adminIdleWait, ErrorLog: slog.NewLogLogger(a.o.Logger.Handler(), slog.LevelWarn),
	}
	newCrowd(a.o.adminConnections()).bound(s)
	return s
}

// serve takes lis over.
func (a *admin) serve(lis net.Listener) {
	go func() { a.served <- a.http.Serve(lis) }()
}

// serveProbes takes lis over, for metrics and health alone.
func (a *admin) serveProbes(lis net.Listener) {
	a.probes, a.probed = a.server(a.entered(a.probeHandler())), make(chan error, 1)
	go func() { a.probed <- a.probes.Serve(lis) }()
}

// close ends every connection and returns when no handler runs any more.
func (a *admin) close() error {
	err := a.http.Close()
	if a.probes != nil {
		err = errors.Join(err, a.probes.Close())
		if served := <-a.probed; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	if served := <-a.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	a.gate.Lock() // the end of their connections has told handlers to end
	defer a.gate.Unlock()
	a.setRates(profileRates{})
	return err
}

// probeHandler is what monitoring and orchestrators ask for.
func (a *admin) probeHandler() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.registry.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", a.ready)
	return mux
}

// handler is all routes, behind what keeps web pages out: a page in a browser can send requests to loopback.
func (a *admin) handler() http.Handler {
	mux := a.probeHandler()
	mux.HandleFunc("GET /debug/status", a.status)
	mux.HandleFunc("GET /cluster/status", a.clusterStatus)
	mux.HandleFunc("GET /debug/pprof/{$}", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/{profile}", limitSeconds(pprof.Index)) // one of the runtime's own
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", limitSeconds(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", limitSeconds(pprof.Trace))
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/rates", a.showRates)
	return a.entered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !a.addressed(r.Host):
			plain(w, http.StatusMisdirectedRequest, "this listener is addressed by its IP address, as localhost, or by the name in --admin")
		case crossSite(r):
			plain(w, http.StatusForbidden, "this listener is not for web pages of other sites")
		default:
			mux.ServeHTTP(w, r)
		}
	}))
}

// entered is h for as long as the listeners are served, with what every answer has.
func (a *admin) entered(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.gate.RLock()
		defer a.gate.RUnlock()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, adminBodyBytes)
		h.ServeHTTP(w, r)
	})
}

// addressed says whether a request names the listener by an address, as localhost, or by the name that the settings give it. A name
// of somebody else's that leads here is how a web page would read what is served without a token.
func (a *admin) addressed(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]") // it names no port
	}
	own, _, err := net.SplitHostPort(a.o.Admin)
	return host == "localhost" || net.ParseIP(host) != nil || err == nil && own != "" && strings.EqualFold(host, own)
}

// crossSite says whether a browser sends a request for a page that this listener has not served: of another site, or of another port
// of this machine. Such a page cannot read the answer, but a profile costs as much.
func crossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none": // none: a person has typed the address
		return false
	case "": // no browser, or an old one
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // who asked is gone if it fails
}

func asJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // who asked is gone if it fails
}

// unready says why the server does not serve all it should; empty when it does.
func (a *admin) unready() string {
	p := a.parts.Load()
	switch {
	case a.stopping.Load():
		return "stopping"
	case p == nil:
		return "starting: the data directory is being opened"
	}
	return p.node.Unready()
}

// ready answers whether to send work here. A server whose disk is full stays ready: it refuses new work by itself, and
// its workers' completions are what makes room.
func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	why := a.unready()
	switch {
	case why != "":
		plain(w, http.StatusServiceUnavailable, why)
	case a.parts.Load().opens.Short():
		plain(w, http.StatusOK, "ready; descriptors: too many files are open, and what opens one waits")
	case a.parts.Load().node.Full():
		plain(w, http.StatusOK, "ready; the disk is full: new work is refused, reads, settles and deletes go on")
	default:
		plain(w, http.StatusOK, "ready")
	}
}

// limitSeconds refuses profiles that last longer than profileSeconds.
func limitSeconds(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("seconds"); text != "" {
			if n, err := strconv.ParseFloat(text, 64); err != nil || !(n >= 0 && n <= profileSeconds) {
				plain(w, http.StatusBadRequest, fmt.Sprintf("seconds: %q is not within 0 to %d", text, profileSeconds))
				return
			}
		}
		h(w, r)
	}
}

func (a *admin) showRates(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asJSON(w, a.rates)
}

// changeRates sets the rates that the request names, by parameters of its address or its form, and leaves the others.
func (a *admin) changeRates(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	rates := a.rates
	a.mu.Unlock()
	if err := r.ParseForm(); err != nil {
		plain(w, http.StatusBadRequest, "the form cannot be read")
		return
	}
	for name, values := range r.Form {
		into := map[string]*int{"block": &rates.Block, "mutex": &rates.Mutex}[name]
		if into == nil {
			plain(w, http.StatusBadRequest, fmt.Sprintf("%q must be one of block, mutex", name))
			return
		}
		n, err := strconv.Atoi(values[0])
		if err != nil || len(values) > 1 || n < 0 || n > maxRate {
			plain(w, http.StatusBadRequest, fmt.Sprintf("%s: one number within 0 to %d is wanted", name, maxRate))
			return
		}
		*into = n
	}
	a.setRates(rates)
	a.o.audit(r.Context(), "profile rates", nil, "block", rates.Block, "mutex", rates.Mutex)
	asJSON(w, rates)
}

// setRates tells the runtime. Rates are the whole process's.
func (a *admin) setRates(rates profileRates) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rates.Block != rates.Block {
		runtime.SetBlockProfileRate(rates.Block)
	}
	if a.rates.Mutex != rates.Mutex {
		runtime.SetMutexProfileFraction(rates.Mutex)
	}
	a.rates = rates
}

// openAdmin opens the admin listener, unless it is off, and serves.
func (r *Running) openAdmin() (err error) {
	if r.admin, err = newAdmin(r.o); err != nil {
		return err
	}
	if r.o.Admin == off {
		r.admin.served <- http.ErrServerClosed
		return nil
	}
	lis, err := r.o.Net.Listen(r.o.Admin)
	if err != nil {
		r.admin.served <- http.ErrServerClosed
		return fmt.Errorf("admin: %w", err)
	}
	r.AdminAddress = lis.Addr().String()
	r.admin.serve(lis)
	return nil
}

// openMetrics opens the listener of metrics and health, if the settings name one, and serves.
func (r *Running) openMetrics() error {
	if r.o.Metrics == off {
		return nil
	}
	lis, err := r.o.Net.Listen(r.o.Metrics)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	r.MetricsAddress = lis.Addr().String()
	r.admin.serveProbes(lis)
	if host, _, err := net.SplitHostPort(r.o.Metrics); err == nil && !loopback(host) {
		r.o.Logger.Info("metrics and health are served in plain text, without a token, to all that reach the address", "address", r.MetricsAddress)
	}
	return nil
}
