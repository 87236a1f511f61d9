package bench

import (
	"context"
	"io"
	"strconv"
	"time"
)

// Suite is one table of measurements: data, and one function that drives a system for one run.
type Suite struct {
	Name  string // such as queue.cycle
	Title string
	// Priority is P0, P1 or P2; P0 comes first.
	Priority string
	// Bench is the name in Go benchmark text, such as BenchmarkQueueCycle; empty: it is made of Name.
	Bench string
	// Headline is the metric that a row's Summary is made of, such as cycles_per_s.
	Headline string
	Rows     []RowSpec
	// Window is the measured time of a run by default; a row, a profile and the command line may replace it.
	Window time.Duration
	Warmup time.Duration
	// Minutes is the expected time of all rows in the profile seeds.
	Minutes float64
	// Local says that the suite measures the bench process itself: it has no server, no audit and no ceiling.
	Local bool
	// Reads says that its operations are requests that write nothing: neither tasks nor syncs are
	// expected of them.
	Reads bool
	// Op is the operation whose acknowledgements are counted and timed, such as put; empty: creates and completions of
	// tasks.
	Op string
	// NoProfile leaves the profiled run out: it would take as long as the runs, or has no server over the whole window.
	NoProfile bool
	// Peer names the system that the suite alternates with; bench/peers has its driver, and this binary knows no peer.
	Peer string
	// Drive carries one run out. nil: the suite is not built yet, and running it is refused.
	Drive Driver
}

// Built reports whether the suite can be run.
func (s *Suite) Built() bool { return s.Drive != nil }

// RowSpec is one row of a suite.
type RowSpec struct {
	Name       string
	Title      string
	Shape      Shape
	Profiles   []string // profiles that hold the row: smoke, quick, seeds, full
	References []Reference
	Targets    []Target
	// Window is 0 for that of the suite. Later is the window of the runs after the first that
	// counts; 0: the same.
	Window time.Duration
	//
	Later time.Duration
	// Runs bounds the runs of the profile from above; 0: it does not.
	Runs int
	// NoFsync and OnlyFsync fix the durability.
	NoFsync bool
	//
	OnlyFsync bool
	// NoCeiling says that no null server reads what this row sends.
	NoCeiling bool
	// Servers is a hidden command of bench that serves in place of nodes; empty: nodes. Such servers keep nothing, so that
	// nothing is audited.
	Servers string
	// Box says that the machine may be this row's wall: CPU and disk are held against what it has.
	Box bool
	// Headline is the metric that the row's summary is made of; empty: the suite's.
	Headline string
	// Op is the operation that is counted and timed; empty: the suite's.
	Op string
	// Lacks says what keeps the row from being measured: it is listed, and refused when it is named. Empty: nothing does.
	Lacks string
}

// Shape is what one row runs. Zero fields do not apply to the row and are not shown. Params shows
// it in results, so that two results with different shapes are not compared.
type Shape struct {
	Nodes     int  // servers, each a voter of every shard; 0 for suites without a server
	Beside    bool // a single-node server runs next to them, and the driver drives both in turn
	Shards    int
	Producers int // client connections that create
	Pumps     int // goroutines of one producer
	// Callers is the number of goroutines of all producers together, instead of Pumps for each.
	Callers int
	Workers int // client connections that work
	// Slots is the number of handlers of one worker that run at once, of one task each or of a batch.
	Slots int
	// WorkerBatch is the most tasks that one handler call takes, and ProducerBatch the tasks of one
	// create call; 0 and 1 mean one.
	WorkerBatch int
	//
	ProducerBatch int
	Payload       int // bytes; 0: {"bench":true}
	Lease         time.Duration
	Transport     string // stream (default), rest
	// Puts is the number of keys to put, whose acknowledgements end the window; 0: its time does.
	Puts int
	// Ahead is the number of calls of one producer that are under way at once; 0: its pumps call
	// one after the other.
	Ahead int
	// Offered is the operations a second of an open loop; 0: a share of the maximum that the run itself finds.
	Offered int
	Key     int // bytes of a key
	Keys    int // keys of tasks, which Kind says the use of
	Prefill int // tasks that wait before the window
	// Redrive is the most tasks a second that a bulk job redrives in a partition.
	Redrive int
	// Depth is the tasks per producer that may wait for a worker. It bounds the backlog of
	// producers without a pace.
	Depth  int
	Commit string // group (default), single: one log entry per commit
	// Priorities deals the tasks out to that many priorities, from 0 on; 0: all have the job's.
	Priorities int
	Idle       int // streams of workers that are given nothing
	Tenants    int // each with a token of its own; 0: one
	// Serve has further flags of the servers, separated by spaces.
	Serve  string
	Memory int // MiB that a server may use; 0: its default
	// Kind says what a suite of several measurements does in this row.
	Kind string
}

