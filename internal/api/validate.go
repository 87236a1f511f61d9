package api

import (
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// NameBytes bounds the names of queues, kinds, keyspaces and namespaces.
const NameBytes = 128

// QueueName holds names of queues and kinds to their alphabet, which has the colon.
func QueueName(field, s string) core.Fact {
	if !isName(s, true) {
		return edge.Invalid(field, "must be made of colon, "+edge.NameRule)
	}
	return nil
}

// isName reports whether s is a name, in which colons are allowed when colon is set.
// It is asked for each name of a task, so it makes no text.
func isName(s string, colon bool) bool {
	if s == "" || len(s) > NameBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		// A name does not begin with one.
		case i > 0 && (c == '.' || c == '_' || c == '-' || c == ':' && colon):
		default:
			return false
		}
	}
	return true
}

// plainText refuses control characters, which have no place in a name or a header.
func plainText(field, s string) core.Fact {
	// A tab is allowed: texts of people have it.
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return edge.Invalid(field, "must be UTF-8 without control characters")
	}
	return nil
}

// TextUpTo is text of at most top bytes.
func TextUpTo(field, s, limit string, top int64) core.Fact {
	if int64(len(s)) > top {
		return edge.TooLarge(field, limit, top)
	}
	return plainText(field, s)
}

// ReadTaskID reads the id of a task.
func ReadTaskID(field, s string) (core.TaskID, core.Fact) {
	id, err := core.ParseTaskID(s)
	if err != nil || id.IsZero() {
		return core.TaskID{}, edge.Invalid(field, core.ErrTaskID.Error())
	}
	return id, nil
}

// hold reads a lease's name. Any number may be somebody's guess at a token: which ones are live is not judged here.
func hold(idField, tokenField, id string, token uint64) (core.TaskHold, core.Fact) {
	task, fact := ReadTaskID(idField, id)
	if fact != nil {
		return core.TaskHold{}, fact
	}
	// A token counts from 1.
	if token == 0 {
		return core.TaskHold{}, edge.Invalid(tokenField, "is required")
	}
	return core.TaskHold{Task: task, Token: core.Token(token)}, nil
}

// Span is a range of durations, in milliseconds, and the name of the limit that ends it.
type Span struct {
	Min, Max int64
	Limit    string // names Max in a refusal
}

// Millis reads a duration that must lie in a span; nil is 0.
func Millis(field string, d *durationpb.Duration, in Span) (core.Millis, core.Fact) {
	if d == nil {
		return 0, nil
	}
	// Beyond the range of protobuf, or with signs that differ.
	if err := d.CheckValid(); err != nil {
		return 0, edge.Invalid(field, "must be a valid duration")
	}
	// Compared in seconds first: a valid duration of protobuf is longer than a time.Duration can say.
	if d.GetSeconds() > in.Max/second {
		return 0, edge.Beyond(field, in.Limit, in.Max, "is too long")
	}
	ms := int64(core.MillisOf(time.Duration(d.GetSeconds())*time.Second + time.Duration(d.GetNanos())))
	switch {
	case d.GetSeconds() < 0 || d.GetNanos() < 0:
		return 0, edge.Invalid(field, "must not be negative")
	case ms > in.Max:
		return 0, edge.Beyond(field, in.Limit, in.Max, "is too long")
	case ms < in.Min:
		return 0, edge.Beyond(field, in.Limit, in.Max, "is too short")
	}
	return core.Millis(ms), nil
}

// moment reads a time at most horizon ahead of now; nil is 0. A time before 1970 is the first millisecond after it.
func moment(field string, t *timestamppb.Timestamp, now core.ShardTime, horizon int64) (core.ShardTime, core.Fact) {
	if t == nil {
		return 0, nil
	}
	if err := t.CheckValid(); err != nil {
		return 0, edge.Invalid(field, "must be a valid timestamp")
	}
	at := core.ShardTimeOf(t.AsTime())
	if at > now.Add(core.Millis(horizon)) {
		return 0, edge.Beyond(field, "horizon_ms", horizon, "lies too far ahead")
	}
	return max(at, 1), nil
}

// count reads a number from 0, which means unset, to top.
func count(field string, n int32, limit string, top int64) core.Fact {
	if n < 0 || int64(n) > top {
		return edge.Beyond(field, limit, top, "is out of range")
	}
	return nil
}
