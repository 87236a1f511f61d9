package bench

import (
	"slices"
	"time"
)

// Schema names the form of result.json. Within it, fields are only added.
const Schema = "millrace.bench/1"

// Result is everything that one command measured, as result.json holds it.
type Result struct {
	Schema   string    `json:"schema"`
	ID       string    `json:"id"`
	Command  string    `json:"command"` // repeats the measurement
	Seed     uint64    `json:"seed"`
	Profile  string    `json:"profile"` // smoke, quick, seeds, full, or custom
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	Partial  bool      `json:"partial"` // interrupted: rows are missing, and can be added with --resume
	Env      Env       `json:"env"`
	Suites   []Row     `json:"suites"` // one per suite, row and durability, in the order they were asked for
	Verdicts []Verdict `json:"verdicts"`
	Exit     int       `json:"exit"`
}

// Find returns the row of a suite under a durability class such as fsync×1, or nil.
func (r *Result) Find(suite, row, class string) *Row {
	for i := range r.Suites {
		if s := &r.Suites[i]; s.Suite == suite && s.Row == row && s.Durability == class {
			return s
		}
	}
	return nil
}

// Row is one row of one suite under one durability, over all its runs.
type Row struct {
	Suite      string            `json:"suite"`
	Row        string            `json:"row"`
	Durability string            `json:"durability"` // class, such as fsync×1
	Title      string            `json:"title"`
	Label      Label             `json:"label"`
	Shape      []Param           `json:"shape"`   // what was run, in a fixed order
	Summary    Figure            `json:"summary"` // of the headline metric; null when no run was valid
	Headline   string            `json:"headline"`
	Figures    map[string]Figure `json:"figures"` // of every metric, by name; over valid runs
	Runs       []Run             `json:"runs"`    // all of them, those left out too
	Ceiling    *Ceiling          `json:"ceiling,omitempty"`
	Reference  []Reference       `json:"reference,omitempty"`
	Targets    []Target          `json:"targets,omitempty"`
	Warnings   []Warning         `json:"warnings,omitempty"`  // of the row; those of a run are with the run
	Diagnosis  *Diagnosis        `json:"diagnosis,omitempty"` // of the profiled run
	Error      string            `json:"error,omitempty"`     // why the row could not be measured
	Skipped    string            `json:"skipped,omitempty"`   // what this host lacks for the row, which is not a failure
	Bench      string            `json:"bench"`               // name in Go benchmark text, such as BenchmarkQueueCycle
}

// ValidRuns returns the runs that figures are made of.
func (r *Row) ValidRuns() []*Run {
	var out []*Run
	for i := range r.Runs {
		if r.Runs[i].Counts() {
			out = append(out, &r.Runs[i])
		}
	}
	return out
}

// Param is one named setting of a row.
type Param struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Metric is one value of one run with its unit.
type Metric struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Run is one measured window.
type Run struct {
	Number   int                `json:"number"` // from 1, runs that were left out included
	Profiled bool               `json:"profiled,omitempty"`
	Started  time.Time          `json:"started"`
	Seconds  float64            `json:"seconds"` // of the window
	Ops      uint64             `json:"ops"`     // headline operations acknowledged in the window
	Excluded []Exclusion        `json:"excluded,omitempty"`
	Bound    string             `json:"bound,omitempty"` // why the run is a lower bound
	Warnings []Warning          `json:"warnings,omitempty"`
	Metrics  map[string]Metric  `json:"metrics"`
	Latency  map[string]Latency `json:"latency"` // by operation
	Calls    map[string]Calls   `json:"calls"`   // by operation
	Errors   []ErrorClass       `json:"errors,omitempty"`
	Audit    *Audit             `json:"audit,omitempty"`
	Host     HostReport         `json:"host"`
	Series   []Second           `json:"series,omitempty"`
	Hists    []string           `json:"hists,omitempty"`    // .hlog files, below OUT
	Profiles []string           `json:"profiles,omitempty"` // profile files, below OUT
	Logs     []string           `json:"logs,omitempty"`
	Kept     string             `json:"kept,omitempty"`     // data directory that was kept, of a failed audit
	Evidence string             `json:"evidence,omitempty"` // of a run against a target, below OUT: what its audit can be repeated by
	Failed   string             `json:"failed,omitempty"`
	Peer     *PeerReport        `json:"peer,omitempty"` // the system that the run alternated with
}

