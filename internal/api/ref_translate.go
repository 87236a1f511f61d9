package api

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// refOps are the ops on refs. Updates of refs that do not move forward need ref:force too.
var refOps = []opRow{
	opOf(core.OpRefTxn, auth.RefWrite, func(t *Translator, in *pb.Op_RefTransaction) (core.Op, core.Fact) {
		return asOp(t.refTransaction(in.RefTransaction))
	}),
}

// refKinds maps the contract's kinds of change to the log's.
var refKinds = [...]core.OpKind{
	pb.RefChange_CREATE: core.OpRefCreate, pb.RefChange_UPDATE: core.OpRefUpdate, pb.RefChange_DELETE: core.OpRefDelete,
	pb.RefChange_VERIFY: core.OpRefVerify, pb.RefChange_SYMREF_CREATE: core.OpSymrefCreate,
	pb.RefChange_SYMREF_UPDATE: core.OpSymrefUpdate, pb.RefChange_SYMREF_DELETE: core.OpSymrefDelete,
	pb.RefChange_SYMREF_VERIFY: core.OpSymrefVerify,
}

// repoName holds names of repositories to their form.
func repoName(field, name string) core.Fact {
	if rule := core.CheckRepoName(name); rule != "" {
		return core.Invalid{Field: field, Reason: "bad_name", Message: rule}
	}
	return nil
}

// repoAt returns the partition of a repository.
func (t *Translator) repoAt(name, tag string) core.Partition {
	if !t.several() {
		return t.part
	}
	return t.in(int(core.PlaceRepo(name, tag, t.parts)))
}

// refTransaction reads an op of a commit, or an effect, facts included.
// Facts are looked up while the op is read: a commit waits for that at most lookupWait. Errors:
// RefRefused where the repository is not there for the caller.
func (t *Translator) refTransaction(in *pb.RefTransaction) (*core.RefTxn, core.Fact) {
	if fact := repoName("repo", in.GetRepo()); fact != nil {
		return nil, fact
	}
	if fact := TextUpTo("tag", in.GetTag(), "tag_bytes", t.l.TagBytes); fact != nil {
		return nil, fact
	}
	if !t.who.ReachesRepo(t.space, in.GetRepo()) {
		return nil, noRepo(in.GetRepo())
	}
	op := &core.RefTxn{Repo: in.GetRepo(), Tag: in.GetTag(), Message: in.GetMessage(), Via: core.ViaAPI}
	if fact := t.refChanges(op, in.GetChanges()); fact != nil {
		return nil, fact
	}
	t.allow(op)
	if t.edge.s == nil {
		return op, nil
	}
	p := t.repoAt(op.Repo, op.Tag)
	// A stream's own partition: place refuses the commit if the repository is in another one.
	if t.bound {
		p = t.part
	}
	// Not the caller's context: translation has none. The time is short.
	ctx, cancel := context.WithTimeout(t.edge.s.Life, lookupWait)
	defer cancel()
	return op, refFactOf(t.edge.s.refFacts(ctx, p, op, nil))
}

// refFactOf makes a refusal of an error.
// An error that is none for clients leaves as Unavailable.
func refFactOf(err error) core.Fact {
	if err == nil {
		return nil
	}
	var fact core.Fact
	if errors.As(edge.FactOf(err, false), &fact) {
		return fact
	}
	return core.Unavailable{Reason: "objects"}
}

// allow notes what the caller's scopes allow beyond writing.
// Apply judges by these bits, since it knows no tokens.
func (t *Translator) allow(op *core.RefTxn) {
	op.Admin = t.who.Scopes.Has(auth.RefAdmin)
	op.NoForce = !t.who.Scopes.Has(auth.RefForce)
}

// refChanges reads the changes of a transaction.
// op may have changes already, of messages before.
func (t *Translator) refChanges(op *core.RefTxn, in []*pb.RefChange) core.Fact {
	switch {
	case len(in) == 0:
		return edge.Invalid("changes", "must not be empty")
	case len(op.Changes)+len(in) > core.MaxRefChanges:
		return edge.TooLarge("changes", "ref_changes", core.MaxRefChanges)
	}
	if fact := refMessage("message", op.Message); fact != nil {
		return fact
	}
	if op.Changes == nil {
		op.Changes = make([]core.RefChange, 0, len(in))
	}
	for _, c := range in {
		// Changes of a transaction may come in several messages, and are counted through.
		i := len(op.Changes)
		op.Changes = append(op.Changes, core.RefChange{})
		if fact := readRefChange(&op.Changes[i], c); fact != nil {
			return edge.Within(edge.Item("changes", i), fact)
		}
	}
	return nil
}

