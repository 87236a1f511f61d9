//go:build mutants

package commit

import "github.com/millrace/millrace/internal/core"

// Names of the planted bugs of this package, as Options.Mutant is asked. Each breaks one promise; the suites must
// fail under each, or they prove nothing.
const (
	noFence                 = "no_fence"                       // a fence lets every token pass
	effectsInSecondEntry    = "effects_in_second_entry"        // what follows a completion waits for the next entry
	dedupLostOnRestart      = "dedup_lost_on_restart"          // what was answered before Open is done again
	idempotencyWithoutOwner = "idempotency_key_without_tenant" // one table of request ids for all tenants
	fencedTwice             = "fenced_request_applied_twice"   // a request id is not looked up where there is a fence
	requestAfterFence       = "request_id_after_fence"         // a repetition is judged by its fence before its request id
)

// mutantState is what planted bugs remember.
type mutantState struct {
	deferred []deferredOp
	first    uint64 // index of the first entry since Open
}

type deferredOp struct {
	part      *partition
	principal string
	op        core.Op
}

func (m *Machine) mutant(name string) bool { return m.o.Mutant != nil && m.o.Mutant(name) }

func (m *Machine) deferEffects(c *core.Commit) []core.Op {
	if !m.mutant(effectsInSecondEntry) {
		return c.Ops
	}
	for i, op := range c.Ops {
		if _, ok := op.(*core.TaskComplete); ok {
			for _, later := range c.Ops[i+1:] {
				m.mutants.deferred = append(m.mutants.deferred, deferredOp{m.parts[c.Partition], c.Principal, later})
			}
			return c.Ops[:i+1]
		}
	}
	return c.Ops
}

func (m *Machine) applyDeferred() error {
	if m.mutants.first == 0 {
		m.mutants.first = m.index
	}
	list := m.mutants.deferred
	m.mutants.deferred = nil
	for _, d := range list {
		m.touch(d.part)
		d.part.counts.rev++
		if _, _, err := m.op(d.part, d.principal, d.part.counts.rev, d.op); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) requestPartition(part *partition) core.Partition {
	if m.mutant(idempotencyWithoutOwner) {
		return core.Partition{}
	}
	return part.p
}

// forgetReplicas is a bug that the simulator finds: who comes gets the id of one that left.
func (m *Machine) forgetReplicas(d *core.Directory) {
	if m.o.Mutant != nil && m.o.Mutant("reused_replica_id") && len(d.Members) > 0 {
		d.Next = d.Members[len(d.Members)-1].Replica + 1
	}
}

func (m *Machine) forgets(part *partition, c *core.Commit, row []byte) bool {
	if c.Fence != nil && (m.mutant(fencedTwice) || m.mutant(requestAfterFence) && part.queue.Live(c.Fence.Task, c.Fence.Token) != nil) {
		return true
	}
	if !m.mutant(dedupLostOnRestart) || len(row) < hashLen {
		return false
	}
	r, err := core.DecodeResult(row[hashLen:])
	return err == nil && r.Index < m.mutants.first
}