// PeerReport is the other system of a run that alternates with it. Its figures are metrics whose names begin with peer_,
// in addition to ours, whose names begin with ours_.
type PeerReport struct {
	Name     string  `json:"name"`     // such as asynq
	Server   string  `json:"server"`   // with its version, as it says itself
	Client   string  `json:"client"`   // with its version, as it is linked
	Class    string  `json:"class"`    // F: synced on one node before the acknowledgement, R: on a majority, N: in the page cache
	Declared bool    `json:"declared"` // its starter says so; else the server was asked
	Durable  string  `json:"durable"`  // which steps are durable when they are acknowledged
	Settings []Param `json:"settings"` // of server and client, those that a figure depends on
}

// Counts reports whether figures are made of the run: it was neither left out nor profiled, and it came to its end.
func (r *Run) Counts() bool { return len(r.Excluded) == 0 && !r.Profiled && r.Failed == "" }

// Cause is why a run is left out. There are no others: an error, a slow run or an outlier leaves nothing out.
type Cause string

// The causes.
const (
	ClockJump          Cause = "clock_jump"
	HostStall          Cause = "host_stall"
	Steal              Cause = "steal"
	HostPressure       Cause = "pressure"
	ForeignCPU         Cause = "foreign_cpu"
	GeneratorSaturated Cause = "generator_saturated"
)

// Exclusion is why one run is left out, with the size of what happened.
type Exclusion struct {
	Cause  Cause   `json:"cause"`
	Detail string  `json:"detail"`
	Value  float64 `json:"value"`
	Limit  float64 `json:"limit"`
	Unit   string  `json:"unit"`
}

// Warning is a note at a figure. It changes nothing.
type Warning struct {
	Code   string  `json:"code"` // little_law, not_steady, producer_outruns, spread, outlier, ...
	Detail string  `json:"detail"`
	Value  float64 `json:"value,omitempty"`
}

// Latency is the distribution of one operation's latency in a run, in microseconds.
type Latency struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50_us"`
	P90   float64 `json:"p90_us"`
	P95   float64 `json:"p95_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p999_us"`
	Max   float64 `json:"max_us"`
	Mean  float64 `json:"mean_us"`
}

// Calls counts how the calls of one operation ended, by the server's answers alone.
type Calls struct {
	OK      uint64 `json:"ok"`
	Refused uint64 `json:"refused"`
	Unknown uint64 `json:"unknown"`
	Dropped uint64 `json:"dropped,omitempty"` // arrivals of an open loop that could not be started
}

// ErrorClass counts errors that have the same operation and code.
type ErrorClass struct {
	Op    string `json:"op"`
	Code  string `json:"code"`
	Count uint64 `json:"count"`
	First string `json:"first"` // text of the first one
}

// Audit is the conservation audit of one run.
type Audit struct {
	OK         bool              `json:"ok"`
	Created    uint64            `json:"created"`   // creates acknowledged, warm-up included
	Completed  uint64            `json:"completed"` // completions acknowledged
	Unknown    uint64            `json:"unknown"`   // creates whose end is not known
	Counted    uint64            `json:"counted"`   // tasks that the servers count
	Drained    float64           `json:"drained_s"`
	ReadBack   uint64            `json:"read_back"` // acknowledged writes that were read and compared
	Checked    string            `json:"checked"`   // what was compared: every id, or every 16th
	Violations []string          `json:"violations,omitempty"`
	Counts     map[string]uint64 `json:"counts,omitempty"` // queue counters at the end
	Hashes     map[string]string `json:"hashes,omitempty"` // apply hash of each replica at Index
	Index      uint64            `json:"index,omitempty"`
}

