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

// Bounds of the admin listener. It asks for no token, so a stranger may reach it where the operator
// allows that; it has few callers and no large requests.
const (
	// Connections per listener, and the sizes of a request in bytes.
	adminConnections = 64
	adminHeaderBytes = 16 << 10
	adminBodyBytes   = 64 << 10 // of a form
	// Times for a request's head, for the whole request, for the answer, and between requests.
	adminHeaderWait = 5 * time.Second
	adminReadWait   = 10 * time.Second
	adminWriteWait  = 30 * time.Second // beyond the seconds that a profile is asked to last
	adminIdleWait   = time.Minute
	// profileSeconds is the longest profile. A longer one is a typing error, and it would keep out
	// others.
	profileSeconds = 600
	// maxRate bounds the rates of profiles. The block rate is in nanoseconds: at one second it
	// samples almost nothing.
	maxRate = int(time.Second)
)

// admin serves what operators and monitoring need: metrics, health, status and profiles. It asks
// for no token, so it only reads; changes go through the API or the operator's socket. Of the
// tenants' data it shows only the names of the largest repositories, and of keyspaces if the
// settings say so. It serves from before the data directory is opened until everything else has
// stopped.
type admin struct {
	o Options
	// All metrics. They read their values through parts when they are asked for.
	registry *obs.Registry
	// How long each sync of the log took, in microseconds; the log writes it.
	syncs *obs.Histogram
	// Changes of membership that were refused, by code.
	refused refusedChanges
	http    *http.Server
	// Receives the end of http, once.
	served chan error
	// The listener of metrics and health alone; nil: the settings name none. probed receives its
	// end.
	probes *http.Server
	// probed receives the end of probes, once.
	probed chan error
	// Handlers hold it shared. close takes it, and so waits for them.
	gate sync.RWMutex

	// nil until the node runs. Handlers must check it.
	parts atomic.Pointer[parts]
	// Set when the server begins to close: readyz answers that it is not ready.
	stopping atomic.Bool

	// mu guards rates.
	mu    sync.Mutex
	rates profileRates

	largest ranking // of repositories
}

// parts are the parts of a running server that metrics and status are read from. It is made once,
// and never changed.
type parts struct {
	// Counts the files that are open, and the opens that wait.
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
	// Counts of refused tokens, over all edges.
	refusals *auth.Refusals
}

// profileRates are the sampling rates of the runtime, which belong to the whole process: 0 is off,
// 1 samples every event.
type profileRates struct {
	// One sample for this many nanoseconds of blocking.
	Block int `json:"block"`
	// One sample for this many contentions.
	Mutex int `json:"mutex"`
}

// newAdmin makes the listener's server without a listener. It fails if a metric breaks the rules of
// the registry, which is a mistake in this program.
func newAdmin(o Options) (*admin, error) {
	a := &admin{o: o, registry: obs.NewRegistry(), syncs: obs.NewSyncTimes(), served: make(chan error, 1)}
	if err := a.register(); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	a.http = a.server(a.handler())
	return a, nil
}

// server makes an HTTP server for h with the bounds above: time limits on all reads and writes, and
// a limit of connections.
func (a *admin) server(h http.Handler) *http.Server {
	s := &http.Server{
		Handler: h, MaxHeaderBytes: adminHeaderBytes, ReadHeaderTimeout: adminHeaderWait, ReadTimeout: adminReadWait,
		WriteTimeout: adminWriteWait, IdleTimeout: adminIdleWait, ErrorLog: slog.NewLogLogger(a.o.Logger.Handler(), slog.LevelWarn),
	}
	newCrowd(a.o.adminConnections()).bound(s)
	return s
}

// serve serves the admin routes on lis, which it closes in the end.
func (a *admin) serve(lis net.Listener) {
	go func() { a.served <- a.http.Serve(lis) }()
}

// serveProbes serves only metrics and health on lis.
func (a *admin) serveProbes(lis net.Listener) {
	a.probes, a.probed = a.server(a.entered(a.probeHandler())), make(chan error, 1)
	go func() { a.probed <- a.probes.Serve(lis) }()
}

// close ends all connections, waits until no handler runs, and turns profiling off. It waits for a
// value in served, which openAdmin sends itself if nothing was served.
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

// probeHandler returns the routes for monitoring and orchestrators, which may be public.
func (a *admin) probeHandler() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.registry.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", a.ready)
	return mux
}

// handler returns all routes of the admin listener. A page in a browser can send requests to a
// loopback address, so requests that name a foreign host or come from another site are refused.
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

// entered wraps h: it holds the gate, bounds the body, and sets the headers that every answer has.
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

// addressed reports whether a request names this listener by an IP address, as localhost, or by the
// host in the settings. Any other name may be one that an attacker has pointed to this address (DNS
// rebinding), so that a page of the attacker could read the answers.
func (a *admin) addressed(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]") // it names no port
	}
	own, _, err := net.SplitHostPort(a.o.Admin)
	return host == "localhost" || net.ParseIP(host) != nil || err == nil && own != "" && strings.EqualFold(host, own)
}

// crossSite reports whether a browser sends the request for a page that this listener did not
// serve: one of another site, or of another port of this machine. Such a page cannot read the
// answer, but a profile still costs processor time.
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

// plain answers with a line of text. A failed write is ignored: the client is gone.
func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // who asked is gone if it fails
}

// asJSON answers with v as indented JSON, likewise.
func asJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // who asked is gone if it fails
}

// unready returns why the server does not serve everything that it should; empty if it does.
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

// ready answers whether to send work here. A full disk does not make it unready: the server refuses
// new work by itself, and workers must still reach it, because completed tasks are what frees
// space.
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

// limitSeconds refuses profiles longer than profileSeconds. The comparison is written so that NaN
// is refused too.
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

// showRates answers with the sampling rates in force.
func (a *admin) showRates(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asJSON(w, a.rates)
}

// changeRates sets the rates that the request names and leaves the others. It is a route of the
// operator's socket only. A wrong parameter changes nothing.
func (a *admin) changeRates(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	rates := a.rates
	a.mu.Unlock()
	if err := r.ParseForm(); err != nil {
		plain(w, http.StatusBadRequest, "the form cannot be read")
		return
	}
	// All parameters are checked before the first rate is set.
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

// setRates passes changed rates to the runtime.
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

// openAdmin makes the admin server and serves it on its listener. If the listener is off or fails,
// the server exists all the same, as parts of it are used by the socket and the probes; served then
// gets the end that close waits for.
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

// openMetrics opens the listener of metrics and health, if the settings name one.
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
	if host, _, err := net.SplitHostPort(r.o.Metrics); err == nil && !env.Loopback(host) {
		r.o.Logger.Info("metrics and health are served in plain text, without a token, to all that reach the address", "address", r.MetricsAddress)
	}
	return nil
}
