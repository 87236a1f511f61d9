package sim

import (
	"flag"
	"testing"
	"time"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed to run")
	seeds = flag.Int("seeds", 100, "how many seeds to run")
	first = flag.Uint64("first", 1, "the first of them")
)

func TestClustersKeepTheirPromisesUnderFaults(t *testing.T) {
	if *seed != 0 {
		r := Run(*seed, Usual())
		t.Log(r)
		if r.Violation != nil {
			t.Fail()
		}
		return
	}
	n := *seeds
	if testing.Short() {
		n = min(n, 5)
	}
	n = seedsForBugs(n)
	for s := *first; s < *first+uint64(n); s++ {
		if r := Run(s, Usual()); r.Violation != nil {
			t.Fatalf("%v\nrun it again with: make sim SEED=%d", r, s)
		} else if testing.Verbose() {
			t.Log(r)
		}
	}
}

func TestOneSeedGivesOneHistory(t *testing.T) {
	p := Usual()
	p.Tasks, p.Faults = 40, 6*time.Second
	a, b, c := Run(7, p), Run(7, p), Run(8, p)
	if a != b {
		t.Errorf("two runs of one seed differ:\n%v\n%v", a, b)
	}
	if a.Trace == c.Trace {
		t.Errorf("two seeds give the same trace %016x", a.Trace)
	}
}

func TestALogThatIsNotSyncedLosesWhatWasAcknowledged(t *testing.T) {
	p := Usual()
	p.NoSync = true
	for s := range uint64(40) {
		if r := Run(s+1, p); r.Violation != nil {
			t.Log(r)
			return
		}
	}
	t.Error("40 seeds without syncs, and nothing was lost: the simulator would not notice")
}
