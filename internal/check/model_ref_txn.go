package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
)

// refWhy are the reasons that stand against a change; several may, and which one is told is not laid down.
type refWhy map[core.RefReason]bool

// refEdit is a change of a transaction: the ref that it is finally about, and every name that it takes.
type refEdit struct {
	c     *core.RefChange
	name  string
	takes []string
	deep  bool // it goes through too many symbolic refs
}

// refDoor is who moves refs, and through what.
type refDoor struct {
	op        *core.RefTxn
	via       core.Via
	principal string
	queue     string // of the task whose completion it is
}

func (m *Model) refTxn(p *part, c *core.Commit, op *core.RefTxn, a answer, id core.RepoID, r *repository) error {
	if len(op.Changes) > core.MaxRefChanges || slices.ContainsFunc(op.Changes, oddChange) {
		return judgeOdd(op, a)
	}
	if r == nil || !op.ID.IsZero() && op.ID != id {
		return judgeRepo(repoRefused(op.Repo, core.RefRepoNotFound), a)
	}
	d := refDoor{op: op, via: core.ViaAPI, principal: c.Principal}
	if op.Via == core.ViaPush {
		d.via = core.ViaPush
	}
	for _, o := range c.Ops {
		if done, ok := o.(*core.TaskComplete); ok {
			d.via = core.ViaEffects
			if t := p.tasks[done.Task]; t != nil {
				d.queue = t.create.Queue
			}
		}
	}
	if want := m.refsClosed(r, d); want != nil {
		return judgeRepo(want, a)
	}
	var next *repository
	var failed []refWhy
	if op.Partial {
		next, failed = r.oneByOne(d)
	} else {
		next, failed = r.together(d)
		if bad := count(failed); bad > 0 || a.fact != nil {
			return judgeFailures(op.Repo, failed, bad, a)
		}
	}
	if a.fact != nil {
		return fmt.Errorf("refused with %s, nothing stands against it", named(a.fact))
	}
	if next.rev != r.rev { // what changes nothing adds no pack
		for i := range op.Packs {
			next.packs[op.Packs[i].Digest] = op.Packs[i].Bytes
		}
	}
	if err := r.answered(next, op, failed, a); err != nil {
		return err
	}
	set(m, p.repos, id, next)
	return nil
}

// refsClosed is why a repository takes no change of this door.
func (m *Model) refsClosed(r *repository, d refDoor) core.Fact {
	changes := slices.ContainsFunc(d.op.Changes, func(c core.RefChange) bool {
		return c.Kind != core.OpRefVerify && c.Kind != core.OpSymrefVerify
	})
	switch {
	case changes && (r.config.State == core.RepoArchived || r.config.State == core.RepoImporting && d.via != core.ViaAPI):
		return repoRefused(d.op.Repo, core.RefRepoReadOnly)
	case d.op.Epoch != 0: // nothing raises it
		return repoRefused(d.op.Repo, core.RefCheckStale)
	case len(d.op.Packs) > 0 && d.op.StagedAt.Add(keepStagedPack) < m.stamp:
		return repoRefused(d.op.Repo, core.RefPackExpired)
	}
	return nil
}

// oddChange reports whether a change contradicts itself. Its fields are the edge's matter; only what a history holds is here.
func oddChange(c core.RefChange) bool {
	symbolic := c.Kind >= core.OpSymrefUpdate
	return c.Kind < core.OpRefCreate || c.Kind > core.OpSymrefVerify || !symbolic && (c.Target != "" || c.HasOldTarget) ||
		(c.Kind == core.OpSymrefUpdate || c.Kind == core.OpSymrefCreate) && (badRef(c.Target) || c.Target == "HEAD") ||
		c.Kind == core.OpRefCreate && (c.New.IsZero() || c.HasOld) || c.Kind == core.OpRefDelete && (!c.New.IsZero() || c.HasOld && c.Old.IsZero())
}

