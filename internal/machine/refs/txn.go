package refs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// keepStaged is how long after its packs were made durable a commit may name them. Nodes keep packs
// that no manifest names for longer than that.
const keepStaged core.Millis = 30 * 60 * 1000

// transaction is one RefTxn while it is applied. It judges all edits before it writes any, unless
// the op is partial.
type transaction struct {
	// The machine whose transaction it is, and where it reads and writes.
	m  *Machine
	tx core.Txn
	// c is the entry's context, with the commit that the op is in.
	c *core.ApplyContext
	// The op as it came; nothing in it is changed.
	op *core.RefTxn
	// The cache's entry: end changes it, and the machine notes that.
	repo *repo
	// via is the way by which the change came, which rules ask for.
	via core.Via
	// rev is the repository's revision if this transaction changes it.
	rev uint64

	// request is the id of the commit's request.
	request core.RequestID
	// task is the one that the commit completes, else the one that its fence names; zero: there is neither.
	task core.TaskHold
	// effects says that the commit completes task.
	effects bool

	// Room of the machine. With Partial it holds one edit at a time.
	edits []edit
	// dirs has the counts of directories that changed.
	dirs map[string]int64
	// failures are those of the edits, at most core.MaxRefFailures.
	failures []core.RefFailure
	// created is the number of refs made less those deleted.
	created int64
	// wrote says that something was written, so that the counters must be.
	wrote bool
	// head is what HEAD points to, with headSet.
	head string
	// headSet says that the transaction wrote HEAD.
	headSet bool
}

// change is what an edit does to its ref. changeNone is for an edit that failed, only verifies, or
// sets what is there.
type change uint8

const (
	// Nothing is written.
	changeNone change = iota
	// The ref was not there before.
	changeCreate
	// It has another id or target afterwards.
	changeUpdate
	// It is not there afterwards.
	changeDelete
)

// edit is a change of the transaction, resolved: which ref it is finally about, and what becomes of it.
type edit struct {
	// change is the position in the transaction.
	change int
	// The ref that it is about: the change's own name, or where symbolic refs lead.
	name string
	// links are the symbolic refs on the way there, and HEAD if it points here.
	links []link
	// cur is the ref's row before, if it exists.
	cur row
	// Whether there was a ref, and what the edit does to it.
	exists bool
	what   change
	// The row after; without its revision and numbers until write gives them.
	next row
	// old and new are what is logged and answered: what a symbolic ref finally points to.
	old, new core.ObjectID
	// It is refused: nothing is written for it.
	failed bool
	// failure says why the edit failed, with failed.
	failure core.RefFailure
}

// link is a symbolic ref whose log records the change of what it points to.
type link struct {
	// Name of the symbolic ref.
	name string
	// Its row before the change.
	row row
}

// named is a name that a change takes for itself. No two changes of a transaction may take the same.
type named struct {
	// The name of a ref, as it is stored.
	name string
	// change is an index into the transaction's edits.
	change int
}

// transact judges a transaction and applies it. An op that names an id is refused when the name now
// stands for another repository.
func (m *Machine) transact(tx core.Txn, c *core.ApplyContext, op *core.RefTxn) (*core.RefsAnswer, core.Fact, error) {
	if fact := checkTxn(op); fact != nil {
		return nil, fact, nil
	}
	r, err := m.find(tx, op.Repo)
	if err != nil {
		return nil, nil, err
	}
	if r == nil || !op.ID.IsZero() && op.ID != r.ID {
		return nil, refused(op.Repo, core.RefRepoNotFound), nil
	}
	t := &transaction{m: m, tx: tx, c: c, op: op, repo: r, rev: r.stats.Rev + 1, edits: m.edits[:0]}
	t.takeCause(c.Commit)
	defer func() { m.edits = t.edits[:0] }()
	fact, err := t.admit()
	if fact != nil || err != nil {
		return nil, fact, err
	}
	a := &core.RefsAnswer{Repo: r.ID, Changes: make([]core.RefResult, len(op.Changes))}
	if op.Partial {
		err = t.each(a)
	} else {
		fact, err = t.all(a)
	}
	if fact != nil || err != nil {
		return nil, fact, err
	}
	if err := t.end(); err != nil {
		return nil, nil, err
	}
	a.Rev = r.stats.Rev
	return a, nil, nil
}

