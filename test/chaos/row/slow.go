package row

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// SlowDisks makes n faults of the disk of a follower or of the leader of three nodes, under a mixed load: syncs take 100 ms
// longer, nothing is answered for five seconds, or nothing ever again, until that node's power is cut. Writes go on, at another
// leader where a leader's disk does not answer, and nothing is lost.
func SlowDisks(ctx context.Context, e Env, n int) (*Outcome, error) {
	r := &slowRun{clusterRun: clusterRun{e: e, size: 3, disk: true, rand: rand.New(rand.NewPCG(e.Seed, 9))}}
	return r.run(ctx, false, func(ctx context.Context) error {
		probing, stop := context.WithCancel(ctx)
		var probe sync.WaitGroup
		probe.Go(func() { r.probe(probing) })
		err := r.faults(ctx, n)
		stop()
		probe.Wait()
		for phase, took := range r.puts {
			r.o.Figures["put_"+phase+"_p50_s"], r.o.Figures["put_"+phase+"_p99_s"] = percentile(took, 50), percentile(took, 99)
		}
		return err
	})
}

// slowRun is a run in which disks are slow.
type slowRun struct {
	clusterRun

	pmu sync.Mutex // guards the fields below
	// phase is what the run does just now.
	phase string
	// puts is how long puts took, by phase.
	puts byKind
}

// Kinds of faults of a disk. With diskSlow syncs take longer, with diskStall nothing is answered for a while,
// and with diskHang nothing until the power is cut. healthy is the time between faults.
const (
	diskSlow  = "slow"
	diskStall = "stall"
	diskHang  = "hang"
	healthy   = "healthy"
)

// faults makes n faults, one kind after the other: once through at followers, once at the leader.
func (r *slowRun) faults(ctx context.Context, n int) error {
	kinds := []string{diskSlow, diskStall, diskHang}
	first := r.rand.IntN(2 * len(kinds)) // so that few faults are of different kinds too
	for i := range n {
		r.enter(healthy)
		pause(ctx, time.Duration(500+r.rand.IntN(1000))*time.Millisecond)
		lead, err := r.c.Leader(ctx)
		if err != nil {
			return err
		}
		kind, victim, place := kinds[(first+i)%len(kinds)], lead, "leader"
		if (first+i)/len(kinds)%2 == 0 {
			others := r.others(lead.ID)
			victim, place = r.c.Nodes[others[r.rand.IntN(len(others))]-1], "follower"
		}
		if err := r.fault(ctx, kind, victim, place); err != nil {
			return fmt.Errorf("fault %d, %s at the %s: %w", i+1, kind, place, err)
		}
		r.o.Done++
	}
	return ctx.Err()
}

// fault makes one fault, waits until writes go on, at another leader if it took the leader's disk away, and ends it.
func (r *slowRun) fault(ctx context.Context, kind string, n *proc.Node, place string) error {
	r.enter(kind + "_" + place)
	at, begin := r.l.now(), time.Now()
	rule, lasts := r.rule(kind)
	before, err := n.Disk().Calls()
	if err != nil {
		return err
	}
	if err := n.Disk().Rules(rule); err != nil {
		return err
	}
	if kind != diskSlow && place == "leader" {
		took, err := r.anotherLeads(ctx, n, begin)
		if err != nil {
			return err
		}
		r.o.Figures["handover_"+kind+"_s"] = max(r.o.Figures["handover_"+kind+"_s"], took.Seconds())
	}
	if err := r.await(ctx, at, kind+"_"+place); err != nil {
		return err
	}
	pause(ctx, time.Until(begin.Add(lasts)))
	calls, err := n.Disk().Calls()
	if err != nil {
		return err
	}
	// A fault that no call met is not counted as one of its kind.
	if calls.Delayed+calls.Held == before.Delayed+before.Held {
		r.o.Faults[neverFired]++
	} else {
		r.o.Faults[kind+"_"+place]++
	}
	if n.Ended() {
		return fmt.Errorf("node %d ended by itself, see %s", n.ID, n.LogFile())
	}
	if kind == diskHang {
		if err := proc.CutPower(func(d *proc.Disk) error { return r.o.lose(d, r.rand.Uint64(), drawShare(r.rand)) }, n.Server); err != nil {
			return err
		}
		if err := r.start(ctx, n); err != nil {
			return err
		}
	} else if err := n.Disk().Rules(); err != nil {
		return err
	}
	return r.keepsUp(ctx, n)
}

// rule draws what a fault does to which calls, and how long it lasts. The calls that hang are all,
// or all but reads.
func (r *slowRun) rule(kind string) (proc.DiskRule, time.Duration) {
	lasts := time.Duration(3+r.rand.IntN(8)) * time.Second
	if r.e.Brief {
		lasts = 3 * time.Second
	}
	if kind == diskSlow {
		return proc.DiskRule{Kinds: []string{"sync"}, Delay: 100 * time.Millisecond}, lasts
	}
	rule := proc.DiskRule{Hang: true}
	if r.rand.IntN(2) == 0 { // what is in the system's memory can still be read
		rule.Kinds = []string{"sync", "write", "name"}
	}
	if kind == diskStall {
		lasts = 5 * time.Second
	}
	return rule, lasts
}

// anotherLeads waits until another node leads and serves, and returns how long that took. The one whose disk does not answer is
// not asked: it may not answer either.
func (r *slowRun) anotherLeads(ctx context.Context, than *proc.Node, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	for ctx.Err() == nil {
		for _, id := range r.others(than.ID) {
			m, err := r.c.Nodes[id-1].Metrics(ctx)
			if err == nil && m["millrace_node_ready_state"] == 1 {
				return time.Since(since), nil
			}
		}
		pause(ctx, 10*time.Millisecond)
	}
	return 0, fmt.Errorf("node %d, whose disk does not answer, leads after %s", than.ID, hangs)
}

