package refs

import (
	"fmt"

	"github.com/millrace/millrace/internal/core"
)

// maxDepth is the number of symbolic refs that are followed, as in git.
const maxDepth = 5

// resolve finds which ref a change is about, and reads it. A change of an id follows symbolic refs,
// unless it says not to; those on the way become links, whose logs record the change too. A bad
// name or a chain that is too long fails the edit.
func (t *transaction) resolve(e *edit, c *core.RefChange) (err error) {
	if rule := core.CheckRefName(c.Name); rule != "" {
		t.fail(e, core.RefFailure{Reason: core.RefBadName, Name: c.Name, Other: rule})
		return nil
	}
	if e.cur, e.exists, err = t.get(e.name); err != nil {
		return err
	}
	// Ops on symbolic refs are about the ref itself: nothing is followed.
	if c.Kind >= core.OpSymrefUpdate || c.NoDeref {
		return nil
	}
	for e.exists && e.cur.symbolic() {
		if len(e.links) == maxDepth {
			t.fail(e, core.RefFailure{Reason: core.RefSymrefDepth, Name: c.Name})
			return nil
		}
		e.links = append(e.links, link{e.name, e.cur})
		e.name = e.cur.target
		if e.cur, e.exists, err = t.get(e.name); err != nil {
			return err
		}
	}
	return nil
}

// value returns what a ref with that row finally points to; zero when that does not exist, or when
// the refs form a circle.
func (t *transaction) value(name string, r row, exists bool) (core.ObjectID, error) {
	for depth := 0; exists && r.symbolic(); depth++ {
		if depth == maxDepth || r.target == name { // a circle
			return core.ObjectID{}, nil
		}
		var err error
		if r, exists, err = t.get(r.target); err != nil {
			return core.ObjectID{}, err
		}
	}
	if !exists {
		return core.ObjectID{}, nil
	}
	return r.id, nil
}

// judge decides what an edit does, or why it fails. The order is fixed, because a client sees the
// first reason: hidden names, the old value, names above and below, the new object, and then rules.
func (t *transaction) judge(e *edit, c *core.RefChange) (err error) {
	// Resolving failed already, and the first reason counts.
	if e.failed {
		return nil
	}
	if e.old, err = t.value(e.name, e.cur, e.exists); err != nil {
		return err
	}
	// Until it is known to change, the ref has what it had.
	e.new = e.old
	if t.hidden(e, c) {
		t.fail(e, core.RefFailure{Reason: core.RefHidden, Name: c.Name})
		return nil
	}
	if c.Kind >= core.OpSymrefUpdate {
		t.judgeSymbolic(e, c)
	} else {
		t.judgeOld(e, c)
	}
	if e.failed {
		return nil
	}
	// Only a ref that is made can be in the way of others.
	if !e.exists {
		existing, err := t.conflict(e.name)
		if err != nil {
			return err
		}
		if existing != "" {
			t.fail(e, core.RefFailure{Reason: core.RefConflict, Name: e.name, Other: existing})
			return nil
		}
	}
	if e.what == changeNone {
		return nil
	}
	// What a symbolic ref leads to afterwards is logged, though no object of it is judged.
	if e.next.symbolic() {
		if e.new, err = t.value(e.name, e.next, true); err != nil {
			return err
		}
	} else if e.what != changeDelete && !t.judgeObject(e, c) {
		return nil
	}
	return t.judgeRules(e, c)
}

// judgeOld compares the old id, and decides what a change of an id does. A change to what the ref
// has already does nothing, and is not logged.
func (t *transaction) judgeOld(e *edit, c *core.RefChange) {
	// The change asks that the ref is not there: by its kind, or by an old id of zeros.
	absent := c.Kind == core.OpRefCreate || c.Kind == core.OpRefVerify && !c.HasOld || c.HasOld && c.Old.IsZero()
	switch {
	case absent && e.exists:
		t.fail(e, core.RefFailure{Reason: core.RefExists, Name: c.Name, Actual: e.old})
		return
	case !absent && c.HasOld && (!e.exists || e.old != c.Old):
		t.fail(e, core.RefFailure{Reason: core.RefMismatch, Name: c.Name, Expected: c.Old, Actual: e.old})
		return
	case c.Kind == core.OpRefDelete && !e.exists && !c.MissingOK:
		t.fail(e, core.RefFailure{Reason: core.RefNotFound, Name: c.Name})
		return
	}
	switch {
	case c.Kind == core.OpRefVerify:
	// An update to zeros is a deletion; of a ref that is not there it does nothing.
	case c.New.IsZero():
		if e.exists {
			e.what, e.new = changeDelete, core.ObjectID{}
		}
	case e.exists && !e.cur.symbolic() && e.cur.id == c.New:
	default:
		e.what, e.new = changeUpdate, c.New
		if !e.exists {
			e.what = changeCreate
		}
		e.next = row{id: c.New, kind: c.Type, peeled: c.Peeled}
	}
}

