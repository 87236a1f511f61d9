package millrace

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// ledger writes one line per ended call. A nil ledger writes nothing.
type ledger struct {
	start time.Time // both times of a line count from here, on the monotonic clock

	mu sync.Mutex // guards w, so that lines stay whole
	w  io.Writer
}

// ledgerLine is one line; its field names are a contract with the checkers that read it.
type ledgerLine struct {
	Invoke    int64  `json:"t_invoke"`
	Return    int64  `json:"t_return"`
	Op        string `json:"op"`
	ID        string `json:"id,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Token     string `json:"token,omitempty"`
	Attempt   uint32 `json:"attempt,omitempty"`
	Partition string `json:"partition,omitempty"`
	Index     uint64 `json:"index,omitempty"`
	Outcome   string `json:"outcome"`
	Stamp     int64  `json:"stamp,omitempty"`
	Code      string `json:"code,omitempty"`
	Replayed  bool   `json:"replayed,omitempty"`
	Queue     string `json:"queue,omitempty"`
	Key       string `json:"key,omitempty"`
	Value     string `json:"value,omitempty"`
	Answer    string `json:"answer,omitempty"`
}

func newLedger(w io.Writer) *ledger {
	if w == nil {
		return nil
	}
	return &ledger{start: time.Now(), w: w}
}

// now is the time of an invocation; 0 without a ledger.
func (l *ledger) now() int64 {
	if l == nil {
		return 0
	}
	return time.Since(l.start).Microseconds()
}

// write ends line now, with the outcome of err. The index of a call that was not acknowledged is unknown.
func (l *ledger) write(line ledgerLine, at *millracev1.At, err error) {
	if l == nil {
		return
	}
	line.Return = l.now()
	out := OutcomeOf(err)
	line.Outcome = out.String()
	if e, ok := errors.AsType[*Error](err); ok && out == Refused {
		line.Code = string(e.Code)
	}
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

func tokenText(token uint64) string { return strconv.FormatUint(token, 10) }