// HostReport is what was seen of the host during a run.
type HostReport struct {
	Observed    bool    `json:"observed"`                 // false where there is no procfs
	Realtime    float64 `json:"realtime_ms"`              // realtime − monotonic moved by
	Boottime    float64 `json:"boottime_ms"`              // boottime − monotonic moved by
	Heartbeat   float64 `json:"heartbeat"`                // heartbeats ÷ those that were due
	LongestGap  float64 `json:"longest_ms"`               // between two heartbeats
	Steal       float64 `json:"steal"`                    // share of the host's CPU, worst second
	Stolen      int     `json:"stolen_seconds,omitempty"` // seconds that lost more than the limit
	Seconds     int     `json:"seconds,omitempty"`        // that were looked at for it
	Foreign     float64 `json:"foreign_cpu"`              // CPU of others, share of the host, whole window
	PressureCPU float64 `json:"pressure_cpu"`             // share of the time that something waited, whole window
	PressureIO  float64 `json:"pressure_io"`              //
	PressureMem float64 `json:"pressure_mem"`             //
	IdleIO      float64 `json:"idle_io"`                  // IO pressure before the start
	FdatasyncUS float64 `json:"fdatasync_p50"`            // µs, on the data directory's disk, just before the run
	Fdatasync99 float64 `json:"fdatasync_p99"`            // µs
}

// Second is one second of a run's window.
type Second struct {
	At        int                `json:"at"`
	Created   uint64             `json:"created"`
	Completed uint64             `json:"completed"`
	CPU       map[string]float64 `json:"cpu"`              // share of one core, by process
	RSS       map[string]uint64  `json:"rss"`              // bytes, by process
	Gauges    map[string]float64 `json:"gauges,omitempty"` // what the driver read of the server, in the unit that the name ends with
}

// Ceiling is what the generator reaches against a server that only acknowledges.
type Ceiling struct {
	Rate    float64 `json:"rate"`
	Unit    string  `json:"unit"`
	Reached float64 `json:"reached"` // row ÷ ceiling
	Bound   bool    `json:"bound"`   // at 0.8 or more: the row is a lower bound
}

// Reference is one published figure of the system that the suite is held against. It is context, never a limit.
type Reference struct {
	System string  `json:"system"`
	Name   string  `json:"name"` // of the figure
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Note   string  `json:"note,omitempty"`  // hardware and durability it was measured with
	Ratio  string  `json:"ratio,omitempty"` // metric that has the row's headline ÷ this figure; empty: none has
}

// Target is a figure to reach. Machine-free ones are always judged.
type Target struct {
	Metric      string  `json:"metric"`
	Durability  string  `json:"durability,omitempty"` // empty: any
	Must        float64 `json:"must,omitempty"`
	Aim         float64 `json:"aim,omitempty"`
	AtMost      bool    `json:"at_most"`                 // smaller is better
	BoxMust     float64 `json:"box_must,omitempty"`      // in place of must where the machine is the wall; 0: the same
	BoxBound    bool    `json:"box_bound,omitempty"`     // it was
	DiskFloor   float64 `json:"disk_floor_us,omitempty"` // of a multiple of the disk's time: what the disk is taken for at the least, in microseconds
	Cores       int     `json:"cores,omitempty"`         // on fewer it is printed and not judged; 0: any
	MachineFree bool    `json:"machine_free"`
	Source      string  `json:"source"` // of the target, for people
	MustMet     *bool   `json:"must_met,omitempty"`
	AimMet      *bool   `json:"aim_met,omitempty"`
	Judged      bool    `json:"judged"`
}

// Status is what a verdict says.
type Status string

// The statuses. Suspicious and inverted fail the command.
const (
	Healthy    Status = "healthy"
	Flat       Status = "flat"
	Notable    Status = "notable"
	Suspicious Status = "suspicious"
	Inverted   Status = "inverted"
	Undecided  Status = "no verdict"
	Printed    Status = "printed" // a ratio that is shown and never judged
)

// Fails reports whether the status fails the command.
func (s Status) Fails() bool { return s == Suspicious || s == Inverted }

