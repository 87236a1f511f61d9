package api

// Units of limits: bytes, and milliseconds.
const (
	kib = 1 << 10
	mib = 1 << 20

	second = 1000
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

const (
	// leaseMinMs is the shortest lease: below it renewals at a third of it would be the whole load.
	leaseMinMs = second
	// RequestIDBytes is the size of a request id.
	RequestIDBytes = 16
	// MaxQuota bounds what bounds the keys of a tenant, a namespace or a keyspace: sums of two do not overflow.
	MaxQuota = 1 << 62
	// MaxShard is the highest number of a shard.
	MaxShard = 1<<16 - 1
	// ListDefault is the length of a page that names none.
	ListDefault = 100
	// CursorBytes bounds a cursor before it is decoded.
	CursorBytes = 1 * kib
	// AnswerBytes bounds the values and tasks that one answer carries, so that it fits the message that a client accepts.
	AnswerBytes = 3 * mib
)
