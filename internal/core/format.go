package core

import (
	"fmt"
	"strings"
)

// An entry's format is the version of its encoding and of the rules of Apply that it was proposed under. A program knows
// all formats up to its newest; what is written is the active format of the cluster, which is replicated state and rises
// only by a FormatRaise, once the programs of all members know it. So members whose programs differ apply an entry alike.

// FormatFirst is the format that is active where none was ever raised.
const FormatFirst uint16 = 1

// FormatQueues is the format from which queues without tasks and configuration go by themselves, and may be removed; from which
// times that callers name follow the wall clocks; and from which rulesets and namespaces may be removed.
const FormatQueues uint16 = 2

// FormatOperate is the format from which tasks are cancelled, edited, redriven and released by force, from which they expire and
// have labels, and from which queues are paused.
const FormatOperate uint16 = 3

// FormatShare is the format from which tasks have keys, costs, limiters and tasks that they wait for; from which queues have limits,
// share themselves out between keys; from which crons make tasks; from which batches count tasks; and from which keyspaces keep
// who wrote their keys.
const FormatShare uint16 = 4

// FormatCurrent is the newest entry format that this source defines.
const FormatCurrent = FormatShare

// linkedFormat is not empty in a program that was linked to know one format more, which is the newest under another number:
// for the drill of a rolling upgrade, by -ldflags "-X github.com/millrace/millrace/internal/core.linkedFormat=1".
var linkedFormat string

// NewestFormat is the newest entry format that this program knows.
func NewestFormat() uint16 {
	if linkedFormat != "" {
		return FormatCurrent + 1
	}
	return FormatCurrent
}

// FormatRaise makes a format the active one of the cluster. The node that proposes it has seen that the programs of all
// members of the directory of that version know it.
type FormatRaise struct {
	To      uint16
	Members uint64 // version of the directory; 0: there is none
}

// Kind returns the op's number.
func (*FormatRaise) Kind() OpKind { return OpFormatRaise }

// NewerFormatError says that a program is older than what it is to work with. Nothing was changed.
type NewerFormatError struct {
	Of    string // what has the format
	Found uint16
	Known uint16 // the newest that the program knows
}

// Error names both formats.
func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("%s has format %d, and this program knows formats up to %d: start a newer one", e.Of, e.Found, e.Known)
}

// EntryFormat reads the format of the entry that b encodes, known or not; 0: b is not an entry.
func EntryFormat(b []byte) uint16 {
	r := reader{b: b}
	format := uint16(r.max(1<<16 - 1))
	if r.err != nil {
		return 0
	}
	return format
}

// FormatHeld says that the format cannot be raised, because of members whose programs do not know it, or were not heard. It
// is not a fact of Apply.
type FormatHeld struct {
	Format uint16   // that some member knows
	Older  []uint64 // nodes whose programs do not know it
	Silent []uint64 // nodes that were not reached
}

// Error names the nodes.
func (e FormatHeld) Error() string {
	var why []string
	for _, n := range e.Older {
		why = append(why, fmt.Sprintf("the program of node %d does not know it", n))
	}
	for _, n := range e.Silent {
		why = append(why, fmt.Sprintf("node %d is not reached", n))
	}
	return fmt.Sprintf("format_held: format %d: %s", e.Format, strings.Join(why, ", "))
}
