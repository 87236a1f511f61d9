package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// mark is the removal of a namespace that is under way.
type mark struct {
	id       uint64
	finished bool
	name     spaceName
}

type markName struct {
	tenant core.TenantID
	space  core.NamespaceID
}

// closing is what a partition knows of the removal of its namespace: the last number, and the last step under it.
type closing struct {
	id   uint64
	step core.PartitionStep // 0: none
}

func (c closing) shut() bool {
	return c.step == core.PartitionClose || c.step == core.PartitionClear
}

// shut judges a commit of a partition that takes none.
func (m *Model) shut(got *core.Result) error {
	if r := got.Refusal; r == nil || r.Op != core.CommitOp || r.Fact != (core.Unavailable{Reason: "namespace_removed"}) {
		return fmt.Errorf("the partition is closed: answered %s", describe(got))
	}
	return nil
}

// isStep reports whether c is a step of the removal of its partition's namespace.
func isStep(c *core.Commit) bool {
	return len(c.Ops) == 1 && c.Ops[0].Kind() == core.OpPartitionRemove
}

// mayRemove accepts the refusal of a removal under an older format.
func (m *Model) mayRemove(a answer) (judged bool, err error) {
	if m.rules >= core.FormatQueues {
		return false, nil
	}
	if f, ok := a.fact.(core.Invalid); ok && f.Reason == "not_supported" {
		return true, nil
	}
	return true, fmt.Errorf("an entry of format %d removed a namespace: answered %s", m.rules, a)
}

func isOvertaken(a answer) bool { return a.fact == core.Unavailable{Reason: "removal_overtaken"} }

// namespaceRemove judges the directory's part of a removal.
func (m *Model) namespaceRemove(op *core.NamespaceRemove, a answer) error {
	if judged, err := m.mayRemove(a); judged {
		return err
	}
	name := spaceName{op.Tenant, op.Name}
	if op.Step == core.RemovalBegin {
		return m.beginRemoval(name, op, a)
	}
	var tenant core.TenantID
	for other, ids := range m.spaces {
		if other.tenant == op.Tenant {
			tenant = ids.Tenant
		}
	}
	at := markName{tenant, op.Namespace}
	for k := range m.marks { // of a tenant that has no namespace left
		if m.marks[k].name.tenant == op.Tenant && k.space == op.Namespace {
			at = k
		}
	}
	k, marked := m.marks[at]
	fits := marked && k.id == op.ID && (op.Step == core.RemovalFinish || k.finished == (op.Step == core.RemovalForget))
	if a.fact != nil {
		if !fits && isOvertaken(a) {
			return nil
		}
		return fmt.Errorf("removal %d of %v, step %d: refused with %w, its mark is %+v", op.ID, name, op.Step, a.fact, k)
	}
	if !fits {
		return fmt.Errorf("removal %d of %v, step %d: applied, the mark is %+v", op.ID, name, op.Step, k)
	}
	switch op.Step {
	case core.RemovalFinish:
		if k.finished {
			return nil
		}
		k.finished = true
		set(m, m.marks, at, k)
		m.retire(k.name)
	case core.RemovalAbort, core.RemovalForget:
		drop(m, m.marks, at)
	}
	return nil
}

// retire takes a namespace out of the directory, and remembers its number.
func (m *Model) retire(name spaceName) {
	ids := m.spaces[name]
	drop(m, m.spaces, name)
	set(m, m.retired, markName{ids.Tenant, ids.Namespace}, name.tenant)
}

func (m *Model) beginRemoval(name spaceName, op *core.NamespaceRemove, a answer) error {
	if err := m.applied(op, a); err != nil || a.blind {
		return err
	}
	ids, there := m.spaces[name]
	there = there && (op.Namespace == 0 || op.Namespace == ids.Namespace)
	if a.result.Existed != there {
		return fmt.Errorf("removal of %v: existed is answered %v, it is %v", name, a.result.Existed, there)
	}
	if !there {
		return nil
	}
	if a.result.Version <= m.removals || a.result.Namespace != ids.Namespace {
		return fmt.Errorf("removal of %v, which is %d: got number %d of namespace %d, the last one was %d", name, ids.Namespace, a.result.Version, a.result.Namespace, m.removals)
	}
	was := m.removals
	m.change(func() { m.removals = was })
	m.removals = a.result.Version
	set(m, m.marks, markName{ids.Tenant, ids.Namespace}, mark{id: m.removals, name: name})
	return nil
}

