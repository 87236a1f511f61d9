// Command measure measures the SDKs of all languages next to the one of Go, by the word bench of their agents, in rounds in which each has
// its turn: go run ./test/sdk/measure. It prints what must hold and what is aimed at; the figures go to a file with -out.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
	"github.com/millrace/millrace/test/sdk"
)

// load is one measurement: the word of the agent, with its number of tasks.
type load struct {
	Name  string `json:"name"`
	What  string `json:"what"`
	Tasks int    `json:"tasks"`
}

var loads = []load{{"cycle", "cycle", 10_000}, {"add", "add", 20_000}, {"add_many", "add_many", 20_000}, {"unary", "unary", 500}, {"one", "one", 1000}}

// figures are those of one run.
type figures struct {
	Language string  `json:"language"`
	Load     string  `json:"load"`
	Round    int     `json:"round"`
	Rate     float64 `json:"per_s"`
	CPU      float64 `json:"client_cpu_us"` // of the client, for each operation
	P50      float64 `json:"p50_us"`
}

// start is what an agent takes until it can be used.
type start struct {
	Language string  `json:"language"`
	Seconds  float64 `json:"first_call_s"`
	RSS      float64 `json:"idle_rss_mib"`
}

func main() {
	rounds := flag.Int("rounds", 5, "rounds in which each language has its turn")
	out := flag.String("out", "", "file for the figures, as JSON")
	root := flag.String("root", ".", "folder of the repository")
	flag.Parse()
	if err := run(*root, *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string, rounds int, out string) error {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "millrace-measure-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := proc.Build(ctx, root, dir, "")
	if err != nil {
		return err
	}
	goAgent := filepath.Join(dir, "goagent")
	build := exec.Command("go", "build", "-trimpath", "-o", goAgent, "./test/sdk/goagent")
	build.Dir = root
	if b, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, b)
	}
	server, err := proc.New(ctx, proc.Options{Binary: program, Dir: filepath.Join(dir, "server")}, "default")
	if err != nil {
		return err
	}
	if _, err := server.Start(ctx); err != nil {
		return err
	}
	defer server.Kill()
	abs, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	var all []figures
	var starts []start
	for round := range rounds {
		for _, l := range sdk.Languages(abs, goAgent) {
			if l.Missing != "" {
				fmt.Fprintf(os.Stderr, "%s is left out: %s\n", l.Name, l.Missing)
				continue
			}
			s, err := measure(server, l, round, &all)
			if err != nil {
				return fmt.Errorf("%s: %w", l.Name, err)
			}
			starts = append(starts, s)
			fmt.Fprintf(os.Stderr, "round %d: %s\n", round+1, l.Name)
		}
	}
	report(all, starts)
	if out == "" {
		return nil
	}
	b, err := json.MarshalIndent(map[string]any{
		"schema": "millrace.sdk/1", "date": time.Now().UTC().Format(time.RFC3339), "go": runtime.Version(), "cores": runtime.NumCPU(),
		"durability": "fsync", "rounds": rounds, "runs": all, "starts": starts,
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(b, '\n'), 0o644)
}

// ask sends a command and waits for its answer.
func ask(a *sdk.Agent, word string, fields map[string]any) (map[string]any, error) {
	c, err := a.Do(word, fields)
	if err != nil {
		return nil, err
	}
	select {
	case got, ok := <-c:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: the agent has ended", word)
		case got.Err != nil:
			return nil, fmt.Errorf("%s: %v", word, got.Err)
		}
		m, _ := got.OK.(map[string]any)
		return m, nil
	case <-time.After(5 * time.Minute):
		return nil, fmt.Errorf("%s: no answer", word)
	}
}

// measure runs all loads with one agent.
func measure(server *proc.Server, l sdk.Language, round int, all *[]figures) (s start, err error) {
	begun := time.Now()
	a, err := sdk.StartAgent(l.Line, nil)
	if err != nil {
		return s, err
	}
	defer a.Close()
	if _, err := ask(a, "open", map[string]any{"address": server.Address(), "token": server.Tokens[0].Secret, "namespace": "default"}); err != nil {
		return s, err
	}
	if _, err := ask(a, "add", map[string]any{"job": "first", "args": "1"}); err != nil {
		return s, err
	}
	s = start{Language: l.Name, Seconds: time.Since(begun).Seconds()}
	if _, err := ask(a, "worker", map[string]any{"jobs": []any{map[string]any{"job": "first", "handler": []any{}}}}); err != nil {
		return s, err
	}
	time.Sleep(500 * time.Millisecond)
	s.RSS = a.Memory() / (1 << 20)
	if _, err := ask(a, "stop", nil); err != nil {
		return s, err
	}
	for _, w := range loads {
		queue := fmt.Sprintf("%s-%s-%d", l.Name, w.Name, round)
		got, err := ask(a, "bench", map[string]any{"what": w.What, "tasks": w.Tasks, "callers": 32, "slots": 128, "queue": queue})
		if err != nil {
			return s, fmt.Errorf("%s: %w", w.Name, err)
		}
		number := func(name string) float64 {
			n, _ := got[name].(json.Number)
			f, _ := n.Float64()
			return f
		}
		*all = append(*all, figures{
			Language: l.Name, Load: w.Name, Round: round, Rate: number("tasks") / number("seconds"),
			CPU: number("cpu_seconds") / number("tasks") * 1e6, P50: number("p50_us"),
		})
	}
	return s, nil
}