// Verdict judges one ratio.
type Verdict struct {
	Name       string  `json:"name"`
	Status     Status  `json:"status"`
	Value      float64 `json:"value"` // 0 when a side is missing
	Over       Side    `json:"over"`
	Under      Side    `json:"under"`
	Reference  string  `json:"reference,omitempty"`
	Cause      string  `json:"cause"`       // likely, in words
	Next       string  `json:"next"`        // command that looks further
	Durability string  `json:"durability"`  // class of both sides, or "fsync×1 and none×1"
	LowerBound bool    `json:"lower_bound"` // a side was bound by the generator
}

// Side is one side of a ratio.
type Side struct {
	Suite  string `json:"suite"`
	Row    string `json:"row"`
	Metric string `json:"metric"`
	Figure Figure `json:"figure"`
}

// Diagnosis is what the profiles of one extra run show.
type Diagnosis struct {
	Overhead float64   `json:"overhead"` // 1 − profiled ÷ unprofiled rate
	Findings []Finding `json:"findings"`
	Files    []string  `json:"files"` // below OUT
}

// Finding is one thing that profiles show.
type Finding struct {
	Process string  `json:"process"` // server-1, driver
	Kind    string  `json:"kind"`    // cpu, gc, scheduler, mutex, block, alloc, goroutine
	Level   string  `json:"level"`   // info, warn, fail
	Name    string  `json:"name"`    // function or lock
	Share   float64 `json:"share"`
	Detail  string  `json:"detail"`
}

// The levels of findings.
const (
	Info = "info"
	Warn = "warn"
	Fail = "fail"
)

// Failing returns the findings that fail the command.
func (d *Diagnosis) Failing() []Finding {
	if d == nil {
		return nil
	}
	var out []Finding
	for _, f := range d.Findings {
		if f.Level == Fail {
			out = append(out, f)
		}
	}
	return out
}

// Env is where and with what a result was measured.
type Env struct {
	Commit     string            `json:"commit"`
	Dirty      bool              `json:"dirty"`
	Version    string            `json:"version"`
	Go         string            `json:"go"`
	Build      map[string]string `json:"build"`       // build settings
	ConfigHash string            `json:"config_hash"` // of everything that decides what is measured
	HostHash   string            `json:"host_hash"`   // of what makes the host
	Host       Host              `json:"host"`
	Tools      map[string]string `json:"tools"` // versions of git and peers
}

// Host is the machine.
type Host struct {
	OS           string   `json:"os"`
	Arch         string   `json:"arch"`
	CPU          string   `json:"cpu"`
	Flags        []string `json:"cpu_flags"` // those that matter here
	Governor     string   `json:"governor"`
	HaltPoll     string   `json:"halt_poll_ns,omitempty"` // how long a guest's idle core looks for work before it halts; empty: not such a guest
	Cores        int      `json:"cores"`
	RAM          uint64   `json:"ram_bytes"`
	Kernel       string   `json:"kernel"`
	FileSystem   string   `json:"file_system"` // of the data directory
	ClockSource  string   `json:"clock_source"`
	Cgroup       string   `json:"cgroup"` // CPU and memory limits
	Load         string   `json:"load"`
	FdatasyncP50 float64  `json:"fdatasync_p50_us"`
	FdatasyncP99 float64  `json:"fdatasync_p99_us"`
	LoopbackP50  float64  `json:"loopback_p50_us"` // round trip
	LoopbackP99  float64  `json:"loopback_p99_us"`
}

// IdleCore says what a guest's idle core does; empty: the host is not such a guest.
func (h *Host) IdleCore() string {
	if h.HaltPoll == "" {
		return ""
	}
	return "polls for " + h.HaltPoll + " ns before it halts"
}

// Param returns the value of a named setting of the row.
func (r *Row) Param(name string) string {
	i := slices.IndexFunc(r.Shape, func(p Param) bool { return p.Name == name })
	if i < 0 {
		return ""
	}
	return r.Shape[i].Value
}
