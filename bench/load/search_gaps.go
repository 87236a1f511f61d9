package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench"
)

// The soak offers a share of what a closed loop of soakClients clients has just reached. Arrivals
// that do not wait offer a share of what the reference reaches at most. Where client and server
// share processors, such an arrival costs both sides twice what it costs in a closed loop, which
// wakes no thread while it is busy.
const (
	// soakClients is the number of clients of the soak and of the loop that finds its rate.
	soakClients = 100
	// soakShare is the part of that rate which the soak offers.
	soakShare = 0.5
	// gapMost is what the reference reaches at most, in searches a second.
	gapMost = 8_114
	// gapShare is the part of gapMost that arrivals offer.
	gapShare = 0.6
	// uniqueClient is the number of clients that search for new texts.
	uniqueClient = 10
)

// GapConnections is the number of connections that a server of SearchGaps must take of one address:
// each arrival under way has its own.
const GapConnections = 12_000

// SearchGaps measures what a closed loop of known texts does not show: texts that were never asked
// before, arrivals that do not wait for answers, and a long run. The row's kind says which.
func SearchGaps(ctx context.Context, rig *bench.Rig) error {
	kind, n, lines := rig.Shape.Kind, soakClients, max(soakClients, rig.InFlight)
	if kind == "unique" {
		n, lines = uniqueClient, uniqueClient
	}
	r, err := newSearchRun(ctx, rig, true, lines)
	if err != nil {
		return err
	}
	defer r.close()
	if kind == "unique" || kind == "soak" {
		most, err := r.reach(ctx, n, min(5*time.Second, rig.Window/2))
		if err != nil {
			return err
		}
		rig.Metric("closed_loop_per_s", most, "requests/s")
		if kind == "unique" {
			return r.unique(ctx, n, most)
		}
		rig.Rate = soakShare * most
		return r.soak(ctx, n)
	}
	// A row that says burst alone has bursts of five times the rate.
	if kind == "burst" {
		kind = "burst:5x"
	}
	if rig.Arrivals, err = bench.ParseArrivals(kind); err != nil {
		return err
	}
	rig.Rate, r.sheds = gapShare*gapMost, true
	if err := r.search(ctx, n, r.bodies); err != nil {
		return err
	}
	rig.Metric("overloaded", float64(r.shed.Load()), "requests")
	return nil
}

// reach posts searches by n clients for the time d, and returns how many a second were answered.
// Nothing of it is recorded: it only finds a rate.
func (r *searchRun) reach(ctx context.Context, n int, d time.Duration) (float64, error) {
	began := time.Now()
	var done atomic.Uint64
	var wait sync.WaitGroup
	// faults has a place for each client, so that goroutines share no element.
	faults := make([]error, n)
	for i := range n {
		wait.Go(func() {
			for time.Since(began) < d && ctx.Err() == nil {
				body := r.bodies[r.next.Add(1)%uint64(len(r.bodies))]
				status, err := r.lines[i].post(ctx, SearchRoute+r.door.query, body)
				if err == nil && status != http.StatusOK {
					err = &refusedError{status, string(r.lines[i].body[:min(len(r.lines[i].body), 500)])}
				}
				if err != nil {
					faults[i] = err
					return
				}
				done.Add(1)
			}
		})
	}
	wait.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), errors.Join(faults...)
}

// search posts searches over the window by n clients or at the rig's rate, and compares answers
// with exact ones afterwards.
func (r *searchRun) search(ctx context.Context, n int, bodies [][]byte) error {
	op := r.rig.Op("search")
	done := r.rig.Generate(ctx, n, func(ctx context.Context, p *bench.Pump) {
		r.post(ctx, p.Number%len(r.lines), op, p.Intended, SearchRoute, bodies)
	})
	err := r.rig.Measure(ctx)
	<-done
	if err != nil {
		return err
	}
	return r.finish(ctx, op)
}

