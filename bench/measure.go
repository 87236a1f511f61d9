package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// run carries out one run of a row on servers of its own. It returns the run together with an
// error: the servers are ended and failed data is kept in any case.
func (u *runner) run(ctx context.Context, spec *runSpec, number int, profiled bool) (run *Run, err error) {
	if spec.suite.Local {
		return u.local(ctx, spec, number)
	}
	idle := u.idleIO(ctx, spec.verdicts)
	c, err := u.startCluster(ctx, *spec)
	if err != nil {
		return nil, err
	}
	one := &oneRun{u: u, spec: spec, c: c, idle: idle, run: &Run{Number: number, Profiled: profiled, Started: time.Now().UTC()}}
	err = one.carry(ctx)
	if ctx.Err() != nil {
		err = nil // an interrupted run is not a failure, and explains nothing
	}
	failed := err
	if _, ok := errors.AsType[*SkipError](err); ok {
		failed = nil // nothing went wrong that kept data would explain
	}
	return one.run, errors.Join(err, one.end(failed))
}

// oneRun is one run on its servers. One goroutine carries it out; drivers call back into it through
// the functions of its rig.
type oneRun struct {
	// u, spec and c are what the run is made of. rig is nil until the servers are checked and ready
	// to be driven; run collects what is found.
	u    *runner
	spec *runSpec
	c    *cluster
	rig  *Rig
	run  *Run
	// clients are for what the harness itself asks, one for each server. revived are the clients of
	// servers that were started again; clients then holds the same ones.
	clients []*millrace.Client
	revived []*millrace.Client
	// status holds the servers' counters at the edges of the window, by edge and server; nil: not known.
	status [2][]*millrace.ServerStatus
	// led holds the leaders then.
	led [2]leaders
	// edges hears of the edges of the window; it may be nil.
	edges func(e edge)
	// down says that the servers were killed and are not started again yet. Driver and harness both read it.
	down atomic.Bool
	// idle is the pressure of IO before the servers began, as a share of the time.
	idle float64
	// drained says that the driver came to its end without an error.
	drained bool
	// disk is how many bytes a second the disk takes; 0: not measured.
	disk float64
}

