package checktest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/check"
)

const enough = 10 * time.Second

// randomHistory makes the history of clients that use one register which is what it should be: each call happens at a
// random instant between its begin and its end, or, when its end is unknown, perhaps later or never.
func randomHistory(r *rand.Rand, calls int) []Access {
	const clients = 5
	var out []Access
	free := make([]int64, clients)
	state, now := "", int64(0)
	type late struct {
		at int64
		a  Access
	}
	var open []late
	for i := range calls {
		c := r.IntN(clients)
		now = max(now, free[c]) + 1 + r.Int64N(3)
		for k := 0; k < len(open); k++ {
			if o := open[k]; o.at <= now {
				state = after(state, o.a)
				open = append(open[:k], open[k+1:]...)
				k--
			}
		}
		a := Access{Client: c, Key: "k", Kind: AccessKind(r.IntN(5)), Invoke: now - r.Int64N(2), Return: now + r.Int64N(4), Outcome: check.OK, Value: strconv.Itoa(1000 * (i + 1))}
		if a.Kind == Swap {
			if a.Expect = state; r.IntN(3) == 0 {
				a.Expect = strconv.Itoa(1000 * r.IntN(i+1))
			}
		}
		if a.Kind == Add {
			a.Delta = r.Int64N(7) - 3
		}
		free[c] = a.Return + 1
		switch {
		case a.Kind == Read:
			a.Value = state
		case r.IntN(20) == 0:
			a.Outcome = check.Unknown
			if r.IntN(2) == 0 {
				open = append(open, late{now + r.Int64N(30), a})
			}
		case a.Kind == Swap && state != a.Expect:
			a.Outcome = check.Refused
		default:
			a.Found = state != ""
			state = after(state, a)
			if a.Kind == Add {
				a.Value = state
			}
		}
		out = append(out, a)
	}
	return out
}

// after is what a register holds after a change.
func after(state string, a Access) string {
	switch {
	case a.Kind == Delete:
		return ""
	case a.Kind == Add:
		n, _ := strconv.Atoi(state)
		return strconv.Itoa(n + int(a.Delta))
	case a.Kind == Swap && state != a.Expect:
		return state
	}
	return a.Value
}

func TestHistoriesOfARealRegisterAreLinearizable(t *testing.T) {
	for seed := range uint64(50) {
		h := randomHistory(rand.New(rand.NewPCG(seed, 1)), 300)
		if r := Linearizable(h, enough); !r.OK() {
			t.Fatalf("seed %d: %s", seed, r)
		}
	}
}

