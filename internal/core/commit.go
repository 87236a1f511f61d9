package core

// Fence makes a commit apply only while Token is the live token of Task.
type Fence struct {
	Task  TaskID
	Token Token
}

// Commit is a list of ops of one partition, applied all or nothing: first the fence is judged, then all conditions,
// then the ops in order, later ones seeing earlier ones. The first refusal undoes everything.
type Commit struct {
	Partition  Partition
	Principal  string // who asks, recorded as the creator of tasks
	RequestID  RequestID
	Session    SessionID // with Seq: a commit of a stream, answered again when it is repeated
	Seq        uint64    // from 1, rising by 1 per session and partition
	Fence      *Fence
	Conditions []*KVCheck
	Ops        []Op
	// FailOnRefusal turns the refusal of a commit that completes a task into a failed attempt, when the lease is held.
	FailOnRefusal bool
}

// Limits of one commit.
const (
	MaxCommitOps   = 1024    // conditions and ops together
	MaxCommitBytes = 4 << 20 // encoded
)

// Bounds of the queues of one partition: what an entry may say at most, and what holds where it says nothing.
const (
	MaxQueues     = 100_000
	DefaultQueues = 10_000
)

// Bounds of the namespaces of one tenant: what a NamespaceCreate is given at most, and what holds where it says nothing.
const (
	MaxNamespaces     = 100_000
	DefaultNamespaces = 1000
)

// Entry is one record of a shard's log: commits that arrived together, judged in order at one stamp.
type Entry struct {
	Format   uint16 // version of the encoding and of Apply's rules it was proposed under
	Stamp    ShardTime
	Proposer uint64 // replica and boot of the node that proposed it
	Seq      uint64 // of that proposer, so that it finds who waits for the results
	Queues   uint32 // most queues of a partition: the setting of the node that proposed it; 0 = DefaultQueues. From FormatQueues on
	Commits  []Commit
}

// Refusal says why a commit changed nothing.
type Refusal struct {
	// Op is the index of the refused op; FenceOp and ConditionOp-i name the fence and condition i, CommitOp the whole.
	Op   int
	Fact Fact
}

// FenceOp marks a refusal by the fence; a refusal by condition i has Op ConditionOp - i. CommitOp marks a refusal of the
// commit as a whole, such as too many ops or a session that is forgotten: no op is to blame.
const (
	FenceOp     = -1
	ConditionOp = -2
	CommitOp    = -1 << 31
)

// Result is what became of one commit: equal on all replicas.
type Result struct {
	Refusal  *Refusal // nil: applied
	Replayed bool     // it had been applied before, and nothing was done again
	// FailedInstead is set when the commit was refused and, as it asked, the attempt was failed.
	FailedInstead bool
	// Index is that of the entry which applied the commit: of the first one when replayed and known, else 0, which
	// means the entry it stands in.
	Index uint64
	Ops   []OpResult // one per op; nil when refused
}

// OpResult is what one op answers. Which fields are set depends on the op.
type OpResult struct {
	Kind     OpKind
	Replayed bool

	Task           TaskID // TaskCreate: the task made, or the one that holds the unique key; CronFire: the one that the run made, or will make
	PayloadMatches bool   // TaskCreate, replayed: same content as asked for
	State          State  // task ops: the state after

	Rev     uint64 // ops that put a value: its revision; KVPuts: of the first item that was not refused; VectorUpsert: the point's version
	Prev    []byte // KVPut with WantPrev; nil when absent
	Existed bool   // TaskCreate: the task that holds the unique key became what the create asks for; KVDelete, KVPut with WantPrev; VectorUpsert, VectorDelete, CollectionDelete, RulesetDelete, KeyspaceDelete, NamespaceRemove

	Version  uint64     // QueueSet, NamespaceSet, RulesetPut, KeyspaceSet; CollectionSet: the uid; VectorUpsert: the index of its partition; NamespaceRemove: the number of the removal that began; CronSet, LimiterSet: of the cron, or the limiter; CronFire: see CronVersion
	Assigned []Assigned // Grant
	Renewed  []Renewed  // TaskRenew, one per item
	More     bool       // Tick: work is left that is due

	Tenant    TenantID    // NamespaceCreate, NamespaceRemove
	Namespace NamespaceID // NamespaceCreate, NamespaceRemove

	Refs *RefsAnswer // ops of the refs service
	KV   *KVResult   // ops that change keys; nil when there is nothing to say
}

// Assigned is one task given to a worker.
type Assigned struct {
	Task        TaskID
	Token       Token
	Attempt     uint32
	Queue       string
	Kind        string
	ContentType string
	Headers     []Header
	Payload     []byte
	Priority    uint8
	LeaseUntil  ShardTime
	Lease       Millis // what one renewal is worth
	MaxAttempts int32
	Failures    uint32
	Crashes     uint32
	CreatedAt   ShardTime
	Checkpoint  []byte // that the attempts before left; nil: none did
	Tag         string
	MaxRun      Millis    // the longest that this attempt may run; 0: no bound
	ReadyAt     ShardTime // from which on it could run; 0: since it was created
}

// Renewed is what became of one renewed lease.
type Renewed struct {
	Lost   bool
	Cancel bool // the task's cancel was asked for: its holder is to stop
	Until  ShardTime
}

// At is where an answer stands: reads can ask for at least this. Epoch is reserved for a partition that moves.
type At struct {
	Partition uint16
	Index     uint64
	Epoch     uint32
	Stamp     ShardTime
}

// NamespaceInfo is a namespace's row of the directory.
type NamespaceInfo struct {
	Tenant     TenantID
	Namespace  NamespaceID
	TenantName string
	Name       string
	Partitions []PartitionInfo // by index
}

// PartitionInfo says which shard holds a partition.
type PartitionInfo struct {
	Partition Partition
	Shard     ShardID
}
