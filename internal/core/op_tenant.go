package core

import (
	"cmp"
	"math"
)

// TenantConfig bounds the keys and tasks of all namespaces of a tenant together. A bound of 0 is none, but for those of Tasks.
type TenantConfig struct {
	Version     uint64 // rises with each change
	KeyBytes    int64  // of all keyspaces on disk, of one replica
	KeyRate     int64  // puts per second, of all nodes together
	KeyByteRate int64  // bytes of keys and values put per second, judged likewise

	// What follows is of FormatShare.

	Weight     int64      // the tenant's share in entries while other tenants wait too, 1 to MaxTenantWeight; 0 = 1
	CreateRate int64      // tasks created per second, of all nodes together
	Streams    int64      // that are open, of all nodes together
	Tasks      TaskBounds // of tasks
}

// Shares reports whether c says anything that programs before FormatShare do not know.
func (c *TenantConfig) Shares() bool {
	return c.Weight != 0 || c.CreateRate != 0 || c.Streams != 0 || c.Tasks != TaskBounds{}
}

// TaskBounds is what a tenant may have of tasks; 0 stands for the default.
type TaskBounds struct {
	Tasks   int64 // that have not ended
	Bytes   int64 // of payloads, results, logs and checkpoints, of ended tasks too
	Running int64
}

// MaxTenantWeight is the highest weight of a tenant.
const MaxTenantWeight = 1000

// What a tenant may have of tasks where its configuration says nothing else. They are rules of Apply.
const (
	DefaultTenantTasks   = 20_000_000
	DefaultTenantBytes   = 64 << 30
	DefaultTenantRunning = 100_000
)

// OrDefault fills the defaults in.
func (b TaskBounds) OrDefault() TaskBounds {
	return TaskBounds{cmp.Or(b.Tasks, DefaultTenantTasks), cmp.Or(b.Bytes, DefaultTenantBytes), cmp.Or(b.Running, DefaultTenantRunning)}
}

// TaskUse is what a tenant has of tasks, counted as TaskBounds has it.
type TaskUse struct {
	Tasks, Bytes, Running uint64
}

// Plus adds two uses.
func (u TaskUse) Plus(v TaskUse) TaskUse {
	return TaskUse{u.Tasks + v.Tasks, u.Bytes + v.Bytes, u.Running + v.Running}
}

// Less is what u is more than v, and nothing where it is not more.
func (u TaskUse) Less(v TaskUse) TaskUse {
	return TaskUse{u.Tasks - min(u.Tasks, v.Tasks), u.Bytes - min(u.Bytes, v.Bytes), u.Running - min(u.Running, v.Running)}
}

// TenantQuota tells a partition what its tenant may have of tasks, and what the tenant's other partitions have. The directory and
// those are in other shards, so both are told. The zero value is what a partition goes by that was told nothing.
type TenantQuota struct {
	Bounds TaskBounds
	Others TaskUse
}

// TenantSet replaces the configuration of a tenant in the directory, and enters a tenant that is new. It changes Version only
// when something changed. From FormatQueues on, one without any bound is removed, and the version is 0 then; versions that were
// removed do not come again.
type TenantSet struct {
	Tenant    string
	Config    TenantConfig
	IfVersion int64 // -1 = any
}

// TenantUse tells a partition what all keyspaces of its tenant take on disk, and what they may: while that is passed, puts are
// refused. The directory is in another shard, so the bound comes along.
type TenantUse struct {
	Bytes uint64
	Bound int64 // 0 = none
}

// TenantInfo is what is known of a tenant.
type TenantInfo struct {
	ID         TenantID // 0: it was never used, nor configured
	Name       string
	Namespaces uint32 // how many there are
	Config     TenantConfig

	Measured uint64  // bytes on disk of the node that answers, when it compared them with the bound last
	Over     bool    // they are more than the bound
	Pace     KeyPace // zeros without a rate

	Use     TaskUse // of tasks, as the node that answers has applied it
	Creates KeyPace // tasks created, as its puts; zeros without a rate
	Streams int64   // that are open at the node that answers and, where there is a bound, at others as it was told
}

// Kind returns the op's number.
func (*TenantSet) Kind() OpKind { return OpTenantSet }

