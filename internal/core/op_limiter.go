package core

// A limiter is a named bound of a namespace that tasks of several queues share: on how much of them runs at once, on how much begins in a
// time, or on both. Tasks name limiters, and so do the configurations of queues for all of their tasks. Entries before FormatShare have
// none.

// MaxNamespaceLimiters is how many limiters a namespace may have.
const MaxNamespaceLimiters = 1000

// LimiterConfig is what a limiter bounds. The zero value bounds nothing.
type LimiterConfig struct {
	// Concurrency is how much of its tasks runs at once, in units of their costs; 0 = no bound; at most MaxConcurrency. A task that costs
	// more runs while no other one does.
	Concurrency int64
	Rate        Rate // how much of them begins in a time
}

// LimiterSet makes a limiter, or replaces what it bounds. It changes the version only when something changed.
type LimiterSet struct {
	Name      string
	Config    LimiterConfig
	IfVersion int64 // -1 = any; 0 = there is none
}

// LimiterDelete removes a limiter that no queue names, and no task that has not ended. One that is not there is a success that says so.
type LimiterDelete struct {
	Name      string
	IfVersion int64 // -1 = any
}

// Kind returns the op's number.
func (*LimiterSet) Kind() OpKind { return OpLimiterSet }

// Kind returns the op's number.
func (*LimiterDelete) Kind() OpKind { return OpLimiterDelete }

// Limiter is a limiter as it is read from one partition.
type Limiter struct {
	Name string
	LimiterConfig
	Version uint64
	// Used is what the running tasks cost together that hold it.
	Used uint64
	// Tasks is how many tasks that have not ended name it themselves.
	Tasks uint64
	// Until is when its rate lets a task of cost 1 begin; 0: now.
	Until ShardTime
	// HeldBy are the first MaxHolders running tasks that hold it. They are read for one limiter alone.
	HeldBy []LimiterHolder
	// Queues are the queues whose configurations name it, the first MaxHolders by name. They are read for one limiter alone.
	Queues []string
}

// LimiterHolder is a running task that holds a limiter.
type LimiterHolder struct {
	Task  TaskID
	Queue string
}

// factInUse numbers InUse in an encoded result.
const factInUse byte = 22

// limiterOp writes what follows the kind of an op of limiters.
func (w *writer) limiterOp(op Op) {
	switch op := op.(type) {
	case *LimiterSet:
		w.name(op.Name)
		w.int(op.IfVersion)
		f := w.fields(false)
		f.int(op.Config.Concurrency)
		w.rate(&f, &op.Config.Rate)
	case *LimiterDelete:
		w.name(op.Name)
		w.int(op.IfVersion)
	}
}

// limiterOp reads what the writer's limiterOp wrote.
func (r *reader) limiterOp(kind OpKind) Op {
	if kind == OpLimiterDelete {
		return &LimiterDelete{Name: r.name(), IfVersion: r.int()}
	}
	op := &LimiterSet{Name: r.name(), IfVersion: r.int()}
	f := r.fields(false)
	op.Config.Concurrency = f.int()
	op.Config.Rate = r.rate(&f)
	f.end()
	return op
}

// limiterOpSize is opSize of the ops of limiters.
func limiterOpSize(op Op) int {
	switch op := op.(type) {
	case *LimiterSet:
		return opHeader + newName + len(op.Name) + 6*varintBytes
	case *LimiterDelete:
		return opHeader + newName + len(op.Name) + varintBytes
	}
	return 0
}

// limiterNames writes the names of limiters of a queue's configuration, unless there are none.
func (w *writer) limiterNames(f *presence, names *[MaxLimiters]string) {
	n := countNames(names)
	if f.has(n > 0) {
		w.uint(uint64(n))
		for _, name := range names[:n] {
			w.name(name)
		}
	}
}

// limiterNames reads what the writer's limiterNames wrote.
func (r *reader) limiterNames(f *present) (names [MaxLimiters]string) {
	if f.has() {
		n := int(r.max(MaxLimiters))
		r.nonZero(n > 0)
		for i := range names[:n] {
			names[i] = r.name()
			r.nonZero(names[i] != "")
		}
	}
	return names
}

// countNames is how many of the names there are: those behind the first empty one are empty, too.
func countNames(names *[MaxLimiters]string) int {
	for i, name := range names {
		if name == "" {
			return i
		}
	}
	return MaxLimiters
}

// LimiterNames returns the names of limiters of a queue's configuration as a list; nil: it names none.
func (s *QueueShare) LimiterNames() []string {
	if n := countNames(&s.Limiters); n > 0 {
		return s.Limiters[:n]
	}
	return nil
}
