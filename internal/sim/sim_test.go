package sim

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/test/chaos/campaign"
)

var (
	seed   = flag.String("seed", "", "the one seed to run")
	seeds  = flag.Int("seeds", 60, "how many seeds to run")
	first  = flag.Uint64("first", 1, "the first of them")
	stride = flag.Uint64("stride", 1, "how far the next is: the other processes run those between")
	steps  = flag.Int("steps", 0, "steps after which a run ends")
	trace  = flag.Bool("trace", false, "print everything that happens")
	out    = flag.String("out", "", "file that gets a line for each run")
)

// kept is how much of what happened last a failure shows.
const kept = 200

// judge makes one run, and shows all that is known of it when it fails.
func judge(t *testing.T, s uint64, p Plan) Result {
	t.Helper()
	o := Options{Steps: *steps}
	if *trace {
		o.Trace = func(line string) { fmt.Println(line) }
	}
	r := Run(s, p, o)
	if r.Violation != nil {
		o.Keep = kept
		if again := Run(s, p, o); !*trace {
			fmt.Println(strings.Join(again.Last, "\n"))
		}
		commit := "unknown"
		if root, err := campaign.Root("."); err == nil {
			commit = campaign.Commit(root)
		}
		t.Errorf("%v\nplan %+v\ncommit %s; run it again with: make sim SEED=0x%x [STEPS=n] [TRACE=1]", r, p, commit, s)
	}
	return r
}

// same fails when a seed gives another history than before.
func same(t *testing.T, before Result, p Plan) {
	t.Helper()
	if again := Run(before.Seed, p, Options{}); again.Trace != before.Trace {
		t.Errorf("two runs of one seed differ:\n%v\n%v", before, again)
	}
}

func TestClustersKeepTheirPromisesUnderFaults(t *testing.T) {
	if *seed != "" {
		s, err := strconv.ParseUint(*seed, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(judge(t, s, PlanOf(s)))
		return
	}
	n := *seeds
	if testing.Short() || underRace {
		n = min(n, 3)
	}
	if os.Getenv("MILLRACE_MUTANT") != "" { // it must be found
		n = 400
	}
	begin, total, acts := time.Now(), 0, map[core.OpKind]int{}
	for i := range uint64(n) {
		s := *first + i**stride
		r := judge(t, s, PlanOf(s))
		record(t, r)
		for kind, n := range r.Acts {
			acts[kind] += n
		}
		if t.Failed() {
			t.FailNow()
		}
		if s%100 == 0 && *steps == 0 {
			same(t, r, PlanOf(s))
		}
		if total += r.Steps; testing.Verbose() && *out == "" {
			t.Log(r)
		}
	}
	if testing.Verbose() {
		t.Logf("%d seeds, %d steps, %.0f steps/s; operators: %v", n, total, float64(total)/time.Since(begin).Seconds(), acts)
	}
	if n >= 100 && *steps == 0 && os.Getenv("MILLRACE_MUTANT") == "" {
		for _, kind := range []core.OpKind{core.OpTaskCancel, core.OpTaskStop, core.OpTaskRedrive, core.OpTaskForceRelease, core.OpTaskUpdate, core.OpQueuePause, core.OpTaskReport, core.OpBulkStart, core.OpBulkStop, core.OpCronSet, core.OpCronDelete, core.OpCronFire, core.OpBatchOpen, core.OpBatchSeal, core.OpBatchCancel, core.OpLimiterSet, core.OpLimiterDelete} {
			if acts[kind] == 0 {
				t.Errorf("%d seeds, and no op of kind %d was done", n, kind)
			}
		}
	}
}

// record adds a run to the file that a campaign counts.
func record(t *testing.T, r Result) {
	t.Helper()
	if *out == "" {
		return
	}
	f, err := os.OpenFile(*out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := done{Seed: r.Seed, Steps: r.Steps, Answers: r.Answers, Reads: r.Reads, Struck: r.Struck}
	if r.Violation != nil {
		line.Violation = r.Violation.Error()
	}
	if err := json.NewEncoder(f).Encode(line); err != nil {
		t.Fatal(err)
	}
}

// newest is how many of the seeds that found something are run on every change.
const newest = 200

func TestSeedsThatFoundSomethingFindItNoMore(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "seeds.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []uint64
	for in := bufio.NewScanner(f); in.Scan(); {
		text, what, _ := strings.Cut(in.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		s, err := strconv.ParseUint(text, 0, 64)
		if err != nil || strings.TrimSpace(what) == "" {
			t.Fatalf("%q: a line is a seed and, after #, what it found", in.Text())
		}
		list = append(list, s)
	}
	list = list[max(0, len(list)-newest):]
	if testing.Short() || underRace {
		list = list[max(0, len(list)-5):]
	}
	for _, s := range list {
		same(t, judge(t, s, PlanOf(s)), PlanOf(s))
	}
}

func TestOneSeedGivesOneHistory(t *testing.T) {
	a, b := Run(7, PlanOf(7), Options{}), Run(8, PlanOf(8), Options{})
	same(t, a, PlanOf(7))
	if a.Trace == b.Trace {
		t.Errorf("two seeds give the same trace %016x", a.Trace)
	}
	if a.Answers == 0 || a.Reads == 0 || a.Claims == 0 {
		t.Errorf("nothing was judged: %+v", a)
	}
}

func TestALogThatIsNotSyncedLosesWhatWasAcknowledged(t *testing.T) {
	p := Usual()
	p.NoSync = true
	for s := range uint64(40) {
		if r := Run(s+1, p, Options{}); r.Violation != nil {
			t.Log(r)
			return
		}
	}
	t.Error("40 seeds without syncs, and nothing was lost: the simulator would not notice")
}

func TestMembersComeAndGoInSomeHistories(t *testing.T) {
	for s := uint64(1); s <= 60; s++ {
		p := PlanOf(s)
		if p.Spares == 0 {
			continue
		}
		if r := judge(t, s, p); r.Changes >= 3 {
			same(t, r, p)
			return
		}
	}
	t.Error("60 seeds, and in none were three changes of membership done")
}