// Kind returns the op's number.
func (*TenantUse) Kind() OpKind { return OpTenantUse }

// Kind returns the op's number.
func (*TenantQuota) Kind() OpKind { return OpTenantQuota }

// tenantConfig writes the bounds of a tenant, in entries and in the store alike.
func (w *writer) tenantConfig(c *TenantConfig) {
	f := w.fields(false)
	f.uint(c.Version)
	f.int(c.KeyBytes)
	f.int(c.KeyRate)
	f.int(c.KeyByteRate)
	if f.has(c.Shares()) { // without it the bytes are those of before FormatShare
		f := w.fields(false)
		f.int(c.Weight)
		f.int(c.CreateRate)
		f.int(c.Streams)
		f.int(c.Tasks.Tasks)
		f.int(c.Tasks.Bytes)
		f.int(c.Tasks.Running)
	}
}

// tenantConfig reads into c, which must be the zero value.
func (r *reader) tenantConfig(c *TenantConfig) {
	f := r.fields(false)
	c.Version = f.uint(math.MaxUint64)
	c.KeyBytes, c.KeyRate, c.KeyByteRate = f.int(), f.int(), f.int()
	if f.has() {
		f := r.fields(false)
		c.Weight, c.CreateRate, c.Streams = f.int(), f.int(), f.int()
		c.Tasks = TaskBounds{f.int(), f.int(), f.int()}
		r.nonZero(c.Shares())
		f.end()
	}
	f.end()
}

// tenantQuota writes what a partition is told of its tenant's tasks, in entries and in the store alike.
func (w *writer) tenantQuota(q *TenantQuota) {
	f := w.fields(false)
	f.int(q.Bounds.Tasks)
	f.int(q.Bounds.Bytes)
	f.int(q.Bounds.Running)
	f.uint(q.Others.Tasks)
	f.uint(q.Others.Bytes)
	f.uint(q.Others.Running)
}

// tenantQuota reads what the writer's tenantQuota wrote.
func (r *reader) tenantQuota() (q TenantQuota) {
	f := r.fields(false)
	q.Bounds = TaskBounds{f.int(), f.int(), f.int()}
	q.Others = TaskUse{f.uint(math.MaxUint64), f.uint(math.MaxUint64), f.uint(math.MaxUint64)}
	f.end()
	return q
}

// tenantOp writes an op about a tenant.
func (w *writer) tenantOp(op Op) {
	switch op := op.(type) {
	case *TenantSet:
		w.name(op.Tenant)
		w.int(op.IfVersion)
		w.tenantConfig(&op.Config)
	case *TenantUse:
		w.uint(op.Bytes)
		w.int(op.Bound)
	case *TenantQuota:
		w.tenantQuota(op)
	}
}

// tenantOp reads an op about a tenant.
func (r *reader) tenantOp(kind OpKind) Op {
	switch kind {
	case OpTenantUse:
		return &TenantUse{Bytes: r.uint(), Bound: r.int()}
	case OpTenantQuota:
		q := r.tenantQuota()
		return &q
	}
	op := &TenantSet{Tenant: r.name(), IfVersion: r.int()}
	r.tenantConfig(&op.Config)
	return op
}

// AppendTenantConfig appends the encoding of c, as entries and the store hold it.
func AppendTenantConfig(dst []byte, c *TenantConfig) []byte {
	w := writer{b: dst}
	w.tenantConfig(c)
	return w.b
}

// DecodeTenantConfig reads what AppendTenantConfig wrote. Its error wraps ErrMalformed.
func DecodeTenantConfig(b []byte) (c TenantConfig, err error) {
	r := reader{b: b}
	r.tenantConfig(&c)
	return c, r.end()
}

// AppendTenantQuota appends the encoding of q, as entries and the store hold it.
func AppendTenantQuota(dst []byte, q *TenantQuota) []byte {
	w := writer{b: dst}
	w.tenantQuota(q)
	return w.b
}

// DecodeTenantQuota reads what AppendTenantQuota wrote. Its error wraps ErrMalformed.
func DecodeTenantQuota(b []byte) (TenantQuota, error) {
	r := reader{b: b}
	q := r.tenantQuota()
	return q, r.end()
}
