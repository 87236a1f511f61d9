package millrace

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// Repo is a git repository: its references, of which many can be moved in one transaction. Object ids are 40 lower-case
// hexadecimal digits; 40 zeros, or an empty text, mean no object.
type Repo struct {
	// name is the repository's; tag is the one that it was created with, or empty.
	c         *Client
	name, tag string
}

// Repo names a repository.
func (c *Client) Repo(name string) Repo { return Repo{c: c, name: name} }

// Tagged names a repository that was created with a tag, which says what partition it is in.
func (r Repo) Tagged(tag string) Repo {
	r.tag = tag
	return r
}

// place is the partition that the repository is in.
func (r Repo) place() int { return place.Repo(r.name, r.tag, r.c.hub.Partitions()) }

// RefUpdate is a transaction with all that can be said of one.
type RefUpdate struct {
	// Changes are at most 10,000, each of another ref.
	Changes      []RefChange
	Message      string // of changes that have none of their own
	AllowPartial bool   // each change stands alone; else it is all or nothing
}

// RefsUpdated is the answer to a transaction.
type RefsUpdated struct {
	Results  []RefResult // one per change
	Rev      uint64      // the repository's change counter
	Replayed bool        // it had been applied before, and nothing was done again
	// At is where the transaction stands in the log.
	At Place
}

// RefResult is what became of one change.
type RefResult struct {
	Old, New string // empty: it did not exist, or does not
	Err      *Error // with AllowPartial: why nothing happened
}

// Update applies changes in one transaction: all of them or none. A refusal is an *Error, whose Failures list all
// changes that failed.
func (r Repo) Update(ctx context.Context, changes ...RefChange) (RefsUpdated, error) {
	return r.Apply(ctx, RefUpdate{Changes: changes})
}

// Apply is Update with all that can be said of a transaction.
func (r Repo) Apply(ctx context.Context, u RefUpdate) (RefsUpdated, error) {
	req := &millracev1.UpdateRefsRequest{
		Repo: r.name, Tag: r.tag, Changes: wireChanges(u.Changes), Message: u.Message, AllowPartial: u.AllowPartial,
		RequestId: wire.Random16(),
	}
	var resp *millracev1.UpdateRefsResponse
	err := r.c.change(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.UpdateRefs(ctx, req)
		return err
	})
	if err != nil {
		return RefsUpdated{}, err
	}
	return updatedOf(resp.GetResults(), resp.GetRev(), resp.GetReplayed(), resp.GetAt()), nil
}

// updatedOf reads the answer to a transaction.
func updatedOf(results []*millracev1.RefChanged, rev uint64, replayed bool, at *millracev1.At) RefsUpdated {
	out := RefsUpdated{Results: make([]RefResult, len(results)), Rev: rev, Replayed: replayed, At: placeOf(at)}
	for i, r := range results {
		out.Results[i] = RefResult{Old: r.GetOld(), New: r.GetNew(), Err: fromWire(r.GetError())}
	}
	return out
}

// Ref is one reference: it has an ID, or a Target when it is symbolic.
type Ref struct {
	// Name is HEAD, or begins with refs/.
	Name string
	// ID is the object that the ref points to; empty for a symbolic ref.
	ID     string
	Type   string // commit, tree, blob or tag
	Peeled string // of a tag: what it finally points to
	// Target is the name of the ref that a symbolic one points to; empty for others.
	Target string
	Rev    uint64 // of the repository at its last change
}

// refTypes are the words for the types of objects, by their numbers in the contract.
var refTypes = [...]string{
	millracev1.Ref_COMMIT: "commit", millracev1.Ref_TREE: "tree", millracev1.Ref_BLOB: "blob", millracev1.Ref_TAG: "tag",
}

// refOf reads a ref of the contract. A type that is not known here is empty.
func refOf(r *millracev1.Ref) Ref {
	out := Ref{Name: r.GetName(), ID: r.GetId(), Peeled: r.GetPeeled(), Target: r.GetTarget(), Rev: r.GetRev()}
	if t := r.GetType(); t >= 0 && int(t) < len(refTypes) {
		out.Type = refTypes[t]
	}
	return out
}

