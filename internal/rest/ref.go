package rest

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

var (
	// A repository that was made with a tag lies where the tag says, so each request for it needs the
	// tag.
	tagOf  = Param{Name: "tag", Type: "string", Form: plainText.filled().upTo(defaults.TagBytes), Doc: "Of the repository, if it has one."}
	peelOf = Param{Name: "peel", Type: "true|false", Doc: "A symbolic ref has the id of what it finally points to."}
)

// repoRoutes keep repositories.
func repoRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodPost, Path: "/v1/repos", Repeat: RepeatByKey, Native: api.RefsService + "CreateRepo", Header: []Param{keyParam}, Body: "CreateRepoRequest", Answer: "Repo", Status: statusMade,
			Doc:    "Make a repository. With an Idempotency-Key or a request_id it can be repeated safely: a repetition is answered with 200.",
			fields: fieldNames(createRepoRequestFields), handle: (*restCall).refCreateRepo,
		},
		{
			Method: http.MethodGet, Path: "/v1/repos", Native: api.RefsService + "ListRepos", Answer: "ListReposResponse", Status: statusOK,
			Query: append([]Param{{Name: "deleted", Type: "true|false", Doc: "Those that can still be brought back."}}, stalePage...),
			Doc:   "List repositories by name.", handle: (*restCall).refListRepos,
		},
		{
			Method: http.MethodGet, Path: "/v1/repos/{repo}", Native: api.RefsService + "GetRepo", Answer: "Repo", Headers: []string{"ETag"}, Status: statusOK,
			Query: append([]Param{tagOf}, readParams...),
			Doc:   "Read a repository. The ETag is the version of its settings.", handle: (*restCall).refGetRepo,
		},
		{
			Method: http.MethodPut, Path: "/v1/repos/{repo}", Repeat: RepeatCondition, Native: api.RefsService + "UpdateRepo", Body: "UpdateRepoBody", Answer: "Configured", Headers: []string{"ETag"}, Status: statusOK,
			Query: []Param{tagOf}, Header: []Param{ifMatch},
			Doc:    "Replace the settings of a repository, or its default branch.",
			fields: fieldNames(updateRepoBodyFields), handle: (*restCall).refUpdateRepo,
		},
		{
			Method: http.MethodDelete, Path: "/v1/repos/{repo}", Repeat: RepeatCondition, Native: api.RefsService + "DeleteRepo", Answer: "RepoID", Status: statusOK,
			Query: []Param{tagOf}, Header: []Param{ifMatch},
			Doc: "Delete a repository. Its name is free at once; for 7 days it can be brought back.", handle: (*restCall).refDeleteRepo,
		},
		{
			Method: http.MethodPost, Path: "/v1/repos/{repo}/undelete", Repeat: RepeatCondition, Native: api.RefsService + "UndeleteRepo", Body: "UndeleteRepoBody", Answer: "RepoID", Status: statusOK,
			Query:  []Param{tagOf},
			Doc:    "Bring a deleted repository back: that of the id, or the one of the name that was deleted last.",
			fields: fieldNames(undeleteRepoBodyFields), handle: (*restCall).refUndeleteRepo,
		},
	}
}