// refMessage holds the message of a change, which stands in the log of the ref, to its length.
func refMessage(field, s string) core.Fact {
	return TextUpTo(field, s, "ref_message_bytes", core.MaxRefMessage)
}

// readRefChange reads one change. Names of refs are judged in Apply, all but their length: a failure
// there names the change by its reason.
func readRefChange(out *core.RefChange, in *pb.RefChange) core.Fact {
	kind := in.GetKind()
	if kind <= 0 || int(kind) >= len(refKinds) {
		return edge.Invalid("kind", "must be a kind of change")
	}
	for _, f := range [...]struct{ field, s string }{
		{"name", in.GetName()}, {"target", in.GetTarget()}, {"old_target", in.GetOldTarget()},
	} {
		if len(f.s) > 2*core.MaxRefName { // a name that is a little too long fails with the others, one much longer here
			return edge.TooLarge(f.field, "ref_name_bytes", core.MaxRefName)
		}
	}
	out.Kind, out.Name, out.Target = refKinds[kind], in.GetName(), in.GetTarget()
	out.NoDeref, out.MissingOK, out.Message = in.GetNoDeref(), in.GetMissingOk(), in.GetMessage()
	if fact := refMessage("message", in.GetMessage()); fact != nil {
		return fact
	}
	var fact core.Fact
	// An old value that is given and empty says that the ref must not be there.
	if in.Old != nil {
		out.HasOld = true
		if out.Old, fact = objectID("old", in.GetOld()); fact != nil {
			return fact
		}
	}
	if in.OldTarget != nil {
		out.HasOldTarget, out.OldTarget = true, in.GetOldTarget()
	}
	out.New, fact = objectID("new", in.GetNew())
	return fact
}

// objectID reads an id; an empty one is zero.
// It is 40 hexadecimal digits in lower case.
func objectID(field, s string) (core.ObjectID, core.Fact) {
	if s == "" {
		return core.ObjectID{}, nil
	}
	id, err := core.ParseObjectID(s)
	if err != nil {
		return id, core.Invalid{Field: field, Reason: "object_id", Message: core.ErrObjectID.Error()}
	}
	return id, nil
}

// Kinds of deny and doors.

// readDeny reads kinds of change that a rule denies, as bits.
func readDeny(in []pb.RefRule_Deny) (out core.Deny, fact core.Fact) {
	for _, d := range in {
		if d <= 0 || d > pb.RefRule_FORCE {
			return 0, edge.Invalid("deny", "must be a kind of change")
		}
		out |= 1 << (d - 1)
	}
	return out, nil
}

// repoConfig reads settings. What they may hold is judged in Apply.
// A nil one is the default.
func repoConfig(in *pb.RepoConfig) (out core.RepoConfig, fact core.Fact) {
	if in.GetState() < 0 || in.GetState() > pb.Repo_ARCHIVED {
		return out, edge.Invalid("state", "must be a state of a repository")
	}
	out = core.RepoConfig{
		State: core.RepoState(in.GetState()), Hide: in.GetHide(), ReflogDays: in.GetReflogDays(), ReflogMax: in.GetReflogMax(),
		MaxBytes: in.GetMaxBytes(), MaxPush: in.GetMaxPush(),
	}
	for i, r := range in.GetRules() {
		deny, fact := readDeny(r.GetDeny())
		if fact != nil {
			return out, edge.Within(edge.Item("rules", i), fact)
		}
		if r.GetOnly() < 0 || r.GetOnly() > pb.RefRule_EFFECTS {
			return out, edge.Invalid(edge.Item("rules", i)+".only", "must be any, api, push or effects")
		}
		out.Rules = append(out.Rules, core.RefRule{
			Refs: r.GetRefs(), Deny: deny, Except: r.GetExcept(), Only: core.Via(r.GetOnly()), Queue: r.GetQueue(),
		})
	}
	return out, nil
}

