package rest

// Units of limits: bytes, and milliseconds.
const (
	kib = 1 << 10

	second = 1000
	hour   = 3600 * second
	day    = 24 * hour
)