// median is that of what a function takes from the runs of a language and a load.
func median(all []figures, language, load string, of func(f figures) float64) float64 {
	var v []float64
	for _, f := range all {
		if f.Language == language && f.Load == load {
			v = append(v, of(f))
		}
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func rate(f figures) float64 { return f.Rate }
func cpu(f figures) float64  { return f.CPU }
func p50(f figures) float64  { return f.P50 }

// bounds are what must hold for a language, and what is aimed at.
type bounds struct {
	rate, rateAim, cpu, cpuAim, many, manyAim float64
	rss                                       float64
}

var must = map[string]bounds{
	"typescript":   {0.5, 0.7, 3.5, 2.5, 20, 12, 80},
	"python-async": {0.3, 0.5, 5, 3.5, 15, 10, 50},
	"python":       {0.15, 0.3, 10, 7, 15, 10, 50},
}

// report prints a table of what must hold.
func report(all []figures, starts []start) {
	fmt.Printf("| Language | Figure | Measured | Must | Aim | |\n| --- | --- | --- | --- | --- | --- |\n")
	goRate, goCPU, goOne := median(all, "go", "cycle", rate), median(all, "go", "cycle", cpu), median(all, "go", "one", p50)
	fmt.Printf("| go | cycles/s; client CPU | %.0f; %.1f µs | | | |\n", goRate, goCPU)
	names := make([]string, 0, len(must))
	for name := range must {
		names = append(names, name)
	}
	slices.Sort(names)
	row := func(name, what, got string, least, aim string, ok bool) {
		verdict := "met"
		if !ok {
			verdict = "missed"
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s |\n", name, what, got, least, aim, verdict)
	}
	for _, name := range names {
		b := must[name]
		if median(all, name, "cycle", rate) == 0 {
			continue
		}
		r, c := median(all, name, "cycle", rate)/goRate, median(all, name, "cycle", cpu)/goCPU
		row(name, "cycles/s of Go's", fmt.Sprintf("%.2f (%.0f/s)", r, r*goRate), fmt.Sprintf("≥ %.2f", b.rate), fmt.Sprintf("%.1f", b.rateAim), r >= b.rate)
		row(name, "client CPU per cycle of Go's", fmt.Sprintf("%.1f (%.0f µs)", c, c*goCPU), fmt.Sprintf("≤ %.1f", b.cpu), fmt.Sprintf("%.1f", b.cpuAim), c <= b.cpu)
		many := median(all, name, "add_many", cpu)
		row(name, "add_many, client CPU per task", fmt.Sprintf("%.1f µs", many), fmt.Sprintf("≤ %.0f µs", b.many), fmt.Sprintf("%.0f", b.manyAim), many <= b.many)
		cheaper := median(all, name, "unary", cpu) / median(all, name, "cycle", cpu)
		row(name, "unary cycle, CPU of the stream's", fmt.Sprintf("%.1f", cheaper), "≥ 6", "10", cheaper >= 6)
		more := (median(all, name, "one", p50) - goOne) / 1000
		row(name, "one add, p50 over Go's", fmt.Sprintf("%.2f ms", more), "≤ 0.6 ms", "0.3", more <= 0.6)
		var seconds, rss []float64
		for _, s := range starts {
			if s.Language == name {
				seconds, rss = append(seconds, s.Seconds), append(rss, s.RSS)
			}
		}
		slices.Sort(seconds)
		slices.Sort(rss)
		s, m := seconds[len(seconds)/2], rss[len(rss)/2]
		row(name, "start until the first add is answered", fmt.Sprintf("%.2f s", s), "≤ 0.3 s", "", s <= 0.3)
		row(name, "RSS of an idle worker", fmt.Sprintf("%.0f MiB", m), fmt.Sprintf("≤ %.0f MiB", b.rss), "", m <= b.rss)
	}
}
