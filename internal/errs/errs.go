// Package errs holds the closed set of error codes that a client can see, and the assertion that guards invariants.
//
// A code says what class of thing went wrong and what a client may do about it; the fact behind it (which field, which
// limit, which revision) is a type in package core. Each edge maps facts to codes and codes to its own statuses in one
// table. Nothing here imports anything of the project.
package errs

import "fmt"

// Code is one of the product's error codes. The zero value means success and never leaves the process.
type Code uint8

// The closed set. Numbers are part of the wire contract and are never reused.
const (
	OK                 Code = 0
	InvalidArgument    Code = 1
	TooLarge           Code = 2
	Unauthenticated    Code = 3
	PermissionDenied   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	LeaseLost          Code = 7
	WrongState         Code = 8
	PreconditionFailed Code = 9
	WrongPartition     Code = 10
	RateLimited        Code = 11
	ResourceExhausted  Code = 12
	NotLeader          Code = 13
	Unavailable        Code = 14
	DeadlineExceeded   Code = 15
	Internal           Code = 16
	DataLoss           Code = 17
)

var names = [...]string{
	OK: "OK", InvalidArgument: "INVALID_ARGUMENT", TooLarge: "TOO_LARGE", Unauthenticated: "UNAUTHENTICATED",
	PermissionDenied: "PERMISSION_DENIED", NotFound: "NOT_FOUND", AlreadyExists: "ALREADY_EXISTS", LeaseLost: "LEASE_LOST",
	WrongState: "WRONG_STATE", PreconditionFailed: "PRECONDITION_FAILED", WrongPartition: "WRONG_PARTITION",
	RateLimited: "RATE_LIMITED", ResourceExhausted: "RESOURCE_EXHAUSTED", NotLeader: "NOT_LEADER",
	Unavailable: "UNAVAILABLE", DeadlineExceeded: "DEADLINE_EXCEEDED", Internal: "INTERNAL", DataLoss: "DATA_LOSS",
}

// Codes lists every code but OK, in number order. The slice is the caller's.
func Codes() []Code {
	out := make([]Code, 0, len(names)-1)
	for c := range names {
		if c != int(OK) {
			out = append(out, Code(c))
		}
	}
	return out
}

// String returns the code as clients see it, such as LEASE_LOST.
func (c Code) String() string {
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("CODE_%d", uint8(c))
}

// Parse returns the code that String prints as s.
func Parse(s string) (Code, bool) {
	for c, n := range names {
		if n == s {
			return Code(c), true
		}
	}
	return OK, false
}

// Corruption is returned when stored or logged bytes make no sense, or an invariant broke. The shard that meets one
// stops and keeps its data; it is never a client's fault and never retried.
type Corruption struct{ What string }

// Error says what was found.
func (e *Corruption) Error() string { return "corruption: " + e.What }

// Corruptf returns a Corruption that says what was found and where.
func Corruptf(format string, args ...any) error {
	return &Corruption{What: fmt.Sprintf(format, args...)}
}
