package sdk

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/agents"
	"github.com/millrace/millrace/test/chaos/proc"
)

// program is the server, and goAgent the agent of the Go SDK, as TestMain built them.
var program, goAgent string

func TestMain(m *testing.M) { os.Exit(mainCode(m)) }

func mainCode(m *testing.M) int {
	dir, err := os.MkdirTemp("", "millrace-sdk-")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(dir)
	if program, err = proc.Build(context.Background(), root, dir, "invariants"); err != nil {
		log.Print(err)
		return 1
	}
	if goAgent, err = agents.BuildGo(context.Background(), root, dir); err != nil {
		log.Print(err)
		return 1
	}
	return m.Run()
}

const root = "../.."

// languages are those that can be played here. Where MILLRACE_SDK_REQUIRED is 1, all must be.
func languages(t *testing.T) (out []agents.Language) {
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range agents.Languages(dir, goAgent) {
		switch {
		case l.Missing == "":
			out = append(out, l)
		case os.Getenv("MILLRACE_SDK_REQUIRED") == "1":
			t.Errorf("%s: %s", l.Name, l.Missing)
		default:
			t.Logf("not played for %s: %s", l.Name, l.Missing)
		}
	}
	return out
}

// TestScenario plays each scenario for each language: go test ./test/sdk -run 'Scenario/settle_lost/python'.
func TestScenario(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	all, err := Load(filepath.Join(root, "sdk", "scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there are no scenarios")
	}
	langs := languages(t)
	for _, s := range all {
		t.Run(s.File, func(t *testing.T) {
			t.Parallel()
			switch long := os.Getenv("MILLRACE_SDK_LONG"); {
			case s.Long && long != "1" && long != "only":
				t.Skip("long: MILLRACE_SDK_LONG=1 plays it")
			case !s.Long && long == "only":
				t.Skip("not long")
			}
			for _, a := range langs {
				if !s.For(a.Name) {
					continue
				}
				if !s.Pairs {
					play(t, a.Name, s, a, a)
					continue
				}
				for _, b := range langs {
					// Both kinds of clients of Python encode by the same code.
					if s.For(b.Name) && a.Name != "python" && b.Name != "python" {
						play(t, a.Name+"-"+b.Name, s, a, b)
					}
				}
			}
		})
	}
}

// play plays a scenario as a test of its own.
func play(t *testing.T, name string, s *Scenario, a, b agents.Language) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if err := s.Play(ctx, program, t.TempDir(), StepWait, [2][]string{a.Line, b.Line}); err != nil {
			t.Errorf("%s\n%v", s.Name, err)
		}
	})
}

// TestPlantedBugsAreFound plays each scenario that names a planted bug with that bug in the SDK: it must fail. The SDK of Go has such bugs
// as patches, in test/mutants.
func TestPlantedBugsAreFound(t *testing.T) {
	if os.Getenv("MILLRACE_CHECK") != "1" {
		t.Skip("MILLRACE_CHECK=1 plays it: it waits for what does not come")
	}
	all, err := Load(filepath.Join(root, "sdk", "scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, l := range languages(t) {
			if s.Mutant == "" || !s.For(l.Name) || l.Name == "go" {
				continue
			}
			t.Run(s.File+"/"+l.Name+"/"+s.Mutant, func(t *testing.T) {
				t.Parallel()
				line := append(slices.Clone(l.Line), "--mutant", s.Mutant)
				if err := s.Play(t.Context(), program, t.TempDir(), 10*time.Second, [2][]string{line, line}); err == nil {
					t.Errorf("the bug %s is not found", s.Mutant)
				} else if !strings.Contains(err.Error(), s.File+".yaml:") {
					t.Errorf("the scenario did not begin: %v", err)
				}
			})
		}
	}
}

// TestAScenarioIsReadStrictly tries files that mean nothing.
func TestAScenarioIsReadStrictly(t *testing.T) {
	for name, text := range map[string]string{
		"no name":                "steps: [{a: {get: x}}]",
		"no steps":               "name: n",
		"an unknown field":       "name: n\nservres: {}\nsteps: [{a: {get: x}}]",
		"a step of two words":    "name: n\nservers: {s: {}}\nsteps: [{s: {kill: true, restart: true}}]",
		"a step of unknown name": "name: n\nservers: {s: {}}\nsteps: [{x: {kill: true}}]",
		"a link to nothing":      "name: n\nservers: {s: {}}\nlinks: {l: x}\nsteps: [{s: {kill: true}}]",
		"an agent of nothing":    "name: n\nservers: {s: {}}\nagents: {a: {}}\nsteps: [{s: {kill: true}}]",
	} {
		file := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(file); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// TestValuesOfJobsKeepTheirText holds that the runner changes neither numbers nor the order of keys.
func TestValuesOfJobsKeepTheirText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	text := "name: n\nservers: {s: {}}\nsteps:\n  - s: {add: {job: j, args: {z: 9007199254740993, a: [1.50, true, null, \"7\"]}}, expect: {result: 1e3}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprint(&b, s.Steps[0].Value.(map[string]any)["args"], " ", s.Steps[0].Expect.(map[string]any)["result"])
	if want := `{"z":9007199254740993,"a":[1.50,true,null,"7"]} 1e3`; b.String() != want {
		t.Errorf("read as %s, want %s", b.String(), want)
	}
}