// Get reads one ref. One that is not there is ErrNotFound.
func (r Repo) Get(ctx context.Context, name string, opts ...ReadOption) (Ref, error) {
	req := &millracev1.GetRefRequest{Repo: r.name, Tag: r.tag, Name: name, MinIndex: readOptionsOf(opts).minIndex}
	var resp *millracev1.GetRefResponse
	err := r.c.read(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.GetRef(ctx, req)
		return err
	})
	if err != nil {
		return Ref{}, err
	}
	return refOf(resp.GetRef()), nil
}

// RefSet is refs of one instant.
type RefSet struct {
	// Refs are in byte order of their names, or in the order that was asked for.
	Refs []Ref
	Rev  uint64 // of the repository
	At   Place
	// Partial is of a list by Moved: there are more refs than the 10,000 that one request looks at, which are those first by name.
	Partial bool
}

// BatchGet reads up to 1,000 refs of one instant, in the order of names. One that is not there has no ID and no Target.
func (r Repo) BatchGet(ctx context.Context, names []string, opts ...ReadOption) (RefSet, error) {
	req := &millracev1.BatchGetRefsRequest{Repo: r.name, Tag: r.tag, Names: names, Peel: true, MinIndex: readOptionsOf(opts).minIndex}
	var resp *millracev1.BatchGetRefsResponse
	err := r.c.read(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.BatchGetRefs(ctx, req)
		return err
	})
	if err != nil {
		return RefSet{}, err
	}
	out := RefSet{Refs: make([]Ref, len(resp.GetRefs())), Rev: resp.GetRev(), At: placeOf(resp.GetAt())}
	for i, ref := range resp.GetRefs() {
		out.Refs[i] = refOf(ref)
	}
	return out, nil
}

// RefQuery says which refs to list.
type RefQuery struct {
	// Prefix begins the names that are listed; empty: all.
	Prefix   string
	Globs    []string // any of these: * within a component, ** across
	PointsAt string   // an id, or what it peels to
	After    string   // names after this one
	Limit    int      // 0 = all
	// Moved lists those first that were changed last, those of one commit by name: at most 1,000 a page, 100 where Limit is 0. The next
	// page begins after the ref with the name After and the revision AfterRev.
	Moved    bool
	AfterRev uint64
}

// List reads refs of one instant, in byte order.
func (r Repo) List(ctx context.Context, q RefQuery, opts ...ReadOption) (RefSet, error) {
	var out RefSet
	err := r.c.read(ctx, r.place(), func(ctx context.Context) error {
		out = RefSet{}
		return r.each(ctx, q, opts, &out, func(ref Ref) error {
			out.Refs = append(out.Refs, ref)
			return nil
		})
	})
	return out, err
}

// Each calls fn for each ref of one instant, in byte order, until it returns an error, which Each returns. It returns the
// repository's change counter at that instant.
func (r Repo) Each(ctx context.Context, q RefQuery, fn func(Ref) error, opts ...ReadOption) (rev uint64, err error) {
	var out RefSet
	err = r.each(ctx, q, opts, &out, fn)
	return out.Rev, err
}

// each lists refs once, into fn, and sets Rev and At of out.
func (r Repo) each(ctx context.Context, q RefQuery, opts []ReadOption, out *RefSet, fn func(Ref) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &millracev1.ListRefsRequest{
		Repo: r.name, Tag: r.tag, Prefix: q.Prefix, Globs: q.Globs, PointsAt: q.PointsAt, After: q.After, Limit: uint32(q.Limit),
		MinIndex: readOptionsOf(opts).minIndex, Moved: q.Moved,
	}
	if q.Moved && q.After != "" {
		req.AfterRev = &q.AfterRev
	}
	stream, err := r.c.refs.ListRefs(ctx, req)
	if err != nil {
		return fromStatus(err)
	}
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fromStatus(err)
		}
		out.Rev = frame.GetRev()
		out.Partial = out.Partial || frame.GetPartial()
		if frame.GetAt() != nil {
			out.At = placeOf(frame.GetAt())
		}
		for _, ref := range frame.GetRefs() {
			if err := fn(refOf(ref)); err != nil {
				return err
			}
		}
	}
}