// Voters returns how many replicas acknowledge.
func (s Shape) Voters() int { return max(s.Nodes, 1) }

// Loops returns how many goroutines create, one call after the other each.
func (s Shape) Loops() int {
	if s.Callers > 0 {
		return s.Callers
	}
	return s.Producers * max(s.Pumps, 1)
}

// Params returns the settings that apply, in a fixed order.
func (s Shape) Params() []Param {
	var out []Param
	number := func(name string, v int) {
		if v > 0 {
			out = append(out, Param{name, strconv.Itoa(v)})
		}
	}
	text := func(name, v string) {
		if v != "" {
			out = append(out, Param{name, v})
		}
	}
	number("nodes", s.Nodes)
	if s.Beside {
		text("beside", besideName)
	}
	number("shards", s.Shards)
	text("kind", s.Kind)
	text("transport", s.Transport)
	number("producers", s.Producers)
	number("pumps", s.Pumps)
	number("callers", s.Callers)
	number("workers", s.Workers)
	number("slots", s.Slots)
	if s.Workers > 0 {
		number("worker_batch", max(s.WorkerBatch, 1))
	}
	if s.Producers > 0 && s.Key == 0 {
		number("producer_batch", max(s.ProducerBatch, 1))
	}
	number("ahead", s.Ahead)
	number("offered", s.Offered)
	number("puts", s.Puts)
	number("key", s.Key)
	number("keys", s.Keys)
	number("payload", s.Payload)
	if s.Lease > 0 {
		out = append(out, Param{"lease", s.Lease.String()})
	}
	number("prefill", s.Prefill)
	number("redrive", s.Redrive)
	number("depth", s.Depth)
	text("commit", s.Commit)
	number("priorities", s.Priorities)
	number("idle", s.Idle)
	number("tenants", s.Tenants)
	text("serve", s.Serve)
	number("memory_mib", s.Memory)
	return out
}

// Driver carries out one run: it starts its load against the rig's servers, calls Rig.Measure for the window, then stops
// what creates and lets workers drain. Everything it counts goes through the rig.
type Driver func(ctx context.Context, rig *Rig) error

// Profile is a named choice of rows.
type Profile struct {
	Name  string
	Title string
	// Runs is how many runs of each row must count. Fsync and None, both set, measure each row
	// under both durabilities.
	Runs int
	// Window makes the window of a row from the default; nil: the default holds.
	Window func(suite string, reference time.Duration) time.Duration
	Warmup time.Duration // 0: the suite's
	Fsync  bool
	None   bool
	// Verdicts says that ratios are judged. Runs that the host spoiled are then repeated.
	Verdicts bool
	Minutes  float64
}

// Harness is what a command needs in addition to its configuration: the tables, and the parts that lie above this package.
type Harness struct {
	Suites   []Suite
	Profiles []Profile
	// Judge makes the verdicts of a result, and fills in whether targets are met.
	Judge func(r *Result, judgeTargets, requireReference bool) []Verdict
	// Render writes every report below dir, next to its result.json.
	Render func(dir string, r *Result) error
	// Write prints one format: md, json, gobench, csv.
	Write func(w io.Writer, format string, r *Result) error
	// Profile fetches the profiles of all processes over the window into dir (below out), and diagnoses them. measure
	// runs the window. nil: no profiled run.
	Profile func(ctx context.Context, p ProfileRun) (*Diagnosis, error)
	// Sample profiles the processor time of the process at an admin listener for a window; empty: this one. Parts divides microseconds by what
	// such a profile says they were spent on. nil: Entry says no parts.
	Sample func(ctx context.Context, admin string, window time.Duration) ([]byte, error)
	Parts  func(cpu []byte, us float64) ([]EntryPart, error)
	// Clocks and Observer are the host's; nil: those of the kernel. Tests replace them.
	Clocks   Clocks
	Observer Observer
	// DrainWithin is how long workers may take to complete what was created; 0: a minute.
	DrainWithin time.Duration
	// NullServer serves acknowledgements and nothing else, on streams and over HTTP, until ctx ends.
	NullServer func(ctx context.Context, ready func(grpc, http string)) error
}

// ProfileRun is one profiled run.
type ProfileRun struct {
	Dir     string            // receives <process>/<kind>.pb.gz
	Admin   map[string]string // base address of the admin listener, by server process; such as http://127.0.0.1:40001
	Sockets map[string]string // path of the operator's socket, by server process
	Window  time.Duration
	Cores   int
	// Measure runs warm-up and window once; profiles are of what it does.
	Measure func(ctx context.Context) error
	Begin   <-chan struct{} // closed when the window begins
	End     <-chan struct{} // closed when it has ended
}
