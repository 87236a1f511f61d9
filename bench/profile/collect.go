package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/google/pprof/profile"
)

// Target is a process to profile, and where its profiles come from.
type Target struct {
	// Process names it, and Driver says that it generates the load. Procs is its GOMAXPROCS,
	// against which lock delay is judged.
	Process string
	Driver  bool
	//
	Procs  int
	Source Source
}

// deltas are the kinds that count from the start of the process. What happened in the window is the
// difference of two snapshots.
var deltas = []Kind{Alloc, Block, Mutex}

// Collect profiles one process for window. Every wait for a lock is kept meanwhile, and none
// afterwards. A server counts whole seconds, so window should be whole seconds. The rates are reset
// also after an error or a cancelled run.
func Collect(ctx context.Context, t Target, window time.Duration) (s *Set, err error) {
	s = &Set{Process: t.Process, Driver: t.Driver, Procs: t.Procs, Window: window, Files: make(map[Kind][]byte)}
	if err := t.Source.Rates(ctx, 1, 1); err != nil {
		return nil, fmt.Errorf("profile %s: set rates: %w", t.Process, err)
	}
	defer func() {
		// Also after a cancelled run: the rates cost the server something as long as they are on.
		off, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if e := t.Source.Rates(off, 0, 0); e != nil && err == nil {
			s, err = nil, fmt.Errorf("profile %s: reset rates: %w", t.Process, e)
		}
	}()
	if err := s.collect(ctx, t.Source); err != nil {
		return nil, fmt.Errorf("profile %s: %w", t.Process, err)
	}
	return s, nil
}

// collect takes the snapshots before, the CPU profile, which lasts for the window, and the
// snapshots after it. The order makes the differences cover the window and little more.
func (s *Set) collect(ctx context.Context, src Source) error {
	before := make(map[Kind][]byte)
	for _, k := range append([]Kind{Goroutine}, deltas...) {
		b, err := src.Snapshot(ctx, k)
		if err != nil {
			return err
		}
		before[k] = b
	}
	start, err := parse(before[Goroutine])
	if err != nil {
		return err
	}
	s.Start = int(total(start, 0))
	if s.Files[CPU], err = src.Sample(ctx, s.Window); err != nil {
		return err
	}
	for _, k := range append(Kinds()[1:], Leak) {
		b, err := src.Snapshot(ctx, k)
		if k == Leak && errors.Is(err, ErrAbsent) {
			continue
		}
		if err != nil {
			return err
		}
		s.Files[k] = b
	}
	for _, k := range deltas {
		if s.Files[k], err = subtract(s.Files[k], before[k]); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	return nil
}

// subtract returns after without what before had counted already. Stacks with nothing left are dropped.
func subtract(after, before []byte) ([]byte, error) {
	a, err := parse(after)
	if err != nil {
		return nil, err
	}
	b, err := parse(before)
	if err != nil {
		return nil, err
	}
	b.Scale(-1)
	d, err := pb.Merge([]*pb.Profile{a, b})
	if err != nil {
		return nil, err
	}
	kept := d.Sample[:0]
	for _, sample := range d.Sample {
		for i, v := range sample.Value {
			sample.Value[i] = max(v, 0) // scaled estimates of one stack may shrink by rounding
		}
		if !zero(sample.Value) {
			kept = append(kept, sample)
		}
	}
	d.Sample = kept
	d.TimeNanos = a.TimeNanos
	d.DurationNanos = a.TimeNanos - b.TimeNanos
	var out bytes.Buffer
	if err := d.Compact().Write(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// zero reports whether all values are 0.
func zero(values []int64) bool {
	for _, v := range values {
		if v != 0 {
			return false
		}
	}
	return true
}

func parse(b []byte) (*pb.Profile, error) {
	p, err := pb.ParseData(b)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	return p, nil
}

// total sums one column of a profile over all its stacks.
func total(p *pb.Profile, column int) int64 {
	var sum int64
	for _, s := range p.Sample {
		sum += s.Value[column]
	}
	return sum
}
