// Package ledger writes down how each call of a client ended: one line of JSON per call, for audits of what was promised.
package ledger

import (
	"encoding/json"
	"io"
	"strconv"
	"sync"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/fault"
)

// Ledger writes one line of JSON per call that ended. A nil Ledger writes nothing.
type Ledger struct {
	start time.Time // both times of a line count from here, on the monotonic clock

	mu sync.Mutex // guards w, so that lines stay whole
	w  io.Writer
}

// Line is one line; its field names are a contract with the checkers that read it.
type Line struct {
	// Invoke and Return are when the call began and ended, in microseconds since the ledger was made.
	Invoke int64 `json:"t_invoke"`
	Return int64 `json:"t_return"`
	// Op is the kind of call, such as create, commit, kv_put, deliver or complete.
	Op string `json:"op"`
	// ID is that of the task that the call is about; Answer is the one that the server named instead.
	ID        string `json:"id,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// Token and Attempt are those of the lease that a settle or a fenced commit is under.
	Token   string `json:"token,omitempty"`
	Attempt uint32 `json:"attempt,omitempty"`
	// Partition, Index and Stamp (Unix milliseconds) are the place in the log that the answer names.
	Partition string `json:"partition,omitempty"`
	Index     uint64 `json:"index,omitempty"`
	// Outcome is ok, refused or unknown, and Code is that of a refusal.
	Outcome string `json:"outcome"`
	Stamp   int64  `json:"stamp,omitempty"`
	Code    string `json:"code,omitempty"`
	// Replayed says that the call had been applied before.
	Replayed bool `json:"replayed,omitempty"`
	// Queue, Key and Value are what was written or read: Key with its keyspace before it.
	Queue  string `json:"queue,omitempty"`
	Key    string `json:"key,omitempty"`
	Value  string `json:"value,omitempty"`
	Answer string `json:"answer,omitempty"`
}

// New makes a ledger over w, to which each line is one Write; nil where w is nil.
func New(w io.Writer) *Ledger {
	if w == nil {
		return nil
	}
	return &Ledger{start: time.Now(), w: w}
}

// Now is the time of an invocation; 0 without a ledger.
func (l *Ledger) Now() int64 {
	if l == nil {
		return 0
	}
	return time.Since(l.start).Microseconds()
}

// The outcomes of a line.
const (
	OK      = "ok"
	Refused = "refused"
	Unknown = "unknown"
)

// Write ends line now, with what f says of its outcome; nil is success.
func (l *Ledger) Write(line Line, at *millracev1.At, f *fault.Fault) {
	switch {
	case l == nil:
	case f == nil:
		l.End(line, at, OK, "")
	case f.Unknown:
		l.End(line, at, Unknown, "")
	default:
		l.End(line, at, Refused, f.Code)
	}
}

// End ends line now, with an outcome and the code of a refusal. The place in the log of a call that was not acknowledged is unknown: at
// is nil.
func (l *Ledger) End(line Line, at *millracev1.At, outcome, code string) {
	if l == nil {
		return
	}
	line.Return, line.Outcome, line.Code = l.Now(), outcome, code
	if at != nil {
		line.Partition = "p" + strconv.FormatUint(uint64(at.Partition), 10)
		line.Index = at.Index
		if at.Stamp != nil {
			line.Stamp = at.Stamp.AsTime().UnixMilli()
		}
	}
	b, err := json.Marshal(line)
	if err != nil {
		return // strings and numbers always encode
	}
	b = append(b, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.w.Write(b) // a ledger that cannot be written must not change the outcome of a call
}

// Token writes a fencing token as a line has it.
func Token(token uint64) string { return strconv.FormatUint(token, 10) }
