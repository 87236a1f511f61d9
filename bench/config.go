package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is what one command measures, and how. Zero fields mean the defaults of the profile, the
// suite and the row; the fields that take -1 for that say so. It is stored as config.json next to
// the result, so that --resume can go on with it: names of fields are part of that form.
type Config struct {
	// Select holds SUITE or SUITE/ROW, or globs of them. Empty with a profile: all rows of it.
	Select  []string
	Profile string
	// Runs is how many runs of each row must count. Window and Warmup replace those of the suite.
	Runs   int
	Window time.Duration
	Warmup time.Duration
	// WarmupSet says that Warmup was given, though it may be 0.
	WarmupSet bool
	// Durability is fsync, none or both.
	Durability string
	Topology   Topology
	// Target is the host:port of a server that runs already; it implies the topology remote. Token
	// is its token and is never stored.
	Target string
	Token  string `json:"-"` // of the target
	// Insecure allows plain text to a target that is not on the loopback device.
	Insecure bool
	// Seed decides everything that is drawn: arrivals, payloads, the order of pairs.
	Seed uint64
	// Validate is sample or full: how much of what was acknowledged is read back.
	Validate string
	// Out is the directory of the result. It must be empty, unless a result is resumed there.
	Out string
	// Keep says when data directories of servers are kept: on-failure, always or never.
	Keep   string
	Resume string // directory of a partial result
	// Concurrency is the number of calls under way at once in a closed loop, over all producers.
	// Rate is arrivals a second, and makes the loop an open one. The two are mutually exclusive.
	Concurrency int
	Rate        float64
	// Arrivals is the pattern of an open loop: uniform, poisson, burst:5x or step:FILE.
	Arrivals string
	// InFlight bounds the calls of an open loop that are under way at once; an arrival beyond it is dropped.
	InFlight      int
	WorkerBatch   int // -1: the row's
	ProducerBatch int // -1: the row's
	Shards        int
	Payload       int  // bytes; -1: the row's
	GroupCommit   bool // false: one log entry per commit, stamped on every figure
	// Judge also judges targets that depend on the machine; Reference fails a run for missing references.
	Judge     bool
	Reference bool // references from other hardware fail a run
	NoProfile bool // no extra, profiled run
	// Force begins a profile although the host is not fit.
	Force bool
	// Command is the command line that repeats the measurement; it is stored with the result.
	Command string
	Version string
	// Executable is the program of the servers; empty: this one. Data is the parent of data
	// directories; empty: the system's directory for temporary files.
	Executable string
	Data       string    // parent of data directories; default the system's for temporary files
	Progress   io.Writer `json:"-"` // one line per step; nil: silent
}

// Defaults returns the configuration of a command without flags.
func Defaults() Config {
	return Config{
		Durability: string(Fsync), Topology: Procs, Seed: 1, Validate: "sample", Keep: "on-failure", InFlight: 10_000,
		WorkerBatch: -1, ProducerBatch: -1, Payload: -1, GroupCommit: true, Arrivals: "uniform",
	}
}

// UsageError refuses a configuration that cannot be run. Field names the flag, file or variable that is wrong.
type UsageError struct {
	Field   string
	Message string
}

func (e *UsageError) Error() string { return e.Field + ": " + e.Message }

// usage makes a *UsageError with a formatted message.
func usage(field, format string, args ...any) error {
	return &UsageError{field, fmt.Sprintf(format, args...)}
}

// The limits of a configuration. They stop a typing error before it takes the machine: memory and
// files grow with each of these. maxBatch is the server's own limit of tasks per call.
const (
	maxRuns        = 100
	maxWindow      = 24 * time.Hour
	maxWarmup      = 10 * time.Minute
	maxConcurrency = 100_000
	maxRate        = 10_000_000
	maxShards      = 64
	maxPayload     = 1 << 20
	maxBatch       = 512
	maxStepBytes   = 64 << 20
	maxStepLines   = 1_000_000
)

// nameOut names the directory of the result by the time, unless it has a name.
func (c *Config) nameOut() {
	if c.Out == "" {
		c.Out = filepath.Join("bench-out", time.Now().Format("20060102-150405"))
	}
}