// carry does the run, in this order:
//   - connect, and check that the servers are what the figure will say;
//   - make the namespace, probe the disk, and let the driver work;
//   - start servers again that ended by themselves, which fails the run but not its audit;
//   - make the metrics, and judge whether the run counts;
//   - audit.
//
// A run that failed is audited too: an error explains no lost task. An error of carry means that
// there is no run to speak of.
func (o *oneRun) carry(ctx context.Context) (err error) {
	if o.clients, err = o.c.dial(ctx); err != nil {
		return err
	}
	defer closeAll(o.clients)
	if err := o.checkServers(ctx); err != nil {
		return err
	}
	if err := o.checkBeside(ctx); err != nil {
		return err
	}
	if err := o.partition(ctx); err != nil {
		return err
	}
	o.rig = o.u.newRig(o.spec, o.c)
	o.rig.marks = o.mark
	o.restartable()
	p50, p99 := 0.0, 0.0
	if o.c.dir != "" { // the disk of a server elsewhere cannot be probed from here
		if p50, p99, err = probeSync(o.c.dir, o.probes()); err != nil {
			return err
		}
		if err := o.probeWalls(); err != nil {
			return err
		}
	}
	driveErr := o.drive(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if skip, ok := errors.AsType[*SkipError](driveErr); ok {
		return skip
	}
	if gone, ok := errors.AsType[*CannotError](driveErr); ok {
		return gone
	}
	if refused, ok := errors.AsType[*UsageError](driveErr); ok {
		return refused
	}
	if driveErr != nil {
		o.run.Failed = driveErr.Error()
	}
	if why := moved(o.led[windowBegins], o.led[windowEnds]); why != "" && !o.rig.loses {
		o.run.Failed = why
	}
	if gone := o.gone(); gone != nil {
		o.run.Failed = gone.Error()
		if err := o.revive(ctx); err != nil {
			return err
		}
	}
	o.run.Host = o.rig.watch.report()
	if o.rig.peerCPU > 0 {
		o.run.Host.Foreign = max(0, o.run.Host.Foreign-o.rig.peerCPU/(o.rig.watch.elapsed().Seconds()*float64(max(o.u.host.Cores(), 1))))
	}
	o.run.Host.IdleIO, o.run.Host.FdatasyncUS, o.run.Host.Fdatasync99 = o.idle, p50, p99
	o.collect()
	return o.audit(ctx, driveErr == nil)
}

// drive lets the driver work. It cancels the driver's context as soon as a server ends by itself,
// so that no driver waits for one that is gone.
func (o *oneRun) drive(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, p := range o.c.all() {
		go func() {
			select {
			case <-p.exited:
				if p.gone() != nil {
					cancel()
				}
			case <-ctx.Done():
			}
		}()
	}
	o.rig.left = func(ctx context.Context) (uint64, error) {
		s, err := o.client().Queue(o.rig.Queue).Stats(ctx)
		return s.Blocked + s.Scheduled + s.Ready + s.Running, err
	}
	return o.spec.suite.Drive(ctx, o.rig)
}

// The disk may still be busy with what the last run wrote and removed. idleLook is the time of one
// look and idleLooks the most looks, 5 s together.
const (
	idleLook  = 200 * time.Millisecond
	idleLooks = 25
	// glance is the look for figures without a verdict, and fewSyncs the probes of the disk for them.
	glance   = 20 * time.Millisecond
	fewSyncs = 100
)

// probes is how many syncs the disk is probed with before a run.
func (o *oneRun) probes() int {
	if !o.spec.verdicts {
		return fewSyncs
	}
	return probeSyncs
}

// idleIO is the share of the time that something waits for IO before the servers start. It looks until the
// share is within the limit, at most 5 s, or once when no verdict is wanted. 0: it cannot be read. What it
// returns last is part of the run's report, and leaves the run out when it is over the limit.
func (u *runner) idleIO(ctx context.Context, patient bool) (share float64) {
	if u.host == nil {
		return 0
	}
	looks, look := idleLooks, idleLook
	if !patient {
		looks, look = 1, glance
	}
	for range looks {
		a, err := u.host.Pressure()
		if err != nil {
			return 0
		}
		start := u.clocks.Monotonic()
		if Pause(ctx, look) != nil {
			return share
		}
		b, err := u.host.Pressure()
		took := (u.clocks.Monotonic() - start).Seconds()
		if err != nil || took <= 0 {
			return 0
		}
		if share = (b.IO - a.IO) / took; share <= ioLimit {
			break
		}
	}
	return share
}

// gone returns why a server ended by itself; nil: all run, or were told to end.
func (o *oneRun) gone() error {
	for _, p := range o.c.all() {
		if err := p.gone(); err != nil {
			return err
		}
	}
	return nil
}

// revive starts servers that ended by themselves on their directories, so that what they
// acknowledged can be audited. New clients replace the old ones, since the addresses are others.
// Servers that the bench did not start are left alone.
func (o *oneRun) revive(ctx context.Context) error {
	if o.c.restart == nil {
		return nil
	}
	if err := o.c.restartAll(ctx); err != nil {
		return fmt.Errorf("start again after %s: %w", o.run.Failed, err)
	}
	clients, err := o.c.dial(ctx)
	if err != nil {
		return err
	}
	closeAll(o.revived)
	o.revived, o.clients = clients, clients
	if b := o.rig.NextTo; b != nil {
		b.Servers, b.Token = o.c.nextTo.endpoints, o.c.nextTo.token
	}
	return nil
}

// newRig makes what the driver of a run gets: the row's shape, the loop's settings, an empty
// ledger, and a watch over driver and servers. The driver is always the first watched process.
func (u *runner) newRig(spec *runSpec, c *cluster) *Rig {
	arrivals, _ := ParseArrivals(u.c.Arrivals) // checked before
	r := &Rig{
		Suite: spec.suite.Name, Row: spec.row.Name, Shape: spec.shape, Durability: spec.durability, Servers: c.endpoints, Token: c.token, Others: c.others,
		Namespace: c.namespace, Queue: "bench", Payload: payload(spec.shape.Payload), Result: resultBytes, Window: spec.window,
		Warmup: spec.warmup, Concurrency: u.c.Concurrency, Rate: u.c.Rate, Arrivals: arrivals, InFlight: u.c.InFlight, Seed: u.c.Seed,
		Full: u.c.Validate == "full", drainLimit: cmp.Or(u.h.DrainWithin, drainWithin), Ledger: newLedger(u.c.Validate == "full"), Dir: c.dir, plain: c.plain(), clocks: u.clocks,
	}
	r.init()
	if c.nextTo != nil {
		r.NextTo = newBeside(r, c.nextTo)
	}
	procs := append([]watched{{name: "driver", pid: os.Getpid()}}, c.watched()...)
	created, completed := r.Op(spec.op()), r.Op(opComplete)
	r.watch = newWatch(u.clocks, u.host, procs, func() (uint64, uint64) { return created.items(), completed.items() })
	r.watch.gauges = func() map[string]float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return maps.Clone(r.gauges)
	}
	return r
}