// takeCause takes in for which task, and by which way, the commit changes refs. A completion makes
// the changes its effects, whatever else is in the commit.
func (t *transaction) takeCause(c *core.Commit) {
	t.via = core.ViaAPI
	if t.op.Via == core.ViaPush {
		t.via = core.ViaPush
	}
	if c == nil {
		return
	}
	t.request = c.RequestID
	if c.Fence != nil {
		t.task = core.TaskHold(*c.Fence)
	}
	for _, op := range c.Ops {
		if done, ok := op.(*core.TaskComplete); ok {
			t.task, t.effects, t.via = core.TaskHold{Task: done.Task, Token: done.Token}, true, core.ViaEffects
			return
		}
	}
}

// admit judges what concerns the transaction as a whole: the state of the repository, whether the
// proposer's checks are of the current epoch, and the packs that it brings.
func (t *transaction) admit() (core.Fact, error) {
	changes := slices.ContainsFunc(t.op.Changes, func(c core.RefChange) bool { return !verifies(c.Kind) })
	// A repository that is being imported takes changes through the API alone.
	state := t.repo.Config.State
	switch {
	case changes && (state == core.RepoArchived || state == core.RepoImporting && t.via != core.ViaAPI):
		return refused(t.op.Repo, core.RefRepoReadOnly), nil
	case t.op.Epoch != t.repo.stats.Epoch:
		return refused(t.op.Repo, core.RefCheckStale), nil
	case len(t.op.Packs) == 0:
		return nil, nil
	case t.op.StagedAt.Add(keepStaged) < t.c.Stamp:
		return refused(t.op.Repo, core.RefPackExpired), nil
	}
	// Packs that are in the manifest already, by a push before, take no room.
	var bytes, packs int64
	for i := range t.op.Packs {
		p := &t.op.Packs[i]
		if _, ok, err := t.tx.Get(keys.Pack(t.m.p, t.repo.ID, p.Digest)); err != nil {
			return nil, err
		} else if !ok {
			packs++
			bytes += p.Bytes + p.IdxBytes
		}
	}
	switch {
	case t.repo.stats.Packs+packs > t.m.o.MaxPacks:
		return core.Exhausted{Limit: "packs", Max: t.m.o.MaxPacks}, nil
	case packs > 0 && t.repo.stats.Bytes+bytes > t.repo.Config.MaxBytes:
		return core.Exhausted{Limit: "max_bytes", Max: t.repo.Config.MaxBytes}, nil
	}
	return nil, nil
}

// all applies every change, or refuses the transaction with all that fail. Every edit is judged
// against the state before, so that their order means nothing.
func (t *transaction) all(a *core.RefsAnswer) (core.Fact, error) {
	ops := t.op.Changes
	t.edits = slices.Grow(t.edits, len(ops))
	for i := range ops {
		t.edits = append(t.edits, edit{change: i, name: ops[i].Name})
		if err := t.resolve(&t.edits[i], &ops[i]); err != nil {
			return nil, err
		}
	}
	names := t.names()
	t.duplicates(names)
	if slices.ContainsFunc(t.edits, func(e edit) bool { return !e.exists && !e.failed }) && len(names) > 1 {
		t.conflicts(names)
	}
	created := int64(0)
	for i := range t.edits {
		e := &t.edits[i]
		if err := t.judge(e, &ops[e.change]); err != nil {
			return nil, err
		}
		if e.what == changeCreate {
			created++
		}
	}
	// Failures beyond the bound are left out; the first decide what the client is told.
	for i := range t.edits {
		if e := &t.edits[i]; e.failed && len(t.failures) < core.MaxRefFailures {
			t.failures = append(t.failures, e.failure)
		}
	}
	if len(t.failures) > 0 {
		return core.RefRefused{Repo: t.op.Repo, Failures: t.failures}, nil
	}
	if created > 0 && t.repo.stats.Refs+created > t.m.o.MaxRefs {
		return core.Exhausted{Limit: "refs", Max: t.m.o.MaxRefs}, nil
	}
	for i := range t.edits {
		e := &t.edits[i]
		if err := t.write(e, &ops[e.change]); err != nil {
			return nil, err
		}
		a.Changes[i] = core.RefResult{Old: e.old, New: e.new}
	}
	return nil, nil
}

// each applies those changes that may be applied, one after another: a later one sees what an
// earlier one did. No name may be taken twice here either.
func (t *transaction) each(a *core.RefsAnswer) error {
	taken := map[string]int{}
	for i := range t.op.Changes {
		c := &t.op.Changes[i]
		e := edit{change: i, name: c.Name}
		if err := t.resolve(&e, c); err != nil {
			return err
		}
		// One edit at a time: each is judged on what those before it wrote.
		t.edits = append(t.edits[:0], e)
		names := t.names()
		for _, n := range names {
			if _, ok := taken[n.name]; ok && !t.edits[0].failed {
				t.fail(&t.edits[0], core.RefFailure{Reason: core.RefDuplicate, Name: n.name})
			}
		}
		p := &t.edits[0]
		if err := t.judge(p, c); err != nil {
			return err
		}
		if p.what == changeCreate && !p.failed && t.repo.stats.Refs+t.created >= t.m.o.MaxRefs {
			t.fail(p, core.RefFailure{Reason: core.RefLimit, Name: p.name, Other: "refs"})
		}
		if p.failed {
			failure := p.failure
			a.Changes[i].Failure = &failure
			continue
		}
		// Names are taken only by changes that were applied.
		for _, n := range names {
			taken[n.name] = i
		}
		if err := t.write(p, c); err != nil {
			return err
		}
		a.Changes[i] = core.RefResult{Old: p.old, New: p.new}
	}
	return nil
}

