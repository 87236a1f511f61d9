package checktest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/millrace/millrace/internal/check"
)

// AccessKind is what a call did with a register.
type AccessKind uint8

// The kinds. A swap writes Value if the register holds Expect, and else changes nothing.
const (
	Read AccessKind = iota
	Write
	Swap
)

// Access is one call at a register: a key that any number of clients read and write. An absent key reads as "". Values are
// never written twice. Times are of one clock for all clients.
type Access struct {
	Client  int // calls of one client do not overlap
	Key     string
	Kind    AccessKind
	Expect  string // of a swap
	Value   string // written, or read
	Invoke  int64
	Return  int64
	Outcome check.Outcome // of a swap: refused when the register held something else, and that was the reason
}

// String names the call for a violation.
func (a *Access) String() string {
	verb := [...]string{Read: "reads", Write: "writes", Swap: "swaps " + a.Expect + " for"}[a.Kind]
	return fmt.Sprintf("[%d,%d] client %d %s %q: %s", a.Invoke, a.Return, a.Client, verb, a.Value, a.Outcome)
}

// undecidedShare is what share of keys a search may leave undecided, in percent, before a run proves nothing.
const undecidedShare = 1

// Linearizable judges each key's history by a search for an order of its calls that real time allows and in which each
// call gives the answer that was seen. It knows nothing of indexes and terms. Each key's search may take at most within.
// Reads without an answer and writes that were refused are left out; a write whose outcome is unknown may happen at any
// time after its call, or never. Rule: not_linearizable. Counts: windows (keys), undecided, unknown, swaps_refused.
func Linearizable(history []Access, within time.Duration) *check.Report {
	r := check.NewReport("linearizable")
	byKey := map[string][]Access{}
	var order []string
	for _, a := range history {
		if a.Kind != Swap && a.Outcome == check.Refused || a.Kind == Read && a.Outcome != check.OK {
			continue
		}
		if byKey[a.Key] == nil {
			order = append(order, a.Key)
		}
		byKey[a.Key] = append(byKey[a.Key], a)
		r.Checked++
		switch {
		case a.Outcome == check.Unknown:
			r.Counts["unknown"]++
		case a.Outcome == check.Refused:
			r.Counts["swaps_refused"]++
		}
	}
	for _, key := range order {
		r.Counts["windows"]++
		switch porcupine.CheckOperationsTimeout(register, operations(byKey[key]), within) {
		case porcupine.Illegal:
			r.Violate("not_linearizable", "key %s: no order of its %d calls explains what was read:%s", key, len(byKey[key]), narrow(byKey[key], within))
		case porcupine.Unknown:
			r.Counts["undecided"]++
		}
	}
	if n := r.Counts["undecided"]; n*100 > r.Counts["windows"]*undecidedShare {
		r.Invalid = fmt.Sprintf("%d of %d windows are undecided", n, r.Counts["windows"])
	}
	return r.Done()
}

func operations(calls []Access) []porcupine.Operation {
	ops := make([]porcupine.Operation, len(calls))
	for i, a := range calls {
		ops[i] = porcupine.Operation{ClientId: a.Client, Input: a, Call: a.Invoke, Output: a, Return: a.Return}
		if a.Outcome == check.Unknown {
			ops[i].Return = math.MaxInt64 // it may yet happen
		}
	}
	return ops
}

// register is what a key does. Its state is the value it holds.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		a := input.(Access)
		holds := state == a.Expect
		switch {
		case a.Kind == Read:
			return state == a.Value, state
		case a.Kind == Write, a.Outcome == check.OK && holds, a.Outcome == check.Unknown && holds:
			return true, a.Value
		case a.Outcome == check.OK, a.Outcome == check.Refused && holds:
			return false, state
		}
		return true, state // a swap that found something else, known or not
	},
}

// shownCalls is how much of a history a violation spells out.
const shownCalls = 12

// narrow returns the last calls of the shortest beginning of a history that has no order: what returned last in it is what
// cannot be explained.
func narrow(calls []Access, within time.Duration) string {
	byReturn := slices.Clone(calls)
	ends := func(a Access) int64 {
		if a.Outcome == check.Unknown {
			return math.MaxInt64
		}
		return a.Return
	}
	slices.SortStableFunc(byReturn, func(a, b Access) int { return cmp.Compare(ends(a), ends(b)) })
	known := 0
	for known < len(byReturn) && byReturn[known].Outcome != check.Unknown {
		known++
	}
	open := byReturn[known:]
	low, high := 1, known // the first high calls are too much
	for low < high {
		mid := (low + high) / 2
		some := slices.Concat(byReturn[:mid], open)
		if porcupine.CheckOperationsTimeout(register, operations(some), within) == porcupine.Illegal {
			high = mid
		} else {
			low = mid + 1
		}
	}
	var b strings.Builder
	for _, a := range byReturn[max(0, high-shownCalls):high] {
		b.WriteString("\n    " + a.String())
	}
	return b.String()
}
