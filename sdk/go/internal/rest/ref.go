package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// Repositories and refs, by their routes.

var (
	repoStateWords = []string{"ready", "importing", "archived"}
	refDenyWords   = []string{"", "create", "update", "delete", "force"}
	refOnlyWords   = []string{"any", "api", "push", "effects"}
	refTypeWords   = []string{"", "commit", "tree", "blob", "tag"}
	refKindWords   = []string{
		"", "create", "update", "delete", "verify", "symref_create", "symref_update", "symref_delete", "symref_verify",
	}
)

type restRepo struct {
	Name, ID, Tag string
	Config        struct {
		Version uint64 `json:"version,string"`
		State   string
		Hide    []string
		Rules   []struct {
			Refs         string
			Deny, Except []string
			Only, Queue  string
		}
		ReflogDays int32 `json:"reflog_days"`
		ReflogMax  int32 `json:"reflog_max"`
		MaxBytes   int64 `json:"max_bytes"`
		MaxPush    int64 `json:"max_push"`
	}
	DefaultBranch      string     `json:"default_branch"`
	CreatedAt          *time.Time `json:"created_at"`
	CreatedBy          string     `json:"created_by"`
	DeletedAt          *time.Time `json:"deleted_at"`
	Rev                uint64     `json:"rev,string"`
	Refs, Packs, Bytes int64
}

func (r *restRepo) wire() *millracev1.Repo {
	c := &r.Config
	config := &millracev1.RepoConfig{
		Version: c.Version, State: millracev1.Repo_State(restNumber(repoStateWords, c.State)), Hide: c.Hide,
		ReflogDays: c.ReflogDays, ReflogMax: c.ReflogMax, MaxBytes: c.MaxBytes, MaxPush: c.MaxPush,
	}
	for _, rule := range c.Rules {
		out := &millracev1.RefRule{
			Refs: rule.Refs, Except: rule.Except, Only: millracev1.RefRule_Only(restNumber(refOnlyWords, rule.Only)), Queue: rule.Queue,
		}
		for _, deny := range rule.Deny {
			out.Deny = append(out.Deny, millracev1.RefRule_Deny(restNumber(refDenyWords, deny)))
		}
		config.Rules = append(config.Rules, out)
	}
	return &millracev1.Repo{
		Name: r.Name, Id: r.ID, Tag: r.Tag, Config: config, DefaultBranch: r.DefaultBranch, CreatedAt: restTime(r.CreatedAt),
		CreatedBy: r.CreatedBy, DeletedAt: restTime(r.DeletedAt), Rev: r.Rev, Refs: r.Refs, Packs: r.Packs, Bytes: r.Bytes,
	}
}

func (w *restBody) repoConfig(c *millracev1.RepoConfig) {
	if c == nil {
		return
	}
	w.object("config", func() {
		w.word("state", repoStateWords, int32(c.GetState()))
		w.texts("hide", c.GetHide())
		restList(w, "rules", c.GetRules(), func(r *millracev1.RefRule) {
			w.text("refs", r.GetRefs())
			deny := make([]string, len(r.GetDeny()))
			for i, d := range r.GetDeny() {
				deny[i] = "unknown"
				if d > 0 && int(d) < len(refDenyWords) {
					deny[i] = refDenyWords[d]
				}
			}
			w.texts("deny", deny)
			w.texts("except", r.GetExcept())
			w.word("only", refOnlyWords, int32(r.GetOnly()))
			w.text("queue", r.GetQueue())
		})
		w.int("reflog_days", int64(c.GetReflogDays()))
		w.int("reflog_max", int64(c.GetReflogMax()))
		w.int("max_bytes", c.GetMaxBytes())
		w.int("max_push", c.GetMaxPush())
	})
}

// repoPath is the route of a repository, and its query with the tag, if it has one.
func repoPath(name, tag, tail string, query url.Values) (string, url.Values, error) {
	if name == "" {
		return "", nil, refusedHere("repo", "is required")
	}
	if tag != "" {
		if query == nil {
			query = url.Values{}
		}
		query.Set("tag", tag)
	}
	return "/v1/repos/" + restSegment(name) + tail, query, nil
}

func (r *Conn) createRepo(ctx context.Context, in *millracev1.CreateRepoRequest, out *millracev1.CreateRepoResponse) error {
	q := post("/v1/repos", 256, func(w *restBody) {
		w.text("name", in.GetName())
		w.text("tag", in.GetTag())
		w.text("default_branch", in.GetDefaultBranch())
		w.repoConfig(in.GetConfig())
		w.text("request_id", restHex(in.GetRequestId()))
	})
	var body restRepo
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Repo, out.Replayed, out.At = body.wire(), a.status == http.StatusOK, a.at()
	return nil
}