// value follows symbolic refs to an id; zero when there is none. from is a ref that is to be a symbolic one: a way back to
// it leads nowhere.
func (r *repository) value(name, from string) core.ObjectID {
	for range maxSymrefs + 1 {
		if name == from {
			return core.ObjectID{}
		}
		target, symbolic := r.targets[name]
		if !symbolic {
			return r.ids[name]
		}
		name = target
	}
	return core.ObjectID{}
}

func (r *repository) has(name string) bool {
	_, id := r.ids[name]
	_, symbolic := r.targets[name]
	return id || symbolic
}

func (r *repository) resolve(c *core.RefChange) refEdit {
	e := refEdit{c: c, name: c.Name, takes: []string{c.Name}}
	for c.Kind < core.OpSymrefUpdate && !c.NoDeref && r.targets[e.name] != "" {
		if len(e.takes) > maxSymrefs {
			e.deep = true
			return e
		}
		e.name = r.targets[e.name]
		e.takes = append(e.takes, e.name)
	}
	if r.targets["HEAD"] == e.name && !slices.Contains(e.takes, "HEAD") {
		e.takes = append(e.takes, "HEAD")
	}
	return e
}

func deletes(c *core.RefChange) bool {
	return c.Kind == core.OpSymrefDelete || c.Kind == core.OpRefDelete || c.Kind == core.OpRefUpdate && c.New.IsZero()
}

// changes reports whether an edit would leave its ref another one.
func (r *repository) changes(e refEdit) bool {
	switch {
	case e.c.Kind == core.OpRefVerify || e.c.Kind == core.OpSymrefVerify:
		return false
	case deletes(e.c):
		return r.has(e.name)
	case e.c.Kind >= core.OpSymrefUpdate:
		return r.targets[e.name] != e.c.Target
	}
	id, plain := r.ids[e.name]
	return !plain || id != e.c.New
}

