package githttp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
)

// Options of the edge. A zero field means its default where one is named.
type Options struct {
	Backend Backend
	Objects Objects
	Auth    Auth
	Calls   *auth.Calls                           // ends requests whose token does not allow them any more; none: they go on
	Refused func(who auth.Principal, from string) // is told of each token that is refused, as auth.Refusals notes it; none: nothing is
	Clock   env.Clock
	Rand    env.Rand
	Logger  *slog.Logger
	Version string
	Limits  Limits
	// Authenticated is called with the context of each request whose token is good; may be nil.
	Authenticated func(context.Context)
}

// Limits of the edge. A zero one means its default. The defaults let through what git clients do
// with repositories of a million refs.
type Limits struct {
	Idle         time.Duration // in which RateBytes must come from, or go to, a client that is waited for; default 1 min
	RateBytes    int64         // default 1 MiB
	Commit       time.Duration // for a commit's answer; default 30 s
	RequestBytes int64         // of a fetch's request, inflated; default 256 MiB: a million ids wanted and a million had
	CommandBytes int64         // of the commands of a push, inflated; default 160 MiB: a million refs
	HeldBytes    int64         // of commands, of all pushes together; default 256 MiB
	AtomicRefs   int           // of an atomic push; default and most 10,000
	PushRefs     int           // of any push; default 1,000,000
}

// withDefaults returns the limits with a default in the place of each zero.
func (l Limits) withDefaults() Limits {
	l.Idle = cmp.Or(l.Idle, time.Minute)
	l.RateBytes = cmp.Or(l.RateBytes, 1<<20)
	l.Commit = cmp.Or(l.Commit, 30*time.Second)
	l.RequestBytes = cmp.Or(l.RequestBytes, 256<<20)
	l.CommandBytes = cmp.Or(l.CommandBytes, 160<<20)
	l.HeldBytes = cmp.Or(l.HeldBytes, 256<<20)
	l.AtomicRefs = cmp.Or(l.AtomicRefs, core.MaxRefChanges)
	l.PushRefs = cmp.Or(l.PushRefs, 1_000_000)
	return l
}

// Server serves git clients. It is an http.Handler for the paths below edge.GitPrefix.
type Server struct {
	o Options
	// l are the limits with their defaults filled in.
	l     Limits
	log   *slog.Logger
	held  *edge.Budget // bytes of commands that are in memory, of all pushes
	stats counters
}

// New makes the edge.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Refused == nil {
		o.Refused = func(auth.Principal, string) {}
	}
	s := &Server{o: o, l: o.Limits.withDefaults(), log: o.Logger}
	s.held = edge.NewBudget(s.l.HeldBytes)
	return s
}

// Services of git, as clients name them.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// request is one request of a git client. It belongs to the goroutine of its handler, but for in
// and out: git's input and output are copied at the same time.
type request struct {
	s *Server
	// w, r and control belong to package http. control sets the deadlines of the connection.
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	// who is the caller, and token what it showed; both zero before it was authenticated.
	who   auth.Principal
	token string
	call  *auth.Call // of the field who; nil before the token was checked
	repo  Repo
	fresh bool // the repository is only planned: a push makes it
	ended bool // the body was read to its end
	// in is the pace of the body, and out that of the answer.
	in, out pace
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{s: s, w: w, r: r, control: http.NewResponseController(w), in: pace{s: s}, out: pace{s: s}}
	// Deferred first, so that it runs last: whatever ends the request, the connection keeps a deadline.
	defer q.leave()
	// As git does: nothing of this may be kept by anybody on the way.
	h := w.Header()
	h.Set("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	if err := q.serve(); err != nil {
		q.fail(q.outcome(err))
	}
}

// serve finds out who asks, for what and of which repository. Without a token the answer is 401 on every path: git clients
// send none until they are asked, and take any other refusal for the last word.
//
// Then in this order: the path, the action, whether the token reaches the repository, its scope,
// whether this node has git, and the repository. What a caller may not reach looks as if it were
// not there, so that names do not leak.
func (q *request) serve() error {
	if err := q.authenticate(); err != nil {
		return err
	}
	// No name and no action needs an escape. A rule of a proxy in front, which compares paths, sees what is served.
	rest, ok := strings.CutPrefix(q.r.URL.EscapedPath(), edge.GitPrefix)
	namespace, rest, ok2 := strings.Cut(rest, "/")
	name, action, ok3 := strings.Cut(rest, "/")
	name = strings.TrimSuffix(name, ".git") // as most hosts, this one takes both
	if !ok || !ok2 || !ok3 || namespace == "" || name == "" || strings.Contains(action, ".git/") || strings.Contains(rest, "%") || strings.Contains(namespace, "%") {
		return core.NotFound{Kind: "repository", ID: q.r.URL.Path}
	}
	handle, service, scope, err := q.route(action)
	if err != nil {
		return err
	}
	if !q.who.ReachesRepo(namespace, name) {
		return core.NotFound{Kind: "repository", ID: name}
	}
	// A caller that may not reach the repository gets the same answer as if it were not there. One without any scope for
	// repositories is told so.
	if fact := edge.Needs(scope).Missing(q.who.Scopes); fact != nil {
		if q.who.Scopes.Any(auth.RefRead | auth.RefWrite) {
			if _, _, err := q.find(q.r.Context(), namespace, name); err != nil {
				return err
			}
		}
		return fact
	}
	defer q.hold(q.token, scope)()
	if err := q.s.o.Objects.Ready(); err != nil {
		return err
	}
	ns, repo, err := q.find(q.context(), namespace, name)
	if missing(err) && service == receivePack {
		repo, err = q.plan(ns, name, err)
		q.fresh = err == nil
	}
	if err != nil {
		return err
	}
	if repo.Config.State == core.RepoImporting && !q.who.Scopes.Has(auth.RefAdmin) {
		return core.NotFound{Kind: "repository", ID: name}
	}
	q.repo = repo
	return handle()
}