// fail marks an edit as failed, by its first reason.
func (t *transaction) fail(e *edit, f core.RefFailure) {
	f.Change = e.change
	e.failed, e.failure, e.what = true, f, changeNone
}

// names lists, in order, the names that the edits take: their own, those of symbolic refs on the
// way, and HEAD when what it points to changes.
func (t *transaction) names() []named {
	head := t.currentHead()
	out := make([]named, 0, len(t.edits)+1)
	for i := range t.edits {
		e := &t.edits[i]
		if e.failed {
			continue
		}
		out = append(out, named{e.name, i})
		for _, l := range e.links {
			out = append(out, named{l.name, i})
		}
		if e.name == head && !slices.ContainsFunc(e.links, func(l link) bool { return l.name == "HEAD" }) {
			out = append(out, named{"HEAD", i})
		}
	}
	if !slices.IsSortedFunc(out, func(a, b named) int { return strings.Compare(a.name, b.name) }) {
		slices.SortFunc(out, func(a, b named) int {
			if c := strings.Compare(a.name, b.name); c != 0 {
				return c
			}
			return a.change - b.change
		})
	}
	return out
}

// currentHead is what HEAD points to: before the transaction, or, where changes come one after another, now.
func (t *transaction) currentHead() string {
	if t.headSet && t.op.Partial {
		return t.head
	}
	return t.repo.head
}

// duplicates fails every change except the first one that takes a name. names is in order of name
// and then of change.
func (t *transaction) duplicates(names []named) {
	for i := 1; i < len(names); i++ {
		if e := &t.edits[names[i].change]; names[i].name == names[i-1].name && names[i].change != names[i-1].change && !e.failed {
			t.fail(e, core.RefFailure{Reason: core.RefDuplicate, Name: names[i].name})
		}
	}
}

// get reads a ref as the transaction sees it, with its own writes.
func (t *transaction) get(name string) (row, bool, error) {
	b, ok, err := t.tx.Get(keys.Ref(t.m.p, t.repo.ID, name))
	if err != nil || !ok {
		return row{}, false, err
	}
	r, err := decodeRow(b)
	if err != nil {
		return row{}, false, errs.Corruptf("ref %q of repository %s: %x", name, t.repo.ID, b)
	}
	return r, true, nil
}

// end writes what is written once per transaction: directories, the manifest and the counters. A
// transaction that changed no ref writes nothing, and its packs do not enter the manifest.
func (t *transaction) end() error {
	if !t.wrote {
		return nil
	}
	t.m.note(t.repo.Name)
	t.writeDirs()
	s := &t.repo.stats
	for i := range t.op.Packs {
		if err := t.addPack(&t.op.Packs[i]); err != nil {
			return err
		}
	}
	s.Rev, s.Refs = t.rev, s.Refs+t.created
	if t.headSet {
		t.repo.head = t.head
	}
	t.tx.Set(keys.RepoStats(t.m.p, t.repo.ID), core.AppendRepoStats(nil, s))
	return nil
}

// addPack enters a pack in the manifest, unless it is there.
func (t *transaction) addPack(p *core.Pack) error {
	key := keys.Pack(t.m.p, t.repo.ID, p.Digest)
	if _, ok, err := t.tx.Get(key); err != nil || ok {
		return err
	}
	line := core.PackLine{Pack: *p, Stamp: t.c.Stamp, Index: t.c.Index}
	t.tx.Set(key, core.AppendPackLine(nil, &line))
	s := &t.repo.stats
	s.Packs, s.Bytes, s.Manifest = s.Packs+1, s.Bytes+p.Bytes+p.IdxBytes, s.Manifest+1
	return nil
}

// checkPack judges the shape of a pack that will enter a manifest. field names it in the refusal.
func checkPack(field string, p *core.Pack, kind core.PackKind) core.Fact {
	if p.Bytes <= 0 || p.IdxBytes <= 0 || p.Objects < 0 || p.Kind != kind {
		return core.Invalid{Field: field, Reason: "pack_invalid", Message: "a pack has sizes and the kind of what adds it"}
	}
	return nil
}

