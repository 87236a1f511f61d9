package api

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// This file says what the services ask of the node, in an interface for each service. An error that satisfies core.Fact is for the
// client; any other is INTERNAL, and its text stays in the log.

// Backend is the whole node as this edge needs it, but for what RefBackend and Objects say.
type Backend interface {
	PlaceBackend
	CommitBackend
	NamespaceBackend
	QueueBackend
	BulkBackend
	CronBackend
	BatchBackend
	LimiterBackend
	TaskBackend
	KeyBackend
	TenantBackend
	SearchBackend
	WorkerBackend
	ErrorBackend
	HistoryBackend
	NodeBackend
}

// PlaceBackend tells where a partition is led, and what time it is there. Every service asks it.
type PlaceBackend interface {
	// Leader tells who leads a partition: this node, which is here, or the one at an address. known is false when this node
	// has not heard of any.
	Leader(p core.Partition) (address string, here, known bool)
	// Now is the shard time of a partition as this node has it.
	Now(p core.Partition) core.ShardTime
	// Shift is what wall clocks show beyond it. What a Backend reads is shown with it already, but for results of commits.
	Shift(p core.Partition) core.Millis
}

// CommitBackend puts commits into the log. Every service that writes asks it.
type CommitBackend interface {
	// Propose puts independent commits of one partition into the log, in order; each is judged alone. done is called
	// exactly once, perhaps before Propose returns, and must not block.
	Propose(p core.Partition, commits []core.Commit, done func(core.Proposed))
	// Forward is Propose at the node that leads the partition, whichever that is; it waits for the end, or for that of ctx.
	Forward(ctx context.Context, p core.Partition, commits []core.Commit) core.Proposed
}

// NamespaceBackend finds and configures namespaces. Every call asks it where its partitions are.
type NamespaceBackend interface {
	edge.Directory
	// CreateNamespace makes a namespace with that number of partitions; replayed says that it existed before. AlreadyExists
	// if it has another number of partitions.
	CreateNamespace(ctx context.Context, tenant, name string, partitions int) (info core.NamespaceInfo, replayed bool, err error)
	// RemoveNamespace removes a namespace that is empty, and reports whether there was one. NotEmpty names what it holds.
	RemoveNamespace(ctx context.Context, tenant, name string) (existed bool, err error)
	// Namespaces reads a page of a tenant's namespaces by name, after the name given, from this node's copy of the directory.
	Namespaces(tenant, after string, limit int) ([]core.NamespaceInfo, error)
	// NamespaceConfig reads the configuration of the partition's namespace.
	NamespaceConfig(ctx context.Context, p core.Partition, o core.ReadOptions) (core.NamespaceConfig, core.At, error)
	// KeyBytes reads what all keyspaces of the partition's namespace took on disk when that was measured last.
	KeyBytes(ctx context.Context, p core.Partition, o core.ReadOptions) (uint64, core.At, error)
	// KeyPace tells what all nodes let through of the rate of a partition's namespace, or of its tenant; zeros without one.
	KeyPace(p core.Partition, ofTenant bool) core.KeyPace
}

