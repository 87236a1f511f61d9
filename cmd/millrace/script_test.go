package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"millrace": main})
}

// TestScripts runs the command line as its users do. Besides those of testscript, the scripts have these commands:
//
//	code N PROG [ARG...]         runs a program that must end with exit code N
//	ready FILE [TOKENFILE]       waits for a server's ready file, then sets MILLRACE_URL, PID and MILLRACE_TOKEN
//	field NAME PATH              sets the variable NAME to a field of the JSON object that was printed last
//	until REGEXP PROG [ARG...]   runs a program again and again until it prints what matches
//	gone FILE                    waits until the process whose id is in the file has ended
//	term PID | term FILE         sends SIGTERM to a process
//	waitfile FILE                waits until the file is there and is not empty
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	testscript.Run(t, testscript.Params{
		Dir:                "../../test/script",
		RequireUniqueNames: true,
		ContinueOnError:    true, // one run tells all that is wrong
		Setup: func(env *testscript.Env) error {
			// Under the race detector a program sleeps for a second at its end; the scripts run hundreds.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": scriptCode, "ready": scriptReady, "field": scriptField, "until": scriptUntil, "gone": scriptGone,
			"term": scriptTerm, "waitfile": scriptWaitFile,
		},
	})
}

// scriptPatience bounds every wait of a script: what takes longer hangs.
const scriptPatience = 30 * time.Second

// poll asks done every few milliseconds until it says true.
func poll(ts *testscript.TestScript, what string, done func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(scriptPatience)
	defer late.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-late.C:
			ts.Fatalf("%s: not within %s", what, scriptPatience)
		}
	}
}

func usage(ts *testscript.TestScript, neg, ok bool, text string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", text)
	}
}

func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "code N PROG [ARG...]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptReady(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1 || len(args) == 2, "ready FILE [TOKENFILE]")
	file := ts.MkAbs(args[0])
	poll(ts, "ready file "+args[0], func() bool { _, err := os.Stat(file); return err == nil })
	var told struct {
		Address string `json:"grpc"`
		HTTP    string `json:"http"`
		PID     int    `json:"pid"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &told))
	ts.Check(os.Remove(file)) // so that the next server's is waited for
	ts.Setenv("MILLRACE_URL", told.Address)
	ts.Setenv("MILLRACE_HTTP", told.HTTP)
	ts.Setenv("PID", strconv.Itoa(told.PID))
	if len(args) == 2 {
		ts.Setenv("MILLRACE_TOKEN", strings.TrimSpace(ts.ReadFile(args[1])))
	}
}

func scriptField(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "field NAME PATH")
	line, _, _ := strings.Cut(ts.ReadFile("stdout"), "\n")
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	var v any
	ts.Check(d.Decode(&v))
	for name := range strings.SplitSeq(args[1], ".") {
		o, ok := v.(map[string]any)
		if !ok || o[name] == nil {
			ts.Fatalf("no field %s in %s", args[1], line)
		}
		v = o[name]
	}
	ts.Setenv(args[0], fmt.Sprint(v))
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "until REGEXP PROG [ARG...]")
	want, err := regexp.Compile(args[0])
	ts.Check(err)
	poll(ts, strings.Join(args, " "), func() bool {
		_ = ts.Exec(args[1], args[2:]...) // it may fail until it does not
		return want.MatchString(ts.ReadFile("stdout"))
	})
}

func pidOf(ts *testscript.TestScript, arg string) int {
	pid, err := strconv.Atoi(arg)
	if err != nil {
		pid, err = strconv.Atoi(strings.TrimSpace(ts.ReadFile(arg)))
	}
	ts.Check(err)
	return pid
}

func scriptGone(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "gone FILE")
	pid := pidOf(ts, args[0])
	poll(ts, "end of process "+strconv.Itoa(pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") // a zombie runs no more: its parent is to fetch it
	})
}

func scriptTerm(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "term PID | term FILE")
	ts.Check(syscall.Kill(pidOf(ts, args[0]), syscall.SIGTERM))
}

func scriptWaitFile(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "waitfile FILE")
	file := ts.MkAbs(args[0])
	poll(ts, "file "+args[0], func() bool { info, err := os.Stat(file); return err == nil && info.Size() > 0 })
}