// refRoutes read refs and move them.
func refRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/repos/{repo}/refs", Native: api.RefsService + "ListRefs", Answer: "RefPage", Lines: "Ref", Status: statusOK,
			Query: append([]Param{
				tagOf,
				{Name: "prefix", Type: "string", Form: Form{MaxLength: core.MaxRefName}, Doc: "Of their names."},
				{Name: "glob", Type: "string", Form: Form{MinLength: 1, MaxLength: core.MaxRefName, MaxItems: api.MaxListGlobs}, Many: true, Doc: "That their names match: * within a component, ** across. Given several times, any of them."},
				{Name: "points_at", Type: "string", Form: objectForm.filled(), Doc: "The id that they point to, or peel to."},
				{Name: "after", Type: "string", Form: Form{MaxLength: core.MaxRefName}, Doc: "Names after this one: the last of the page before. Compare rev: pages of one rev are of one instant."},
				{Name: "sort", Type: "name|moved", Doc: "moved begins with the refs that were changed last; those of one commit by name."},
				{Name: "after_rev", Type: "integer", Form: AnyUint64, Doc: "With sort=moved, besides after: the rev of the last ref of the page before."},
				{Name: "format", Type: "json|ndjson", Doc: "ndjson streams all refs of one instant, one a line; without it, a page."},
				limitOf,
			}, readParams...),
			Doc: "List refs in byte order, or those first that were changed last. For the latter one request looks at 10,000 refs at most; where there are more, partial says that only those that come first by name are among them.", handle: (*restCall).listRefs,
		},
		{
			Method: http.MethodPost, Path: "/v1/repos/{repo}/refs", Repeat: RepeatByKey, Native: api.RefsService + "UpdateRefs", Header: []Param{keyParam}, Body: "UpdateRefsBody", Answer: "UpdateRefsResponse", Status: statusOK,
			Query:  []Param{tagOf},
			Doc:    "Change refs in one log entry: all changes or, with allow_partial, each that may.",
			fields: fieldNames(updateRefsBodyFields), handle: (*restCall).refUpdateRefs,
		},
		{
			Method: http.MethodPost, Path: "/v1/repos/{repo}/refs:get", Repeat: RepeatRead, Native: api.RefsService + "BatchGetRefs", Body: "BatchGetRefsBody", Answer: "RefPage", Status: statusOK,
			Query:  append([]Param{tagOf}, readParams...),
			Doc:    "Read up to 1,000 refs by name, all of one instant. One that is not there has no id and no target.",
			fields: fieldNames(batchGetRefsBodyFields), handle: (*restCall).batchGetRefs,
		},
		{
			Method: http.MethodGet, Path: "/v1/repos/{repo}/refs/{name}", Native: api.RefsService + "GetRef", Answer: "Ref", Status: statusOK,
			Query: append([]Param{tagOf, peelOf}, readParams...),
			Doc:   "Read one ref. Slashes of its name may be written as they are.", handle: (*restCall).getRef,
		},
		{
			Method: http.MethodGet, Path: "/v1/repos/{repo}/reflog", Native: api.RefsService + "ReadReflog", Answer: "ReadReflogResponse", Status: statusOK,
			Query: append([]Param{
				tagOf,
				{Name: "name", Type: "string", Form: refForm, Required: true, Doc: "Of a ref, deleted or not."},
				{Name: "n", Type: "integer", Form: wholes[int64](0, math.MaxUint32), Doc: "name@{n}: only the record that is n before the newest."},
				{Name: "time", Type: "time", Doc: "name@{time}: only the newest record at that time, RFC 3339."},
			}, append(pageParams[:2:2], readParams...)...),
			Doc: "Read the log of a ref, newest first.", handle: (*restCall).readReflog,
		},
		{
			Method: http.MethodGet, Path: "/v1/repos/{repo}/activity", Native: api.RefsService + "ListActivity", Answer: "ListActivityResponse", Status: statusOK,
			Query:  append([]Param{tagOf}, append(pageParams[:2:2], readParams...)...),
			Doc:    "Read the logs of all refs of a repository together, newest first, deleted refs too. One request looks at 10,000 records at most, about one for each ref and each record shown: beyond that the answer is partial, and of the refs that come first by name.",
			handle: (*restCall).refListActivity,
		},
	}
}

// joinName lets the slashes of a ref's name, and of a model's id, stand in a path as they are.
func joinName(path string) string {
	if id, ok := strings.CutPrefix(path, "/v1/models/"); ok && strings.Contains(id, "/") {
		return path[:len(path)-len(id)] + strings.ReplaceAll(id, "/", "%2F")
	}
	parts := strings.SplitN(path, "/", 6) // "", v1, repos, name, refs, the rest
	if len(parts) == 6 && parts[1] == "v1" && parts[2] == "repos" && parts[4] == "refs" && strings.Contains(parts[5], "/") {
		return path[:len(path)-len(parts[5])] + strings.ReplaceAll(parts[5], "/", "%2F")
	}
	return path
}

