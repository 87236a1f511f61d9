package main

import (
	"context"
	"encoding/gob"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// orphan is a supervisor whose worker is the test, which can be gone at any point.
type orphan struct {
	t       *testing.T
	cmd     *exec.Cmd
	input   io.Closer
	orders  *gob.Encoder
	reports *os.File // the worker's end
	dir     string   // of the attempt
}

// supervised starts a supervisor and makes the directory of an attempt.
func supervised(t *testing.T) *orphan {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close() //nolint:errcheck // it is the supervisor's
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, selfPath, superviseArg)
	cmd.Args[0] = "millrace" // by which the binary of the tests is the program
	cmd.ExtraFiles = []*os.File{write}
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close() })
	o := &orphan{t: t, cmd: cmd, input: input, orders: gob.NewEncoder(input), reports: read, dir: filepath.Join(t.TempDir(), "attempt")}
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(o.dir, "stderr"), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// listen opens both ends of the standard error, as a worker that lives does.
func (o *orphan) listen() {
	o.t.Helper()
	f, err := os.OpenFile(filepath.Join(o.dir, "stderr"), os.O_RDWR, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = f.Close() })
}

// start orders the supervisor to run a command of the shell.
func (o *orphan) start(command string) {
	o.t.Helper()
	err := o.orders.Encode(order{Start: &attempt{
		Path: "/bin/sh", Argv: []string{"sh", "-c", command}, Most: 100, Stderr: filepath.Join(o.dir, "stderr"), Dir: o.dir,
	}})
	if err != nil {
		o.t.Fatal(err)
	}
}

// gone closes the orders, and checks that the supervisor ends and leaves nothing of the attempt.
func (o *orphan) gone() {
	o.t.Helper()
	_ = o.input.Close()
	_ = o.cmd.Wait() // its exit code tells nothing more
	if !o.cmd.ProcessState.Exited() {
		o.t.Errorf("the supervisor did not end: %v", o.cmd.ProcessState)
	}
	if _, err := os.Stat(o.dir); !os.IsNotExist(err) {
		o.t.Errorf("the directory of the attempt is left: %v", err)
	}
}

func TestASupervisorLeavesNothingWhereverItsWorkerIsKilled(t *testing.T) {
	t.Run("before the command starts", func(t *testing.T) {
		o := supervised(t)
		o.start("sleep 600")
		o.gone()
	})
	t.Run("while it runs", func(t *testing.T) {
		o := supervised(t)
		o.listen()
		o.start("sleep 600 & setsid sleep 600")
		o.ended(false)
		o.gone()
	})
	t.Run("after it has ended", func(t *testing.T) {
		o := supervised(t)
		o.listen()
		o.start("true")
		o.ended(true)
		o.gone()
	})
	t.Run("before the report of its end", func(t *testing.T) {
		o := supervised(t)
		o.listen()
		_ = o.reports.Close()
		o.start("true")
		_ = o.cmd.Wait() // by the report that it cannot send
		o.gone()
	})
}

// ended reads reports until the command has started, or with end until it has ended.
func (o *orphan) ended(end bool) {
	o.t.Helper()
	for in := gob.NewDecoder(o.reports); ; {
		var r report
		if err := in.Decode(&r); err != nil {
			o.t.Fatal(err)
		}
		if r.Failed != 0 {
			o.t.Fatal(r.Failed)
		}
		if !end || r.End != nil {
			return
		}
	}
}
