package row

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/bench/load"
	"github.com/millrace/millrace/test/chaos/proc"
)

const (
	// soakClients search at once.
	soakClients = 50
	// soakReach is how long the closed loop runs that shows what the server can.
	soakReach = 10 * time.Second
	// soakLooks is how often the server's metrics are looked at in a run.
	soakLooks = 200
	// soakGrowth is how much memory and goroutines may grow and still count as flat.
	soakGrowth = 0.1
	// soakOffered is the part of the load that a run must have offered.
	soakOffered = 0.9
)

// SearchSoak searches at half of what a server can, for n minutes. From a fifth of the run on memory and goroutines stay what
// they were, within a tenth; no search fails; and afterwards answers are as exact ones are, and keep their gates.
func SearchSoak(ctx context.Context, e Env, n int) (*Outcome, error) {
	o := newOutcome()
	s, err := e.server(ctx, []string{"--memory", "256MiB"}, "alpha")
	if err != nil {
		return nil, err
	}
	defer s.Kill()
	if _, err := s.Start(ctx); err != nil {
		return nil, err
	}
	data, minute, reach := load.SearchDataOptions{Seed: e.Seed}, time.Minute, soakReach
	if e.Brief {
		data.Workers, data.Orders, minute, reach = 300, 10, 3*time.Second, time.Second/2
	}
	bodies, err := load.SearchBodiesOn(ctx, "http://"+s.HTTP(), s.Tokens[0].Secret, load.NewSearchData(data))
	if err != nil {
		return nil, err
	}
	// A closed loop shows what the server can.
	run := load.SearchLoad{Token: s.Tokens[0].Secret, Bodies: bodies, Concurrency: soakClients, Window: reach, Seed: e.Seed}
	most, err := run.Run(ctx, "http://"+s.HTTP(), load.SearchRoute)
	if err != nil {
		return nil, err
	}
	o.fail(failedSearches(most))
	// Half of that is offered for the rest of the run.
	run.Window, run.Rate, run.Full = time.Duration(n)*minute, most.PerSecond/2, true
	looks := make(chan soakSeries, 1)
	ended, stop := context.WithCancel(ctx)
	defer stop()
	go func() { looks <- look(ended, s, run.Window/soakLooks) }()
	half, err := run.Run(ctx, "http://"+s.HTTP(), load.SearchRoute)
	stop()
	series := <-looks
	if err != nil {
		return nil, err
	}
	o.Done = n
	o.fail(failedSearches(half))
	if offered := float64(half.Requests+half.Errors+half.Overloaded) / (run.Rate * run.Window.Seconds()); offered < soakOffered {
		o.Invalid = fmt.Sprintf("%.0f %% of the load was offered", 100*offered)
	}
	o.Figures["searches"], o.Figures["searches_per_s"], o.Figures["p99_ms"] = float64(half.Requests), half.PerSecond, half.P99
	o.fail(series.judge(o, e.Brief))
	finish(ctx, s, o)
	return o, nil
}

// failedSearches returns an error when searches failed, or when rows came back that their gates keep out.
func failedSearches(f *load.SearchFigures) error {
	switch {
	case f.Errors+f.Overloaded > 0:
		return fmt.Errorf("%d searches failed and %d were sent away, first: %s", f.Errors, f.Overloaded, f.FirstError)
	case f.Violations != nil && *f.Violations > 0:
		return fmt.Errorf("%d rows were returned that a gate excludes", *f.Violations)
	}
	return nil
}

// soakSeries is what a server's metrics said, look by look.
type soakSeries struct {
	// resident is in bytes. Each look adds one value to each of the three.
	resident, goroutines, files []float64
	// err is that of the last look that failed, and failed counts those.
	err    error
	failed int
}

// look reads metrics until ctx ends.
func look(ctx context.Context, s *proc.Server, every time.Duration) (all soakSeries) {
	for {
		pause(ctx, every)
		if ctx.Err() != nil {
			return all
		}
		m, err := s.Metrics(ctx)
		if err != nil {
			if ctx.Err() == nil {
				all.err = err
				all.failed++
			}
			continue
		}
		all.resident = append(all.resident, m["process_resident_memory_bytes"])
		all.goroutines = append(all.goroutines, m["go_goroutines"])
		all.files = append(all.files, m["process_open_fds"])
	}
}

// judge compares the second fifth of a run, when the server has warmed up, with the last one. Of a brief run, in which nothing
// warms up, it only reports.
func (s *soakSeries) judge(o *Outcome, brief bool) error {
	if len(s.resident) < 10 || s.failed > len(s.resident)/10 {
		o.Invalid = fmt.Sprintf("metrics were read %d times, %d more failed: %v", len(s.resident), s.failed, s.err)
		return nil
	}
	var faults []error
	for _, one := range []struct {
		name, what string
		values     []float64
	}{
		{"resident", "resident memory", s.resident}, {"goroutines", "goroutines", s.goroutines}, {"files", "open files", s.files},
	} {
		begin, end := fifth(one.values, 1), fifth(one.values, 4)
		grown := end/begin - 1
		o.Figures[one.name+"_begin"], o.Figures[one.name+"_end"], o.Figures[one.name+"_growth"] = begin, end, grown
		if grown > soakGrowth && !brief {
			faults = append(faults, fmt.Errorf("%s grew by %.0f %%, from %.0f to %.0f", one.what, 100*grown, begin, end))
		}
	}
	return errors.Join(faults...)
}

// fifth is the median of the n-th fifth of a series, counted from 0.
func fifth(values []float64, n int) float64 {
	part := slices.Clone(values[n*len(values)/5 : (n+1)*len(values)/5])
	slices.Sort(part)
	return part[len(part)/2]
}