// Check refuses values outside the limits, and settings that are mutually exclusive. It reads no
// files except that of a step pattern.
func (c *Config) Check() error {
	type bound struct {
		field     string
		v         float64
		low, high float64
	}
	for _, b := range []bound{
		{"runs", float64(c.Runs), 1, maxRuns},
		{"concurrency", float64(c.Concurrency), 1, maxConcurrency},
		{"rate", c.Rate, 1, maxRate},
		{"shards", float64(c.Shards), 1, maxShards},
		{"in-flight", float64(c.InFlight), 1, 10_000_000},
		{"payload", float64(c.Payload), 1, maxPayload},
		{"worker-batch", float64(c.WorkerBatch), 0, maxBatch},
		{"producer-batch", float64(c.ProducerBatch), 0, maxBatch},
	} {
		unset := b.v == 0 || b.v == -1 && b.low <= 1 && (b.field == "payload" || strings.HasSuffix(b.field, "-batch"))
		if !unset && (b.v < b.low || b.v > b.high || math.IsNaN(b.v)) {
			return usage(b.field, "%s is not in %s..%s", short(b.v), short(b.low), short(b.high))
		}
	}
	if c.Window != 0 && (c.Window < time.Second || c.Window > maxWindow) {
		return usage("window", "%s is not in 1s..24h", c.Window)
	}
	if c.Warmup < 0 || c.Warmup > maxWarmup {
		return usage("warm-up", "%s is not in 0..10m", c.Warmup)
	}
	for _, choice := range []struct {
		field, v string
		of       []string
	}{
		{"durability", c.Durability, []string{"fsync", "none", "both"}},
		{"topology", string(c.Topology), []string{string(Procs), string(InProc), string(Remote)}},
		{"validate", c.Validate, []string{"sample", "full"}},
		{"keep", c.Keep, []string{"on-failure", "always", "never"}},
	} {
		if !slices.Contains(choice.of, choice.v) {
			return usage(choice.field, "%q must be one of %s", choice.v, strings.Join(choice.of, ", "))
		}
	}
	if c.Target != "" && c.Topology == InProc {
		return usage("target", "a running server and --topology inproc exclude each other")
	}
	if c.Topology == Remote && c.Target == "" {
		return usage("topology", "remote needs --target")
	}
	if c.Concurrency > 0 && c.Rate > 0 {
		return usage("rate", "an open loop has a rate, a closed loop has a concurrency: give one of them")
	}
	if _, err := ParseArrivals(c.Arrivals); err != nil {
		return err
	}
	return nil
}

