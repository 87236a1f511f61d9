package bench

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// profileRun carries out one run with profiles of every process over its window. Begin and End,
// which the profiler waits for, are closed at the edges of the window. Paths of files are made
// relative to the output.
func (u *runner) profileRun(ctx context.Context, spec *runSpec, number int) (*Run, *Diagnosis, error) {
	c, err := u.startCluster(ctx, *spec)
	if err != nil {
		return nil, nil, err
	}
	one := &oneRun{u: u, spec: spec, c: c, run: &Run{Number: number, Profiled: true, Started: time.Now().UTC()}}
	admin, sockets := map[string]string{}, map[string]string{}
	for _, e := range c.endpoints {
		if e.Admin != "" || spec.topology == InProc { // none: this process is the server
			admin[e.Name], sockets[e.Name] = e.Admin, e.Socket
		}
	}
	begin, end := make(chan struct{}), make(chan struct{})
	one.edges = func(e edge) {
		if e == windowBegins {
			close(begin)
		} else {
			close(end)
		}
	}
	suite, row := strings.ReplaceAll(spec.suite.Name, "/", "_"), spec.row.Name
	dir := filepath.Join("profiles", suite, row, string(spec.durability))
	diagnosis, err := u.h.Profile(ctx, ProfileRun{
		Dir: filepath.Join(u.c.Out, dir), Admin: admin, Sockets: sockets, Window: spec.window, Cores: runtime.GOMAXPROCS(0), Begin: begin, End: end,
		Measure: one.carry,
	})
	if err = errors.Join(err, one.end(err)); err != nil {
		return nil, nil, err
	}
	for i, f := range diagnosis.Files {
		if rel, err := filepath.Rel(u.c.Out, f); err == nil && !strings.HasPrefix(rel, "..") {
			diagnosis.Files[i] = rel
		}
	}
	one.run.Profiles = diagnosis.Files
	return one.run, diagnosis, nil
}