// tagParam is the tag of the repository; empty: it has none.
func (c *restCall) tagParam() string {
	tag, _ := c.query.get("tag")
	return tag
}

// getRef serves GET /v1/repos/{repo}/refs/{name}.
// It is written by hand: the path itself says refs/.
func (c *restCall) getRef() error {
	in := &pb.GetRefRequest{Repo: c.params[0], Tag: c.tagParam(), Name: c.params[1]}
	var fact core.Fact
	if in.MinIndex, in.Stale, fact = c.readOptions(); fact != nil {
		return fact
	}
	in.Peel = c.flag("peel")
	// HEAD is the one ref outside of refs/.
	if in.GetName() != "HEAD" && !strings.HasPrefix(in.GetName(), "refs/") {
		in.Name = "refs/" + in.GetName() // the path itself says refs/
	}
	out, err := c.s.Refs().GetRef(c.ctx, in)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) { writeRef(w, out.GetRef()) })
}

// batchGetRefs serves POST /v1/repos/{repo}/refs:get.
// It is written by hand: its schema is that of a page.
func (c *restCall) batchGetRefs() error {
	in := &pb.BatchGetRefsRequest{}
	if err := readBody(c, in, batchGetRefsBodyFields); err != nil {
		return err
	}
	in.Repo, in.Tag = c.params[0], c.tagParam()
	var fact core.Fact
	if in.MinIndex, in.Stale, fact = c.readOptions(); fact != nil {
		return fact
	}
	out, err := c.s.Refs().BatchGetRefs(c.ctx, in)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) {
		writeRefs(w, out.GetRefs())
		w.Exact("rev", out.GetRev())
		w.Exact("index", out.GetAt().GetIndex())
	})
}

// listRefs serves GET /v1/repos/{repo}/refs.
// It is written by hand: it is a page of a stream, or lines.
func (c *restCall) listRefs() error {
	in := &pb.ListRefsRequest{Repo: c.params[0], Tag: c.tagParam()}
	var fact core.Fact
	if in.MinIndex, in.Stale, fact = c.readOptions(); fact != nil {
		return fact
	}
	if in.Limit, _, fact = c.page(); fact != nil {
		return fact
	}
	in.Prefix, _ = c.query.get("prefix")
	in.PointsAt, _ = c.query.get("points_at")
	in.After, _ = c.query.get("after")
	// The one parameter that may come several times.
	in.Globs = c.query.values["glob"]
	format, _ := c.query.get("format")
	rev, given, fact := c.number("after_rev")
	switch {
	case fact != nil:
		return fact
	case given:
		in.AfterRev = &rev
	}
	sort, _ := c.query.get("sort")
	if in.Moved = sort == "moved"; in.Moved {
		if format == "ndjson" {
			return edge.Invalid("sort", "moved and the format ndjson are mutually exclusive")
		}
		return c.movedRefs(in)
	}
	// Lines have no end of a page: all refs are written. A page needs one.
	if format != "ndjson" && in.GetLimit() == 0 {
		in.Limit = api.ListDefault
	}
	if format == "ndjson" {
		return c.streamRefs(in)
	}
	var refs []*pb.Ref
	var info core.RepoInfo
	var at core.At
	err := c.s.Refs().EachRef(c.ctx, in, func(i core.RepoInfo, a core.At) error {
		info, at = i, a
		return nil
	}, func(r *core.Ref) error {
		refs = append(refs, api.ShowRef(r))
		return nil
	})
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, api.ShowAt(at), func(w *jsonWriter) {
		writeRefs(w, refs)
		w.Exact("rev", info.Stats.Rev)
		// There may be more; the page after the last one is empty.
		if len(refs) == int(in.GetLimit()) {
			w.Str("after", refs[len(refs)-1].GetName())
		}
		w.Exact("index", at.Index)
	})
}

