package checktest

import (
	"math/rand/v2"
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
				if o.a.Kind == Write || state == o.a.Expect {
					state = o.a.Value
				}
				open = append(open[:k], open[k+1:]...)
				k--
			}
		}
		a := Access{Client: c, Key: "k", Kind: AccessKind(r.IntN(3)), Invoke: now - r.Int64N(2), Return: now + r.Int64N(4), Outcome: check.OK, Value: strconv.Itoa(i + 1)}
		if a.Kind == Swap {
			if a.Expect = state; r.IntN(3) == 0 {
				a.Expect = strconv.Itoa(r.IntN(i + 1))
			}
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
			state = a.Value
		}
		out = append(out, a)
	}
	return out
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
		"a value that nobody wrote":                        {[]Access{first, ok(2, Read, "x", 11, 12)}, false},
		"a write of unknown end is seen":                   {[]Access{first, unknown, ok(2, Read, "u", 40, 41)}, true},
		"a write of unknown end is not seen":               {[]Access{first, unknown, ok(2, Read, "a", 40, 41)}, true},
		"a write of unknown end comes late":                {[]Access{first, unknown, ok(2, Read, "a", 40, 41), ok(2, Read, "u", 42, 43)}, true},
		"a write of unknown end comes and goes":            {[]Access{first, unknown, ok(2, Read, "u", 40, 41), ok(2, Read, "a", 42, 43)}, false},
		"a swap of what was there":                         {[]Access{first, swap("a", "b", 11, 12, check.OK), ok(2, Read, "b", 13, 14)}, true},
		"a swap of what was not there":                     {[]Access{first, swap("x", "b", 11, 12, check.OK)}, false},
		"a swap refused though it was there":               {[]Access{first, swap("a", "b", 11, 12, check.Refused)}, false},
		"a swap refused, rightly":                          {[]Access{first, swap("x", "b", 11, 12, check.Refused), ok(2, Read, "a", 13, 14)}, true},
		"two swaps of one value":                           {[]Access{first, swap("a", "b", 11, 12, check.OK), swap("a", "c", 13, 14, check.OK)}, false},
		"a swap of unknown end that could not have worked": {[]Access{first, swap("x", "b", 11, 12, check.Unknown), ok(2, Read, "b", 13, 14)}, false},
	} {
		if r := Linearizable(c.history, enough); r.OK() != c.fine {
			t.Errorf("%s: %s", name, r)
		}
	}
}

func TestAReadOfAnOlderValueIsFoundInALongHistory(t *testing.T) {
	found, seeds := 0, 20
	if testing.Short() {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := randomHistory(r, 200)
		for i := len(h) - 1; i >= 0; i-- { // the last read gets an answer from long before it
			if h[i].Kind == Read && h[i].Value != "" {
				h[i].Value = ""
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

func TestAHistoryWithoutCallsProvesNothing(t *testing.T) {
	refused := Access{Key: "k", Kind: Write, Value: "a", Outcome: check.Refused}
	if r := Linearizable([]Access{refused}, enough); r.OK() {
		t.Errorf("%s", r)
	}
}
