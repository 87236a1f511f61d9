package bench

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"
)

// runSpec is one row under one durability, as this command runs it: the table's values with the
// profile and the command line applied. It is not changed while it runs, except for sockets.
type runSpec struct {
	suite      *Suite
	row        *RowSpec
	shape      Shape
	durability Durability
	topology   Topology
	// group says that one log entry may hold several commits; false is stamped on every figure.
	group bool
	// window is the measured time of a run, after a warm-up of warmup.
	window time.Duration
	// later is the window of the runs after the first that counts.
	later  time.Duration
	warmup time.Duration
	// runs is how many runs must count.
	runs int
	// repeat says that runs which the host spoiled are repeated.
	repeat bool
	// verdicts says that the row is judged, so that the harness looks closer at the host and the disk.
	verdicts bool
	// env is added to the environment of the servers.
	env []string
	// sockets is the folder of the operators' sockets. Its path is short, because the path of a
	// socket must be.
	sockets string
	// server is the name of the only server; empty: the name of the first of several.
	server string
}

// after is what a run measures once counted runs of its row count: the first run has the whole
// window, later ones may have a shorter one.
func (s *runSpec) after(counted int) *runSpec {
	if counted == 0 || s.later == s.window {
		return s
	}
	next := *s
	next.window = s.later
	return &next
}

// op is the operation that the row counts.
func (s *runSpec) op() string { return cmp.Or(s.row.Op, s.suite.Op, opCreate) }

// class names durability and voters, such as fsync×1; label is what every figure of the row carries.
func (s *runSpec) class() string { return s.label(Valid).Class() }

func (s *runSpec) label(v Validity) Label {
	l := Label{Durability: s.durability, Voters: s.shape.Voters(), Topology: s.topology, Validity: v}
	if !s.group {
		l.Note = "one commit per entry"
	}
	return l
}

func (s *runSpec) String() string { return s.suite.Name + "/" + s.row.Name + " " + s.class() }

// choose resolves the names, globs and profile of c to specs, in the order of the tables. A row
// that is named but cannot be run is a *UsageError which says why: not built, lacking something,
// only in millrace-peers, or not in one process. A glob or a profile skips such rows in silence,
// unless nothing is left.
func choose(c *Config, h *Harness) ([]runSpec, error) {
	var profile *Profile
	if c.Profile != "" {
		i := slices.IndexFunc(h.Profiles, func(p Profile) bool { return p.Name == c.Profile })
		if i < 0 {
			var names []string
			for _, p := range h.Profiles {
				names = append(names, p.Name)
			}
			return nil, usage("profile", "%q is not known; nearest: %s", c.Profile, strings.Join(Nearest(c.Profile, names), ", "))
		}
		profile = &h.Profiles[i]
	}
	if len(c.Select) == 0 && profile == nil {
		return nil, usage("suite", "name a suite, such as queue.cycle, or a --profile; millrace bench list shows them")
	}
	matched := make([]bool, len(c.Select))
	var out []runSpec
	var unbuilt, several, peers, lacking []string
	for i := range h.Suites {
		s := &h.Suites[i]
		for j := range s.Rows {
			row := &s.Rows[j]
			named := len(c.Select) == 0
			for k, pattern := range c.Select {
				if matchRow(pattern, s.Name, row.Name) {
					named, matched[k] = true, true
				}
			}
			if !named || profile != nil && !slices.Contains(row.Profiles, profile.Name) {
				continue
			}
			if !s.Built() && s.Peer != "" {
				peers = append(peers, s.Name+"/"+row.Name)
				continue
			}
			if !s.Built() {
				if len(c.Select) > 0 && !slices.Contains(unbuilt, s.Name) {
					unbuilt = append(unbuilt, s.Name)
				}
				continue
			}
			if row.Lacks != "" {
				if full := s.Name + "/" + row.Name; slices.Contains(c.Select, full) {
					lacking = append(lacking, full+" cannot be measured yet: "+row.Lacks)
				}
				continue
			}
			if sh := row.Shape; c.Topology == InProc && (sh.Nodes > 1 || sh.Beside || sh.Tenants > 1 || sh.Serve != "") {
				several = append(several, s.Name+"/"+row.Name)
				continue
			}
			out = append(out, specs(c, s, row, profile)...)
		}
	}
	for k, ok := range matched {
		if !ok {
			return nil, usage("suite", "%q is not known; nearest: %s", c.Select[k], strings.Join(Nearest(c.Select[k], rowNames(h.Suites)), ", "))
		}
	}
	if len(unbuilt) > 0 && !hasGlob(c.Select) {
		return nil, usage("suite", "not built yet: %s", strings.Join(unbuilt, ", "))
	}
	if len(lacking) > 0 {
		return nil, usage("suite", "%s", strings.Join(lacking, "; "))
	}
	if len(peers) > 0 && !hasGlob(c.Select) && len(c.Select) > 0 {
		return nil, usage("suite", "millrace-peers measures %s; bench/peers says how it is built", strings.Join(peers, ", "))
	}
	if len(several) > 0 && (len(out) == 0 || len(c.Select) > 0 && !hasGlob(c.Select)) {
		return nil, usage("topology", "inproc has one server, of one tenant and with the settings of every row; others are %s", strings.Join(several, ", "))
	}
	if len(out) == 0 {
		return nil, usage("suite", "nothing that is built matches; millrace bench list shows what there is")
	}
	return out, nil
}

