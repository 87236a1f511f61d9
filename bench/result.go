package bench

import (
	"slices"
	"time"
)

// Readers refuse another schema. Schema names the form of result.json. Within it, fields are only added.
const Schema = "millrace.bench/1"

// Result is everything that one command measured, as result.json holds it.
type Result struct {
	Schema string `json:"schema"`
	// ID is newResultID's: the time of the beginning, and hashes of host and configuration.
	ID       string    `json:"id"`
	Command  string    `json:"command"` // repeats the measurement
	Seed     uint64    `json:"seed"`
	Profile  string    `json:"profile"` // smoke, quick, seeds, full, or custom
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	// Partial says that the measurement was interrupted: rows are missing, and can be added with --resume.
	Partial bool `json:"partial"`
	Env     Env  `json:"env"`
	// Suites has one row per suite, row and durability, in the order they were asked for.
	Suites   []Row     `json:"suites"`
	Verdicts []Verdict `json:"verdicts"`
	// Exit is the exit code of the command, one of the Exit constants.
	Exit int `json:"exit"`
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
	Suite string `json:"suite"`
	Row   string `json:"row"`
	// Durability is the class, such as fsync×1. With Suite and Row it identifies the row in a result.
	Durability string `json:"durability"`
	Title      string `json:"title"`
	// Label holds for all figures of the row; its validity is the worst that applies.
	Label Label `json:"label"`
	// Shape is what was run, in a fixed order, which comparisons rely on.
	Shape []Param `json:"shape"`
	// Summary is the figure of the headline metric. It is null when no run has that metric.
	Summary  Figure `json:"summary"`
	Headline string `json:"headline"`
	// Figures has every metric by name. It is made of the valid runs, or, when there are none, of
	// all runs that came to their end, under the validity invalid.
	Figures map[string]Figure `json:"figures"`
	// Runs has all runs in the order they were made, those left out too.
	Runs      []Run       `json:"runs"`
	Ceiling   *Ceiling    `json:"ceiling,omitempty"`
	Reference []Reference `json:"reference,omitempty"`
	Targets   []Target    `json:"targets,omitempty"`
	Warnings  []Warning   `json:"warnings,omitempty"`  // of the row; those of a run are with the run
	Diagnosis *Diagnosis  `json:"diagnosis,omitempty"` // of the profiled run
	// Error says why the row could not be measured.
	Error string `json:"error,omitempty"`
	// Skipped says what this host lacks for the row, which is not a failure.
	Skipped string `json:"skipped,omitempty"`
	Bench   string `json:"bench"` // name in Go benchmark text, such as BenchmarkQueueCycle
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
	// Number counts from 1, runs that were left out included.
	Number int `json:"number"`
	// Profiled says that profiles were taken: no figure is made of the run.
	Profiled bool      `json:"profiled,omitempty"`
	Started  time.Time `json:"started"`
	// Seconds is the length of the window, by the monotonic clock.
	Seconds float64 `json:"seconds"`
	Ops     uint64  `json:"ops"` // headline operations acknowledged in the window
	// Excluded says why the run does not count. Empty: it does, unless it was profiled or failed.
	Excluded []Exclusion `json:"excluded,omitempty"`
	// Bound says why the run is a lower bound.
	Bound    string             `json:"bound,omitempty"`
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
	// Kept is the data directory that was kept for a failure, or because --keep says always.
	Kept string `json:"kept,omitempty"`
	// Evidence is the file by which the audit of a run against a target can be repeated, below OUT.
	Evidence string `json:"evidence,omitempty"`
	// Failed says what ended the run early, or what made it another run than the row says.
	Failed string      `json:"failed,omitempty"`
	Peer   *PeerReport `json:"peer,omitempty"` // the system that the run alternated with
}

// PeerReport is the other system of a run that alternates with it. Its figures are metrics whose names begin with peer_,
// in addition to ours, whose names begin with ours_.
type PeerReport struct {
	Name   string `json:"name"`   // such as asynq
	Server string `json:"server"` // with its version, as it says itself
	Client string `json:"client"` // with its version, as it is linked
	// Class says where a write is before its acknowledgement: F synced on one node, R synced on a
	// majority, N in the page cache.
	Class string `json:"class"`
	// Declared says that the peer's starter names the class; otherwise the server was asked.
	Declared bool    `json:"declared"`
	Durable  string  `json:"durable"`  // which steps are durable when they are acknowledged
	Settings []Param `json:"settings"` // of server and client, those that a figure depends on
}

