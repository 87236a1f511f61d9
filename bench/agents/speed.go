package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/bench"
)

// Speed is what is measured.
type Speed struct {
	// Checkout is the folder of the repository, which has the agents, and Program the server.
	Checkout, Program string
	// Rounds is how often each language has its turn.
	Rounds int
	// Languages are the names of those that are measured; empty: all. Go is always one of them: it is what the others are held against.
	Languages []string
	// Idle is how long workers of all languages have no tasks at the end, to see what they take meanwhile; 0: that is left out.
	Idle time.Duration
	// Growth is how many tasks one process of each language carries out at the end, to see whether its memory grows; 0: that is left out.
	Growth int
	// Told is told of each turn that is over.
	Told func(round int, language string)
}

// load is one measurement: what the word bench of an agent measures, and its number of tasks.
type load struct {
	what  string
	tasks int
}

// cycle is create, claim and complete with one key written. The others are adds of 32 callers, adds in bulk, cycles by unary calls, and adds
// one at a time.
var loads = []load{{"cycle", 30_000}, {"add", 20_000}, {"add_many", 20_000}, {"unary", 500}, {"one", 1000}}

// callers is how many add at a time, and slots how many tasks a worker has at a time.
const (
	callers = 32
	slots   = 128
)

// Run is one measurement of one language. CPU is the processor time of the client, and P50 half of the calls took less; both in
// microseconds, CPU for each operation.
type Run struct {
	Language string  `json:"language"`
	Load     string  `json:"load"`
	Round    int     `json:"round"`
	Rate     float64 `json:"per_s"`
	CPU      float64 `json:"client_cpu_us"`
	P50      float64 `json:"p50_us"`
}

// Begin is what a process takes until it can be used. FirstCall is the seconds from its start until its first add is answered, RSS the
// memory in MiB of a worker without tasks.
type Begin struct {
	Language  string  `json:"language"`
	FirstCall float64 `json:"first_call_s"`
	RSS       float64 `json:"idle_rss_mib"`
}

// Line is one figure of a language and what it must be. Bound and Aim are the least values where More is set, else the largest ones.
type Line struct {
	Language string  `json:"language"`
	Figure   string  `json:"figure"`
	Unit     string  `json:"unit,omitempty"`
	Value    float64 `json:"value"`
	Bound    float64 `json:"bound,omitempty"`
	Aim      float64 `json:"aim,omitempty"`
	More     bool    `json:"more,omitempty"`
	Met      bool    `json:"met"`
}

// Result is what was measured: medians over the rounds in Lines, all else as it came. It is the content of a result file.
type Result struct {
	Schema     string    `json:"schema"`
	Started    time.Time `json:"started"`
	Env        bench.Env `json:"env"`
	Durability string    `json:"durability"`
	Rounds     int       `json:"rounds"`
	Idle       string    `json:"idle,omitempty"`
	Growth     int       `json:"growth_tasks,omitempty"`
	Callers    int       `json:"callers"`
	Slots      int       `json:"slots"`
	Lines      []Line    `json:"lines"`
	Runs       []Run     `json:"runs"`
	Begins     []Begin   `json:"begins"`
}

// ErrNoAgent is why a language cannot be measured here.
var ErrNoAgent = errors.New("no agent")