func below(a, b string) bool { return strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") }

// against lists what stands against an edit, on the state as it is.
func (r *repository) against(e refEdit, d refDoor) refWhy {
	why := refWhy{}
	if badRef(e.c.Name) {
		return refWhy{core.RefBadName: true}
	}
	if e.deep {
		return refWhy{core.RefSymrefDepth: true}
	}
	hidden := func(name string) bool {
		return slices.ContainsFunc(r.config.Hide, func(glob string) bool { return globbed(glob, name) })
	}
	if !d.op.Admin && (hidden(e.c.Name) || hidden(e.name)) {
		why[core.RefHidden] = true
	}
	r.againstOld(e, why)
	if !r.has(e.name) {
		for name := range r.ids {
			why[core.RefConflict] = why[core.RefConflict] || below(name, e.name)
		}
		for name := range r.targets {
			why[core.RefConflict] = why[core.RefConflict] || below(name, e.name)
		}
	}
	if !r.changes(e) {
		return why.true()
	}
	if e.c.Kind < core.OpSymrefUpdate && !deletes(e.c) {
		why[core.RefObjectMissing] = e.c.Type == core.ObjectMissing
		branch := e.name == "HEAD" || strings.HasPrefix(e.name, "refs/heads/")
		why[core.RefObjectNotCommit] = branch && e.c.Type != core.ObjectMissing && e.c.Type != core.ObjectCommit
	}
	r.againstRules(e, d, why)
	return why.true()
}

// true drops reasons that were looked at and do not stand.
func (w refWhy) true() refWhy {
	for reason, stands := range w {
		if !stands {
			delete(w, reason)
		}
	}
	return w
}

// againstOld compares old values.
func (r *repository) againstOld(e refEdit, why refWhy) {
	c, exists, target := e.c, r.has(e.name), r.targets[e.name]
	verifies := c.Kind == core.OpRefVerify || c.Kind == core.OpSymrefVerify
	absent := c.Kind == core.OpRefCreate || c.Kind == core.OpSymrefCreate || c.HasOld && c.Old.IsZero() ||
		c.HasOldTarget && c.OldTarget == "" || verifies && !c.HasOld && !c.HasOldTarget
	if absent {
		why[core.RefExists] = exists
		return
	}
	why[core.RefMismatch] = c.HasOld && (!exists || r.value(e.name, "") != c.Old) || c.HasOldTarget && target != "" && target != c.OldTarget
	why[core.RefNotFound] = !exists && (c.Kind == core.OpRefDelete && !c.MissingOK && !c.HasOld || c.Kind == core.OpSymrefDelete || c.HasOldTarget)
	why[core.RefNotSymbolic] = exists && target == "" && (c.Kind == core.OpSymrefDelete || c.HasOldTarget)
}

// againstRules asks the rules of the repository, and those that are always there.
func (r *repository) againstRules(e refEdit, d refDoor, why refWhy) {
	exists := r.has(e.name)
	_, plain := r.ids[e.name]
	forced := plain && e.c.Kind < core.OpSymrefUpdate && !deletes(e.c) && (e.c.Ancestry != core.FastForward || e.c.Base != r.ids[e.name])
	why[core.RefScope] = forced && d.op.NoForce
	if d.via == core.ViaPush {
		why[core.RefProtected] = deletes(e.c) && r.targets["HEAD"] == e.name
		why[core.RefBadName] = !exists && e.name != "HEAD" && strings.Count(e.name, "/") < 2
	}
	kind := core.DenyUpdate
	switch {
	case deletes(e.c):
		kind = core.DenyDelete
	case !exists:
		kind = core.DenyCreate
	}
	for _, rule := range r.config.Rules {
		if !globbed(rule.Refs, e.name) || slices.Contains(rule.Except, d.principal) {
			continue
		}
		closed := rule.Only != core.ViaAny && (rule.Only != d.via || rule.Queue != "" && rule.Queue != d.queue)
		if rule.Deny&kind != 0 || forced && rule.Deny&core.DenyForce != 0 || closed {
			why[core.RefProtected] = true
		}
	}
}

// globbed matches by trying everything: * is any bytes but a slash, ** any.
func globbed(glob, name string) bool {
	switch {
	case glob == "":
		return name == ""
	case strings.HasPrefix(glob, "**"):
		return globbed(glob[2:], name) || name != "" && globbed(glob, name[1:])
	case glob[0] == '*':
		return globbed(glob[1:], name) || name != "" && name[0] != '/' && globbed(glob, name[1:])
	}
	return name != "" && name[0] == glob[0] && globbed(glob[1:], name[1:])
}

// move carries an edit out.
func (r *repository) move(e refEdit) {
	delete(r.ids, e.name)
	delete(r.targets, e.name)
	switch {
	case deletes(e.c):
	case e.c.Kind >= core.OpSymrefUpdate:
		r.targets[e.name] = e.c.Target
	default:
		r.ids[e.name] = e.c.New
	}
}

// together judges all changes on the state before, and against each other: all of them are carried out, or none is.
func (r *repository) together(d refDoor) (*repository, []refWhy) {
	edits, failed := make([]refEdit, len(d.op.Changes)), make([]refWhy, len(d.op.Changes))
	takers := map[string]int{}
	for i := range edits {
		edits[i] = r.resolve(&d.op.Changes[i])
		failed[i] = r.against(edits[i], d)
		if badRef(edits[i].c.Name) || edits[i].deep {
			continue // it is about no ref
		}
		for _, name := range edits[i].takes {
			takers[name]++
		}
	}
	for i, e := range edits {
		for name, n := range takers {
			if n > 1 && !badRef(e.c.Name) && slices.Contains(e.takes, name) {
				failed[i][core.RefDuplicate] = true
			}
			if !r.has(e.name) && below(name, e.name) {
				failed[i][core.RefTxnConflict] = true
			}
		}
	}
	next, changed := r.clone(), false
	for _, e := range edits {
		if r.changes(e) {
			next.move(e)
			changed = true
		}
	}
	if changed {
		next.rev++
	}
	return next, failed
}

// oneByOne carries out each change that may be, one after another. A name is taken once.
func (r *repository) oneByOne(d refDoor) (*repository, []refWhy) {
	next, failed, taken := r.clone(), make([]refWhy, len(d.op.Changes)), map[string]bool{}
	changed := false
	for i := range d.op.Changes {
		e := next.resolve(&d.op.Changes[i])
		failed[i] = next.against(e, d)
		if slices.ContainsFunc(e.takes, func(name string) bool { return taken[name] }) {
			failed[i][core.RefDuplicate] = true
		}
		if len(failed[i]) > 0 {
			continue
		}
		for _, name := range e.takes {
			taken[name] = true
		}
		if next.changes(e) {
			next.move(e)
			changed = true
		}
	}
	if changed {
		next.rev++
	}
	return next, failed
}

// count is how many changes have reasons against them.
func count(failed []refWhy) (n int) {
	for _, why := range failed {
		if len(why) > 0 {
			n++
		}
	}
	return n
}

// judgeFailures wants a refusal that names only what stands against the changes.
func judgeFailures(repo string, failed []refWhy, bad int, a answer) error {
	f, ok := a.fact.(core.RefRefused)
	if !ok || f.Repo != repo || bad == 0 || len(f.Failures) == 0 || len(f.Failures) > min(bad, core.MaxRefFailures) {
		return fmt.Errorf("%d changes have reasons against them, answered %s", bad, a)
	}
	for _, one := range f.Failures {
		if one.Change < 0 || one.Change >= len(failed) || !failed[one.Change][one.Reason] {
			return fmt.Errorf("change %d is said to fail for %s; against it stand %v", one.Change, one.Reason, failed)
		}
	}
	return nil
}

// answered compares what a transaction was answered with what it did.
func (r *repository) answered(next *repository, op *core.RefTxn, failed []refWhy, a answer) error {
	if a.blind {
		return nil
	}
	got := a.result.Refs
	if got == nil || got.Rev != next.rev || len(got.Changes) != len(op.Changes) {
		return fmt.Errorf("repository %q is at rev %d: answered %+v", op.Repo, next.rev, got)
	}
	for i, one := range got.Changes {
		if (one.Failure != nil) != (len(failed[i]) > 0) || one.Failure != nil && !failed[i][one.Failure.Reason] {
			return fmt.Errorf("change %d of %q: answered %+v, against it stand %v", i, op.Repo, one, failed[i])
		}
		c := &op.Changes[i]
		if one.Failure == nil && !deletes(c) && c.Kind != core.OpRefVerify && c.Kind < core.OpSymrefUpdate && one.New != c.New {
			return fmt.Errorf("change %d of %q: moved to %s, answered %s", i, op.Repo, c.New, one.New)
		}
		if one.Failure == nil && !op.Partial && one.Old != r.value(r.resolve(c).name, "") {
			return fmt.Errorf("change %d of %q: was at %s, answered %s", i, op.Repo, r.value(r.resolve(c).name, ""), one.Old)
		}
	}
	return nil
}

// AuditRefs compares the refs of a repository, as they are read back, with what they must be. A symbolic ref reads as its
// target. A repository that is absent, or deleted, is read as ok=false.
func (m *Model) AuditRefs(p core.Partition, repo string, got map[string]string, rev uint64, ok bool) error {
	_, r := m.part(p).live(repo)
	if r == nil || !ok {
		if r != nil || ok {
			return fmt.Errorf("repository %q is there: %v, it should be: %v", repo, ok, r != nil)
		}
		return nil
	}
	want := map[string]string{}
	for name, id := range r.ids {
		want[name] = id.String()
	}
	for name, target := range r.targets {
		want[name] = target
	}
	if rev != r.rev || len(got) != len(want) {
		return fmt.Errorf("repository %q reads as %d refs at rev %d, it has %d at %d", repo, len(got), rev, len(want), r.rev)
	}
	for name, at := range want {
		if got[name] != at {
			return fmt.Errorf("ref %q of %q reads as %q, it is at %q", name, repo, got[name], at)
		}
	}
	return nil
}

// AuditPacks compares what was read of a repository's manifest: the sizes of the pack files, by digest.
func (m *Model) AuditPacks(p core.Partition, repo string, got map[core.Digest]int64) error {
	_, r := m.part(p).live(repo)
	if r == nil || maps.Equal(got, r.packs) {
		return nil
	}
	return fmt.Errorf("the manifest of %q names %d packs, it has %d, or others", repo, len(got), len(r.packs))
}