// partitionRemove judges a step of a removal in a partition.
func (m *Model) partitionRemove(p *part, op *core.PartitionRemove, a answer) error {
	if judged, err := m.mayRemove(a); judged {
		return err
	}
	was := p.closing
	stale := op.ID == 0 || op.ID < was.id
	switch op.Step {
	case core.PartitionClose:
		stale = stale || op.ID == was.id && was.step == core.PartitionOpen || was.step == core.PartitionClear
	case core.PartitionOpen:
		stale = stale || was.step == core.PartitionClear
	case core.PartitionClear:
		stale = stale || was.step != core.PartitionClear && (was.step != core.PartitionClose || op.ID != was.id)
	}
	if isOvertaken(a) != stale {
		return fmt.Errorf("step %d of removal %d where %+v was: answered %s", op.Step, op.ID, was, a)
	}
	if stale {
		return nil
	}
	if f, ok := a.fact.(core.NotEmpty); ok && op.Step == core.PartitionClose && !was.shut() {
		return m.mayHold(p, f.Held)
	}
	if err := m.applied(op, a); err != nil {
		return err
	}
	if op.Step == core.PartitionClose && !was.shut() {
		if err := m.mayBeEmpty(p); err != nil {
			return err
		}
	}
	if was.step == core.PartitionClear {
		return nil
	}
	limiters := p.limiters
	m.change(func() { p.closing, p.limiters = was, limiters })
	if p.closing = (closing{op.ID, op.Step}); op.Step == core.PartitionClear {
		p.limiters = map[string]limiter{}
	}
	return nil
}

// mayHold judges what a partition was found to hold.
func (m *Model) mayHold(p *part, held []string) error {
	if len(held) == 0 {
		return errors.New("refused as not empty, and nothing is named")
	}
	for _, what := range held {
		var has bool
		switch what {
		case "tasks":
			for _, t := range p.tasks {
				has = has || slices.ContainsFunc(t.may, func(s standing) bool { return !s.gone })
			}
		case "crons":
			has = len(p.crons) > 0
		case "batches":
			for _, b := range p.batches {
				has = has || !b.sure || b.grounds
			}
		case "keys":
			has = p.hasKeys()
		case "repositories":
			has = len(p.repos) > 0
		case "collections":
			has = len(p.search.collections) > 0
		case "rulesets":
			has = len(p.search.rules) > 0
		}
		if !has {
			return fmt.Errorf("refused as it has %s, and it has none", what)
		}
	}
	return nil
}

// mayBeEmpty judges that a partition could be closed. Ended tasks may have been removed by their retention.
func (m *Model) mayBeEmpty(p *part) error {
	for id, t := range p.tasks {
		if !m.keep(p, t, func(s *standing) bool { return s.gone || s.state.Terminal() }) {
			return fmt.Errorf("closed, and task %s is there", id)
		}
	}
	if len(p.crons) > 0 {
		return errors.New("closed, and has crons")
	}
	for id, b := range p.batches {
		if !b.may {
			return fmt.Errorf("closed, and batch %s has not finished", id)
		}
	}
	if p.hasKeys() || len(p.search.collections) > 0 || len(p.search.rules) > 0 {
		return errors.New("closed, and has keys, collections or rulesets")
	}
	for _, r := range p.repos {
		if r.deleted == 0 { // one that was deleted goes in the end
			return fmt.Errorf("closed, and has the repository %s", r.name)
		}
	}
	return nil
}

func (p *part) hasKeys() bool {
	for _, space := range p.spaces {
		if len(space) > 0 {
			return true
		}
	}
	return false
}
