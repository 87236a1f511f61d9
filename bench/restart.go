package bench

import (
	"context"
	"errors"
	"fmt"
)

// errNotOurs refuses to kill or start a server that is not a process of the bench.
var errNotOurs = errors.New("only servers that are processes of the bench can be killed and started again")

// Began is closed when the window begins.
func (r *Rig) Began() <-chan struct{} { return r.begin }

// Kill ends every server of the run at once, and with it whatever it had in memory only. Errors: servers that are not
// processes of the bench.
func (r *Rig) Kill() error {
	if r.kill == nil {
		return errNotOurs
	}
	return r.kill()
}

// KillServer ends the n-th server, counted from 0, as Kill does; the others go on. Unless Restart follows, the run has
// failed: a server that ends in it is its error.
func (r *Rig) KillServer(n int) error {
	if r.killOne == nil {
		return errNotOurs
	}
	return r.killOne(n)
}

// LosesServers tells that the run itself kills servers and starts them again. So that is not a failure of the run, the
// leaders may be others when the window ends, and the servers' counters restart from 0. Call it before Measure.
func (r *Rig) LosesServers() { r.loses = true }

// Restart starts servers that were killed again on their directories, and returns when they say that they serve. Their
// addresses are others, which Servers then names.
func (r *Rig) Restart(ctx context.Context) error {
	if r.restart == nil {
		return errNotOurs
	}
	return r.restart(ctx)
}

// Purges tells the audit that the servers remove ended tasks while the run lasts: one that was completed may be gone.
func (r *Rig) Purges() { r.purges = true }

// Gauge sets a value that the run's series has for each second from now on.
func (r *Rig) Gauge(name string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gauges == nil {
		r.gauges = map[string]float64{}
	}
	r.gauges[name] = value
}

// restartable gives the rig the functions that kill and start the servers of the run. A cluster
// that cannot be restarted gets none of them.
func (o *oneRun) restartable() {
	if o.c.restart == nil {
		return
	}
	// A process that is gone has no counters in procfs, so what it used is read from its exit status.
	end := func(p *process, how func() error) error {
		if err := how(); err != nil {
			return fmt.Errorf("kill %s: %w", p.name, err)
		}
		used := p.cmd.ProcessState
		o.rig.watch.ended(p.pid, (used.UserTime() + used.SystemTime()).Seconds())
		return nil
	}
	o.rig.kill = func() error {
		o.down.Store(true)
		var all []error
		for _, p := range o.c.procs { // not the single-node server: it is driven in turn, and is never killed
			all = append(all, end(p, p.kill))
		}
		return errors.Join(all...)
	}
	// A driver that did not announce losses gets a crash: the run then fails as if the server had
	// ended by itself.
	o.rig.killOne = func(n int) error {
		p := o.c.procs[n]
		if o.rig.loses {
			return end(p, p.kill)
		}
		return end(p, p.crash)
	}
	// A restart that fails leaves down set, so that no edge of the window asks the servers.
	o.rig.restart = func(ctx context.Context) error {
		if err := o.revive(ctx); err != nil {
			return err
		}
		o.rig.Servers, o.rig.Token = o.c.endpoints, o.c.token
		o.rig.watch.replace(append(o.rig.watch.procs[:1:1], o.c.watched()...)) // the driver stays
		o.down.Store(false)
		return nil
	}
}

// ended tells that a watched process has ended, and how many CPU seconds it used in all. What it
// used in the window is added to spent, or it would be taken for the use of others.
func (w *watch) ended(pid int, seconds float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range w.procs {
		if p.pid == pid && i < len(w.begin.use) {
			w.spent += max(0, seconds-w.begin.use[i].CPU)
		}
	}
}

// replace watches other processes from now on. Those that are new began within the window: all that
// they use belongs to it.
func (w *watch) replace(procs []watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range procs {
		if i < len(w.procs) && i < len(w.begin.use) && procs[i].pid != w.procs[i].pid {
			w.begin.use[i] = ProcessUse{}
		}
	}
	w.procs = procs
}