// Measure runs all loads with each language in turn, as often as s asks, against one server, which syncs before it acknowledges.
func (s *Speed) Measure(ctx context.Context) (*Result, error) {
	dir, err := os.MkdirTemp("", "millrace-sdk-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left is in the system's folder for such
	chosen, err := s.chosen(ctx, dir)
	if err != nil {
		return nil, err
	}
	c := bench.Defaults()
	out := &Result{Schema: "millrace.sdk/1", Started: time.Now().UTC(), Durability: "fsync", Rounds: s.Rounds, Callers: callers, Slots: slots}
	if out.Env, err = bench.Environment(ctx, &c); err != nil {
		return nil, err
	}
	server, token, kill, err := bench.ServeDev(ctx, s.Program, dir, "--http", "off", "--admin", "off")
	if err != nil {
		return nil, err
	}
	defer kill() //nolint:errcheck // what is measured is over, and its data go
	address := server.Address
	for round := range s.Rounds {
		for _, l := range chosen {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := out.measure(l, round, address, token); err != nil {
				return nil, fmt.Errorf("%s: %w", l.Name, err)
			}
			s.Told(round+1, l.Name)
		}
	}
	out.judge(chosen)
	if s.Growth > 0 {
		for _, l := range chosen {
			if err := out.grow(l, s.Growth, address, token); err != nil {
				return nil, fmt.Errorf("%s: %w", l.Name, err)
			}
		}
	}
	if s.Idle > 0 {
		if err := out.idle(ctx, chosen, s.Idle, address, token); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// chosen are the languages to measure.
func (s *Speed) chosen(ctx context.Context, dir string) (out []Language, err error) {
	root, err := filepath.Abs(s.Checkout)
	if err != nil {
		return nil, err
	}
	for _, name := range s.Languages {
		if !slices.ContainsFunc(Languages(root, ""), func(l Language) bool { return l.Name == name }) {
			return nil, fmt.Errorf("%w: there is no language %s", ErrNoAgent, name)
		}
	}
	goAgent, err := BuildGo(ctx, root, dir)
	if err != nil {
		return nil, err
	}
	for _, l := range Languages(root, goAgent) {
		if l.Name != "go" && len(s.Languages) > 0 && !slices.Contains(s.Languages, l.Name) {
			continue
		}
		if l.Missing != "" {
			return nil, fmt.Errorf("%w of %s: %s", ErrNoAgent, l.Name, l.Missing)
		}
		out = append(out, l)
	}
	return out, nil
}

const (
	askWithin = 5 * time.Minute
	// idleFor is how long a worker has no tasks before its memory is looked at.
	idleFor = 500 * time.Millisecond
)

// asker sends a command to an agent and returns its answer.
type asker func(word string, fields map[string]any) (map[string]any, error)

// open starts an agent and has it open its client.
func open(l Language, address, token string) (*Agent, asker, error) {
	a, err := Start(l.Line...)
	if err != nil {
		return nil, nil, err
	}
	ask := func(word string, fields map[string]any) (map[string]any, error) {
		got, err := a.Ask(word, fields, askWithin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", word, err, a.Said())
		}
		m, _ := got.(map[string]any)
		return m, nil
	}
	if _, err := ask("open", map[string]any{"address": address, "token": token, "namespace": "default"}); err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, ask, nil
}

// measure runs all loads with one agent.
func (r *Result) measure(l Language, round int, address, token string) error {
	begun := time.Now()
	a, ask, err := open(l, address, token)
	if err != nil {
		return err
	}
	defer a.Close()
	if _, err := ask("add", map[string]any{"job": "first", "args": "1"}); err != nil {
		return err
	}
	b := Begin{Language: l.Name, FirstCall: time.Since(begun).Seconds()}
	if _, err := ask("worker", map[string]any{"jobs": []any{map[string]any{"job": "first", "handler": []any{}}}}); err != nil {
		return err
	}
	time.Sleep(idleFor)
	b.RSS = a.Memory() / (1 << 20)
	r.Begins = append(r.Begins, b)
	if _, err := ask("stop", nil); err != nil {
		return err
	}
	for _, w := range loads {
		queue := fmt.Sprintf("%s-%s-%d", l.Name, w.what, round)
		got, err := ask("bench", map[string]any{"what": w.what, "tasks": w.tasks, "callers": callers, "slots": slots, "queue": queue})
		if err != nil {
			return err
		}
		number := func(name string) float64 {
			n, _ := got[name].(json.Number)
			f, _ := n.Float64()
			return f
		}
		r.Runs = append(r.Runs, Run{
			Language: l.Name, Load: w.what, Round: round, Rate: number("tasks") / number("seconds"),
			CPU: number("cpu_seconds") / number("tasks") * 1e6, P50: number("p50_us"),
		})
	}
	return nil
}

// middle is the median of a load's figure in a language; 0: it was not measured.
func (r *Result) middle(language, load string, of func(Run) float64) float64 {
	var v []float64
	for _, x := range r.Runs {
		if x.Language == language && x.Load == load {
			v = append(v, of(x))
		}
	}
	return bench.Median(v)
}

// bounds are what must hold for a language, and what is aimed at: cycles as a share of Go's, processor time of a cycle as a multiple of
// Go's, that of a task added in bulk in microseconds, and the memory of an idle worker in MiB.
type bounds struct {
	rate, rateAim, cpu, cpuAim, many, manyAim, rss float64
}

var must = map[string]bounds{
	"typescript":   {0.5, 0.7, 3.5, 2.5, 20, 12, 80},
	"python-async": {0.3, 0.5, 5, 3.5, 15, 10, 50},
	"python":       {0.15, 0.3, 10, 7, 15, 10, 50},
}

// least adds a line whose figure must not be below a bound; aim 0: there is none.
func (r *Result) least(language, figure, unit string, value, bound, aim float64) {
	r.Lines = append(r.Lines, Line{Language: language, Figure: figure, Unit: unit, Value: value, Bound: bound, Aim: aim, More: true, Met: value >= bound})
}

// most adds a line whose figure must not be above a bound; aim 0: there is none.
func (r *Result) most(language, figure, unit string, value, bound, aim float64) {
	r.Lines = append(r.Lines, Line{Language: language, Figure: figure, Unit: unit, Value: value, Bound: bound, Aim: aim, Met: value <= bound})
}

// judge makes the lines.
func (r *Result) judge(chosen []Language) {
	rate, cpu, p50 := func(x Run) float64 { return x.Rate }, func(x Run) float64 { return x.CPU }, func(x Run) float64 { return x.P50 }
	goRate, goCPU, goOne := r.middle("go", "cycle", rate), r.middle("go", "cycle", cpu), r.middle("go", "one", p50)
	r.Lines = append(r.Lines,
		Line{Language: "go", Figure: "cycles", Unit: "/s", Value: goRate, Met: true},
		Line{Language: "go", Figure: "client CPU per cycle", Unit: "µs", Value: goCPU, Met: true},
	)
	for _, l := range chosen {
		b, ok := must[l.Name]
		if !ok {
			continue
		}
		r.least(l.Name, "cycles, of Go's", "×", r.middle(l.Name, "cycle", rate)/goRate, b.rate, b.rateAim)
		r.most(l.Name, "client CPU per cycle, of Go's", "×", r.middle(l.Name, "cycle", cpu)/goCPU, b.cpu, b.cpuAim)
		r.most(l.Name, "client CPU per task of add_many", "µs", r.middle(l.Name, "add_many", cpu), b.many, b.manyAim)
		r.least(l.Name, "client CPU of a unary cycle, of the stream's", "×", r.middle(l.Name, "unary", cpu)/r.middle(l.Name, "cycle", cpu), 6, 10)
		r.most(l.Name, "p50 of one add at a time, over Go's", "ms", (r.middle(l.Name, "one", p50)-goOne)/1000, 0.6, 0.3)
		var first, rss []float64
		for _, x := range r.Begins {
			if x.Language == l.Name {
				first, rss = append(first, x.FirstCall), append(rss, x.RSS)
			}
		}
		r.most(l.Name, "start until the first add is answered", "s", bench.Median(first), 0.3, 0)
		r.most(l.Name, "RSS of an idle worker", "MiB", bench.Median(rss), b.rss, 0)
	}
}

// Missed counts the figures that are not as they must be.
func (r *Result) Missed() (n int) {
	for _, l := range r.Lines {
		if !l.Met {
			n++
		}
	}
	return n
}

// Table writes the lines as a table of Markdown.
func (r *Result) Table(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| Language | Figure | Measured | Must | Aim | |\n| --- | --- | ---: | ---: | ---: | --- |\n")
	for _, l := range r.Lines {
		bound, aim, verdict := "", "", ""
		sign := "≤"
		if l.More {
			sign = "≥"
		}
		if l.Bound != 0 {
			bound = fmt.Sprintf("%s %.4g", sign, l.Bound)
			verdict = "met"
			if !l.Met {
				verdict = "missed"
			}
		}
		if l.Aim != 0 {
			aim = fmt.Sprintf("%.4g", l.Aim)
		}
		fmt.Fprintf(&b, "| %s | %s | %.4g %s | %s | %s | %s |\n", l.Language, l.Figure, l.Value, l.Unit, bound, aim, verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