// QueueBackend reads queues.
type QueueBackend interface {
	// Queue reads a queue's counters and configuration. NotFound when it is unknown.
	Queue(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (core.QueueStats, core.At, error)
	// Queues reads a page of queues by name, after the name given.
	Queues(ctx context.Context, p core.Partition, after string, limit int, o core.ReadOptions) ([]core.QueueStats, core.At, error)
	// QueueKeys reads keys of a queue. NotFound when it is unknown.
	QueueKeys(ctx context.Context, p core.Partition, q *core.KeyQuery, o core.ReadOptions) (core.KeyList, core.At, error)
	// Pinned reports whether all tasks of a queue are made in core.PinnedPartition, as this node's replica of p has it. It does not wait.
	Pinned(p core.Partition, queue string) bool
}

// BulkBackend reads jobs about many tasks, and counts what they would find.
type BulkBackend interface {
	// Bulks reads the jobs of a partition, by id.
	Bulks(ctx context.Context, p core.Partition, o core.ReadOptions) ([]core.BulkJob, core.At, error)
	// CountBulk counts a part of what a job would find in a partition, from a cursor on, and shows up to sample tasks.
	CountBulk(ctx context.Context, p core.Partition, op *core.BulkStart, cursor []byte, sample int) (core.BulkCount, core.At, error)
}

// CronBackend reads crons.
type CronBackend interface {
	// Crons reads a page of the crons of a partition by name. more says that others follow.
	Crons(ctx context.Context, p core.Partition, q core.CronQuery, o core.ReadOptions) (list []core.Cron, more bool, at core.At, err error)
	// Cron reads one cron. NotFound when there is none.
	Cron(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (core.Cron, core.At, error)
	// CronRuns reads the last n runs of a cron before a number, the last one first; 0: there is no bound. NotFound when there is no cron.
	CronRuns(ctx context.Context, p core.Partition, name string, before uint64, n int, o core.ReadOptions) ([]core.CronRun, core.At, error)
}

// BatchBackend reads batches, and waits for their ends.
type BatchBackend interface {
	// Batches reads the batches of a partition, the last opened first, those with numbers below one (0: there is no bound): at most n, and
	// about bytes of follow-ups. more says that others follow.
	Batches(ctx context.Context, p core.Partition, below uint64, n, bytes int, o core.ReadOptions) (list []core.Batch, more bool, at core.At, err error)
	// Batch reads one batch. NotFound when there is none.
	Batch(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.Batch, core.At, error)
	// WaitBatch returns a batch when it has finished. NotFound when there is none.
	WaitBatch(ctx context.Context, p core.Partition, id core.TaskID) (core.Batch, core.At, error)
}

// LimiterBackend reads limiters.
type LimiterBackend interface {
	// Limiters reads up to limit limiters of a partition with a prefix, by name, behind a name.
	Limiters(ctx context.Context, p core.Partition, prefix, after string, limit int, o core.ReadOptions) ([]core.Limiter, core.At, error)
	// Limiter reads one limiter, with who holds it and which queues name it. NotFound when there is none.
	Limiter(ctx context.Context, p core.Partition, name string, o core.ReadOptions) (core.Limiter, core.At, error)
}

// TaskBackend reads tasks, and gives them to unary callers.
type TaskBackend interface {
	// Task reads one task. NotFound when it is unknown.
	Task(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.Task, core.At, error)
	// TaskUpTo is Task with at most that many bytes (most) of the payload and of the result, and with how long they are as a whole.
	TaskUpTo(ctx context.Context, p core.Partition, id core.TaskID, most core.ContentSize, o core.ReadOptions) (core.Task, core.ContentSize, core.At, error)
	// Attempts reads the last 20 attempts of a task, oldest first.
	Attempts(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.AttemptList, core.At, error)
	// Logs reads lines of a task's log.
	Logs(ctx context.Context, p core.Partition, id core.TaskID, q core.LogQuery, o core.ReadOptions) (core.TaskLog, core.At, error)
	// Effects reads what the completion of a task did besides; zero: nothing.
	Effects(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.Effects, core.At, error)
	// Why reads why a task is where it is.
	Why(ctx context.Context, p core.Partition, id core.TaskID, o core.ReadOptions) (core.Why, core.At, error)
	// Tasks reads a page of tasks, without payloads and results.
	Tasks(ctx context.Context, p core.Partition, q core.ListQuery) (core.TaskPage, core.At, error)
	// Wait answers when the task has ended, or ctx has.
	Wait(ctx context.Context, p core.Partition, id core.TaskID) (core.Task, core.At, error)
	// WaitEnd returns when the task has ended, or ctx has. It reads neither payload nor result.
	WaitEnd(ctx context.Context, p core.Partition, id core.TaskID) error
	// WatchTask shows a task, without payload and result, and again each time that it has changed, until it has ended.
	WatchTask(ctx context.Context, p core.Partition, id core.TaskID, show func(core.Task, core.ContentSize, core.At) error) error
	// Claim takes ready tasks for a unary caller, waiting up to s.Wait; none is an empty answer. Tasks that were
	// granted after ctx ended are released.
	Claim(ctx context.Context, p core.Partition, s core.ClaimSpec) ([]core.Assigned, core.At, error)
	// NameClaim notes that a claim of p's namespace is under way, under its caller's name, until done is called. end ends it.
	NameClaim(p core.Partition, claim core.RequestID, end context.CancelCauseFunc) (done func())
	// EndClaimHere ends a claim of p's namespace that waits at this node, and reports whether one does.
	EndClaimHere(p core.Partition, claim core.RequestID) bool
	// EndClaim ends a claim that waits at this node or at the leader of any of the partitions, which are all of a namespace.
	EndClaim(ctx context.Context, parts []core.PartitionInfo, claim core.RequestID) (found bool, err error)
	// Backlog reports whether this node's replica of a partition, which may lag, has ready tasks in one of the queues.
	Backlog(p core.Partition, queues []core.GrantQueue) bool
}

// KeyBackend reads keys and keyspaces, and holds puts to their rates.
type KeyBackend interface {
	// Key reads one key; rev is 0 when it, or its keyspace, is absent.
	Key(ctx context.Context, p core.Partition, keyspace string, key []byte, o core.ReadOptions) (core.KeyRead, core.At, error)
	// Keys reads keys of one partition at one index, in the order given. It stops early once the values exceed a number
	// of bytes, but returns at least one.
	Keys(ctx context.Context, p core.Partition, keyspace string, keys [][]byte, bytes int, o core.ReadOptions) ([]core.KeyRead, core.At, error)
	// KeyRange opens a range of keys of one partition as it is at o or later, to be read from there on. NotFound when a
	// keyspace that was asked for by its incarnation is gone.
	KeyRange(ctx context.Context, p core.Partition, r core.KeyRange, o core.ReadOptions) (core.KeyCursor, core.At, error)
	// Keyspace reads one keyspace of a partition; with count, also how many keys it has, up to that many, and what they take on disk.
	// NotFound when it is unknown.
	Keyspace(ctx context.Context, p core.Partition, name string, count uint64, o core.ReadOptions) (core.KeyspaceInfo, core.At, error)
	// Keyspaces reads a page of a partition's keyspaces by name, after the name given.
	Keyspaces(ctx context.Context, p core.Partition, after string, limit int, o core.ReadOptions) ([]core.KeyspaceInfo, core.At, error)
	// TakeRate takes what ops put in keyspaces of a partition from the rates of these, of the namespace and of the tenant: all of
	// it, or nothing. It returns how long to wait before it is asked again, and the limit that is the reason; zero: it is taken.
	// A change of a rate is known within about a second. At a node that does not lead the partition nothing is taken, unless the
	// ops are carried to the one that does: its edge does not see them.
	TakeRate(p core.Partition, ops []core.Op, carried bool) (wait time.Duration, by core.RateHeld)
	// TakeCreates is TakeRate for commits, of partitions of p's namespace, which do nothing but create that many tasks.
	TakeCreates(p core.Partition, tasks int, carried bool) (wait time.Duration, by core.RateHeld)
}

// TenantBackend configures tenants.
type TenantBackend interface {
	// SetTenant replaces the configuration of a tenant, and returns its version; ifVersion is -1 for any.
	SetTenant(ctx context.Context, tenant string, c core.TenantConfig, ifVersion int64) (version uint64, err error)
	// Tenant reads what is known of a tenant; one that is not has no ID.
	Tenant(ctx context.Context, name string, o core.ReadOptions) (core.TenantInfo, error)
	// OpenStream counts a stream of a partition's tenant in, unless the tenant has as many as it may. CloseStream must follow one that
	// was counted.
	OpenStream(p core.Partition) core.Fact
	// CloseStream counts a stream out.
	CloseStream(p core.Partition)
}

// NodeBackend tells what the node itself is.
type NodeBackend interface {
	// Format is the format of entries that this node writes: what the cluster can do.
	Format() uint16
	// KnowsFormat reports whether the node has heard of the cluster's format: one that is new may have applied no entry yet.
	KnowsFormat() bool
	// Status tells what this node is and has done.
	Status() core.NodeStatus
}

// parts is the node by what is asked of it, for what several services share.
type parts struct {
	places   PlaceBackend     // where partitions are led
	commits  CommitBackend    // into the log
	spaces   NamespaceBackend // namespaces
	queues   QueueBackend     // counters and configurations of queues
	bulk     BulkBackend      // jobs about many tasks
	crons    CronBackend      // crons and their runs
	batches  BatchBackend     // batches and the waits for their ends
	limiters LimiterBackend   // limiters
	tasks    TaskBackend      // reads and claims
	keys     KeyBackend       // reads and rates
	search   SearchBackend    // collections and searches
	self     NodeBackend      // what the node itself is
	history  HistoryBackend   // what was, and what bounds refused
}

// newParts divides a node.
func newParts(b Backend) parts {
	return parts{places: b, commits: b, spaces: b, queues: b, bulk: b, crons: b, batches: b, limiters: b, tasks: b, keys: b, search: b, self: b, history: b}
}