// enter begins a phase.
func (r *slowRun) enter(phase string) {
	r.pmu.Lock()
	defer r.pmu.Unlock()
	r.phase = phase
}

// probe puts a key again and again, and notes how long each put took that was acknowledged.
func (r *slowRun) probe(ctx context.Context) {
	kv := r.m.quiet.KV("probe")
	for ctx.Err() == nil {
		r.pmu.Lock()
		phase := r.phase
		r.pmu.Unlock()
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		begin := time.Now()
		_, err := kv.Put(call, "key", "value")
		cancel()
		if err == nil {
			r.pmu.Lock()
			r.puts.add(phase, time.Since(begin))
			r.pmu.Unlock()
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// SlowDisk makes n faults of the disk of a single server under a mixed load, as SlowDisks does, and presses it with large puts
// meanwhile: calls end by their deadlines, memory stays bounded, and nothing is lost.
func SlowDisk(ctx context.Context, e Env, n int) (*Outcome, error) {
	p, err := newPowered(ctx, e, "server", []string{"--memory", fmt.Sprint(pressMemory)})
	if err != nil {
		return nil, err
	}
	// r is there for its rules: it has no cluster.
	r := &slowRun{clusterRun: clusterRun{e: e, rand: rand.New(rand.NewPCG(e.Seed, 90))}}
	o, _, err := faultsUnderLoad(ctx, e, p.s, p.archive(), kinds, func(ctx context.Context, o *Outcome) error {
		p.o = o
		for i := range n {
			pause(ctx, time.Duration(200+p.r.IntN(800))*time.Millisecond)
			if err := p.slow(ctx, r, []string{diskSlow, diskStall, diskHang}[i%3]); err != nil {
				return fmt.Errorf("fault %d: %w", i+1, err)
			}
			o.Done++
		}
		return ctx.Err()
	})
	return o, errors.Join(err, p.close())
}

const (
	// pressMemory is what the server is told to keep to, in bytes.
	pressMemory = 256 << 20
	// pressers put at the same time, each a value of pressBytes after the other.
	pressers   = 128
	pressBytes = 64 << 10
	// pressWithin is the deadline of a put.
	pressWithin = time.Second
	// A call that ends later than pressLate after its deadline hangs: that is ten times what is aimed at.
	pressLate = 10 * time.Second
	// pressMemoryX times the memory that it is told to keep to is what the server may take, the Go
	// runtime's own included.
	pressMemoryX = 2
)

// slow makes one fault of the server's disk and ends it, the endless one by a power cut.
func (p *powered) slow(ctx context.Context, r *slowRun, kind string) error {
	rule, lasts := r.rule(kind)
	before, err := p.disk().Calls()
	if err != nil {
		return err
	}
	if err := p.disk().Rules(rule); err != nil {
		return err
	}
	if err := p.press(ctx, lasts); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	calls, err := p.disk().Calls()
	if err != nil {
		return err
	}
	if calls.Delayed+calls.Held == before.Delayed+before.Held {
		kind = neverFired
	}
	p.o.Faults[kind]++
	switch {
	case p.s.Ended():
		return fmt.Errorf("the server ended by itself, see %s", p.s.LogFile())
	case kind != diskHang:
		return p.disk().Rules()
	}
	if err := p.cut(drawShare(p.r)); err != nil {
		return err
	}
	if _, err := p.s.Start(ctx); err != nil {
		return fmt.Errorf("restart: %w, see %s", err, p.s.LogFile())
	}
	return nil
}

// press puts large values for a while, by many callers at once, whose calls must end by their deadlines.
func (p *powered) press(ctx context.Context, lasts time.Duration) error {
	c, err := dial(ctx, p.e, one{p.s}, 0, p.s.Tokens[0], "")
	if err != nil {
		return err
	}
	defer c.close() //nolint:errcheck // nothing of it is asked for
	pressing, stop := context.WithTimeout(ctx, lasts)
	defer stop()
	value := string(make([]byte, pressBytes))
	var mu sync.Mutex // guards the next three
	var late time.Duration
	refused, unknown := 0, 0
	var callers sync.WaitGroup
	for i := range pressers {
		callers.Go(func() {
			for n := 0; pressing.Err() == nil; n++ {
				call, cancel := context.WithTimeout(ctx, pressWithin)
				begin := time.Now()
				_, err := c.KV("pressed").Put(call, fmt.Sprintf("%d-%d", i, n%4), value)
				cancel()
				mu.Lock()
				late = max(late, time.Since(begin)-pressWithin)
				switch millrace.OutcomeOf(err) {
				case millrace.Refused:
					refused++
				case millrace.Unknown:
					unknown++
				}
				mu.Unlock()
				pause(pressing, 20*time.Millisecond)
			}
		})
	}
	most := 0
	for pressing.Err() == nil {
		pause(pressing, 50*time.Millisecond)
		most = max(most, p.s.Memory())
	}
	callers.Wait()
	f := p.o.Figures
	f["pressed_refused"] += float64(refused)
	f["pressed_unknown"] += float64(unknown)
	f["late_calls_s"] = max(f["late_calls_s"], late.Seconds())
	f["memory_mib"] = max(f["memory_mib"], float64(most>>20))
	if late > pressLate {
		p.o.fail(fmt.Errorf("a call ended %s after its deadline", late))
	}
	if most > pressMemoryX*pressMemory {
		p.o.fail(fmt.Errorf("the server has %d MiB of memory, and was told to keep to %d", most>>20, pressMemory>>20))
	}
	return nil
}