// movedRefs answers with a page of refs, those first that were changed last.
func (c *restCall) movedRefs(in *pb.ListRefsRequest) error {
	page, err := c.s.Refs().Moved(c.ctx, in)
	if err != nil {
		return err
	}
	refs := make([]*pb.Ref, len(page.Refs))
	for i := range page.Refs {
		refs[i] = api.ShowRef(&page.Refs[i])
	}
	return c.ok(http.StatusOK, api.ShowAt(page.At), func(w *jsonWriter) {
		writeRefs(w, refs)
		w.Exact("rev", page.Rev)
		if page.More {
			last := refs[len(refs)-1]
			w.Str("after", last.GetName())
			w.Exact("after_rev", last.GetRev())
		}
		if page.Partial {
			w.Bool("partial", true)
		}
		w.Exact("index", page.At.Index)
	})
}

// contentLines is the media type of answers of one JSON value a line.
var contentLines = []string{"application/x-ndjson"}

// streamRefs answers with one ref a line. The header Millrace-Rev is their rev. One that ends without a line break was
// cut.
func (c *restCall) streamRefs(in *pb.ListRefsRequest) error {
	// The writer's buffer is written out piece by piece; it never holds all refs.
	w, _ := c.h.writers.Get().(*jsonWriter)
	defer c.h.writers.Put(w)
	w.B = w.B[:0]
	// Each piece has the time of a stall to be taken, however long the whole answer is.
	flush := func() error {
		c.setDeadline(c.control.SetWriteDeadline, c.s.Limits.SendStallMs)
		_, err := c.w.Write(w.B)
		w.B = w.B[:0]
		if err != nil {
			return errGone
		}
		return nil
	}
	err := c.s.Refs().EachRef(c.ctx, in, func(info core.RepoInfo, at core.At) error {
		c.showIndex(api.ShowAt(at))
		h := c.w.Header()
		h[headerRev] = []string{strconv.FormatUint(info.Stats.Rev, 10)}
		h["Content-Type"] = contentLines
		// Nothing can be told by a status after this. A client knows from the missing line break that an
		// answer was cut.
		c.head(http.StatusOK, nil, 0)
		return nil
	}, func(r *core.Ref) error {
		w.Open('{')
		writeRef(w, api.ShowRef(r))
		w.Close('}')
		w.Line()
		if len(w.B) >= pooledBytes/2 {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	return err
}

// readReflog serves GET /v1/repos/{repo}/reflog.
// It is written by hand: it has parameters of its own.
func (c *restCall) readReflog() error {
	in := &pb.ReadReflogRequest{Repo: c.params[0], Tag: c.tagParam()}
	var fact core.Fact
	if in.MinIndex, in.Stale, fact = c.readOptions(); fact != nil {
		return fact
	}
	if in.Limit, in.Cursor, fact = c.page(); fact != nil {
		return fact
	}
	in.Name, _ = c.query.get("name")
	// A record by its number, or by a time, is what git writes as name@{n} and name@{time}.
	if s, ok := c.query.get("n"); ok {
		n, wrong := strictjson.ParseUnsigned(s)
		if wrong != "" || n > math.MaxUint32 {
			return edge.Invalid("n", "must be an integer from 0 to 4294967295")
		}
		in.N = new(uint32(n))
	}
	if s, ok := c.query.get("time"); ok {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return edge.Invalid("time", "must be a time, such as 2026-01-02T15:04:05Z")
		}
		in.Time = timestamppb.New(t)
	}
	out, err := c.s.Refs().ReadReflog(c.ctx, in)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, out.GetAt(), func(w *jsonWriter) { writeReadReflogResponse(w, out) })
}

// writeRefs writes the refs of a page.
// A ref that is not there has its name alone.
func writeRefs(w *jsonWriter, refs []*pb.Ref) {
	w.List("refs", len(refs), func(i int) {
		w.Open('{')
		writeRef(w, refs[i])
		w.Close('}')
	})
}