// checkTxn judges the shape of a transaction, whatever is stored.
func checkTxn(op *core.RefTxn) core.Fact {
	switch {
	case len(op.Changes) > core.MaxRefChanges:
		return core.TooLarge{Field: "changes", Limit: "ref_changes", Max: core.MaxRefChanges}
	case len(op.Message) > core.MaxRefMessage:
		return core.TooLarge{Field: "message", Limit: "ref_message_bytes", Max: core.MaxRefMessage}
	case len(op.Packs) > core.MaxTxnPacks:
		return core.TooLarge{Field: "packs", Limit: "transaction_packs", Max: core.MaxTxnPacks}
	case len(op.Options) > core.MaxPushOption:
		return core.TooLarge{Field: "options", Limit: "push_options", Max: core.MaxPushOption}
	}
	for i := range op.Packs {
		if fact := checkPack("packs", &op.Packs[i], core.PackPush); fact != nil {
			return fact
		}
	}
	for i, s := range op.Options {
		if len(s) > core.MaxRefMessage {
			return core.TooLarge{Field: fmt.Sprintf("options[%d]", i), Limit: "push_option_bytes", Max: core.MaxRefMessage}
		}
	}
	for i := range op.Changes {
		if fact := checkChange(i, &op.Changes[i]); fact != nil {
			return fact
		}
	}
	return nil
}

// checkChange judges the shape of change i: what its kind must have and must not have.
func checkChange(i int, c *core.RefChange) core.Fact {
	invalid := func(field, reason, message string) core.Fact {
		return core.Invalid{Field: fmt.Sprintf("changes[%d].%s", i, field), Reason: reason, Message: message}
	}
	if len(c.Message) > core.MaxRefMessage {
		return core.TooLarge{
			Field: fmt.Sprintf("changes[%d].message", i), Limit: "ref_message_bytes", Max: core.MaxRefMessage,
		}
	}
	symbolic := c.Kind >= core.OpSymrefUpdate
	switch {
	case c.Kind < core.OpRefCreate || c.Kind > core.OpSymrefVerify:
		return invalid("kind", "unknown", "not a kind of change")
	case symbolic != (c.Target != "" || c.HasOldTarget) && !symbolic:
		return invalid("target", "contradiction", "only a symbolic ref has a target")
	case symbolic && !c.New.IsZero():
		return invalid("new", "contradiction", "a symbolic ref has a target in its place")
	case c.HasOld && c.HasOldTarget:
		return invalid("old_target", "contradiction", "there is an old id already")
	case !c.HasOld && !c.Old.IsZero(), !c.HasOldTarget && c.OldTarget != "":
		return invalid("old", "contradiction", "an old value is given and not compared")
	case c.Type > core.ObjectTag || c.Ancestry > core.Forced:
		return invalid("type", "unknown", "not a type of an object")
	}
	switch c.Kind {
	case core.OpRefCreate:
		if c.New.IsZero() || c.HasOld {
			return invalid("new", "contradiction", "a ref is made with an id, and was not there before")
		}
	case core.OpRefDelete:
		if !c.New.IsZero() || c.HasOld && c.Old.IsZero() {
			return invalid("old", "contradiction", "a ref that is deleted has an id, and gets none")
		}
	case core.OpRefVerify, core.OpSymrefVerify:
		if !c.New.IsZero() || c.Kind == core.OpSymrefVerify && c.Target != "" {
			return invalid("new", "contradiction", "a ref that is verified does not change")
		}
	case core.OpSymrefUpdate, core.OpSymrefCreate:
		if rule := checkTarget(c.Target); rule != "" {
			return invalid("target", "ref_name", rule)
		}
		if c.Kind == core.OpSymrefCreate && (c.HasOld || c.HasOldTarget) {
			return invalid("old", "contradiction", "a ref that is made was not there before")
		}
	case core.OpSymrefDelete:
		if c.Target != "" || c.HasOld || c.HasOldTarget && c.OldTarget == "" {
			return invalid("old_target", "contradiction", "a symbolic ref that is deleted has a target, and gets none")
		}
	}
	return nil
}

// checkTarget returns the rule that the target of a symbolic ref breaks; empty: none.
func checkTarget(target string) string {
	if rule := core.CheckRefName(target); rule != "" {
		return rule
	}
	if target == "HEAD" {
		return "it is not below refs/"
	}
	return ""
}

// verifies reports whether a kind of change only compares.
func verifies(kind core.OpKind) bool { return kind == core.OpRefVerify || kind == core.OpSymrefVerify }
