package edge

// Units of limits: bytes, and milliseconds.
const (
	kib = 1 << 10
	mib = 1 << 20

	second = 1000
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)