// collect makes the run's metrics from what was recorded. The order matters: rates give the number
// of operations, costs divide by it, references and judge read the metrics that are there by then.
func (o *oneRun) collect() {
	r, run, w := o.rig, o.run, o.rig.watch
	if r.hists != nil && r.Rate > 0 {
		r.rotate() // answers that came after the window, to calls that were due within it
	}
	run.Seconds = w.elapsed().Seconds()
	run.Metrics, run.Latency, run.Calls = map[string]Metric{}, map[string]Latency{}, map[string]Calls{}
	for name, m := range r.metrics {
		run.Metrics[name] = m
	}
	for _, op := range r.operations() {
		l, calls := op.summary()
		if l.Count > 0 {
			run.Latency[op.name] = l
			for _, q := range []struct {
				name string
				v    float64
			}{{"p50", l.P50}, {"p99", l.P99}, {"p999", l.P999}, {"mean", l.Mean}} {
				run.Metrics[op.name+"_"+q.name+"_us"] = Metric{q.v, "µs"}
			}
		}
		if calls != (Calls{}) {
			run.Calls[op.name] = calls
		}
		if op.name == "update" && l.Count > 0 && run.Host.FdatasyncUS > 0 {
			run.Metrics["update_mean_over_fdatasync"] = Metric{l.Mean / run.Host.FdatasyncUS, "×"}
		}
	}
	run.Peer = r.peer
	run.Errors, run.Warnings, run.Series = r.errors(), append(run.Warnings, r.warned...), w.series()
	created, completed := r.Op(o.op()).items(), r.Op(opComplete).items()
	run.Ops = o.rates(created, completed)
	o.costs(run.Ops)
	o.references()
	o.judge(created, completed)
}

// references sets the ratio of the headline to published figures, under the name that a target uses.
func (o *oneRun) references() {
	name := cmp.Or(o.spec.row.Headline, o.spec.suite.Headline)
	for _, ref := range o.spec.row.References {
		if m, ok := o.run.Metrics[name]; ok && ref.Ratio != "" && ref.Value > 0 {
			o.run.Metrics[ref.Ratio] = Metric{m.Value / ref.Value, "×"}
		}
	}
}

// rates sets the rates, and returns how many headline operations the window had. A cycle is a task
// that was created and completed; the smaller of the two counts is the number of cycles. A suite
// with a peer sets its rates itself, as each system has only a part of the window.
func (o *oneRun) rates(created, completed uint64) uint64 {
	run := o.run
	per := func(name, unit string, n uint64) {
		if run.Seconds > 0 {
			run.Metrics[name] = Metric{float64(n) / run.Seconds, unit}
		}
	}
	if o.spec.suite.Peer != "" {
		return max(created, completed) // of some of the window only: the driver sets the rates
	}
	if o.spec.shape.Producers > 0 {
		per(o.op()+"s_per_s", o.op()+"s/s", created)
	}
	if o.spec.shape.Workers > 0 {
		per("completes_per_s", "completes/s", completed)
	}
	if o.cycles() {
		per("cycles_per_s", "cycles/s", min(created, completed))
		return min(created, completed)
	}
	if o.spec.suite.Reads {
		return o.requests(per)
	}
	return max(created, completed)
}

// requests sets the rate of each operation of a suite of reads, and of all together. The lag of the
// schedule is not an operation.
func (o *oneRun) requests(per func(name, unit string, n uint64)) (all uint64) {
	for _, op := range o.rig.operations() {
		if n := op.items(); n > 0 && op.name != "schedule_lag" {
			per(op.name+"_per_s", "requests/s", n)
			all += n
		}
	}
	per("requests_per_s", "requests/s", all)
	return all
}