func (r *Conn) getRepo(ctx context.Context, in *millracev1.GetRepoRequest, out *millracev1.GetRepoResponse) error {
	path, query, err := repoPath(in.GetName(), in.GetTag(), "", freshness(in.GetMinIndex(), in.GetStale()))
	if err != nil {
		return err
	}
	var body restRepo
	a, err := r.call(ctx, get(path, query), &body)
	if err != nil {
		return err
	}
	out.Repo, out.At = body.wire(), a.at()
	return nil
}

func (r *Conn) listRepos(ctx context.Context, in *millracev1.ListReposRequest, out *millracev1.ListReposResponse) error {
	query := pageOf(in.GetLimit(), in.GetCursor())
	if in.GetDeleted() {
		query.Set("deleted", "true")
	}
	var body struct {
		Repos  []restRepo
		Cursor string
	}
	a, err := r.call(ctx, get("/v1/repos", query), &body)
	if err != nil {
		return err
	}
	out.Repos, out.Cursor, out.At = restWire(body.Repos, (*restRepo).wire), body.Cursor, a.at()
	return nil
}

func (r *Conn) updateRepo(ctx context.Context, in *millracev1.UpdateRepoRequest, out *millracev1.UpdateRepoResponse) error {
	path, query, err := repoPath(in.GetName(), in.GetTag(), "", nil)
	if err != nil {
		return err
	}
	q := put(path, in.IfVersion, func(w *restBody) {
		w.repoConfig(in.GetConfig())
		w.text("default_branch", in.GetDefaultBranch())
	})
	q.query = query
	var answer configured
	a, err := r.call(ctx, q, &answer)
	if err != nil {
		return err
	}
	out.Version, out.At = answer.Version, a.at()
	return nil
}

type restRepoID struct{ ID string }

func (r *Conn) deleteRepo(ctx context.Context, in *millracev1.DeleteRepoRequest, out *millracev1.DeleteRepoResponse) error {
	path, query, err := repoPath(in.GetName(), in.GetTag(), "", nil)
	if err != nil {
		return err
	}
	q := put(path, in.IfVersion, func(*restBody) {})
	q.method, q.query, q.body = http.MethodDelete, query, nil
	var body restRepoID
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Id, out.At = body.ID, a.at()
	return nil
}

func (r *Conn) undeleteRepo(ctx context.Context, in *millracev1.UndeleteRepoRequest, out *millracev1.UndeleteRepoResponse) error {
	path, query, err := repoPath(in.GetName(), in.GetTag(), "/undelete", nil)
	if err != nil {
		return err
	}
	q := post(path, 64, func(w *restBody) { w.text("id", in.GetId()) })
	q.query = query
	var body restRepoID
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Id, out.At = body.ID, a.at()
	return nil
}

type restRef struct {
	Name, ID, Type, Peeled, Target string
	Rev                            uint64 `json:"rev,string"`
}

func (r *restRef) wire() *millracev1.Ref {
	return &millracev1.Ref{
		Name: r.Name, Id: r.ID, Type: millracev1.Ref_Type(restNumber(refTypeWords, r.Type)), Peeled: r.Peeled, Target: r.Target, Rev: r.Rev,
	}
}

func (r *Conn) getRef(ctx context.Context, in *millracev1.GetRefRequest, out *millracev1.GetRefResponse) error {
	if in.GetName() != "HEAD" && !strings.HasPrefix(in.GetName(), "refs/") { // the route would put refs/ before it
		return refusedHere("name", "is neither HEAD nor below refs/")
	}
	query := freshness(in.GetMinIndex(), in.GetStale())
	if in.GetPeel() {
		query.Set("peel", "true")
	}
	path, query, err := repoPath(in.GetRepo(), in.GetTag(), "/refs/"+restSegment(in.GetName()), query)
	if err != nil {
		return err
	}
	var body restRef
	a, err := r.call(ctx, get(path, query), &body)
	if err != nil {
		return err
	}
	out.Ref, out.At = body.wire(), a.at()
	return nil
}

