package row

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// CutPower cuts the power of a server n times under a mixed load: it and its disk lose at one instant what was not synced,
// but for a share that is drawn again each time. It starts again each time, and nothing is lost. A server that was told not to
// sync must lose something under the same cuts, else they prove nothing.
func CutPower(ctx context.Context, e Env, n int) (*Outcome, error) {
	p, err := newPowered(ctx, e, "server", nil)
	if err != nil {
		return nil, err
	}
	o, _, err := faultsUnderLoad(ctx, e, p.s, p.archive(), kinds, func(ctx context.Context, o *Outcome) error {
		p.o = o
		return p.loop(ctx, n)
	})
	if err := errors.Join(err, p.close()); err != nil {
		return nil, err
	}
	o.Done = o.Faults["power_cut"]
	return o, p.control(ctx)
}

// powered is a server on a disk of its own that loses power.
type powered struct {
	e Env
	s *proc.Server
	o *Outcome
	// r draws the cuts.
	r *rand.Rand
	// ready is how long restarts took.
	ready []time.Duration
}

// newPowered makes a server by that name, which is not started, on a disk of its own. Its archive
// is on that disk too.
func newPowered(ctx context.Context, e Env, name string, flags []string) (*powered, error) {
	p := &powered{e: e, o: newOutcome(), r: rand.New(rand.NewPCG(e.Seed, 3))}
	dir := filepath.Join(e.Dir, name)
	disk, err := proc.OpenDisk(e.Disk, dir)
	if err != nil {
		return nil, err
	}
	opts := proc.Options{Binary: e.Binary, Dir: dir, Disk: disk, Flags: append([]string{"--log-archive-dir", filepath.Join(disk.At, "archive")}, flags...)}
	if e.Mutant != "" {
		opts.Env = append(opts.Env, "MILLRACE_MUTANT="+e.Mutant)
	}
	if p.s, err = proc.New(ctx, opts, "default", "neighbour"); err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	return p, nil
}

// close kills the server and unmounts its disk.
func (p *powered) close() error {
	p.s.Kill()
	return p.s.Disk().Close()
}

func (p *powered) disk() *proc.Disk { return p.s.Disk() }

func (p *powered) archive() string { return filepath.Join(p.disk().At, "archive") }

// loop cuts the power as killLoop kills: 50 to 800 ms after the server is ready, one time in four a second later, one time in
// ten again while it recovers. Once it is stopped in order.
func (p *powered) loop(ctx context.Context, cuts int) error {
	if err := p.slowSyncs(); err != nil {
		return err
	}
	for done := 0; done < cuts && ctx.Err() == nil; done++ {
		if done > 0 && done >= cuts/2 && p.o.Faults["stop"] == 0 {
			pause(ctx, 100*time.Millisecond)
			if err := restart(ctx, p.s); err != nil {
				return err
			}
			p.o.Faults["stop"]++
		}
		delay := time.Duration(50+p.r.IntN(750)) * time.Millisecond
		if done%4 == 1 {
			delay += time.Second
		}
		pause(ctx, delay)
		share := drawShare(p.r)
		if done == 0 {
			share = 0 // so that short runs lose something too
		}
		if err := p.cut(share); err != nil {
			return err
		}
		if done+1 < cuts && p.r.IntN(10) == 0 {
			done++
			if _, err := p.s.Launch(); err != nil {
				return err
			}
			pause(ctx, time.Duration(p.r.IntN(60))*time.Millisecond)
			if err := p.cut(drawShare(p.r)); err != nil {
				return fmt.Errorf("while it recovered: %w", err)
			}
			p.o.Faults["power_cut_in_recovery"]++
		}
		if err := p.slowSyncs(); err != nil {
			return err
		}
		took, err := p.s.Start(ctx)
		if err != nil {
			return fmt.Errorf("restart after power cut %d: %w, see %s", done+1, err, p.s.LogFile())
		}
		p.ready = append(p.ready, took)
	}
	p.o.Figures["ready_p50_s"], p.o.Figures["ready_p99_s"] = percentile(p.ready, 50), percentile(p.ready, 99)
	return ctx.Err()
}

// slowSyncs makes syncs take a while, so that more is on its way when the power goes.
func (p *powered) slowSyncs() error { return p.disk().Rules(slowSync(p.r)) }

// slowSync draws a rule by which each sync takes up to 5 ms longer.
func slowSync(r *rand.Rand) proc.DiskRule {
	return proc.DiskRule{Kinds: []string{"sync"}, Delay: time.Duration(r.IntN(6)) * time.Millisecond}
}

// drawShare draws how much of what was not synced survives a power cut, in percent: often nothing, sometimes all.
func drawShare(r *rand.Rand) int {
	switch r.IntN(6) {
	case 0, 1:
		return 0
	case 2:
		return 100
	}
	return 1 + r.IntN(99)
}

// cut cuts the power, and leaves a share of what was not synced.
func (p *powered) cut(share int) error {
	if err := proc.CutPower(func(d *proc.Disk) error { return p.o.lose(d, p.r.Uint64(), share) }, p.s); err != nil {
		return err
	}
	p.o.Faults["power_cut"]++
	return nil
}

// lose takes from a disk what was not synced, and keeps account of it.
func (o *Outcome) lose(d *proc.Disk, seed uint64, share int) error {
	c, err := d.Cut(seed, share)
	for name, n := range map[string]int{
		"sectors_lost": c.SectorsLost, "sectors_kept": c.SectorsKept, "names_lost": c.NamesLost, "names_kept": c.NamesKept,
	} {
		o.Figures[name] += float64(n)
	}
	return err
}

// The control puts controlPuts keys before its power is cut, and has controlWithin for all it does.
const (
	//
	controlPuts   = 200
	controlWithin = 2 * time.Minute
)

// control cuts the power of a server that does not sync. Unless acknowledged keys are lost by that, the run proves nothing.
func (p *powered) control(ctx context.Context) error {
	c, err := newPowered(ctx, p.e, "control", []string{"--durability", "none"})
	if err != nil {
		return err
	}
	lost, err := c.losesKeys(ctx)
	if err != nil {
		err = fmt.Errorf("control: %w", err)
	}
	if err == nil && lost == 0 && p.o.Invalid == "" {
		p.o.Invalid = "control: a power cut took nothing that a server without syncs had acknowledged"
	}
	p.o.Figures["control_keys_lost"] = float64(lost)
	return errors.Join(err, c.close())
}

// losesKeys counts the keys that are gone after a power cut. A server that does not start any more has lost all.
func (p *powered) losesKeys(ctx context.Context) (lost int, err error) {
	ctx, cancel := context.WithTimeout(ctx, controlWithin)
	defer cancel()
	if _, err := p.s.Start(ctx); err != nil {
		return 0, err
	}
	c, err := dial(ctx, p.e, one{p.s}, 0, p.s.Tokens[0], "")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	kv := c.KV("control")
	for i := range controlPuts {
		if _, err := kv.Put(ctx, strconv.Itoa(i), "x"); err != nil {
			return 0, err
		}
	}
	if err := p.cut(0); err != nil {
		return 0, err
	}
	if _, err := p.s.Start(ctx); err != nil {
		return controlPuts, nil
	}
	for i := range controlPuts {
		switch _, err := kv.Get(ctx, strconv.Itoa(i)); {
		case errors.Is(err, millrace.ErrNotFound):
			lost++
		case err != nil:
			return 0, err
		}
	}
	return lost, nil
}