// find finds a repository and the namespace that it is in; without the repository the namespace alone, in which a push may make it.
func (q *request) find(ctx context.Context, namespace, name string) (core.NamespaceInfo, Repo, error) {
	ns, err := edge.FindNamespace(ctx, q.s.o.Backend, auth.Holder{Principal: q.who}, namespace, false)
	if err != nil {
		return core.NamespaceInfo{}, Repo{}, err
	}
	repo, err := q.s.o.Backend.Repo(ctx, ns, name)
	return ns, repo, err
}

// missing reports whether an error says that there is no such repository.
func missing(err error) bool { return edge.Is[core.NotFound](err) || isNoRepo(err) }

// plan returns the repository that a push makes, which is not there: absent if none does, or where
// the name is none. It needs the scope to create repositories, a namespace that has pushes make
// them, and a name that a repository may have.
func (q *request) plan(ns core.NamespaceInfo, name string, absent error) (Repo, error) {
	if len(ns.Partitions) == 0 || !q.who.Scopes.Has(auth.RefCreate) {
		return Repo{}, absent
	}
	planned, ok, err := q.s.o.Backend.Plan(q.context(), ns, name)
	switch {
	case missing(err), err == nil && !ok:
		return Repo{}, absent
	case err != nil:
		return Repo{}, err
	}
	if rule := core.CheckRepoName(name); rule != "" {
		return Repo{}, core.Invalid{Field: "name", Reason: "bad_name", Message: rule}
	}
	return planned, nil
}

// route finds what an action does, for which service, and what scope it takes. The error of a wrong
// method or media type is returned with the handler, which is not called then.
func (q *request) route(action string) (handle func() error, service string, scope auth.Scopes, err error) {
	switch action {
	case "info/refs":
		switch service := q.r.URL.Query().Get("service"); service {
		case "": // a client of dumb HTTP, which git's own server answers with 403 too
			return nil, "", 0, &refusal{status: http.StatusForbidden, text: noDumb}
		case uploadPack:
			return q.advertiseFetch, service, auth.RefRead, q.method(http.MethodGet, http.MethodHead)
		case receivePack:
			return q.advertisePush, service, auth.RefWrite, q.method(http.MethodGet, http.MethodHead)
		default:
			return nil, "", 0, &refusal{status: http.StatusForbidden, text: "service " + line(clip(service)) + " is not served"}
		}
	case uploadPack:
		return q.fetch, uploadPack, auth.RefRead, q.posted(uploadPack)
	case receivePack:
		return q.push, receivePack, auth.RefWrite, q.posted(receivePack)
	}
	return nil, "", 0, &refusal{status: http.StatusNotFound, text: unserved(action)} // git-lfs takes 403 for a wrong password
}

// noDumb is for paths of the protocol in which clients read a repository's files.
const noDumb = "dumb HTTP is not served: the smart protocol of git is needed"

// unserved says what is not served at a path below a repository.
func unserved(action string) string {
	switch {
	case action == "info/lfs", strings.HasPrefix(action, "info/lfs/"):
		return "LFS is not served"
	case action == "HEAD", strings.HasPrefix(action, "objects/"), strings.HasPrefix(action, "info/"), strings.HasPrefix(action, "refs/"):
		return noDumb
	}
	return "there is nothing at this path of a repository"
}

// method refuses a request with another method than those.
func (q *request) method(allowed ...string) error {
	if slices.Contains(allowed, q.r.Method) {
		return nil
	}
	allow := strings.Join(allowed, ", ")
	q.w.Header().Set("Allow", allow)
	return &refusal{status: http.StatusMethodNotAllowed, text: "the method must be " + allow}
}

// posted refuses what is not posted as a request to a service.
func (q *request) posted(service string) error {
	if err := q.method(http.MethodPost); err != nil {
		return err
	}
	want := "application/x-" + service + "-request"
	if kind, _, err := mime.ParseMediaType(q.r.Header.Get("Content-Type")); err != nil || kind != want {
		return &refusal{status: http.StatusUnsupportedMediaType, text: "Content-Type must be " + want}
	}
	return nil
}

// authenticate finds out who asks: a token as Bearer, or as the password of any user.
func (q *request) authenticate() error {
	values := q.r.Header["Authorization"]
	if len(values) != 1 {
		return core.Unauthenticated{}
	}
	token, ok := edge.Bearer(values[0])
	if !ok {
		if _, token, ok = q.r.BasicAuth(); !ok {
			return core.Unauthenticated{}
		}
	}
	who, ok := auth.Find(q.s.o.Auth, token, q.r.RemoteAddr, q.s.o.Clock.Wall(), q.s.o.Refused)
	if !ok {
		return core.Unauthenticated{}
	}
	q.who, q.token = who.Principal, token
	if q.s.o.Authenticated != nil {
		q.s.o.Authenticated(q.r.Context())
	}
	return nil
}

// protocol returns the version that the client asks for: 0, 1 or 2.
func (q *request) protocol() string {
	best := "0"
	for _, p := range strings.Split(q.r.Header.Get("Git-Protocol"), ":") {
		if v, ok := strings.CutPrefix(p, "version="); ok && (v == "1" || v == "2") && v > best {
			best = v
		}
	}
	return best
}

// gone reports whether the client is.
func (q *request) gone(err error) bool {
	if q.revoked() {
		return false // what ended its reading ended the request's own context too
	}
	return q.r.Context().Err() != nil || errors.Is(err, context.Canceled)
}
