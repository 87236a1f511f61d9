// Command testcount reads what `go test -json` prints, shows it as `go test` would, and ends with a line
// "N passed, N failed, N skipped".
//
// Tests and subtests count alike, as each has a line of its own under `go test -v`. A package that fails without a
// failing test (it does not build, or ends in the middle of a test) counts as one failure, and so does a package that
// never ended. The exit status is 1 if anything failed, if nothing ran, or if the input is no test output.
//
// With -run it runs a test binary instead, for go test -exec, and notes its processor time. With -cpu and -budgets it prints
// that time next to what a table allows, and warns of packages that used more.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// main exits with 1 if anything failed, or with -run with the code of the test binary.
func main() {
	// With -run, go test -exec has started this program in place of the test binary.
	if len(os.Args) > 2 && os.Args[1] == "-run" {
		code, err := measured(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "testcount:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}
	cpu, budgets := flag.String("cpu", "", "file of processor times"), flag.String("budgets", "", "table of budgets")
	flag.Parse()
	c, err := count(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testcount:", err)
	}
	// The times are told after the tests, and fail nothing.
	if *cpu != "" {
		if err := compare(os.Stdout, *cpu, *budgets); err != nil {
			fmt.Fprintln(os.Stderr, "testcount:", err) // the tests ran all the same
		}
	}
	fmt.Println(c)
	if err != nil || !c.good() {
		os.Exit(1)
	}
}

// compare prints the processor times in one file next to the budgets of another. Packages are named from the working
// directory on.
func compare(out io.Writer, cpu, budgets string) error {
	table, err := os.ReadFile(budgets)
	if err != nil {
		return err
	}
	most, err := readBudgets(bytes.NewReader(table))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(cpu)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	used, err := readUsed(bytes.NewReader(text), root)
	if err != nil {
		return err
	}
	report(out, used, most)
	return nil
}

// event is one line of `go test -json`; cmd/test2json documents it.
type event struct {
	// Action is what happened: run, output, pass, skip or fail, and some that do not matter here.
	Action string
	// Package is the import path of the test's package; empty for a build's output.
	Package string
	// ImportPath is of a build's output.
	ImportPath string
	// Test is the name of the test; empty for the package itself.
	Test string
	// Output is one line, with its line break.
	Output string
}

// counts is the end of a run.
type counts struct{ passed, failed, skipped int }

// String prints the summary line.
func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

// good reports whether something passed and nothing failed.
func (c counts) good() bool { return c.failed == 0 && c.passed > 0 }

// state is what is known of one package while it runs.
type state struct {
	// failed is the number of tests of the package that failed.
	failed int
	// open are the tests without an end, in the order in which they started.
	open []string
	// output has the lines of each test by its name; those of the package itself are under an empty name.
	output map[string][]string
}

// maxLine bounds one line of input; a test's output comes in lines of its own.
const maxLine = 16 << 20

// count reads events to the end of in and writes to out the lines of packages and of tests that failed.
func count(in io.Reader, out io.Writer) (counts, error) {
	var c counts
	// running are the packages that have not ended, by import path.
	running := make(map[string]*state)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e event
		if len(lines.Bytes()) == 0 || lines.Bytes()[0] != '{' {
			fmt.Fprintln(out, lines.Text()) // what the go command says for itself
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return c, fmt.Errorf("read event: %w", err)
		}
		if e.Action == "build-output" {
			fmt.Fprint(out, e.Output)
		}
		if e.Package == "" {
			continue
		}
		s := running[e.Package]
		if s == nil {
			s = &state{output: make(map[string][]string)}
			running[e.Package] = s
		}
		if e.Test == "" {
			if s.packageEvent(e, out, &c) {
				delete(running, e.Package)
			}
		} else {
			s.testEvent(e, out, &c)
		}
	}
	for name := range running {
		fmt.Fprintf(out, "FAIL\t%s never ended\n", name)
		c.failed++
	}
	return c, lines.Err()
}

// testEvent follows one test; a failing one's output is shown when it ends.
func (s *state) testEvent(e event, out io.Writer, c *counts) {
	switch e.Action {
	case "run":
		s.open = append(s.open, e.Test)
	case "output":
		if !noise(e.Output) {
			s.output[e.Test] = append(s.output[e.Test], e.Output)
		}
	case "pass":
		c.passed++
	case "skip":
		c.skipped++
	case "fail":
		c.failed++
		s.failed++
		fmt.Fprint(out, strings.Join(s.output[e.Test], ""))
	}
	// What a test printed is not kept after its end.
	if e.Action == "pass" || e.Action == "skip" || e.Action == "fail" {
		s.open = slices.DeleteFunc(s.open, func(t string) bool { return t == e.Test })
		delete(s.output, e.Test)
	}
}

// packageEvent follows a package and says whether it has ended.
func (s *state) packageEvent(e event, out io.Writer, c *counts) bool {
	switch e.Action {
	case "output":
		if !noise(e.Output) {
			s.output[""] = append(s.output[""], e.Output)
		}
		return false
	case "pass", "skip":
	case "fail":
		// A package that fails with tests open was ended in the middle of them.
		for _, t := range s.open {
			fmt.Fprint(out, strings.Join(s.output[t], ""))
			fmt.Fprintf(out, "--- FAIL: %s (never ended)\n", t)
			c.failed++
			s.failed++
		}
		// It failed without a failing test, so it counts itself.
		if s.failed == 0 {
			c.failed++
		}
	default:
		return false
	}
	// The package's own lines come last, as go test prints them.
	fmt.Fprint(out, strings.Join(s.output[""], ""))
	return true
}

// noise are lines that only `go test -v` shows, and the bare verdict above a package's line.
func noise(line string) bool {
	line = strings.TrimSpace(line)
	if line == "PASS" || line == "FAIL" || strings.HasPrefix(line, "-test.shuffle ") {
		return true
	}
	// Lines with these beginnings say only which test the next lines are of.
	for _, head := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(line, head) {
			return true
		}
	}
	return false
}
