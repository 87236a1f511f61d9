// Package agents drives the programs of the SDKs of all languages over standard input, and measures them next to each other.
// sdk/scenarios/README.md has the protocol.
package agents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Agent is the process of one agent.
type Agent struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	trace *trace
	done  chan struct{} // closed when it has ended and all that it said is read

	mu      sync.Mutex // guards the fields below
	next    int
	answers map[int]chan Answer
	events  []event
	changed chan struct{} // closed and replaced when an event comes or the process ends
	err     error         // why nothing more comes
}

// Answer is what an agent said to a command: ok or err.
type Answer struct {
	OK  any
	Err map[string]any
}

// event is one that an agent told. One that a step awaited is taken.
type event struct {
	fields map[string]any
	taken  bool
}

// trace keeps the last lines between the runner and an agent, to be shown when a scenario fails.
type trace struct {
	mu    sync.Mutex
	start time.Time
	b     bytes.Buffer
}

func (t *trace) add(who string, line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(line) > 400 {
		line = append(line[:400:400], "..."...)
	}
	fmt.Fprintf(&t.b, "%7.3f %s %s\n", time.Since(t.start).Seconds(), who, bytes.TrimSpace(line))
}

// Write takes what an agent writes to standard error.
func (t *trace) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		t.add("!", line)
	}
	return len(b), nil
}

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// Start starts an agent with a command line.
func Start(line ...string) (*Agent, error) {
	a := &Agent{
		cmd: exec.Command(line[0], line[1:]...), trace: &trace{start: time.Now()}, done: make(chan struct{}),
		answers: map[int]chan Answer{}, changed: make(chan struct{}),
	}
	a.cmd.Stderr = a.trace
	a.cmd.SysProcAttr = childAttr()
	var err error
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go a.read(out)
	return a, nil
}

// read takes lines until the agent ends.
func (a *Agent) read(out io.Reader) {
	defer close(a.done)
	r := bufio.NewReaderSize(out, 1<<20)
	var err error
	for err == nil {
		var line []byte
		if line, err = r.ReadBytes('\n'); len(line) > 0 {
			a.trace.add("<", line)
			a.take(line)
		}
	}
	waited := a.cmd.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = fmt.Errorf("the agent has ended: %s", a.cmd.ProcessState)
	if waited == nil {
		a.err = errors.New("the agent has ended")
	}
	for _, c := range a.answers {
		close(c)
	}
	clear(a.answers)
	close(a.changed)
	a.changed = make(chan struct{})
}

// take notes one line: an answer or an event.
func (a *Agent) take(line []byte) {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		a.trace.add("?", []byte(err.Error()))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := fields["event"]; ok {
		a.events = append(a.events, event{fields: fields})
		close(a.changed)
		a.changed = make(chan struct{})
		return
	}
	number, _ := fields["i"].(json.Number)
	n, _ := number.Int64()
	c := a.answers[int(n)]
	if c == nil {
		a.trace.add("?", fmt.Appendf(nil, "no command %d waits for an answer", n))
		return
	}
	delete(a.answers, int(n))
	answer := Answer{OK: fields["ok"]}
	answer.Err, _ = fields["err"].(map[string]any)
	c <- answer
	close(c)
}

// Do sends a command and returns where its answer comes. The channel is closed without one when the agent ends.
func (a *Agent) Do(word string, value any) (<-chan Answer, error) {
	fields := map[string]any{}
	if m, ok := value.(map[string]any); ok {
		maps.Copy(fields, m)
	}
	c := make(chan Answer, 1)
	a.mu.Lock()
	if a.err != nil {
		defer a.mu.Unlock()
		return nil, a.err
	}
	a.next++
	fields["i"], fields["do"] = a.next, word
	a.answers[a.next] = c
	a.mu.Unlock()
	line, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	line = append(line, '\n')
	a.trace.add(">", line)
	_, err = a.in.Write(line)
	return c, err
}

// Answered waits for what Do returned, and makes an Error of a refusal.
func Answered(c <-chan Answer, d time.Duration) (any, error) {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case a, ok := <-c:
		switch {
		case !ok:
			return nil, errors.New("the agent has ended")
		case a.Err != nil:
			return nil, Error{a.Err}
		}
		return a.OK, nil
	case <-late.C:
		return nil, fmt.Errorf("no answer within %v", d)
	}
}

// Ask sends a command and waits for its answer.
func (a *Agent) Ask(word string, value any, d time.Duration) (any, error) {
	c, err := a.Do(word, value)
	if err != nil {
		return nil, err
	}
	return Answered(c, d)
}

// Error is what an agent answered instead of ok.
type Error struct{ Fields map[string]any }

// Error shows the fields as JSON.
func (e Error) Error() string {
	b, _ := json.Marshal(e.Fields)
	return string(b)
}

// Await waits until an event came that is as wanted and that no step took before, and takes it.
func (a *Agent) Await(wanted func(event map[string]any) bool, d time.Duration) (map[string]any, error) {
	late := time.After(d)
	for {
		a.mu.Lock()
		for i := range a.events {
			if e := &a.events[i]; !e.taken && wanted(e.fields) {
				e.taken = true
				a.mu.Unlock()
				return e.fields, nil
			}
		}
		changed, over := a.changed, a.err
		a.mu.Unlock()
		if over != nil {
			return nil, over
		}
		select {
		case <-changed:
		case <-late:
			return nil, fmt.Errorf("no such event within %v", d)
		}
	}
}

// Seen reports whether an event as wanted came so far that no step took.
func (a *Agent) Seen(wanted func(event map[string]any) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if !e.taken && wanted(e.fields) {
			return true
		}
	}
	return false
}

// Said are the last lines between the caller and the agent, to be shown when something fails.
func (a *Agent) Said() string { return a.trace.String() }

// Signal sends a signal to the agent's process.
func (a *Agent) Signal(s syscall.Signal) error { return a.cmd.Process.Signal(s) }

// Memory is how many bytes of memory the process has, as Linux tells; 0: it does not run, or that is not told.
func (a *Agent) Memory() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kib float64
	_, _ = fmt.Sscan(rest, &kib)
	return kib * 1024
}

// Exit waits for the end of the process and returns its status.
func (a *Agent) Exit(d time.Duration) (int, error) {
	select {
	case <-a.done:
		return a.cmd.ProcessState.ExitCode(), nil
	case <-time.After(d):
		return 0, fmt.Errorf("the agent runs after %v", d)
	}
}

// Kill ends the process with SIGKILL, and waits for that.
func (a *Agent) Kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
}

// tick is the unit of processor time in /proc: Linux has 100 in a second, on every machine.
const tick = time.Second / 100

// CPU is how much processor time the process has used, as Linux tells; 0: that is not told.
func (a *Agent) CPU() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the program's name may have spaces
	fields := strings.Fields(rest)
	const user = 11 // of what follows the name
	if len(fields) <= user+1 {
		return 0
	}
	var of [2]int64
	for i := range of {
		if of[i], err = strconv.ParseInt(fields[user+i], 10, 64); err != nil {
			return 0
		}
	}
	return time.Duration(of[0]+of[1]) * tick
}

// Close ends the agent: by the end of its standard input, or by SIGKILL.
func (a *Agent) Close() {
	_ = a.in.Close()
	if _, err := a.Exit(5 * time.Second); err != nil {
		a.Kill()
	}
}