// short prints a number without an exponent or needless zeros.
func short(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Durabilities returns the durabilities that were asked for.
func (c *Config) durabilities() []Durability {
	if c.Durability == "both" {
		return []Durability{Fsync, None}
	}
	return []Durability{Durability(c.Durability)}
}

// checkOut refuses an output directory that holds something, unless a result is resumed there. A
// directory that does not exist yet is fine.
func (c *Config) checkOut() error {
	if c.Resume != "" {
		return nil
	}
	entries, err := os.ReadDir(c.Out)
	if err == nil && len(entries) > 0 {
		return usage("out", "%s is not empty; give --resume %s to go on with it", c.Out, c.Out)
	}
	return nil
}

// configFile keeps the configuration in the directory of the result, so that the measurement can be resumed.
const configFile = "config.json"

// takeUp replaces c by the stored configuration of the result that is resumed. When the command
// line names rows too, both must hash alike. Taken from the command line are only the token,
// progress, the program, the directories and force.
func (c *Config) takeUp() error {
	if c.Resume == "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(c.Resume, configFile))
	if err != nil {
		return usage("resume", "%v", err)
	}
	var old Config
	if err := json.Unmarshal(b, &old); err != nil {
		return usage("resume", "%s: %v", configFile, err)
	}
	if asked := len(c.Select) > 0 || c.Profile != ""; asked && c.hash() != old.hash() {
		return usage("resume", "%s was measured with another configuration: %s", c.Resume, old.Command)
	}
	old.Token, old.Progress, old.Executable, old.Resume, old.Out, old.Force = c.Token, c.Progress, c.Executable, c.Resume, c.Resume, c.Force
	*c = old
	return nil
}

// loop returns the settings of the loop that the command line replaces, so that the result shows
// them with the row's shape.
func (c *Config) loop() []Param {
	var out []Param
	if c.Concurrency > 0 {
		out = append(out, Param{"concurrency", strconv.Itoa(c.Concurrency)})
	}
	if c.Rate > 0 {
		out = append(out, Param{"rate", short(c.Rate)}, Param{"arrivals", c.Arrivals})
	}
	return out
}

// aliases are the environment variables that tests and the command line both take. The second name is that of
// the reference's benches, so that their scripts run unchanged; it counts only where our own is not set.
var aliases = []struct{ own, alias string }{
	{"MILLRACE_BENCH_WORKER_BATCH", "PHASE6_BATCH"},
	{"MILLRACE_BENCH_PRODUCER_BATCH", "PHASE6_PROD_BATCH"},
	{"MILLRACE_BENCH_SHARDS", "PHASE8_SHARDS"},
	{"MILLRACE_BENCH_DURABILITY", ""},
	{"MILLRACE_BENCH_TOPOLOGY", ""},
	{"MILLRACE_BENCH_RUNS", ""},
	{"MILLRACE_BENCH_OUT", ""},
}

// commitAlias switches the grouping of commits in the references' benches.
const commitAlias = "RUN_COALESCER"

// FromEnvironment fills c from the environment: own names first, then those of the references' benches. A flag that was
// given wins: set tells which were. Errors: a name of ours that is not known, a value that cannot be read.
func (c *Config) FromEnvironment(environ []string, set func(flag string) bool) error {
	env := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
		known := slices.ContainsFunc(aliases, func(a struct{ own, alias string }) bool { return a.own == k })
		if strings.HasPrefix(k, "MILLRACE_BENCH_") && !known {
			var names []string
			for _, a := range aliases {
				names = append(names, a.own)
			}
			return usage(k, "is not known; nearest: %s", strings.Join(Nearest(k, names), ", "))
		}
	}
	for _, a := range aliases {
		name := a.own
		v, ok := env[a.own]
		if !ok && a.alias != "" {
			name = a.alias
			v, ok = env[a.alias]
		}
		flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(a.own, "MILLRACE_BENCH_")), "_", "-")
		if !ok || set != nil && set(flag) {
			continue
		}
		if err := c.setText(flag, name, v); err != nil {
			return err
		}
	}
	if v, ok := env[commitAlias]; ok && (set == nil || !set("group-commit")) {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return usage(commitAlias, "%q is neither true nor false", v)
		}
		c.GroupCommit = on
	}
	return nil
}

// setText sets one field from the text of an environment variable. name is the variable, for the error.
func (c *Config) setText(flag, name, v string) error {
	switch flag {
	case "durability":
		c.Durability = v
	case "topology":
		c.Topology = Topology(v)
	case "out":
		c.Out = v
	default:
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return usage(name, "%q must be a number", v)
		}
		switch flag {
		case "worker-batch":
			c.WorkerBatch = n
		case "producer-batch":
			c.ProducerBatch = n
		case "shards":
			c.Shards = n
		case "runs":
			if n == 0 {
				return usage(name, "0 is not in 1..%d", maxRuns)
			}
			c.Runs = n
		}
	}
	return nil
}

// Nearest returns up to 3 names that are like name, the most alike first.
func Nearest(name string, names []string) []string {
	s := slices.Clone(names)
	slices.SortStableFunc(s, func(a, b string) int { return distance(name, a) - distance(name, b) })
	return s[:min(3, len(s))]
}

// distance counts the edits that turn a into b (Levenshtein). It keeps one row of the table at a time.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		last := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			last, row[j] = row[j], min(row[j]+1, row[j-1]+1, last+cost)
		}
	}
	return row[len(b)]
}

// dataParent returns the directory that data directories are made in.
func (c *Config) dataParent() string {
	if c.Data != "" {
		return c.Data
	}
	return filepath.Clean(os.TempDir())
}