// costs sets what one operation cost client, server and disk: CPU by procfs, writes by the servers'
// own counters, latency against one sync of the disk. A value that is not known is not set.
func (o *oneRun) costs(ops uint64) {
	run, w := o.run, o.rig.watch
	if ops == 0 {
		return
	}
	set := func(name, unit string, v float64) {
		if !math.IsNaN(v) {
			run.Metrics[name] = Metric{v, unit}
		}
	}
	const each = "_per_op" // of a cycle, where tasks are created and completed
	n := float64(ops)
	if run.Host.Observed {
		client, server := w.cpu(0), 0.0
		for i := 1; i < len(w.procs); i++ {
			if w.procs[i].apart {
				continue
			}
			server += w.cpu(i)
			if len(w.procs) > 2 {
				set(metricName(w.procs[i].name)+"_cpu_us"+each, "µs", w.cpu(i)*1e6/n)
			}
		}
		switch {
		case o.spec.suite.Peer != "": // the driver drives both, and tells them apart
			set("server_cpu_us"+each, "µs", server*1e6/n)
		case len(w.procs) > 1:
			set("client_cpu_us"+each, "µs", client*1e6/n)
			set("server_cpu_us"+each, "µs", server*1e6/n)
			set("cpu_us"+each, "µs", (client+server)*1e6/n)
		case o.spec.topology == InProc:
			set("cpu_us"+each, "µs", client*1e6/n)
		default:
			set("client_cpu_us"+each, "µs", client*1e6/n)
		}
		o.footprint(set)
	}
	o.writes(n, set)
	if l, ok := run.Latency[o.op()]; ok && run.Host.FdatasyncUS > 0 {
		set(o.op()+"_mean_over_fdatasync", "×", l.Mean/run.Host.FdatasyncUS)
		set(o.op()+"_p50_over_fdatasync", "×", l.P50/run.Host.FdatasyncUS)
	}
	o.walls(n, set)
}

// The operations of tasks.
const (
	opCreate   = "create"
	opComplete = "complete"
)

// op is what producers call.
func (o *oneRun) op() string { return o.spec.op() }

// cycles reports whether the row creates tasks and completes them. cycles reports whether the row
// creates tasks and completes them.
func (o *oneRun) cycles() bool { return o.spec.shape.Workers > 0 && o.spec.shape.Producers > 0 }

// footprint sets the mean and peak of CPU, and the peak of memory, of each process, over the
// seconds of the window.
func (o *oneRun) footprint(set func(name, unit string, v float64)) {
	for _, p := range o.rig.watch.procs {
		cpu, peak, rss, n := 0.0, 0.0, uint64(0), 0
		for _, s := range o.run.Series {
			if c, ok := s.CPU[p.name]; ok {
				cpu, peak, rss, n = cpu+c, max(peak, c), max(rss, s.RSS[p.name]), n+1
			}
		}
		if n > 0 {
			name := metricName(p.name)
			set(name+"_cpu_mean", "cores", cpu/float64(n))
			set(name+"_cpu_peak", "cores", peak)
			set(name+"_rss_peak", "MiB", float64(rss)/(1<<20))
		}
	}
}

// judge decides whether the run counts, and what is to be said about it. It looks at the host, then
// at the generator of an open loop, or at Little's law in a closed loop. Only judgeHost and
// judgeGenerator leave a run out; all else is a warning.
func (o *oneRun) judge(created, completed uint64) {
	r, run, w := o.rig, o.run, o.rig.watch
	run.Excluded = append(run.Excluded, judgeHost(run.Host, run.Seconds)...)
	if o.spec.topology == Remote { // the target may be on this host, and is not told apart from others there
		run.Excluded = slices.DeleteFunc(run.Excluded, func(e Exclusion) bool { return e.Cause == ForeignCPU })
	}
	warn := func(x *Warning) {
		if x != nil {
			run.Warnings = append(run.Warnings, *x)
		}
	}
	if r.Rate > 0 {
		g := generator{offered: r.offered, lag: run.Latency["schedule_lag"], latency: run.Latency[o.op()], driver: w.cpu(0)}
		g.offered.due = uint64(r.Arrivals.Mean(r.Rate, r.ahead(), w.elapsed()) * w.elapsed().Seconds())
		g.idle = w.end.cpu.Idle - w.begin.cpu.Idle
		ex := judgeGenerator(g)
		run.Excluded = append(run.Excluded, ex...)
		if len(ex) > 0 {
			run.Bound = ex[0].Detail
		}
	} else if calls, ok := run.Calls[o.op()]; ok && run.Seconds > 0 {
		op := o.op()
		if whole, ok := run.Calls["cycle"]; ok { // each caller goes all the way with a task, one after the other
			op, calls = "cycle", whole
		}
		callers := float64(o.spec.shape.Loops())
		switch {
		case r.under > 0:
			callers = r.under
		case r.Concurrency > 0:
			callers = float64(r.Concurrency)
		}
		warn(little(callers, float64(calls.OK)/run.Seconds, run.Latency[op].Mean))
	}
	count := func(p progress) uint64 { return max(p.created, p.completed) }
	if o.cycles() {
		count = func(p progress) uint64 { return min(p.created, p.completed) }
		if run.Seconds > 0 { // else there was no window
			warn(balance(float64(created)/run.Seconds, float64(completed)/run.Seconds))
		}
	}
	warn(stolen(run.Host))
	if o.spec.suite.Peer == "" { // else the systems take turns
		warn(steady(w.ends(count)))
	}
}