// unique posts texts that were never asked before, and reads from the server's cache that it knew
// none of them. warm is the rate of known texts, which the rate of new ones is divided by.
func (r *searchRun) unique(ctx context.Context, n int, warm float64) error {
	// cold makes the texts; nothing is run by it.
	cold := SearchLoad{Bodies: r.bodies, Cold: true, Seed: r.rig.Seed}
	op := r.rig.Op("search")
	before, cache := r.cache(ctx)
	// asked numbers the texts, so each is asked once. inWindow counts those of the window.
	var asked, inWindow atomic.Uint64
	done := r.rig.Generate(ctx, n, func(ctx context.Context, p *bench.Pump) {
		r.post(ctx, p.Number%len(r.lines), op, p.Intended, SearchRoute, [][]byte{cold.body(asked.Add(1))})
		if r.rig.Measuring() {
			inWindow.Add(1)
		}
	})
	err := r.rig.Measure(ctx)
	<-done
	if err != nil {
		return err
	}
	if after, again := r.cache(ctx); cache && again {
		hits, misses := after.hits-before.hits, after.misses-before.misses
		r.rig.Metric("embed_hit_rate", hits/max(1, hits+misses), "share")
		// A hit means that a text was not new, and fewer misses than texts that some were not
		// looked up.
		if hits > 0 || misses < float64(asked.Load()) {
			r.rig.Fail("search", fmt.Errorf("of %d texts that should be new %v were in the cache", asked.Load(), hits))
		}
	}
	if warm > 0 {
		r.rig.Metric("cold_to_warm", float64(inWindow.Load())/r.rig.Window.Seconds()/warm, "ratio")
	}
	return r.finish(ctx, op)
}

// cacheCounts are the hits and misses so far of the server's cache of vectors.
type cacheCounts struct{ hits, misses float64 }

// cache reads them; ok is false when the server does not show them.
func (r *searchRun) cache(ctx context.Context) (c cacheCounts, ok bool) {
	// The cache is shared by all clients of the server, of which the bench is the only one.
	const hits, misses = "millrace_embed_cache_hits_total", "millrace_embed_cache_misses_total"
	admin, err := adminOf(r.rig)
	if err != nil {
		return c, false
	}
	m, err := admin.metrics(ctx, hits, misses)
	return cacheCounts{m[hits], m[misses]}, err == nil
}

// soak searches at half load, and tells how memory and goroutines grew from the end of the first
// fifth of the window, when caches are warm, to its end.
func (r *searchRun) soak(ctx context.Context, n int) error {
	const resident, goroutines = "process_resident_memory_bytes", "go_goroutines"
	admin, err := adminOf(r.rig)
	if err != nil {
		return err
	}
	var begin map[string]float64
	settled := make(chan error, 1)
	go func() {
		<-r.rig.Began()
		err := bench.Pause(ctx, r.rig.Window/5)
		if err == nil {
			begin, err = admin.metrics(ctx, resident, goroutines)
		}
		settled <- err
	}()
	if err := r.search(ctx, n, r.bodies); err != nil {
		return err
	}
	if err := <-settled; err != nil {
		return err
	}
	end, err := admin.metrics(ctx, resident, goroutines)
	if err != nil {
		return err
	}
	r.rig.Metric("rss_growth", end[resident]/begin[resident]-1, "share")
	// A growth of 0 says that the end is as the beginning.
	r.rig.Metric("goroutine_growth", end[goroutines]/begin[goroutines]-1, "share")
	return nil
}

// SearchRestart kills a server that has the workers, starts it again, and times how long it takes
// until an answer is as before.
func SearchRestart(ctx context.Context, rig *bench.Rig) error {
	r, err := newSearchRun(ctx, rig, true, 1)
	if err != nil {
		return err
	}
	defer r.close()
	body := r.bodies[0]
	var before searchAnswer
	if err := r.door.do(ctx, http.MethodPost, SearchRoute, body, &before); err != nil {
		return err
	}
	if len(before.Results) == 0 {
		return errors.New("the body that is asked after the restart has no result")
	}
	return afterKill(ctx, rig, func() error { return r.firstAnswer(ctx, body, &before) })
}

