package api

import (
	"bytes"
	"context"
	"errors"

	"google.golang.org/grpc"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// RefService keeps repositories and their refs.
type RefService struct {
	pb.UnimplementedRefServiceServer
	s    *Server    // what all services share
	refs RefBackend // nil: the service is off
}

// beginRepo finds the caller, the namespace and the partition of a repository. One in a namespace that is not there is
// not there either.
// With create a missing namespace is made. Errors: NotFound where the service is off, RefRefused where
// there is no such repository for the caller.
func (rs *RefService) beginRepo(ctx context.Context, name, tag string, create bool) (*call, error) {
	if rs.refs == nil {
		return nil, core.NotFound{Kind: "service", ID: "refs"}
	}
	if fact := repoName("repo", name); fact != nil {
		return nil, fact
	}
	// The tag says the partition, so each call about a repository that was made with one names it.
	if fact := TextUpTo("tag", tag, "tag_bytes", rs.s.Limits.TagBytes); fact != nil {
		return nil, fact
	}
	c, err := rs.s.begin(ctx, create)
	if edge.UnknownNamespace(err) {
		return nil, noRepo(name)
	}
	if err != nil {
		return nil, err
	}
	// A token may be for some repositories only: all others are not there for it.
	if !c.who.ReachesRepo(c.t.space, name) {
		return nil, noRepo(name)
	}
	c.t.part = c.t.repoAt(name, tag)
	return c, nil
}

// noRepo says that a repository is not there, or not for this caller, who is not told which.
func noRepo(name string) core.Fact {
	return core.RefRefused{Repo: name, Failures: []core.RefFailure{{Change: -1, Reason: core.RefRepoNotFound}}}
}

// CreateRepo makes a repository.
// A repetition with the same request id finds the repository that the first try made. Errors:
// RefRefused where the name is taken.
func (rs *RefService) CreateRepo(ctx context.Context, in *pb.CreateRepoRequest) (*pb.CreateRepoResponse, error) {
	config, fact := repoConfig(in.GetConfig())
	if fact != nil {
		return nil, edge.Within("config", fact)
	}
	request, fact := requestID(in.GetRequestId())
	if fact != nil {
		return nil, fact
	}
	c, err := rs.beginRepo(ctx, in.GetName(), in.GetTag(), true)
	if err != nil {
		return nil, err
	}
	op := &core.RepoCreate{Name: in.GetName(), Tag: in.GetTag(), Branch: in.GetDefaultBranch(), Config: config}
	if op.ID = core.RepoID(request); op.ID.IsZero() { // a repetition finds the repository by its id
		c.t.rand.Fill(op.ID[:])
	}
	commit := c.t.commitOf([]core.Op{op})
	commit.RequestID = request
	p, err := c.propose(ctx, commit)
	if err != nil {
		return nil, err
	}
	made := p.Results[0]
	if made.Refusal != nil {
		return nil, made.Refusal.Fact
	}
	at := AtOf(made, p.At)
	// As it is after the entry, which this node has or waits for.
	info, _, err := rs.refs.Repo(ctx, c.t.part, op.Name, readOptions(at.Index, true))
	if err != nil {
		return nil, err
	}
	return &pb.CreateRepoResponse{Repo: showRepo(&info), Replayed: made.Replayed || made.Ops[0].Replayed, At: ShowAt(at)}, nil
}

// requestID reads the id by which a repetition of a call is known. The zero id says that there is none.
func requestID(id []byte) (core.RequestID, core.Fact) { return randomID("request_id", id) }

// randomID reads an id of a caller's own from a field. The zero id says that there is none.
// It is 16 bytes; zero bytes only would be taken for none, so they are refused.
func randomID(field string, id []byte) (core.RequestID, core.Fact) {
	switch {
	case len(id) == 0:
		return core.RequestID{}, nil
	case len(id) != RequestIDBytes || bytes.Equal(id, make([]byte, RequestIDBytes)):
		return core.RequestID{}, edge.Invalid(field, "must be 16 random bytes")
	}
	return core.RequestID(id), nil
}

// GetRepo reads a repository.
func (rs *RefService) GetRepo(ctx context.Context, in *pb.GetRepoRequest) (*pb.GetRepoResponse, error) {
	c, err := rs.beginRepo(ctx, in.GetName(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	info, at, err := rs.refs.Repo(ctx, c.t.part, in.GetName(), readOptions(in.GetMinIndex(), in.GetStale()))
	if err != nil {
		return nil, err
	}
	return &pb.GetRepoResponse{Repo: showRepo(&info), At: ShowAt(at)}, nil
}

// ListRepos reads a page of repositories, by partition and name.
// A page may have fewer than it was asked for, or none, and a cursor all the same: the caller may not
// be shown all that were read.
func (rs *RefService) ListRepos(ctx context.Context, in *pb.ListReposRequest) (*pb.ListReposResponse, error) {
	if rs.refs == nil {
		return nil, core.NotFound{Kind: "service", ID: "refs"}
	}
	limit, fact := rs.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	cursor, fact := readCursor(in.GetCursor())
	if fact != nil {
		return nil, fact
	}
	c, err := rs.s.begin(ctx, false)
	if edge.UnknownNamespace(err) {
		return &pb.ListReposResponse{At: ShowAt(core.At{})}, nil
	}
	if err != nil {
		return nil, err
	}
	place, after, fact := readRepoCursor(cursor, c.t.parts)
	if fact != nil {
		return nil, fact
	}
	out := &pb.ListReposResponse{At: ShowAt(core.At{})}
	seen := 0 // of which the caller may not be shown all: a page may have fewer
	for ; place < max(c.t.parts, 1); place, after = place+1, "" {
		// One partition after the other: a page goes on where names end.
		list, at, err := rs.refs.Repos(ctx, c.t.in(place), after, limit-seen, in.GetDeleted(), readOptions(0, in.GetStale()))
		if err != nil {
			return nil, err
		}
		for i := range list {
			if c.who.ReachesRepo(c.t.space, list[i].Name) {
				out.Repos = append(out.Repos, showRepo(&list[i]))
			}
		}
		out.At = ShowAt(at)
		// The page is full. Deleted ones have no pages: there are few.
		if more := limit - seen; len(list) == more {
			if !in.GetDeleted() {
				out.Cursor = showPlaceCursor(place, []byte(list[len(list)-1].Name))
			}
			break
		}
		seen += len(list)
	}
	return out, nil
}

// UpdateRepo replaces the settings of a repository.
// All settings are replaced, those that are left out too. Errors: RefRefused;
// another version is refused.
func (rs *RefService) UpdateRepo(ctx context.Context, in *pb.UpdateRepoRequest) (*pb.UpdateRepoResponse, error) {
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	config, fact := repoConfig(in.GetConfig())
	if fact != nil {
		return nil, edge.Within("config", fact)
	}
	c, err := rs.beginRepo(ctx, in.GetName(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	op := &core.RepoSet{Name: in.GetName(), Branch: in.GetDefaultBranch(), Config: config, IfVersion: version}
	r, at, err := c.proposeOp(ctx, op)
	if err != nil {
		return nil, err
	}
	return &pb.UpdateRepoResponse{Version: r.Version, At: ShowAt(at)}, nil
}

// DeleteRepo frees the name of a repository, which can be brought back for a while.
// What it holds stays until it cannot be brought back any more.
func (rs *RefService) DeleteRepo(ctx context.Context, in *pb.DeleteRepoRequest) (*pb.DeleteRepoResponse, error) {
	version, fact := ifVersion(in.IfVersion)
	if fact != nil {
		return nil, fact
	}
	c, err := rs.beginRepo(ctx, in.GetName(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	r, at, err := c.proposeOp(ctx, &core.RepoDelete{Name: in.GetName(), IfVersion: version})
	if err != nil {
		return nil, err
	}
	return &pb.DeleteRepoResponse{Id: r.Refs.Repo.String(), At: ShowAt(at)}, nil
}

// UndeleteRepo brings a repository back.
// By its id, or by its name, of which the one that was deleted last counts. Errors: RefRefused where
// the name is taken by now.
func (rs *RefService) UndeleteRepo(ctx context.Context, in *pb.UndeleteRepoRequest) (*pb.UndeleteRepoResponse, error) {
	op := &core.RepoUndelete{Name: in.GetName()}
	if in.GetId() != "" {
		id, err := core.ParseRepoID(in.GetId())
		if err != nil {
			return nil, edge.Invalid("id", core.ErrRepoID.Error())
		}
		op.ID = id
	}
	c, err := rs.beginRepo(ctx, in.GetName(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	r, at, err := c.proposeOp(ctx, op)
	if err != nil {
		return nil, err
	}
	return &pb.UndeleteRepoResponse{Id: r.Refs.Repo.String(), At: ShowAt(at)}, nil
}

// refAdmin reports whether the caller sees hidden refs.
func (c *call) refAdmin() bool { return c.who.Scopes.Has(auth.RefAdmin) }

// GetRef reads one ref. A hidden one is not there.
// With peel, a symbolic ref has the id of what it finally points to.
func (rs *RefService) GetRef(ctx context.Context, in *pb.GetRefRequest) (*pb.GetRefResponse, error) {
	if rule := core.CheckRefName(in.GetName()); rule != "" {
		return nil, badRefName(in.GetRepo(), in.GetName(), rule)
	}
	c, err := rs.beginRepo(ctx, in.GetRepo(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	info, refs, at, err := rs.refs.Refs(
		ctx, c.t.part, in.GetRepo(), []string{in.GetName()}, in.GetPeel(), readOptions(in.GetMinIndex(), in.GetStale()))
	if err != nil {
		return nil, err
	}
	// A hidden ref and one that is not there have one answer.
	if refs[0].Name == "" || !c.refAdmin() && rs.refs.RefHidden(&info, in.GetName()) {
		f := core.RefFailure{Change: -1, Reason: core.RefNotFound, Name: in.GetName()}
		return nil, core.RefRefused{Repo: in.GetRepo(), Failures: []core.RefFailure{f}}
	}
	return &pb.GetRefResponse{Ref: ShowRef(&refs[0]), Rev: info.Stats.Rev, At: ShowAt(at)}, nil
}

// badRefName refuses the name of a ref, by the rule that it breaks.
func badRefName(repo, name, rule string) error {
	f := core.RefFailure{Change: -1, Reason: core.RefBadName, Name: name, Other: rule}
	return core.RefRefused{Repo: repo, Failures: []core.RefFailure{f}}
}

// maxRefNames bounds the names of one read: they are read while Apply waits.
const maxRefNames = 1000

// BatchGetRefs reads several refs of one instant.
// The answer has one entry for each name, in their order. One that is not there, or hidden, has a name
// alone.
func (rs *RefService) BatchGetRefs(ctx context.Context, in *pb.BatchGetRefsRequest) (*pb.BatchGetRefsResponse, error) {
	switch {
	case len(in.GetNames()) == 0:
		return nil, edge.Invalid("names", "must not be empty")
	case len(in.GetNames()) > maxRefNames:
		return nil, edge.TooLarge("names", "ref_names", maxRefNames)
	}
	c, err := rs.beginRepo(ctx, in.GetRepo(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	info, refs, at, err := rs.refs.Refs(
		ctx, c.t.part, in.GetRepo(), in.GetNames(), in.GetPeel(), readOptions(in.GetMinIndex(), in.GetStale()))
	if err != nil {
		return nil, err
	}
	out := &pb.BatchGetRefsResponse{Refs: make([]*pb.Ref, len(refs)), Rev: info.Stats.Rev, At: ShowAt(at)}
	for i := range refs {
		if refs[i].Name == "" || !c.refAdmin() && rs.refs.RefHidden(&info, refs[i].Name) {
			// Answers stand in the order of the names, so one that is not there keeps its place.
			refs[i] = core.Ref{Name: in.GetNames()[i]}
		}
		out.Refs[i] = ShowRef(&refs[i])
	}
	return out, nil
}

// Bounds of a frame of a list.
const (
	// A frame ends at either of them. listBytes counts names and targets, and a guess for the rest of
	// each.
	listRefs  = 1000
	listBytes = 256 * kib
)

// listing is a query as it was asked for.
type listing struct {
	q        core.RefQuery
	pointsAt core.ObjectID
	// limit is of the refs that are shown: where pointsAt leaves some out, the query has none.
	limit int
}

// listing reads which refs are asked for, and where a page goes on.
// Globs are judged by the node. Patterns and names are held to lengths here, since they are kept while
// refs are walked.
func (rs *RefService) listing(c *call, in *pb.ListRefsRequest) (l listing, fact core.Fact) {
	switch {
	case len(in.GetPrefix()) > core.MaxRefName:
		return l, edge.TooLarge("prefix", "ref_name_bytes", core.MaxRefName)
	case len(in.GetAfter()) > core.MaxRefName:
		return l, edge.TooLarge("after", "ref_name_bytes", core.MaxRefName)
	case len(in.GetGlobs()) > MaxListGlobs:
		return l, edge.TooLarge("globs", "ref_globs", MaxListGlobs)
	}
	for i, glob := range in.GetGlobs() {
		if len(glob) > core.MaxRefName {
			return l, edge.TooLarge(edge.Item("globs", i), "ref_name_bytes", core.MaxRefName)
		}
	}
	l.q = core.RefQuery{
		Repo: in.GetRepo(), Prefix: in.GetPrefix(), Globs: in.GetGlobs(), After: in.GetAfter(), Admin: c.refAdmin(),
	}
	l.limit = int(in.GetLimit())
	// The node can stop early only where every ref counts.
	if l.pointsAt, fact = objectID("points_at", in.GetPointsAt()); l.pointsAt.IsZero() {
		l.q.Limit = l.limit
	}
	if fact != nil {
		return l, fact
	}
	switch l.q.AfterRev = in.GetAfterRev(); {
	case in.AfterRev != nil && !in.GetMoved():
		return l, edge.Invalid("after_rev", "must not be set unless the order is that of changes")
	case in.GetMoved() && (in.AfterRev == nil) != (l.q.After == ""):
		return l, edge.Invalid("after_rev", "and after must be given together")
	case in.GetMoved():
		l.q.Limit, fact = rs.s.page(in.GetLimit())
	}
	return l, fact
}

// MovedPage is a page of refs, those first that were changed last. Partial says that not all refs were looked at.
type MovedPage struct {
	Refs    []core.Ref
	Rev     uint64 // of the repository
	Partial bool
	More    bool // the page is full
	At      core.At
}

// Moved reads such a page. It is ListRefs of that order for other doors.
func (rs *RefService) Moved(ctx context.Context, in *pb.ListRefsRequest) (page MovedPage, err error) {
	c, err := rs.beginRepo(ctx, in.GetRepo(), in.GetTag(), false)
	if err != nil {
		return page, err
	}
	l, fact := rs.listing(c, in)
	if fact != nil {
		return page, fact
	}
	var info core.RepoInfo
	info, page.Refs, page.Partial, page.At, err = rs.refs.MovedRefs(ctx, c.t.part, l.q, l.pointed, readOptions(in.GetMinIndex(), in.GetStale()))
	page.Rev, page.More = info.Stats.Rev, len(page.Refs) == l.q.Limit
	return page, err
}

// pointed reports whether a ref points where the listing asks for.
func (l *listing) pointed(r *core.Ref) bool {
	return l.pointsAt.IsZero() || r.ID == l.pointsAt || r.Peeled == l.pointsAt
}

// MaxListGlobs bounds the globs that a list of refs is asked for.
const MaxListGlobs = 64

// errEnough ends a list that is long enough.
var errEnough = core.Invalid{Field: "limit", Reason: "enough"}

// each calls fn for the refs of a listing.
// limit 0: unbounded.
func (rs *RefService) each(ctx context.Context, c *call, l listing, o core.ReadOptions, begin func(core.RepoInfo, core.At) error, fn func(*core.Ref) error) error {
	n := 0
	err := rs.refs.EachRef(ctx, c.t.part, l.q, o, begin, func(r core.Ref) error {
		if !l.pointed(&r) {
			return nil
		}
		if err := fn(&r); err != nil {
			return err
		}
		// An error is how a walk is ended; it does not leave this function.
		if n++; n == l.limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// EachRef calls begin with the repository, then fn for each of the refs that in asks for, all as of one instant. An error of theirs
// ends it, and is returned.
// It is ListRefs for other doors. The state that is read is held until it returns.
func (rs *RefService) EachRef(ctx context.Context, in *pb.ListRefsRequest, begin func(core.RepoInfo, core.At) error, fn func(*core.Ref) error) error {
	c, err := rs.beginRepo(ctx, in.GetRepo(), in.GetTag(), false)
	if err != nil {
		return err
	}
	l, fact := rs.listing(c, in)
	if fact != nil {
		return fact
	}
	return rs.each(ctx, c, l, readOptions(in.GetMinIndex(), in.GetStale()), begin, fn)
}

// ListRefs streams the refs of one instant.
// Frames have up to listRefs refs or about listBytes bytes. Errors: DeadlineExceeded for a reader that
// takes longer than listWait.
func (rs *RefService) ListRefs(in *pb.ListRefsRequest, ss grpc.ServerStreamingServer[pb.ListRefsResponse]) error {
	if in.GetMoved() {
		return rs.listMoved(in, ss)
	}
	c, err := rs.beginRepo(ss.Context(), in.GetRepo(), in.GetTag(), false)
	if err != nil {
		return err
	}
	l, fact := rs.listing(c, in)
	if fact != nil {
		return fact
	}
	ctx, cancel := context.WithTimeout(ss.Context(), listWait)
	defer cancel()
	// The first frame says where the answer stands, and is sent even without refs.
	frame, size, first := &pb.ListRefsResponse{}, 0, true
	flush := func() error {
		// A reader that is slow holds the state that is read, so the whole list has a time.
		if err := ctx.Err(); err != nil {
			return edge.FactOf(err, false)
		}
		err := ss.Send(frame)
		frame, size, first = &pb.ListRefsResponse{Rev: frame.GetRev()}, 0, false
		return err
	}
	err = rs.each(ctx, c, l, readOptions(in.GetMinIndex(), in.GetStale()), func(info core.RepoInfo, at core.At) error {
		frame.Rev, frame.At = info.Stats.Rev, ShowAt(at)
		return nil
	}, func(r *core.Ref) error {
		frame.Refs = append(frame.Refs, ShowRef(r))
		if size += 120 + len(r.Name) + len(r.Target); len(frame.Refs) >= listRefs || size >= listBytes {
			return flush()
		}
		return nil
	})
	if err == nil && (first || len(frame.GetRefs()) > 0) {
		err = flush()
	}
	return err
}

// listMoved sends a page of refs in the order of their changes, as one frame: it has at most MaxRefName bytes for each of 1,000 refs.
func (rs *RefService) listMoved(in *pb.ListRefsRequest, ss grpc.ServerStreamingServer[pb.ListRefsResponse]) error {
	page, err := rs.Moved(ss.Context(), in)
	if err != nil {
		return err
	}
	frame := &pb.ListRefsResponse{Rev: page.Rev, Partial: page.Partial, At: ShowAt(page.At)}
	for i := range page.Refs {
		frame.Refs = append(frame.Refs, ShowRef(&page.Refs[i]))
	}
	return ss.Send(frame)
}

// UpdateRefs applies a transaction.
// All changes, or with allow_partial each that may. Errors: RefRefused names each change that failed,
// up to MaxRefFailures; AlreadyExists where the request id was used for other changes.
func (rs *RefService) UpdateRefs(ctx context.Context, in *pb.UpdateRefsRequest) (*pb.UpdateRefsResponse, error) {
	c, err := rs.beginRepo(ctx, in.GetRepo(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	op := &core.RefTxn{
		Repo: in.GetRepo(), Tag: in.GetTag(), Message: in.GetMessage(), Partial: in.GetAllowPartial(), Via: core.ViaAPI,
	}
	if fact := c.t.refChanges(op, in.GetChanges()); fact != nil {
		return nil, fact
	}
	c.t.allow(op)
	commit := core.Commit{Partition: c.t.part, Principal: c.who.Name, Ops: []core.Op{op}}
	var fact core.Fact
	if commit.RequestID, fact = requestID(in.GetRequestId()); fact != nil {
		return nil, fact
	}
	if commit.Conditions, fact = c.t.conditions(in.GetConditions()); fact != nil {
		return nil, fact
	}
	// A transaction is of the partition of its repository; keys that it depends on must be there too.
	for i, check := range commit.Conditions {
		if c.t.partOfKey(check.Key) != c.t.part {
			return nil, edge.Belongs(edge.Item("conditions", i)+".key", int(c.t.partOfKey(check.Key).Index))
		}
	}
	// Conditions decide on the whole commit.
	if op.Partial && len(commit.Conditions) > 0 {
		return nil, edge.Invalid("allow_partial", "and conditions are mutually exclusive")
	}
	if fact := FitsLog(c.t.l, &commit); fact != nil {
		return nil, fact
	}
	// Last, since it may ask git.
	if err := rs.s.refFacts(ctx, c.t.part, op, nil); err != nil {
		return nil, err
	}
	p, err := c.proposeOnce(ctx, commit)
	if err != nil {
		return nil, err
	}
	r := p.Results[0]
	if r.Refusal != nil {
		return nil, r.Refusal.Fact
	}
	a := r.Ops[0].Refs
	return &pb.UpdateRefsResponse{
		Results: showChanged(a), Rev: a.Rev, Replayed: r.Replayed, At: ShowAt(AtOf(r, p.At)),
	}, nil
}

// ReadReflog reads the log of a ref, deleted or not.
// Newest first. With n or time it is one record, and RefRefused where there is none.
func (rs *RefService) ReadReflog(ctx context.Context, in *pb.ReadReflogRequest) (*pb.ReadReflogResponse, error) {
	if rule := core.CheckRefName(in.GetName()); rule != "" {
		return nil, badRefName(in.GetRepo(), in.GetName(), rule)
	}
	limit, fact := rs.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	before, fact := readLogCursor(in.GetCursor())
	if fact != nil {
		return nil, fact
	}
	one := in.N != nil || in.GetTime() != nil
	if in.N != nil && in.GetTime() != nil {
		return nil, edge.Invalid("time", "and n are mutually exclusive")
	}
	// One record may be any of the log, so all of it is read.
	read := limit
	if one {
		read = maxLogRead
	}
	c, err := rs.beginRepo(ctx, in.GetRepo(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	info, list, at, err := rs.refs.RefLog(
		ctx, c.t.part, in.GetRepo(), in.GetName(), before, read, readOptions(in.GetMinIndex(), in.GetStale()))
	if err != nil {
		return nil, err
	}
	// As if the ref had never been.
	if !c.refAdmin() && rs.refs.RefHidden(&info, in.GetName()) {
		list = nil
	}
	if one {
		if list = oneOf(in, list); list == nil {
			f := core.RefFailure{Change: -1, Reason: core.RefNotFound, Name: in.GetName()}
			return nil, core.RefRefused{Repo: in.GetRepo(), Failures: []core.RefFailure{f}}
		}
	}
	out := &pb.ReadReflogResponse{Entries: make([]*pb.RefLogEntry, len(list)), At: ShowAt(at)}
	for i := range list {
		out.Entries[i] = showRefLog(&list[i])
	}
	if !one && len(list) == limit {
		out.Cursor = showLogCursor(list[limit-1].Seq)
	}
	return out, nil
}

// ListActivity reads the logs of all refs together, newest first.
// Hidden refs are told of to who administers refs.
func (rs *RefService) ListActivity(ctx context.Context, in *pb.ListActivityRequest) (*pb.ListActivityResponse, error) {
	limit, fact := rs.s.page(in.GetLimit())
	if fact != nil {
		return nil, fact
	}
	q := core.ActivityQuery{Limit: limit}
	if q.Rev, q.Name, fact = readActivityCursor(in.GetCursor()); fact != nil {
		return nil, fact
	}
	c, err := rs.beginRepo(ctx, in.GetRepo(), in.GetTag(), false)
	if err != nil {
		return nil, err
	}
	if !c.refAdmin() {
		q.Hidden = rs.refs.RefHidden
	}
	list, partial, at, err := rs.refs.RefActivity(ctx, c.t.part, in.GetRepo(), q, readOptions(in.GetMinIndex(), in.GetStale()))
	if err != nil {
		return nil, err
	}
	out := &pb.ListActivityResponse{Moves: make([]*pb.RefMove, len(list)), Partial: partial, At: ShowAt(at)}
	for i := range list {
		out.Moves[i] = &pb.RefMove{Name: list[i].Name, Entry: showRefLog(&list[i])}
	}
	if len(list) == limit {
		out.Cursor = showActivityCursor(&list[limit-1])
	}
	return out, nil
}

// maxLogRead is the longest log there is.
const maxLogRead = 10_000

// oneOf picks name@{n} or name@{time}.
// n counts from the newest, which is 0. A time is that of the newest record which is not after it.
func oneOf(in *pb.ReadReflogRequest, list []core.RefLog) []core.RefLog {
	if in.N != nil {
		if n := int(in.GetN()); n < len(list) {
			return list[n : n+1]
		}
		return nil
	}
	until := core.ShardTimeOf(in.GetTime().AsTime())
	for i := range list {
		if list[i].Stamp <= until {
			return list[i : i+1]
		}
	}
	return nil
}
