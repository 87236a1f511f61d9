package core

import "math"

// TenantConfig bounds the keys of all namespaces of a tenant together. A bound of 0 is none.
type TenantConfig struct {
	Version     uint64 // rises with each change
	KeyBytes    int64  // of all keyspaces on disk, of one replica
	KeyRate     int64  // puts per second, of all nodes together
	KeyByteRate int64  // bytes of keys and values put per second, judged likewise
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
}

// Kind returns the op's number.
func (*TenantSet) Kind() OpKind { return OpTenantSet }

// Kind returns the op's number.
func (*TenantUse) Kind() OpKind { return OpTenantUse }

// tenantConfig writes the bounds of a tenant, in entries and in the store alike.
func (w *writer) tenantConfig(c *TenantConfig) {
	f := w.fields(false)
	f.uint(c.Version)
	f.int(c.KeyBytes)
	f.int(c.KeyRate)
	f.int(c.KeyByteRate)
}

// tenantConfig reads into c, which must be the zero value.
func (r *reader) tenantConfig(c *TenantConfig) {
	f := r.fields(false)
	c.Version = f.uint(math.MaxUint64)
	c.KeyBytes, c.KeyRate, c.KeyByteRate = f.int(), f.int(), f.int()
	f.end()
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
	}
}

// tenantOp reads an op about a tenant.
func (r *reader) tenantOp(kind OpKind) Op {
	if kind == OpTenantUse {
		return &TenantUse{Bytes: r.uint(), Bound: r.int()}
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