// firstAnswer starts the server and asks until it answers. Until then it may refuse with 503, and nothing
// else. The first answer must have the rows of before: an index that serves too early is an error.
func (r *searchRun) firstAnswer(ctx context.Context, body []byte, before *searchAnswer) error {
	began := time.Now()
	if err := r.rig.Restart(ctx); err != nil {
		return err
	}
	r.rig.Metric("serving_s", time.Since(began).Seconds(), "s")
	r.door = newSearchDoor(r.rig.Servers[0].HTTP, r.rig.Token, r.rig.Namespace)
	for {
		var after searchAnswer
		err := r.door.do(ctx, http.MethodPost, SearchRoute, body, &after)
		switch refused, ok := errors.AsType[*refusedError](err); {
		case err == nil && !sameRows(before, &after):
			return fmt.Errorf("the first answer after the restart is %+v, and was %+v", after.Results, before.Results)
		case err == nil:
			r.rig.Metric("first_answer_s", time.Since(began).Seconds(), "s")
			r.rig.Op("search").Record(0, began, 1, nil)
			return nil
		case !ok || refused.status != http.StatusServiceUnavailable || time.Since(began) > firstWait:
			return err
		}
		// The pause keeps the questions from taking the time that the server needs to start.
		if err := bench.Pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// sameRows compares rows, their scores and their order.
func sameRows(a, b *searchAnswer) bool {
	if len(a.Results) != len(b.Results) {
		return false
	}
	for i := range a.Results {
		if a.Results[i].ID != b.Results[i].ID || a.Results[i].Score != b.Results[i].Score {
			return false
		}
	}
	return true
}

// JudgeInterpreted is the kind of a row of SearchJudge whose rules the server does not compile to closures.
const JudgeInterpreted = "interpreted"

// SearchJudge times the judge by the server's own clock, with rules and without. The difference by
// rule and row is the metric, so that reading candidates cancels out.
func SearchJudge(ctx context.Context, rig *bench.Rig) error {
	r, err := newSearchRun(ctx, rig, false, 1)
	if err != nil {
		return err
	}
	defer r.close()
	// rules is the number of rules, by which the time is divided.
	const rules = 5 // that SearchRules has
	named, ruleset := []byte(`"ruleset":"`+searchRuleset+`"`), searchRuleset
	if rig.Shape.Kind == JudgeInterpreted {
		ruleset = JudgeInterpreted
		if err := r.door.do(ctx, http.MethodPut, "/v1/rulesets/"+ruleset, interpretedRules(searchCollection), nil); err != nil {
			return fmt.Errorf("publish the ruleset: %w", err)
		}
	}
	for i, b := range r.bodies {
		if !bytes.Contains(b, named) {
			return fmt.Errorf("body %d names no ruleset", i)
		}
		r.bodies[i] = bytes.Replace(b, named, []byte(`"ruleset":"`+ruleset+`"`), 1)
	}
	// Every worker is a candidate, so that all rows are judged.
	all := fmt.Sprintf(`,"candidates":%d,"payload":false}`, len(r.data.Workers))
	op := rig.Op("search")
	// Sums over all searches: times in microseconds, and rows.
	var with, without, judged float64
	var wait sync.WaitGroup
	var fault error
	wait.Go(func() {
		<-rig.Began()
		for i := 0; !rig.Done() && ctx.Err() == nil && fault == nil; i++ {
			body := strings.TrimSuffix(string(r.bodies[i%len(r.bodies)]), "}") + all
			// The search without a judge is the same body up to its judge.
			bare, _, _ := strings.Cut(body, `,"judge":`)
			var one, other searchAnswer
			began := time.Now()
			fault = errors.Join(
				r.door.do(ctx, http.MethodPost, SearchRoute, []byte(body), &one),
				r.door.do(ctx, http.MethodPost, SearchRoute, []byte(bare+all), &other),
			)
			op.Record(0, began, 1, fault)
			with, without, judged = with+one.Took.Judge, without+other.Took.Judge, judged+one.Judge.Judged
		}
	})
	err = rig.Measure(ctx)
	wait.Wait()
	if judged == 0 {
		return errors.Join(err, fault, errors.New("no row was judged"))
	}
	rig.Metric("judge_us_per_rule_row", (with-without)/judged/rules, "µs")
	rig.Metric("judged_rows", judged, "rows")
	return errors.Join(err, fault)
}
