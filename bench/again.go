package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Again is one audit that was repeated.
type Again struct {
	// Evidence is the path of the evidence file, or says what was read where there is no such file.
	// Row and Run name the run that the evidence is of.
	Evidence string `json:"evidence"`
	Row      string `json:"row,omitempty"`
	Run      int    `json:"run,omitempty"`
	Audit    *Audit `json:"audit"`
}

// AuditKept repeats the audit of a run on its data directory, which was kept: servers are started on it as the bench starts
// them, read, and stopped. Errors: *UsageError for a directory without evidence, *CannotError when no server starts on it.
func AuditKept(ctx context.Context, c Config, dir string) (*Again, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, usage("evidence", "%v", err)
	}
	file := filepath.Join(dir, evidenceFile)
	e, err := readEvidence(file)
	if err != nil {
		return nil, err
	}
	u := &runner{c: &c, h: new(Harness)}
	servers, err := u.startKept(ctx, dir, e)
	if err != nil {
		return nil, &CannotError{fmt.Errorf("start on %s: %w", dir, err)}
	}
	audit, err := servers.again(ctx, e)
	if err = errors.Join(err, servers.close()); err != nil {
		return nil, &CannotError{err}
	}
	return &Again{file, e.Suite + "/" + e.Row, e.Run, audit}, nil
}

// startKept starts servers on the kept data of a run, with the row's shape and durability. A
// cluster needs the configuration files that the evidence names. close also removes the folder of
// sockets; the data stays.
func (u *runner) startKept(ctx context.Context, dir string, e *Evidence) (*cluster, error) {
	exe, err := u.executable()
	if err != nil {
		return nil, err
	}
	spec := &runSpec{suite: &Suite{Name: e.Suite}, row: &RowSpec{Name: e.Row}, shape: e.Shape, durability: e.Durability, group: e.Group}
	start := u.startOne
	if e.Shape.Nodes > 1 {
		if e.Cluster == nil {
			return nil, errors.New("the evidence has no files of its nodes")
		}
		start = func(ctx context.Context, exe, dir string, spec *runSpec) (*cluster, error) {
			return u.startFiles(ctx, exe, dir, spec, *e.Cluster)
		}
	}
	if err := spec.makeSockets(); err != nil {
		return nil, err
	}
	c, err := start(ctx, exe, dir, spec)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(spec.sockets))
	}
	stop := c.close
	c.close = func() error { return errors.Join(stop(), os.RemoveAll(spec.sockets)) }
	c.namespace = e.Namespace
	return c, nil
}

// AuditTarget repeats the audits of runs on the server that they ran against, by the evidence in a directory or file. Without
// evidence, it checks that the counters of every queue of a namespace agree. Errors: *UsageError for a file that is not
// evidence, *CannotError for a server that cannot be read.
func AuditTarget(ctx context.Context, c Config, namespace string, paths ...string) ([]Again, error) {
	servers := &cluster{endpoints: []Endpoint{{Name: "target", Address: c.Target}}, token: c.Token, insecure: c.Insecure}
	var out []Again
	for _, path := range paths {
		files, err := evidenceAt(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			e, err := readEvidence(file)
			if err != nil {
				return nil, err
			}
			servers.namespace = e.Namespace
			audit, err := servers.again(ctx, e)
			if err != nil {
				return nil, &CannotError{err}
			}
			out = append(out, Again{file, e.Suite + "/" + e.Row, e.Run, audit})
		}
	}
	if len(paths) > 0 {
		return out, nil
	}
	servers.namespace = namespace
	audit, err := servers.counters(ctx)
	if err != nil {
		return nil, &CannotError{err}
	}
	return []Again{{Evidence: "counters of namespace " + namespace, Audit: audit}}, nil
}

// again repeats the audit that fits the evidence: of keys, refs or tasks. It asks every server
// first whether it answers, so that a missing server is not taken for lost data.
func (c *cluster) again(ctx context.Context, e *Evidence) (*Audit, error) {
	clients, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(clients)
	o := &oneRun{c: c, clients: clients}
	if _, err := o.answers(ctx); err != nil {
		return nil, err
	}
	switch {
	case e.Keys != nil:
		return (&keyAuditor{e.Keys.ledger(), o.keyReplicas()}).run(ctx)
	case e.Refs != nil:
		return AuditRefs(ctx, e.Refs.ledger(), o.refReaders(e.Refs.Repo)...)
	}
	a := e.Tasks.auditor()
	a.first, a.replicas = clientSource{o.client()}, o.replicas()
	stats, err := a.stats(ctx, a.first)
	if err != nil {
		return nil, err
	}
	a.purges = a.purges || stats.Purged > 0 // retention went on after the run
	return a.run(ctx)
}

// queuesOfPage is how many queues one page of the list holds.
const queuesOfPage = 1_000

// counters checks every queue of the namespace: what was created is in some state, or was removed. It needs no
// evidence, because one answer about a queue is read at one index and so must agree with itself.
func (c *cluster) counters(ctx context.Context) (*Audit, error) {
	clients, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(clients)
	if _, err := (&oneRun{c: c, clients: clients}).answers(ctx); err != nil {
		return nil, err
	}
	out := &Audit{Checked: "counters of every queue", Counts: map[string]uint64{}}
	for cursor, more := "", true; more; more = cursor != "" {
		queues, next, err := clients[0].Queues(ctx, queuesOfPage, cursor)
		if err != nil {
			return nil, fmt.Errorf("list the queues: %w", err)
		}
		for i := range queues {
			s := &queues[i]
			counted := tasksOf(s)
			out.Created, out.Completed, out.Counted = out.Created+s.Created, out.Completed+s.CompletedTotal, out.Counted+counted
			for state, n := range countsOf(s) {
				out.Counts[state] += n
			}
			if counted != s.Created && len(out.Violations) < maxViolations {
				out.Violations = append(out.Violations, fmt.Sprintf("counters: queue %s: %d created, but the states and purged make %d", s.Queue, s.Created, counted))
			}
		}
		cursor = next
	}
	out.OK = len(out.Violations) == 0
	return out, nil
}

// AgainExit is the exit code of repeated audits.
func AgainExit(all []Again) int {
	for _, a := range all {
		if !a.Audit.OK {
			return ExitAudit
		}
	}
	return ExitOK
}