// RefLogEntry is one record of a ref's log.
type RefLogEntry struct {
	// Old and New are object ids; empty: there was none, or is none any more.
	Old, New             string
	OldTarget, NewTarget string // of a symbolic ref
	// Principal is who made the change: the subject of the token.
	Principal string
	Cause     string // request, push, timer or task
	Request   string // of a push or request that had an id
	// Task is the id of the task whose effects made the change.
	Task    string
	Message string
	Time    time.Time
	// Index is the place in the log, and Rev the repository's change counter after it.
	Index uint64
	Rev   uint64
}

// Reflog reads up to limit records of the log of a ref, deleted or not, newest first. limit is 1 to 1,000.
func (r Repo) Reflog(ctx context.Context, name string, limit int, opts ...ReadOption) ([]RefLogEntry, error) {
	return r.reflog(ctx, &millracev1.ReadReflogRequest{Name: name, Limit: uint32(limit), MinIndex: readOptionsOf(opts).minIndex})
}

// ReflogAt reads name@{n}: the record n before the newest.
func (r Repo) ReflogAt(ctx context.Context, name string, n uint32) (RefLogEntry, error) {
	return one(r.reflog(ctx, &millracev1.ReadReflogRequest{Name: name, N: &n}))
}

// ReflogBefore reads name@{time}: the newest record at that time.
func (r Repo) ReflogBefore(ctx context.Context, name string, t time.Time) (RefLogEntry, error) {
	return one(r.reflog(ctx, &millracev1.ReadReflogRequest{Name: name, Time: timestamppb.New(t)}))
}

// one returns the first of a list, which is ErrNotFound when it is empty.
func one(list []RefLogEntry, err error) (RefLogEntry, error) {
	if err != nil {
		return RefLogEntry{}, err
	}
	return list[0], nil
}

// reflog reads records of a ref's log, as the request says.
func (r Repo) reflog(ctx context.Context, req *millracev1.ReadReflogRequest) ([]RefLogEntry, error) {
	req.Repo, req.Tag = r.name, r.tag
	var resp *millracev1.ReadReflogResponse
	err := r.c.read(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.ReadReflog(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]RefLogEntry, len(resp.GetEntries()))
	for i, e := range resp.GetEntries() {
		out[i] = RefLogEntry{
			Old: e.GetOld(), New: e.GetNew(), OldTarget: e.GetOldTarget(), NewTarget: e.GetNewTarget(), Principal: e.GetPrincipal(),
			Cause: e.GetCause(), Request: e.GetRequest(), Task: e.GetTask(), Message: e.GetMessage(), Time: e.GetTime().AsTime(),
			Index: e.GetIndex(), Rev: e.GetRev(),
		}
	}
	return out, nil
}

// TxRepo changes refs of a repository within a Tx.
type TxRepo struct {
	tx        *Tx
	name, tag string
}

// Repo names a repository to change. All changes of one repository are one transaction of refs.
func (tx *Tx) Repo(name string) TxRepo { return TxRepo{tx: tx, name: name} }

// Tagged is Repo.Tagged.
func (r TxRepo) Tagged(tag string) TxRepo {
	r.tag = tag
	return r
}

// Update lets a ref point to another object, if it is at old, as MoveRef.
func (r TxRepo) Update(name, old, new string) { r.Apply(MoveRef(name, old, new)) }

// Apply adds changes.
func (r TxRepo) Apply(changes ...RefChange) {
	for _, op := range r.tx.ops {
		if t := op.GetRefTransaction(); t != nil && t.GetRepo() == r.name && t.GetTag() == r.tag {
			t.Changes = append(t.Changes, wireChanges(changes)...)
			return
		}
	}
	t := &millracev1.RefTransaction{Repo: r.name, Tag: r.tag, Changes: wireChanges(changes)}
	r.tx.ops = append(r.tx.ops, &millracev1.Op{Op: &millracev1.Op_RefTransaction{RefTransaction: t}})
}
