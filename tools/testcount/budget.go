package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// cpuFile, in the environment, names the file to which testcount -run adds a line for each test binary: its directory and
// its processor seconds.
const cpuFile = "TESTCOUNT_CPU"

// freeSeconds is what a package without a budget may use: most packages use far less.
const freeSeconds = 10

// measured runs a test binary and notes how many processor seconds it used, with all processes that it waited for. It
// returns the exit code of the binary.
func measured(args []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	// The binary gets what this process gets: a stack dump must be the binary's.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, os.Interrupt) // such as go test sends to a binary that hangs
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	err := cmd.Wait()
	// The binary could not be waited for, so what it used is not known.
	if cmd.ProcessState == nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	// Several binaries run at once, so each adds its line to the end of the file.
	f, err := os.OpenFile(os.Getenv(cpuFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	_, err = fmt.Fprintf(f, "%s\t%.1f\n", dir, used.Seconds())
	if closed := f.Close(); err == nil {
		err = closed
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, err
	}
	return 1, err // a signal ended it
}

// seconds are processor seconds by package, named by its directory below the root.
type seconds map[string]float64

// readUsed reads what measured wrote. A package that ran twice counts twice.
func readUsed(in io.Reader, root string) (seconds, error) {
	// Each line has a directory and its seconds.
	out := seconds{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		dir, text, _ := strings.Cut(lines.Text(), "\t")
		used, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("read processor time: %w", err)
		}
		name, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, fmt.Errorf("read processor time: %w", err)
		}
		out[filepath.ToSlash(name)] += used
	}
	return out, lines.Err()
}

// readBudgets reads the rows "cpu package seconds" of a table. Text after # is for people; other rows are of other readers.
func readBudgets(in io.Reader) (seconds, error) {
	out := seconds{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 || words[0] != "cpu" {
			continue
		}
		// A second row for the same package is an error, since only one could hold.
		if len(words) != 3 || out[words[1]] != 0 {
			return nil, fmt.Errorf("budget %q: must be one row \"cpu package seconds\"", lines.Text())
		}
		most, err := strconv.ParseFloat(words[2], 64)
		if err != nil || most <= 0 {
			return nil, fmt.Errorf("budget %q: must have a number of seconds", lines.Text())
		}
		out[words[1]] = most
	}
	return out, lines.Err()
}

// report prints what packages with a budget used, and warns of those beyond it. Nothing fails: how long something takes
// depends on the machine.
func report(out io.Writer, used, budgets seconds) {
	names := map[string]bool{}
	for name := range budgets {
		names[name] = true
	}
	for name, s := range used {
		if s > freeSeconds {
			names[name] = true
		}
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	// Those that used most come first; equal ones are in order of their names.
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(used[b], used[a]), cmp.Compare(a, b))
	})
	var warnings []string
	all := 0.0
	for _, s := range used {
		all += s
	}
	fmt.Fprintf(out, "processor seconds of tests: %.0f, of these:\n", all)
	for _, name := range sorted {
		s, ran := used[name]
		most, has := budgets[name]
		// A package that did not run is shown with a dash, so that its budget is not forgotten.
		switch {
		case !has:
			fmt.Fprintf(out, "%6.0f          %s\n", s, name)
			warnings = append(warnings, fmt.Sprintf("%s used %.0f s and has no budget: over %d s it needs one", name, s, freeSeconds))
		case !ran:
			fmt.Fprintf(out, "%6s of %4.0f  %s\n", "–", most, name)
		default:
			fmt.Fprintf(out, "%6.0f of %4.0f  %s\n", s, most, name)
			if s > most {
				warnings = append(warnings, fmt.Sprintf("%s used %.0f s, over its budget of %.0f s", name, s, most))
			}
		}
	}
	for _, w := range warnings {
		fmt.Fprintf(out, "WARNING: %s\n", w)
	}
}