func TestWhatNoRegisterDoesIsFound(t *testing.T) {
	ok := func(client int, kind AccessKind, value string, begin, end int64) Access {
		return Access{Client: client, Key: "k", Kind: kind, Value: value, Invoke: begin, Return: end, Outcome: check.OK}
	}
	swap := func(expect, value string, begin, end int64, outcome check.Outcome) Access {
		return Access{Client: 3, Key: "k", Kind: Swap, Expect: expect, Value: value, Invoke: begin, Return: end, Outcome: outcome}
	}
	del := func(found bool, begin, end int64, outcome check.Outcome) Access {
		return Access{Client: 4, Key: "k", Kind: Delete, Found: found, Invoke: begin, Return: end, Outcome: outcome}
	}
	add := func(delta int64, sum string, begin, end int64, outcome check.Outcome) Access {
		return Access{Client: 5, Key: "k", Kind: Add, Delta: delta, Value: sum, Invoke: begin, Return: end, Outcome: outcome}
	}
	seven := ok(1, Write, "7", 0, 10)
	unknown := ok(1, Write, "u", 20, 21)
	unknown.Outcome = check.Unknown
	first := ok(1, Write, "a", 0, 10)
	for name, c := range map[string]struct {
		history []Access
		fine    bool
	}{
		"a read of the last write":                         {[]Access{first, ok(2, Read, "a", 11, 12)}, true},
		"a stale read":                                     {[]Access{first, ok(1, Write, "b", 11, 20), ok(2, Read, "a", 21, 22)}, false},
		"a lost write":                                     {[]Access{first, ok(2, Read, "", 11, 12)}, false},
		"a read that goes back":                            {[]Access{ok(1, Write, "a", 0, 100), ok(2, Read, "a", 1, 2), ok(3, Read, "", 3, 4)}, false},
		"a value that was never written":                   {[]Access{first, ok(2, Read, "x", 11, 12)}, false},
		"a write of unknown end is seen":                   {[]Access{first, unknown, ok(2, Read, "u", 40, 41)}, true},
		"a write of unknown end is not seen":               {[]Access{first, unknown, ok(2, Read, "a", 40, 41)}, true},
		"a write of unknown end comes late":                {[]Access{first, unknown, ok(2, Read, "a", 40, 41), ok(2, Read, "u", 42, 43)}, true},
		"a write of unknown end comes and goes":            {[]Access{first, unknown, ok(2, Read, "u", 40, 41), ok(2, Read, "a", 42, 43)}, false},
		"a swap of what was there":                         {[]Access{first, swap("a", "b", 11, 12, check.OK), ok(2, Read, "b", 13, 14)}, true},
		"a swap of what was not there":                     {[]Access{first, swap("x", "b", 11, 12, check.OK)}, false},
		"a swap refused though it was there":               {[]Access{first, swap("a", "b", 11, 12, check.Refused)}, false},
		"a swap refused, rightly":                          {[]Access{first, swap("x", "b", 11, 12, check.Refused), ok(2, Read, "a", 13, 14)}, true},
		"two swaps of one value":                           {[]Access{first, swap("a", "b", 11, 12, check.OK), swap("a", "c", 13, 14, check.OK)}, false},
		"a delete of what is there":                        {[]Access{first, del(true, 11, 12, check.OK), ok(2, Read, "", 13, 14)}, true},
		"a delete that removes nothing":                    {[]Access{first, del(true, 11, 12, check.OK), ok(2, Read, "a", 13, 14)}, false},
		"a delete that finds what is gone":                 {[]Access{first, del(true, 11, 12, check.OK), del(true, 13, 14, check.OK)}, false},
		"a delete that misses what is there":               {[]Access{first, del(false, 11, 12, check.OK)}, false},
		"a delete of unknown end comes late":               {[]Access{first, del(false, 11, 12, check.Unknown), ok(2, Read, "a", 13, 14), ok(2, Read, "", 15, 16)}, true},
		"a delete of unknown end comes and goes":           {[]Access{first, del(false, 11, 12, check.Unknown), ok(2, Read, "", 13, 14), ok(2, Read, "a", 15, 16)}, false},
		"adds to a number":                                 {[]Access{seven, add(2, "9", 11, 12, check.OK), add(-10, "-1", 13, 14, check.OK), ok(2, Read, "-1", 15, 16)}, true},
		"an add to an absent key":                          {[]Access{add(2, "2", 0, 1, check.OK), ok(2, Read, "2", 2, 3)}, true},
		"an add that happens twice":                        {[]Access{seven, add(2, "9", 11, 12, check.OK), ok(2, Read, "11", 13, 14)}, false},
		"an add that is lost":                              {[]Access{seven, add(2, "9", 11, 12, check.OK), ok(2, Read, "7", 13, 14)}, false},
		"two adds that get one sum":                        {[]Access{seven, add(2, "9", 11, 13, check.OK), add(2, "9", 12, 14, check.OK)}, false},
		"an add of unknown end that is counted in a sum":   {[]Access{seven, add(2, "", 11, 12, check.Unknown), add(1, "10", 13, 14, check.OK)}, true},
		"an add of unknown end that is counted twice":      {[]Access{seven, add(2, "", 11, 12, check.Unknown), add(1, "12", 13, 14, check.OK)}, false},
		"a refused add that happens":                       {[]Access{seven, add(2, "", 11, 12, check.Refused), ok(2, Read, "9", 13, 14)}, false},
		"a swap of unknown end that could not have worked": {[]Access{first, swap("x", "b", 11, 12, check.Unknown), ok(2, Read, "b", 13, 14)}, false},
	} {
		if r := Linearizable(c.history, enough); r.OK() != c.fine {
			t.Errorf("%s: %s", name, r)
		}
	}
}

func TestAReadOfAnOlderValueIsFoundInALongHistory(t *testing.T) {
	found, seeds := 0, 8
	if testing.Short() {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := randomHistory(r, 100)
		written := slices.IndexFunc(h, func(a Access) bool { return a.Kind == Write && a.Outcome == check.OK })
		for i := len(h) - 1; i >= 0; i-- { // the last read gets an answer from long before it
			if h[i].Kind == Read {
				h[i].Value = h[written].Value
				break
			}
		}
		if !Linearizable(h, enough).OK() {
			found++
		}
	}
	if found != seeds {
		t.Errorf("%d of %d were found", found, seeds)
	}
}

func TestAWindowCountsWhenItIsWholeAndDecided(t *testing.T) {
	var h []Access
	for window, calls := range []int{WindowCalls, WindowCalls - 1, WindowCalls + 1} {
		for i := range calls {
			key := strconv.Itoa(window) + "-" + strconv.Itoa(i/500)
			h = append(h, Access{Window: window, Key: key, Kind: Read, Invoke: int64(2 * i), Return: int64(2*i + 1), Outcome: check.OK})
		}
		h = append(h, Access{Window: window, Key: "refused", Kind: Add, Outcome: check.Refused})
	}
	if r := Linearizable(h, enough); !r.OK() || r.Counts["windows"] != 2 {
		t.Errorf("%s", r)
	}
}

func TestAHistoryWithoutCallsProvesNothing(t *testing.T) {
	refused := Access{Key: "k", Kind: Write, Value: "a", Outcome: check.Refused}
	if r := Linearizable([]Access{refused}, enough); r.OK() {
		t.Errorf("%s", r)
	}
}
