package core

// ApplyContext is what an op is judged under: what the entry, the commit and the partition say about every op of the commit. All
// services read the same one. It is valid while the op is applied: nothing keeps it.
type ApplyContext struct {
	Index     uint64    // of the entry
	Stamp     ShardTime // of the entry; it never falls
	Format    uint16    // of the entry: the rules that it was proposed under
	Queues    uint32    // most queues of a partition; 0 = DefaultQueues
	TermStart ShardTime // stamp of the current term's first entry
	Shift     Millis    // what most nodes' wall clocks show beyond the stamp

	Namespace NamespaceConfig // of the partition, as the ops before this one left it
	Principal string          // who asks, recorded as the creator of tasks
	Commit    *Commit         // that the op stands in; nil for timed work
	// QueueOf reads the queue of a task of the partition, for rules about refs that name one. nil where there are no tasks.
	QueueOf func(task TaskID) (string, error)

	// Rev is the revision, or version, that the commit's writes get: above all before it in the partition.
	Rev uint64
	// Revs is how many revisions from Rev on the commit has used so far. A service raises it only where an op uses several:
	// an op with OpTakesRev uses the one that the commit's writes share.
	Revs uint64

	// holder is what Holder returns, once looked is set.
	holder TaskHold
	looked bool
}

// Holder returns the lease that the commit is applied under: the one that the first of its ops to settle a task ends, or else
// that of its fence. It is the zero hold for a commit from outside of any task, and for timed work. The commit is looked through
// once, however often its ops ask.
func (c *ApplyContext) Holder() TaskHold {
	if c.looked || c.Commit == nil {
		return c.holder
	}
	c.looked = true
	if c.Commit.Fence != nil {
		c.holder = TaskHold(*c.Commit.Fence)
	}
	for _, op := range c.Commit.Ops {
		if hold, ok := Settled(op); ok {
			c.holder = hold
			break
		}
	}
	return c.holder
}

// Applied is what Apply hands to the node for one entry.
type Applied struct {
	Results []Result // one per commit
	// Events are what the entry did, for those who wait or derive something from it: by partition, and within one by service. The
	// list and what it points to are valid until the next entry is applied.
	Events []Event
}