// audit proves the run, adds what the driver proves by itself, and checks that a durable server
// counted syncs. The result is in run.Audit; an error means that a server could not be read, so
// that nothing is proved.
func (o *oneRun) audit(ctx context.Context, drained bool) error {
	o.drained = drained
	if o.spec.row.Servers != "" {
		return nil // they keep nothing
	}
	out, err := o.proof(ctx, drained)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	out.Drained = o.rig.drained.Seconds()
	for _, prove := range o.rig.Proofs {
		wrong, err := prove(ctx)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		out.Violations = append(out.Violations, wrong...)
	}
	out.OK = len(out.Violations) == 0
	if why := o.unsynced(); why != "" {
		out.OK = false
		out.Violations = append(out.Violations, why)
	}
	o.run.Audit = out
	return nil
}

// proof runs the audit for what the driver wrote: keys, refs, or else tasks. A suite that moves
// refs and completes tasks is audited by its tasks.
func (o *oneRun) proof(ctx context.Context, drained bool) (*Audit, error) {
	if o.rig.Keys != nil {
		return (&keyAuditor{o.rig.Keys, o.keyReplicas()}).run(ctx)
	}
	if l := o.rig.Refs; l != nil && o.spec.shape.Workers == 0 {
		return AuditRefs(ctx, l, o.refReaders(l.Repo)...)
	}
	a := o.auditor(drained)
	a.first, a.replicas = clientSource{o.client()}, o.replicas()
	return a.run(ctx)
}

// auditor makes the audit of the run's tasks. It sums up the ledger, so the driver must have ended.
// The caller sets the servers to read.
func (o *oneRun) auditor(drained bool) *auditor {
	return &auditor{
		sums: o.rig.Ledger.sums(), sample: o.rig.Ledger.samples(), queue: o.rig.Queue, payload: o.rig.Payload, result: o.rig.Result,
		works: o.spec.shape.Workers > 0, drained: drained, purges: o.rig.purges,
	}
}

// end stops the servers, keeps what explains a failure, and removes the rest. failed is what went
// wrong before. Logs are kept of every bad run; the data directory as --keep says, with its
// evidence next to it. Of a target only the evidence is kept, since its data is elsewhere. Every
// step is tried, whatever failed before it, unless the logs cannot be kept.
func (o *oneRun) end(failed error) error {
	closeAll(o.revived)
	stopped := o.c.close()
	name := fmt.Sprintf("%s.%s.%s.%d", o.spec.suite.Name, o.spec.row.Name, o.spec.durability, o.run.Number)
	name = strings.ReplaceAll(name, "/", "_")
	bad := failed != nil || stopped != nil || o.run.Failed != "" || o.run.Audit != nil && !o.run.Audit.OK || len(o.run.Errors) > 0
	if o.rig != nil && o.rig.hists != nil {
		hists, err := o.rig.hists.save(o.u.c.Out, name)
		o.run.Hists = hists
		failed = err
	} else {
		failed = nil
	}
	if bad {
		if err := o.keepLogs(name); err != nil {
			return errors.Join(stopped, err)
		}
	}
	keep := o.u.c.Keep == "always" || o.u.c.Keep == "on-failure" && bad
	if o.spec.topology == Remote { // what it was given stays there
		file, err := o.keepEvidence(filepath.Join(o.u.c.Out, evidenceDir), name+".json")
		if err == nil && file != "" {
			o.run.Evidence = filepath.Join(evidenceDir, name+".json")
		}
		failed = errors.Join(failed, err)
	}
	if o.c.sockets != "" {
		failed = errors.Join(failed, os.RemoveAll(o.c.sockets))
	}
	if keep && o.c.dir != "" {
		o.run.Kept = o.c.dir
		_, err := o.keepEvidence(o.c.dir, evidenceFile)
		return errors.Join(stopped, failed, err)
	}
	if o.c.dir != "" {
		failed = errors.Join(failed, os.RemoveAll(o.c.dir))
	}
	return errors.Join(stopped, failed)
}

// keepLogs copies the logs of the servers to the output, and names them in the run.
func (o *oneRun) keepLogs(name string) error {
	dir := filepath.Join(o.u.c.Out, "logs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep logs: %w", err)
	}
	for _, p := range o.c.all() {
		b, err := os.ReadFile(p.log)
		if err != nil {
			return fmt.Errorf("keep logs: %w", err)
		}
		file := filepath.Join("logs", name+"."+p.name+".log")
		if err := os.WriteFile(filepath.Join(o.u.c.Out, file), b, 0o644); err != nil {
			return fmt.Errorf("keep logs: %w", err)
		}
		o.run.Logs = append(o.run.Logs, file)
	}
	return nil
}
