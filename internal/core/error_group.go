package core

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// Fingerprint stands for errors that are alike: those of one kind of task with one code, or without codes with messages that differ in
// digits alone. 0 stands for none, or for the group of those that found no room.
type Fingerprint uint64

// OtherErrors is the code of the group that counts errors for which a queue has no room.
const OtherErrors = "other"

// The codes of errors that no worker reported.
const (
	ErrorTimeout = "timeout" // the attempt ran for longer than max_run
	ErrorCrashed = "crashed" // the lease ended without an answer
	ErrorExpired = "expired" // the task was not given out in time
)

// String returns the 16 hex digits that clients see; empty for none.
func (f Fingerprint) String() string {
	if f == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(f))
}

// ParseFingerprint reads what String wrote.
func ParseFingerprint(s string) (Fingerprint, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	f := Fingerprint(n)
	return f, err == nil && s != "" && f.String() == s
}

const (
	// ErrorHours is the number of hours for which a group counts the errors of each hour.
	ErrorHours = 24
	// ErrorSample is the number of tasks that a group names.
	ErrorSample = 5
	// MaxErrorGroups is the number of groups of a queue in one partition.
	MaxErrorGroups = 1_000
	// MaxErrorsListed is the number of groups in an answer.
	MaxErrorsListed = 1_000
)

// ErrorGroup counts the errors of a queue that have one fingerprint.
type ErrorGroup struct {
	Queue       string
	Fingerprint Fingerprint // 0: those that found no room
	// Of all its errors. Without a code the fingerprint is that of the message. Both are empty where the fingerprint is 0.
	Kind string
	Code string
	// Message is that of the last error, at most 256 B.
	Message string
	Count   uint64
	// When the first and the last one were.
	First ShardTime
	Last  ShardTime
	// Trend counts the errors of each of the last hours, the current one last.
	Trend [ErrorHours]uint64
	// The tasks that had it last, the last one first, each once.
	Sample []TaskID
}

// Merge adds the counts of the same group in another partition. Both have the same hours.
func (g *ErrorGroup) Merge(o *ErrorGroup) {
	g.Count += o.Count
	g.First = min(g.First, o.First)
	for i, n := range o.Trend {
		g.Trend[i] += n
	}
	first, second := g.Sample, o.Sample
	if o.Last > g.Last {
		g.Last, g.Message = o.Last, o.Message
		first, second = second, first
	}
	all := append(append(make([]TaskID, 0, len(first)+len(second)), first...), second...)
	g.Sample = all[:min(len(all), ErrorSample)]
}

// ErrorQuery says which groups of errors are read.
type ErrorQuery struct {
	Read  ReadOptions
	Queue string // empty: any
	Kind  string // empty: any
	Span  Millis // seen last within it; 0: ever
}

// ErrorPage is what was read of groups of errors.
type ErrorPage struct {
	Groups []ErrorGroup // those with the highest counts first
	// More says that there are further groups, which were not read or had no room.
	More bool
}

// Cut sorts the groups, those with the highest counts first, and lets those go that have no room in an answer.
func (p *ErrorPage) Cut() {
	slices.SortFunc(p.Groups, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Last, a.Last), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	if len(p.Groups) > MaxErrorsListed {
		p.Groups, p.More = p.Groups[:MaxErrorsListed], true
	}
}
