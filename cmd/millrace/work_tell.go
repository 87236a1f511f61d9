package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

const (
	// maxCheckpoint is the server's limit of a checkpoint, in bytes.
	maxCheckpoint = 64 << 10
	// tellLine is the longest line that is told as one; a longer one is told in pieces.
	tellLine = 4 << 10
	// How often the checkpoint file is looked at, and how long its last state may take to be saved.
	tellEvery = time.Second
	tellLast  = 5 * time.Second
)

// telling passes on what a command tells of its work: lines of its standard error, lines of the pipe for progress, and the file with the
// checkpoint. The pipes are named ones in the directory of the attempt. The worker keeps both ends of each open, so that a command may
// open and close them as often as it likes; the read ends see the end of their input when the command has ended.
type telling struct {
	r *runner
	t *millrace.Task
	// Paths of the pipes and of the file.
	errors, progress, checkpoint string
	// The read ends and the write ends.
	in, out []*os.File
	// The goroutines that read.
	readers sync.WaitGroup
	// Closed when the command has ended. Then the file is looked at for the last time, if last is set.
	over chan struct{}
	last bool
	// What saves the checkpoint ends with it.
	ctx    context.Context
	cancel context.CancelFunc
	// What the file was when it was looked at last; nil: it was not there.
	seen os.FileInfo
}

// tell begins to listen to a command that is about to start. dir is the directory of the attempt, which is new.
func (r *runner) tell(t *millrace.Task, dir string) (*telling, error) {
	l := &telling{
		r: r, t: t, over: make(chan struct{}),
		errors: filepath.Join(dir, "stderr"), progress: filepath.Join(dir, "progress"), checkpoint: filepath.Join(dir, "checkpoint"),
	}
	if b := t.Checkpoint(); len(b) > 0 {
		if err := os.WriteFile(l.checkpoint, b, 0o600); err != nil {
			return nil, err
		}
		l.seen, _ = os.Lstat(l.checkpoint) // where it fails the same bytes are saved again
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	err := l.listen(l.errors, func(line string, whole bool) {
		r.pass(line, whole)
		t.Log(line)
	})
	if err == nil {
		err = l.listen(l.progress, func(line string, _ bool) {
			if percent, text, ok := progressOf(line); ok {
				t.Progress(percent, text)
			}
		})
	}
	if err != nil {
		l.end(true)
		return nil, errors.Join(err, remove(l.errors), remove(l.progress)) // in the way of another try
	}
	l.readers.Go(l.watch)
	return l, nil
}

// listen makes a named pipe, and hands each line that is written to it to each. whole is false of a piece of a line that goes on.
func (l *telling) listen(path string, each func(line string, whole bool)) error {
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return err
	}
	// The read end first: without one, the write end cannot be opened. Without O_NONBLOCK each would wait for the other.
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	l.in, l.out = append(l.in, in), append(l.out, out)
	l.readers.Go(func() {
		defer in.Close() //nolint:errcheck // all of it was read
		for b := bufio.NewReaderSize(in, tellLine); ; {
			line, more, err := b.ReadLine()
			if err != nil {
				return
			}
			each(string(line), !more)
		}
	})
	return nil
}

// end is called when nothing of the command runs any more. It lets the read ends see the end of their input, and waits until all was
// told. The last checkpoint of a command that completes its task is not saved. What a command left running that could not be killed may
// still have a pipe open, and a server may not answer: neither is waited for longer than tellLast.
func (l *telling) end(completes bool) {
	defer l.cancel()
	l.last = !completes
	close(l.over)
	for _, f := range l.out {
		_ = f.Close() // nothing is written through it
	}
	late := time.AfterFunc(tellLast, func() {
		l.cancel()
		for _, f := range l.in {
			_ = f.SetReadDeadline(time.Now()) // a reader that is done has closed it
		}
	})
	defer late.Stop()
	l.readers.Wait()
}

// remove removes a file, if it is there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// watch saves the checkpoint file when it has changed, until the command has ended.
func (l *telling) watch() {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.save()
		case <-l.over:
			if l.last {
				l.save()
			}
			return
		}
	}
}

// save saves the checkpoint file if it is not as it was. What it cannot save it says once.
func (l *telling) save() {
	f, err := os.OpenFile(l.checkpoint, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil { // it is not there, or is being made
		return
	}
	defer f.Close() //nolint:errcheck // it was only read
	is, err := f.Stat()
	if err != nil || !is.Mode().IsRegular() || l.seen != nil && os.SameFile(is, l.seen) && is.Size() == l.seen.Size() && is.ModTime().Equal(l.seen.ModTime()) {
		return
	}
	b, err := io.ReadAll(io.LimitReader(f, maxCheckpoint+1))
	if err != nil {
		return
	}
	l.seen = is
	if len(b) > maxCheckpoint {
		err = fmt.Errorf("it must be at most %d bytes", maxCheckpoint)
	} else {
		err = l.t.SaveCheckpoint(l.ctx, b)
	}
	if err != nil && !errors.Is(err, millrace.ErrLeaseLost) {
		if _, told := l.r.told.LoadOrStore("checkpoint "+err.Error(), true); !told {
			l.r.pass(fmt.Sprintf("millrace: the checkpoint of task %s is not saved: %v", l.t.ID, err), true)
		}
	}
}

// pass prints a line of a command on the worker's standard error, without mixing those of several commands.
func (r *runner) pass(line string, whole bool) {
	if whole {
		line += "\n"
	}
	r.printing.Lock()
	defer r.printing.Unlock()
	_, _ = io.WriteString(r.a.err, line) // there is nowhere to report to
}

// progressOf reads a line such as "40 compiling" or "40%".
func progressOf(line string) (percent int, text string, ok bool) {
	number, text, _ := strings.Cut(strings.TrimSpace(line), " ")
	percent, err := strconv.Atoi(strings.TrimSuffix(number, "%"))
	return percent, strings.TrimSpace(text), err == nil && percent >= 0
}