// Counts reports whether figures are made of the run: it was neither left out nor profiled, and it came to its end.
func (r *Run) Counts() bool { return len(r.Excluded) == 0 && !r.Profiled && r.Failed == "" }

// Cause is why a run is left out. The list is closed: an error, a slow run or an outlier leaves nothing out.
type Cause string

// The causes: a clock was set or the host slept; heartbeats are missing; the hypervisor took CPU; processes
// waited for disk or memory; other processes used CPU; the generator of an open loop was the limit.
const (
	ClockJump          Cause = "clock_jump"
	HostStall          Cause = "host_stall"
	Steal              Cause = "steal"
	HostPressure       Cause = "pressure"
	ForeignCPU         Cause = "foreign_cpu"
	GeneratorSaturated Cause = "generator_saturated"
)

// Exclusion is why one run is left out: the value that was seen, the limit that it is over, and the
// unit of both.
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
	// OK calls did what was asked. Refused calls did nothing. Unknown calls may have been applied:
	// their answer was lost.
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

// Audit is the conservation audit of one run. Its counts are of tasks, or of puts or changes of
// refs where the suite writes those.
type Audit struct {
	OK bool `json:"ok"`
	// Created counts acknowledged creates, warm-up included.
	Created   uint64 `json:"created"`
	Completed uint64 `json:"completed"` // completions acknowledged
	// Unknown counts creates whose end is not known: between Created and Created plus Unknown may be there.
	Unknown uint64 `json:"unknown"`
	// Counted is what the servers have.
	Counted uint64 `json:"counted"`
	// Drained is how long the drain after the window took, in seconds.
	Drained  float64 `json:"drained_s"`
	ReadBack uint64  `json:"read_back"` // acknowledged writes that were read and compared
	// Checked says in words what was compared, such as every id.
	Checked    string            `json:"checked"`
	Violations []string          `json:"violations,omitempty"`
	Counts     map[string]uint64 `json:"counts,omitempty"` // queue counters at the end
	Hashes     map[string]string `json:"hashes,omitempty"` // apply hash of each replica at Index
	Index      uint64            `json:"index,omitempty"`
}

// HostReport is what was seen of the host during a run.
type HostReport struct {
	Observed bool `json:"observed"` // false where there is no procfs
	// Realtime is by how many milliseconds the wall clock moved against the monotonic clock, where
	// it was off the most.
	Realtime float64 `json:"realtime_ms"`
	// Boottime is the same of the clock that also counts suspension: how long the host slept.
	Boottime float64 `json:"boottime_ms"`
	// Heartbeat is the number of heartbeats ÷ those that were due. It is near 1 on a host that is awake.
	Heartbeat float64 `json:"heartbeat"`
	// LongestGap is the longest time between two heartbeats, in milliseconds.
	LongestGap float64 `json:"longest_ms"`
	// Steal is the share of the host's CPU that the hypervisor took in the worst second.
	Steal float64 `json:"steal"`
	// Stolen counts the seconds that lost more than the limit, of Seconds that were looked at.
	Stolen int `json:"stolen_seconds,omitempty"`
	//
	Seconds int `json:"seconds,omitempty"`
	// Foreign is the share of the host's CPU that other processes used, over the whole window.
	Foreign float64 `json:"foreign_cpu"`
	// PressureCPU, PressureIO and PressureMem are the share of the window in which something waited for that.
	PressureCPU float64 `json:"pressure_cpu"`
	PressureIO  float64 `json:"pressure_io"`  //
	PressureMem float64 `json:"pressure_mem"` //
	// IdleIO is the pressure of IO before the servers started.
	IdleIO float64 `json:"idle_io"`
	// FdatasyncUS and Fdatasync99 are p50 and p99 of a sync in microseconds, on the disk of the
	// data directory just before the run.
	FdatasyncUS float64 `json:"fdatasync_p50"`
	//
	Fdatasync99 float64 `json:"fdatasync_p99"`
}