// hasGlob reports whether a pattern matches by glob. What a glob matches in addition is not what
// the user named.
func hasGlob(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return strings.ContainsAny(p, "*?[") })
}

// matchRow matches SUITE, SUITE/ROW, or a glob of either. A suite's own name may hold slashes.
func matchRow(pattern, suite, row string) bool {
	for _, name := range []string{suite, suite + "/" + row} {
		if ok, err := path.Match(pattern, name); pattern == name || err == nil && ok {
			return true
		}
	}
	return false
}

// rowNames lists what can be named on the command line: each suite, and each of its rows.
func rowNames(suites []Suite) []string {
	var out []string
	for _, s := range suites {
		out = append(out, s.Name)
		for _, r := range s.Rows {
			out = append(out, s.Name+"/"+r.Name)
		}
	}
	return out
}

// specs makes one spec per durability. Settings count in this order, from weak to strong: the
// suite, the row, the profile, the command line. A row that fixes its durability or its topology
// wins over all of them, as another would measure something else.
func specs(c *Config, s *Suite, row *RowSpec, p *Profile) []runSpec {
	window, runs, verdicts := row.Window, 5, true
	if window == 0 {
		window = s.Window
	}
	later := cmp.Or(row.Later, window)
	warmup := s.Warmup
	durabilities := c.durabilities()
	if p != nil {
		runs, verdicts = p.Runs, p.Verdicts
		if p.Window != nil {
			window, later = p.Window(s.Name, window), p.Window(s.Name, later)
		}
		if p.Warmup > 0 {
			warmup = p.Warmup
		}
		if p.Fsync && p.None {
			durabilities = []Durability{Fsync, None}
		}
	}
	if row.Runs > 0 {
		runs = min(runs, row.Runs)
	}
	if c.Runs > 0 {
		runs = c.Runs
	}
	if c.Window > 0 {
		window, later = c.Window, c.Window
	}
	if c.WarmupSet {
		warmup = c.Warmup
	}
	switch {
	case row.NoFsync:
		durabilities = []Durability{None}
	case row.OnlyFsync:
		durabilities = []Durability{Fsync}
	}
	if s.Local {
		durabilities = durabilities[:1]
	}
	topology := c.Topology
	if c.Target != "" {
		topology = Remote
	}
	switch {
	case s.Local:
		topology = InProc
	case row.Servers != "":
		topology = Procs
	}
	var out []runSpec
	for _, d := range durabilities {
		spec := runSpec{
			suite: s, row: row, shape: shaped(c, row.Shape), durability: d, topology: topology, group: c.GroupCommit, window: window, later: later,
			warmup: warmup, runs: runs, repeat: p == nil || p.Verdicts, verdicts: verdicts,
		}
		if spec.shape.Commit == "single" {
			spec.group = false
		}
		if !spec.group && !s.Local {
			spec.shape.Commit = "single"
		}
		out = append(out, spec)
	}
	return out
}

// shaped applies what the command line replaces in the shape, where the row has such a part at all.
// A batch of 0 means single calls.
func shaped(c *Config, s Shape) Shape {
	if c.WorkerBatch >= 0 && s.Workers > 0 {
		s.WorkerBatch = c.WorkerBatch
	}
	if c.ProducerBatch >= 0 && s.Producers > 0 {
		s.ProducerBatch = c.ProducerBatch
	}
	if c.Shards > 0 && s.Nodes > 0 {
		s.Shards = c.Shards
	}
	if c.Payload > 0 && s.Producers > 0 {
		s.Payload = c.Payload
	}
	return s
}

// benchName names a row in Go benchmark text: the suite's own name, or Benchmark with each part of
// the suite's name in upper case at its beginning.
func benchName(s *Suite) string {
	if s.Bench != "" {
		return s.Bench
	}
	name := "Benchmark"
	for _, part := range strings.FieldsFunc(s.Name, func(r rune) bool { return r == '.' || r == '/' || r == '-' }) {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}

// payload returns the bytes of a task of the shape: {"bench":true}, or a JSON object of the length that is asked for.
func payload(n int) []byte {
	const short = `{"bench":true}`
	if n == 0 {
		return []byte(short)
	}
	const frame = len(`{"bench":""}`)
	if n <= frame {
		return []byte(strings.Repeat("1", n)) // a number is JSON too
	}
	return []byte(`{"bench":"` + strings.Repeat("x", n-frame) + `"}`)
}

// resultBytes is the result of every task that a worker of the bench completes.
var resultBytes = []byte(`{"ok":true}`)
