// Package wire holds what the rooms of the SDK know of the contract besides its messages: the codes of errors, the words of
// its enumerations, the limits of its frames and the name of a lease. It depends on nothing else of the SDK.
package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// Codes of errors, as the contract writes them. The package millrace has a typed constant for each.
const (
	InvalidArgument    = "INVALID_ARGUMENT"
	TooLarge           = "TOO_LARGE"
	Unauthenticated    = "UNAUTHENTICATED"
	PermissionDenied   = "PERMISSION_DENIED"
	NotFound           = "NOT_FOUND"
	AlreadyExists      = "ALREADY_EXISTS"
	LeaseLost          = "LEASE_LOST"
	WrongState         = "WRONG_STATE"
	PreconditionFailed = "PRECONDITION_FAILED"
	WrongPartition     = "WRONG_PARTITION"
	RateLimited        = "RATE_LIMITED"
	ResourceExhausted  = "RESOURCE_EXHAUSTED"
	NotLeader          = "NOT_LEADER"
	Unavailable        = "UNAVAILABLE"
	DeadlineExceeded   = "DEADLINE_EXCEEDED"
	Internal           = "INTERNAL"
	DataLoss           = "DATA_LOSS"
)

// Reasons of errors that decide what a client does next.
const (
	ReasonSessionExpired = "session_expired" // a server forgot the session of a commit's sequence number
	ReasonNoLeader       = "no_leader"       // the node that was asked knows of no leader
	ReasonExpired        = "expired"         // this client gave up repeating
	ReasonPinned         = "queue_pinned"    // the task's queue has all its tasks in another partition
)

// EndClaim is the feature of servers that end a claim by its name.
const EndClaim = "end_claim"

// Limits and times that client and server agree on.
const (
	FrameItems    = 512              // tasks, settles or renewals of one frame
	BatchGet      = 1000             // keys of one read of many
	GoawayWithin  = 2 * time.Second  // for the acks that a stopping server still sends
	ReleaseWithin = 2 * time.Second  // for the acks of tasks that were given back at the end
	PingEvery     = 10 * time.Second // of an idle connection: the least that gRPC allows, which servers must permit
	PingTimeout   = 20 * time.Second // until a connection without an answer to a ping is closed
)

// Lease names one lease: a task, and the token of the attempt that holds it.
type Lease struct {
	// ID is the task's, and Token that of the attempt: it rises with each delivery of the task.
	ID    string
	Token uint64
}

// The words of enumerations, each at the place of its number. An empty word has no number that is sent.
var (
	States          = []string{"", "blocked", "scheduled", "ready", "running", "completed", "dead", "cancelled"}
	AttemptOutcomes = []string{"", "completed", "failed", "timeout", "crashed", "snoozed", "released", "cancelled"}
	FieldTypes      = []string{"", "keyword", "keywords", "int", "float", "bool", "time", "geo", "text", "credentials"}
	FieldGates      = []string{"", "role", "credential", "block"}
)

// Number returns the place of word in words, and false where it is not one of them.
func Number(words []string, word string) (int32, bool) {
	for i, w := range words {
		if w == word {
			return int32(i), true
		}
	}
	return 0, false
}

// State returns the word of a task's state, and unknown for a number that is not one.
func State(n int32) string {
	if n > 0 && int(n) < len(States) {
		return States[n]
	}
	return "unknown"
}

// Size estimates the encoded bytes of a task, from above.
func Size(spec *millracev1.TaskSpec) int {
	// 128 covers the tags and lengths of these fields, and all numbers and times.
	n := len(spec.Payload) + len(spec.Queue) + len(spec.Kind) + len(spec.ContentType) + len(spec.Tag) + 128
	for _, h := range spec.Headers {
		n += len(h.Name) + len(h.Value) + 8
	}
	if spec.Unique != nil {
		n += len(spec.Unique.Key) + 32
	}
	return n
}

// Random16 makes a session or request id.
func Random16() []byte {
	// The source is the runtime's, seeded by the system. Ids need only differ, not be secret.
	b := make([]byte, 16)
	binary.LittleEndian.PutUint64(b, rand.Uint64())
	binary.LittleEndian.PutUint64(b[8:], rand.Uint64())
	return b
}

// Cut shortens s to n bytes and drops what is not UTF-8, which the contract cannot carry.
func Cut(s string, n int) string {
	// A character that is cut in half is dropped below.
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
