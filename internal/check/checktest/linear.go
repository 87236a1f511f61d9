package checktest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/millrace/millrace/internal/check"
)

// AccessKind is what a call did with a register.
type AccessKind uint8

// The kinds. A swap writes Value if the register holds Expect, and else changes nothing. A delete leaves the key absent. An
// add makes the number that the register holds, in decimal, larger by Delta; an absent key is 0.
const (
	Read AccessKind = iota
	Write
	Swap
	Delete
	Add
)

// WindowCalls is how many judged calls make a window whole.
const WindowCalls = 5000

// Access is one call at a register: a key that any number of clients read and write. An absent key reads as "". Values are
// never written twice. Times are of one clock for all clients.
type Access struct {
	Client  int // calls of one client do not overlap
	Window  int // a stretch of the history that shares no key with any other
	Key     string
	Kind    AccessKind
	Expect  string // of a swap
	Value   string // written, read, or the sum that an add answered
	Delta   int64  // of an add
	Found   bool   // what a delete answered: the key was there
	Invoke  int64
	Return  int64
	Outcome check.Outcome // of a swap: refused when the register held something else, and that was the reason
}

// String names the call for a violation.
func (a *Access) String() string {
	verb := [...]string{
		Read: "reads", Write: "writes", Swap: "swaps " + a.Expect + " for",
		Delete: fmt.Sprintf("deletes, found %t,", a.Found), Add: fmt.Sprintf("adds %d and gets", a.Delta),
	}[a.Kind]
	return fmt.Sprintf("[%d,%d] client %d %s %q: %s", a.Invoke, a.Return, a.Client, verb, a.Value, a.Outcome)
}

// Judged reports whether the call says anything of its key: reads without an answer and changes that were refused, but for
// swaps, say nothing.
func (a *Access) Judged() bool {
	return (a.Kind == Swap || a.Outcome != check.Refused) && (a.Kind != Read || a.Outcome == check.OK)
}

// undecidedShare is what share of keys a search may leave undecided, in percent, before a run proves nothing.
const undecidedShare = 1

// Linearizable judges each key's history by a search for an order of its calls that real time allows and in which each
// call gives the answer that was seen. It knows nothing of indexes and terms. Each key's search may take at most within.
// Calls that are not to be judged are left out; a change whose outcome is unknown may happen at any time after its call, or
// never. Rule: not_linearizable. Counts: keys, undecided, unknown, swaps_refused, and windows: those of at least WindowCalls
// calls with nothing undecided.
func Linearizable(history []Access, within time.Duration) *check.Report {
	r := check.NewReport("linearizable")
	byKey := map[string][]Access{}
	var order []string
	calls := map[int]int{} // by window
	for _, a := range history {
		if !a.Judged() {
			continue
		}
		calls[a.Window]++
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
		r.Counts["keys"]++
		switch porcupine.CheckOperationsTimeout(register, operations(byKey[key]), within) {
		case porcupine.Illegal:
			r.Violate("not_linearizable", "key %s: no order of its %d calls explains what was read:%s", key, len(byKey[key]), narrow(byKey[key], within))
		case porcupine.Unknown:
			r.Counts["undecided"]++
			delete(calls, byKey[key][0].Window)
		}
	}
	for _, n := range calls {
		if n >= WindowCalls {
			r.Counts["windows"]++
		}
	}
	if n := r.Counts["undecided"]; n*100 > r.Counts["keys"]*undecidedShare {
		r.Invalid = fmt.Sprintf("%d of %d keys are undecided", n, r.Counts["keys"])
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
		case a.Kind == Delete:
			return a.Outcome == check.Unknown || a.Found == (state != ""), ""
		case a.Kind == Add:
			sum := plus(state.(string), a.Delta)
			return a.Outcome == check.Unknown || a.Value == sum, sum
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

// plus is what an add leaves under a key. Registers that are added to hold decimal numbers, or nothing.
func plus(holds string, delta int64) string {
	n, err := strconv.ParseInt(cmp.Or(holds, "0"), 10, 64)
	if err != nil {
		return "no sum" // it is never read
	}
	return strconv.FormatInt(n+delta, 10)
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
