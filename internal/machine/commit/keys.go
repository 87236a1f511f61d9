package commit

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
)

// inspectPuts keeps a batch of puts alone in its commit: its items are commits of their own, which nothing else could
// stand or fall with.
func inspectPuts(c *core.Commit) *core.Refusal {
	i := slices.IndexFunc(c.Ops, func(op core.Op) bool { return op.Kind() == core.OpKVPuts })
	if i < 0 || len(c.Ops) == 1 && len(c.Conditions) == 0 {
		return nil
	}
	return notAlone(i, "a batch of puts stands alone in its commit")
}

// EachQueues calls fn for the queues of each partition that the machine knows, in order.
func (m *Machine) EachQueues(fn func(p core.Partition, queues *queue.Machine)) {
	for _, part := range m.sorted {
		fn(part.p, part.queue)
	}
}

// EachKV calls fn for the keyspaces of each partition that the machine knows, in order, with what its namespace rules.
func (m *Machine) EachKV(fn func(p core.Partition, config core.NamespaceConfig, keyspaces *kv.Machine)) {
	for _, part := range m.sorted {
		fn(part.p, part.config, part.kv)
	}
}
