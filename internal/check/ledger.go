package check

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Outcome is how a call ended for the client that made it.
type Outcome string

// The outcomes. A timeout or a cut connection is unknown, never refused.
const (
	OK      Outcome = "ok"      // acknowledged: must be found afterwards
	Refused Outcome = "refused" // must not be found afterwards
	Unknown Outcome = "unknown" // either, but whole
)

// The ops of a ledger that checkers know. Others are counted and skipped.
const (
	OpCreate   = "create"   // one task
	OpDeliver  = "deliver"  // a handler was started with a task; invoke and return are one instant
	OpComplete = "complete" // settles: the client's lease ends
	OpFail     = "fail"
	OpSnooze   = "snooze"
	OpStop     = "stop" // confirms a cancel
	OpRelease  = "release"
	OpRenew    = "renew"
	OpCommit   = "commit" // fenced with Token, else not
	OpPut      = "kv_put"
	OpDelete   = "kv_delete"
	OpGet      = "get" // reads, from here on
	OpKVGet    = "kv_get"
	OpList     = "list"
	OpStats    = "stats"
	OpWait     = "wait"
)

// Call is one line of a ledger: one call of a client, from its first byte to its end.
type Call struct {
	Invoke    int64         `json:"t_invoke"` // µs of one monotonic clock per ledger
	Return    int64         `json:"t_return"`
	Op        string        `json:"op"`
	ID        string        `json:"id,omitempty"` // of the task
	RequestID string        `json:"request_id,omitempty"`
	Token     uint64        `json:"token,string,omitempty"`
	Attempt   uint32        `json:"attempt,omitempty"`
	Node      uint32        `json:"node,omitempty"`
	Partition PartitionName `json:"partition,omitempty"`
	Index     uint64        `json:"index,omitempty"` // of the log entry that acknowledged it
	Outcome   Outcome       `json:"outcome"`

	// What a workload adds, where it knows it.
	Stamp    int64  `json:"stamp,omitempty"` // shard time of that entry, Unix milliseconds
	Code     string `json:"code,omitempty"`  // of a refusal
	Replayed bool   `json:"replayed,omitempty"`
	Tenant   string `json:"tenant,omitempty"`
	Queue    string `json:"queue,omitempty"`
	Key      string `json:"key,omitempty"`    // unique key of a create; keyspace/key of a read or write
	Value    string `json:"value,omitempty"`  // what was written, or read
	Answer   string `json:"answer,omitempty"` // id of the task that a create was answered with

	// Clock names the clock of Invoke and Return: only calls of one clock have an order in real time.
	Clock string `json:"-"`
}

// PartitionName is a partition as a ledger names it; a bare number is read as well.
type PartitionName string

// UnmarshalJSON reads a string or a number.
func (p *PartitionName) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*p = PartitionName(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*p = PartitionName(n)
	return nil
}

func (c *Call) settles() bool {
	switch c.Op {
	case OpComplete, OpFail, OpStop, OpSnooze, OpRelease:
		return true
	}
	return false
}

func (c *Call) reads() bool {
	switch c.Op {
	case OpGet, OpKVGet, OpList, OpStats, OpWait:
		return true
	}
	return false
}

func (c *Call) writes() bool {
	switch c.Op {
	case OpCreate, OpCommit, OpPut, OpDelete, OpRenew:
		return true
	}
	return c.settles()
}

// String names the call for a violation.
func (c *Call) String() string {
	s := fmt.Sprintf("%s %s", c.Op, c.ID)
	if c.Token != 0 {
		s += fmt.Sprintf(" token=%d", c.Token)
	}
	if c.Index != 0 {
		s += fmt.Sprintf(" index=%d", c.Index)
	}
	return fmt.Sprintf("%s %s [%d,%d]us", s, c.Outcome, c.Invoke, c.Return)
}

// maxLine bounds a ledger line: a value of 1.5 MiB fits after escaping.
const maxLine = 16 << 20

// ReadLedger reads one JSON line per call. A last line that is cut short, as a killed writer leaves it, is dropped and
// reported as torn; any other bad line is an error that names it. clock names the ledger's clock.
func ReadLedger(r io.Reader, clock string) (calls []Call, torn bool, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	for line := 1; ; line++ {
		text, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return calls, torn, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("ledger %s line %d: %w", clock, line, err)
		}
		if torn { // a bad line that was not the last
			return nil, false, fmt.Errorf("ledger %s line %d: not a call", clock, line-1)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		c := Call{Clock: clock}
		if json.Unmarshal(text, &c) != nil || c.Outcome == "" {
			torn = true
			continue
		}
		if err := c.valid(); err != nil {
			return nil, false, fmt.Errorf("ledger %s line %d: %w", clock, line, err)
		}
		calls = append(calls, c)
	}
}

// readLine returns the next line without its end; io.EOF after the last one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

func (c *Call) valid() error {
	switch {
	case c.Outcome != OK && c.Outcome != Refused && c.Outcome != Unknown:
		return fmt.Errorf("outcome %q", c.Outcome)
	case c.Op == "":
		return errors.New("no op")
	case c.Return < c.Invoke:
		return fmt.Errorf("%s returned before it was invoked", c.Op)
	}
	return nil
}

// WriteCall appends one line to a ledger. The caller serializes.
func WriteCall(w io.Writer, c Call) error {
	b, err := json.Marshal(&c)
	if err != nil {
		return fmt.Errorf("encode call: %w", err)
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
}

// Merge puts several ledgers into one list, by clock and then by the time of the call. Times of two clocks are never
// compared.
func Merge(ledgers ...[]Call) []Call {
	all := slices.Concat(ledgers...)
	slices.SortStableFunc(all, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Clock, b.Clock), cmp.Compare(a.Invoke, b.Invoke), cmp.Compare(a.Return, b.Return))
	})
	return all
}