// Second is one second of a run's window.
type Second struct {
	At        int    `json:"at"`
	Created   uint64 `json:"created"`
	Completed uint64 `json:"completed"`
	// CPU is the share of one core, and RSS the bytes in memory, by process.
	CPU map[string]float64 `json:"cpu"`
	//
	RSS map[string]uint64 `json:"rss"`
	// Gauges are what the driver read of the server, in the unit that the name ends with.
	Gauges map[string]float64 `json:"gauges,omitempty"`
}

// Ceiling is what the generator reaches against a server that only acknowledges.
type Ceiling struct {
	Rate float64 `json:"rate"`
	Unit string  `json:"unit"`
	// Reached is the row's rate ÷ Rate. Bound says that it is 0.8 or more, so that the row is a lower bound.
	Reached float64 `json:"reached"`
	//
	Bound bool `json:"bound"`
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
	Metric     string `json:"metric"`
	Durability string `json:"durability,omitempty"` // empty: any
	// Must fails the command when it is missed and judged; Aim is only printed. AtMost says that
	// smaller is better.
	Must float64 `json:"must,omitempty"`
	Aim  float64 `json:"aim,omitempty"`
	//
	AtMost bool `json:"at_most"`
	// BoxMust stands in for Must where the machine is the wall; 0: it does not differ. BoxBound
	// says that it did.
	BoxMust float64 `json:"box_must,omitempty"`
	//
	BoxBound bool `json:"box_bound,omitempty"`
	// DiskFloor is for a metric that is a multiple of the disk's time: the least time, in
	// microseconds, that the disk is taken for.
	DiskFloor float64 `json:"disk_floor_us,omitempty"`
	// Cores is the number of cores below which the target is printed and not judged; 0: any.
	Cores int `json:"cores,omitempty"`
	// MachineFree says that the value does not depend on the machine: such targets are always judged.
	MachineFree bool   `json:"machine_free"`
	Source      string `json:"source"` // of the target, for people
	// MustMet and AimMet are nil when it is not known. Judged says that MustMet counts for the exit code.
	MustMet *bool `json:"must_met,omitempty"`
	AimMet  *bool `json:"aim_met,omitempty"`
	Judged  bool  `json:"judged"`
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
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Value is Over ÷ Under; 0 when a side is missing.
	Value      float64 `json:"value"`
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
	// Overhead is 1 − the rate of the profiled run ÷ that of the others.
	Overhead float64   `json:"overhead"`
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
	Commit  string            `json:"commit"`
	Dirty   bool              `json:"dirty"`
	Version string            `json:"version"`
	Go      string            `json:"go"`
	Build   map[string]string `json:"build"` // build settings
	// ConfigHash names everything that decides what is measured, and HostHash what makes the host.
	// Results are compared and resumed by them.
	ConfigHash string `json:"config_hash"`
	//
	HostHash string            `json:"host_hash"`
	Host     Host              `json:"host"`
	Tools    map[string]string `json:"tools"` // versions of git and peers
}

// Host is the machine.
type Host struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPU  string `json:"cpu"`
	// Flags are the flags of the CPU that matter here.
	Flags    []string `json:"cpu_flags"`
	Governor string   `json:"governor"`
	// HaltPoll is for how many nanoseconds a guest's idle core looks for work before it halts. It
	// is empty where the host is not such a guest.
	HaltPoll     string  `json:"halt_poll_ns,omitempty"`
	Cores        int     `json:"cores"`
	RAM          uint64  `json:"ram_bytes"`
	Kernel       string  `json:"kernel"`
	FileSystem   string  `json:"file_system"` // of the data directory
	ClockSource  string  `json:"clock_source"`
	Cgroup       string  `json:"cgroup"` // CPU and memory limits
	Load         string  `json:"load"`
	FdatasyncP50 float64 `json:"fdatasync_p50_us"`
	FdatasyncP99 float64 `json:"fdatasync_p99_us"`
	LoopbackP50  float64 `json:"loopback_p50_us"` // round trip
	LoopbackP99  float64 `json:"loopback_p99_us"`
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