// judgeSymbolic compares the old target or the id that it leads to, and decides what a change of a
// symbolic ref does.
func (t *transaction) judgeSymbolic(e *edit, c *core.RefChange) {
	isLink := e.exists && e.cur.symbolic()
	// Likewise for a symbolic ref, whose old value may be a target or an id.
	absent := c.Kind == core.OpSymrefCreate || c.Kind == core.OpSymrefVerify && !c.HasOldTarget && !c.HasOld ||
		c.HasOldTarget && c.OldTarget == "" || c.HasOld && c.Old.IsZero()
	switch {
	case absent && e.exists:
		t.fail(e, core.RefFailure{Reason: core.RefExists, Name: c.Name, Actual: e.old, Other: e.cur.target})
		return
	case absent:
	case c.HasOld && (!e.exists || e.old != c.Old):
		t.fail(e, core.RefFailure{Reason: core.RefMismatch, Name: c.Name, Expected: c.Old, Actual: e.old})
		return
	case c.Kind == core.OpSymrefDelete && !e.exists, c.HasOldTarget && !e.exists:
		t.fail(e, core.RefFailure{Reason: core.RefNotFound, Name: c.Name})
		return
	case (c.Kind == core.OpSymrefDelete || c.HasOldTarget) && !isLink:
		t.fail(e, core.RefFailure{Reason: core.RefNotSymbolic, Name: c.Name, Actual: e.old})
		return
	case c.HasOldTarget && e.cur.target != c.OldTarget:
		t.fail(e, core.RefFailure{Reason: core.RefMismatch, Name: c.Name, Actual: e.old, Other: e.cur.target})
		return
	}
	switch {
	case c.Kind == core.OpSymrefVerify:
	case c.Kind == core.OpSymrefDelete:
		e.what, e.new = changeDelete, core.ObjectID{}
	case isLink && e.cur.target == c.Target:
	default:
		e.what, e.next = changeUpdate, row{target: c.Target}
		if !e.exists {
			e.what = changeCreate
		}
	}
}

// judgeObject judges the proposer's facts about the new object, since no object is read here. It
// returns false when the edit failed.
func (t *transaction) judgeObject(e *edit, c *core.RefChange) bool {
	switch {
	case c.Type == core.ObjectMissing:
		t.fail(e, core.RefFailure{Reason: core.RefObjectMissing, Name: c.Name, Expected: c.New})
	case core.IsBranch(e.name) && c.Type != core.ObjectCommit:
		t.fail(e, core.RefFailure{Reason: core.RefObjectNotCommit, Name: c.Name, Expected: c.New, Type: c.Type})
	default:
		return true
	}
	return false
}

// hidden reports whether a ref is one that the settings hide from all except admins.
func (t *transaction) hidden(e *edit, c *core.RefChange) bool {
	hide := t.repo.Config.Hide
	return len(hide) > 0 && !t.op.Admin && (matchAny(hide, c.Name) || matchAny(hide, e.name))
}

// judgeRules judges the limits of the way by which the change came, and then asks all rules that
// match the ref. All of them must agree.
func (t *transaction) judgeRules(e *edit, c *core.RefChange) error {
	// Whether it is forced is asked first: a principal that may not force is told so, whatever the rules say.
	forced := t.forced(e, c)
	if forced && t.op.NoForce {
		t.fail(e, core.RefFailure{Reason: core.RefScope, Name: c.Name, Other: "ref:force"})
		return nil
	}
	// These two hold for pushes alone: the API may do both.
	if t.via == core.ViaPush {
		if e.what == changeDelete && e.name == t.currentHead() {
			t.fail(e, core.RefFailure{Reason: core.RefProtected, Name: c.Name, Other: "being the default branch"})
			return nil
		}
		if e.what == changeCreate && oneLevel(e.name) {
			t.fail(e, core.RefFailure{Reason: core.RefBadName, Name: c.Name, Other: "it has one level below refs/"})
			return nil
		}
	}
	for i := range t.repo.Config.Rules {
		rule := &t.repo.Config.Rules[i]
		if !match(rule.Refs, e.name) {
			continue
		}
		ok, err := t.agrees(rule, e, forced)
		if err != nil {
			return err
		}
		if !ok {
			t.fail(e, core.RefFailure{Reason: core.RefProtected, Name: c.Name, Other: fmt.Sprintf("rule %d", i+1)})
			return nil
		}
	}
	return nil
}

// oneLevel reports whether a name lies directly below refs/.
func oneLevel(name string) bool { return name != "HEAD" && parent(name) == "refs" }

// agrees reports whether a rule lets a change pass. A principal that the rule excepts passes. A
// rule for effects of a queue asks which queue the task of the commit is in.
func (t *transaction) agrees(rule *core.RefRule, e *edit, forced bool) (bool, error) {
	for _, name := range rule.Except {
		if name == t.c.Principal {
			return true, nil
		}
	}
	// What the change is, as rules name it. A forced update is also an update.
	var kind core.Deny
	switch e.what {
	case changeCreate:
		kind = core.DenyCreate
	case changeUpdate:
		kind = core.DenyUpdate
	case changeDelete:
		kind = core.DenyDelete
	}
	if forced {
		kind |= core.DenyForce
	}
	if rule.Deny&kind != 0 {
		return false, nil
	}
	if rule.Only == core.ViaAny {
		return true, nil
	}
	// The only door of the ref is another one.
	if rule.Only != t.via {
		return false, nil
	}
	if rule.Queue == "" {
		return true, nil
	}
	// The commit completes no task, so no queue can have asked for it.
	if !t.effects {
		return false, nil
	}
	queue, err := t.c.QueueOf(t.task.Task)
	return queue == rule.Queue, err
}

// forced reports whether an update is not known to move a ref forward. The proposer's fact holds
// for the base that it looked at, so it counts only while that is what the ref is at.
func (t *transaction) forced(e *edit, c *core.RefChange) bool {
	if e.what != changeUpdate || e.next.symbolic() || e.cur.symbolic() {
		return false
	}
	return c.Ancestry != core.FastForward || c.Base != e.cur.id
}