func (r *Conn) batchGetRefs(ctx context.Context, in *millracev1.BatchGetRefsRequest, out *millracev1.BatchGetRefsResponse) error {
	path, query, err := repoPath(in.GetRepo(), in.GetTag(), "/refs:get", freshness(in.GetMinIndex(), in.GetStale()))
	if err != nil {
		return err
	}
	q := post(path, 64+64*len(in.GetNames()), func(w *restBody) {
		w.texts("names", in.GetNames())
		w.flag("peel", in.GetPeel())
	})
	q.query = query
	var body struct {
		Refs []restRef
		Rev  uint64 `json:"rev,string"`
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	out.Refs, out.Rev, out.At = restWire(body.Refs, (*restRef).wire), body.Rev, a.at()
	return nil
}

// refChange writes one change of a transaction. An old value that is empty means that there is none.
func (w *restBody) refChange(c *millracev1.RefChange) {
	w.word("kind", refKindWords, int32(c.GetKind()))
	w.text("name", c.GetName())
	if c.Old != nil {
		w.key("old")
		w.quote(c.GetOld())
	}
	w.text("new", c.GetNew())
	w.text("target", c.GetTarget())
	if c.OldTarget != nil {
		w.key("old_target")
		w.quote(c.GetOldTarget())
	}
	w.flag("no_deref", c.GetNoDeref())
	w.flag("missing_ok", c.GetMissingOk())
	w.prose("message", c.GetMessage())
}

// refTransaction writes an op of a commit.
func (w *restBody) refTransaction(op *millracev1.RefTransaction) {
	w.text("repo", op.GetRepo())
	w.text("tag", op.GetTag())
	restList(w, "changes", op.GetChanges(), w.refChange)
	w.prose("message", op.GetMessage())
}

// restMoved is what became of that op.
type restMoved struct {
	Changes []struct{ Old, New string }
	Rev     uint64 `json:"rev,string"`
}

func (m *restMoved) wire() *millracev1.RefsMoved {
	if m == nil {
		return nil
	}
	out := &millracev1.RefsMoved{Rev: m.Rev}
	for _, c := range m.Changes {
		out.Changes = append(out.Changes, &millracev1.RefMoved{Old: c.Old, New: c.New})
	}
	return out
}

func (r *Conn) updateRefs(ctx context.Context, in *millracev1.UpdateRefsRequest, out *millracev1.UpdateRefsResponse) error {
	path, query, err := repoPath(in.GetRepo(), in.GetTag(), "/refs", nil)
	if err != nil {
		return err
	}
	q := post(path, 128+192*len(in.GetChanges()), func(w *restBody) {
		restList(w, "changes", in.GetChanges(), w.refChange)
		restList(w, "conditions", in.GetConditions(), w.check)
		if len(in.GetRequestId()) > 0 {
			w.text("request_id", restHex(in.GetRequestId()))
		}
		w.prose("message", in.GetMessage())
		w.flag("allow_partial", in.GetAllowPartial())
	})
	q.query = query
	var body struct {
		Results []struct {
			Old, New string
			Error    *restError
		}
		Rev      uint64 `json:"rev,string"`
		Replayed bool
	}
	a, err := r.call(ctx, q, &body)
	if err != nil {
		return err
	}
	for _, one := range body.Results {
		out.Results = append(out.Results, &millracev1.RefChanged{Old: one.Old, New: one.New, Error: one.Error.wire()})
	}
	out.Rev, out.Replayed, out.At = body.Rev, body.Replayed, a.at()
	return nil
}

type restLogEntry struct {
	Old, New         string
	OldTarget        string `json:"old_target"`
	NewTarget        string `json:"new_target"`
	Principal, Cause string
	Request, Task    string
	Token            uint64 `json:"token,string"`
	Message          string
	Time             *time.Time
	Index            uint64 `json:"index,string"`
	Rev              uint64 `json:"rev,string"`
}

func (e *restLogEntry) wire() *millracev1.RefLogEntry {
	return &millracev1.RefLogEntry{
		Old: e.Old, New: e.New, OldTarget: e.OldTarget, NewTarget: e.NewTarget, Principal: e.Principal, Cause: e.Cause,
		Request: e.Request, Task: e.Task, Token: e.Token, Message: e.Message, Time: restTime(e.Time), Index: e.Index, Rev: e.Rev,
	}
}

func (r *Conn) readReflog(ctx context.Context, in *millracev1.ReadReflogRequest, out *millracev1.ReadReflogResponse) error {
	query := freshness(in.GetMinIndex(), in.GetStale())
	for name, values := range pageOf(in.GetLimit(), in.GetCursor()) {
		query[name] = values
	}
	query.Set("name", in.GetName())
	if in.N != nil {
		query.Set("n", strconv.FormatUint(uint64(in.GetN()), 10))
	}
	if in.GetTime() != nil {
		query.Set("time", in.GetTime().AsTime().Format(time.RFC3339Nano))
	}
	path, query, err := repoPath(in.GetRepo(), in.GetTag(), "/reflog", query)
	if err != nil {
		return err
	}
	var body struct {
		Entries []restLogEntry
		Cursor  string
	}
	a, err := r.call(ctx, get(path, query), &body)
	if err != nil {
		return err
	}
	out.Entries, out.Cursor, out.At = restWire(body.Entries, (*restLogEntry).wire), body.Cursor, a.at()
	return nil
}