// showRepo shows a repository. Its default branch is shown without refs/heads/, as it is given.
func showRepo(r *core.RepoInfo) *pb.Repo {
	out := &pb.Repo{
		Name: r.Name, Id: r.ID.String(), Tag: r.Tag, Config: showRepoConfig(&r.Config), CreatedAt: TimeOf(r.CreatedAt),
		CreatedBy: r.CreatedBy, DeletedAt: TimeOf(r.DeletedAt), Rev: r.Stats.Rev, Refs: r.Stats.Refs, Packs: r.Stats.Packs,
		Bytes: r.Stats.Bytes,
	}
	const heads = "refs/heads/"
	if len(r.Head) > len(heads) && r.Head[:len(heads)] == heads {
		out.DefaultBranch = r.Head[len(heads):]
	}
	return out
}

// showRepoConfig shows the settings of a repository.
func showRepoConfig(c *core.RepoConfig) *pb.RepoConfig {
	out := &pb.RepoConfig{
		Version: c.Version, State: pb.Repo_State(c.State), Hide: c.Hide, ReflogDays: c.ReflogDays, ReflogMax: c.ReflogMax,
		MaxBytes: c.MaxBytes, MaxPush: c.MaxPush,
	}
	for _, r := range c.Rules {
		rule := &pb.RefRule{Refs: r.Refs, Except: r.Except, Only: pb.RefRule_Only(r.Only), Queue: r.Queue}
		for d := pb.RefRule_CREATE; d <= pb.RefRule_FORCE; d++ {
			if r.Deny&(1<<(d-1)) != 0 {
				rule.Deny = append(rule.Deny, d)
			}
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// ShowRef shows a ref.
// Empty texts stand for what a ref does not have: a symbolic ref may have no id, and others no target.
func ShowRef(r *core.Ref) *pb.Ref {
	return &pb.Ref{
		Name: r.Name, Id: showID(r.ID), Type: pb.Ref_Type(r.Type), Peeled: showID(r.Peeled), Target: r.Target, Rev: r.Rev,
	}
}

// showID shows an id, the zero one as an empty text.
func showID(id core.ObjectID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// causes are the names of what moved a ref.
var causes = [...]string{
	core.CauseRequest: "request", core.CausePush: "push", core.CauseTimer: "timer", core.CauseTask: "task",
}

// showRefLog shows a record of a ref's log.
func showRefLog(e *core.RefLog) *pb.RefLogEntry {
	out := &pb.RefLogEntry{
		Old: showID(e.Old), New: showID(e.New), OldTarget: e.OldTarget, NewTarget: e.NewTarget, Principal: e.Principal,
		Message: e.Message, Time: TimeOf(e.Stamp), Index: e.Index, Rev: e.Rev, Token: uint64(e.Token),
	}
	if int(e.Cause) < len(causes) {
		out.Cause = causes[e.Cause]
	}
	if e.Request != (core.RequestID{}) {
		out.Request = fmt.Sprintf("%x", e.Request[:])
	}
	if !e.Task.IsZero() {
		out.Task = e.Task.String()
	}
	return out
}

// showMoved shows what became of a transaction in a commit.
// nil: the op was none of refs, or a repetition whose answer is not kept.
func showMoved(a *core.RefsAnswer) *pb.RefsMoved {
	if a == nil || len(a.Changes) == 0 {
		return nil
	}
	out := &pb.RefsMoved{Rev: a.Rev, Changes: make([]*pb.RefMoved, len(a.Changes))}
	for i, c := range a.Changes {
		out.Changes[i] = &pb.RefMoved{Old: showID(c.Old), New: showID(c.New)}
	}
	return out
}

// showChanged shows what became of each change.
// In the order of the changes. One that failed alone has its error.
func showChanged(a *core.RefsAnswer) []*pb.RefChanged {
	out := make([]*pb.RefChanged, len(a.Changes))
	all := make([]pb.RefChanged, len(a.Changes))
	for i, c := range a.Changes {
		// One allocation for all of them: a transaction may have ten thousand.
		out[i] = &all[i]
		out[i].Old, out[i].New = showID(c.Old), showID(c.New)
		if c.Failure != nil {
			out[i].Error = edge.WireFailure(c.Failure)
		}
	}
	return out
}
