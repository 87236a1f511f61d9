package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/server"
)

const (
	// readyWithin bounds a start: one that takes longer hangs.
	readyWithin = 30 * time.Second
	// termWithin is the time from SIGTERM to SIGKILL.
	termWithin = 10 * time.Second
)

// process is one child of the bench. It ends when the bench does, however that ends (see childAttr).
type process struct {
	name string
	pid  int
	// log is the file of its error stream. A process that is started again appends to it.
	log string
	cmd *exec.Cmd
	// exited is closed when it has ended and err is set.
	exited chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	// err is how it ended, as Wait says.
	err error
	// told says that it was told to end: an end without that fails the run.
	told bool
}

// startProcess runs a command whose first line on its standard output is a JSON object, and returns
// that line when it comes. An end before the line, or readyWithin without it, is an error that
// shows the end of the log. On an error the process is gone.
func startProcess(ctx context.Context, name, log string, cmd *exec.Cmd, env []string) (*process, []byte, error) {
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	defer f.Close() //nolint:errcheck // the process has the file open; what it wrote is not ours to lose
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = f
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	cmd.SysProcAttr = childAttr()
	p := &process{name: name, log: log, cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	first := make(chan []byte, 1)
	go func() {
		// The kernel ends the child with the thread that made it: the thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			close(p.exited)
			return
		}
		started <- nil
		p.follow(out, first)
	}()
	if err := <-started; err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.pid = cmd.Process.Pid
	late := time.NewTimer(readyWithin)
	defer late.Stop()
	select {
	case line := <-first:
		return p, line, nil
	case <-p.exited:
		return nil, nil, fmt.Errorf("%s ended before it served: %w\n%s", name, p.ended(), p.tail())
	case <-late.C:
		return nil, nil, errors.Join(fmt.Errorf("%s does not serve after %s", name, readyWithin), p.kill())
	case <-ctx.Done():
		return nil, nil, errors.Join(ctx.Err(), p.kill())
	}
}

// follow reads the first line, drops the rest so that the process never blocks on its output, and
// waits for its end.
func (p *process) follow(out io.Reader, first chan<- []byte) {
	in := bufio.NewReader(out)
	if line, err := in.ReadBytes('\n'); err == nil {
		first <- line
	}
	_, _ = io.Copy(io.Discard, in) // ends when the process does
	err := p.cmd.Wait()
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	close(p.exited)
}

// done reports whether the process has ended.
func (p *process) done() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// ended is how the process ended, which is an error even for status 0.
func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// gone returns an error when the process has ended without being told to.
func (p *process) gone() error {
	if !p.done() {
		return nil
	}
	p.mu.Lock()
	told := p.told
	p.mu.Unlock()
	if told {
		return nil
	}
	return fmt.Errorf("%s ended by itself: %w\n%s", p.name, p.ended(), p.tail())
}

// stop ends the process: SIGTERM, and SIGKILL after 10 s, which is an error.
func (p *process) stop() error {
	p.mu.Lock()
	p.told = true
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	late := time.NewTimer(termWithin)
	defer late.Stop()
	select {
	case <-p.exited:
		return nil
	case <-late.C:
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM", p.name, termWithin), p.kill())
	}
}

// kill ends the process at once, and returns when it is gone. What it had only in memory is lost.
func (p *process) kill() error {
	p.mu.Lock()
	p.told = true
	p.mu.Unlock()
	return p.crash()
}

// crash ends the process at once, as if it had ended by itself: gone then reports it.
func (p *process) crash() error {
	err := p.cmd.Process.Kill()
	<-p.exited
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// tail returns the end of what the process wrote to its error stream.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return string(b[max(0, len(b)-4096):])
}

// cluster is the servers of one run, and how they are stopped and started.
type cluster struct {
	endpoints []Endpoint
	// procs are their processes in the order of endpoints; empty when the bench did not start them.
	procs []*process
	// nextTo is the single-node server that runs next to them; nil: there is none.
	nextTo *cluster
	token  string
	// others are the tokens of further tenants.
	others    []string
	namespace string
	// insecure allows plain text to a target that is not on the loopback device.
	insecure bool
	// files name the configurations of several nodes; nil: there is one node, or the bench did not start them.
	files *initialized
	// dir holds the data and tokens of the run. It is removed after a clean run.
	dir string
	// sockets is the folder of the operators' sockets, removed with the servers.
	sockets string
	// close stops the servers. It is never nil.
	close func() error
	// restart starts servers that ended on their directories; nil: they cannot be started again.
	restart func(ctx context.Context) error
	// leaders reads which node leads each shard; nil: there is one server, or it does not tell.
	leaders func(ctx context.Context) (leaders, error)
}

// stop ends every process, all at once, and waits for them. A process that must be killed is an error.
func (c *cluster) stop() error {
	errs := make([]error, len(c.procs))
	var stopping sync.WaitGroup
	for i, p := range c.procs {
		if p != nil {
			stopping.Go(func() { errs[i] = p.stop() })
		}
	}
	stopping.Wait()
	err := errors.Join(errs...)
	if c.nextTo != nil {
		err = errors.Join(err, c.nextTo.stop())
	}
	return err
}

// startProcs starts the servers of a row, each in a process of its own, below a new directory. On
// an error nothing is left of it.
func (u *runner) startProcs(ctx context.Context, spec runSpec) (*cluster, error) {
	exe, err := u.executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(u.c.dataParent(), "millrace-bench-")
	if err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	if err := spec.makeSockets(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	start := u.startOne
	if spec.shape.Nodes > 1 {
		start = u.startNodes
	}
	c, err := start(ctx, exe, dir, &spec)
	if err == nil && spec.shape.Beside {
		if c.nextTo, err = u.startBeside(ctx, exe, dir, &spec); err != nil {
			c.nextTo = nil
			err = errors.Join(err, c.stop())
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), os.RemoveAll(spec.sockets))
	}
	c.dir, c.sockets = dir, spec.sockets
	return c, nil
}

// startOne starts the server of a row that has one. A restart is the same start on the same directory.
func (u *runner) startOne(ctx context.Context, exe, dir string, spec *runSpec) (*cluster, error) {
	c := &cluster{namespace: namespaceOf(spec.shape), procs: make([]*process, 1)}
	c.close = c.stop
	c.restart = func(ctx context.Context) (err error) {
		p, err := u.startServer(ctx, exe, dir, spec, c)
		if err == nil {
			c.procs[0] = p
		}
		return err
	}
	return c, c.restart(ctx)
}

// startServer starts one server and reads its addresses and token. It sets endpoints and token of
// c: the token file is made by the first start, and the ports differ with each.
func (u *runner) startServer(ctx context.Context, exe, dir string, spec *runSpec, c *cluster) (*process, error) {
	name := cmp.Or(spec.server, serverName(1))
	tokenFile := filepath.Join(dir, "token")
	who := []string{"--dev", "--token-file", tokenFile}
	if spec.shape.Tenants > 1 {
		tokens := filepath.Join(dir, "tokens.yaml")
		who = []string{"--tokens", tokens}
		if err := c.tenants(spec.shape.Tenants, tokens); err != nil {
			return nil, err
		}
	}
	args := []string{
		"serve", "--json", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--durability", string(spec.durability), "--shards", fmt.Sprint(max(spec.shape.Shards, 1)), "--log-level", "warn",
		"--name", name, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0",
	}
	args = append(append(args, who...), strings.Fields(spec.shape.Serve)...)
	if !spec.group {
		args = append(args, "--group-commit=false")
	}
	if spec.shape.Memory > 0 {
		args = append(args, "--memory", fmt.Sprintf("%dMiB", spec.shape.Memory))
	}
	p, e, err := startAnnounced(ctx, name, filepath.Join(dir, name+".log"), exec.Command(exe, args...), spec.serverEnv(name))
	if err != nil {
		return nil, err
	}
	c.endpoints = []Endpoint{e}
	if c.others != nil {
		return p, nil
	}
	if c.token, err = readToken(tokenFile); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// startAnnounced starts a server and reads where its listeners are.
func startAnnounced(ctx context.Context, name, log string, cmd *exec.Cmd, env []string) (*process, Endpoint, error) {
	p, line, err := startProcess(ctx, name, log, cmd, env)
	if err != nil {
		return nil, Endpoint{}, err
	}
	e, err := announced(name, line)
	if err != nil {
		return nil, e, errors.Join(err, p.kill())
	}
	return p, e, nil
}

// readToken reads the token that a server with --dev has written.
func readToken(file string) (string, error) {
	token, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}

// ServeDev starts a server of a program with --dev and the arguments, on data below dir. kill ends it at once.
func ServeDev(ctx context.Context, exe, dir string, args ...string) (e Endpoint, token string, kill func() error, err error) {
	name, file := serverName(1), filepath.Join(dir, "token")
	line := append([]string{"serve", "--json", "--dev", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--token-file", file}, args...)
	p, e, err := startAnnounced(ctx, name, filepath.Join(dir, name+".log"), exec.Command(exe, line...), nil)
	if err != nil {
		return e, "", nil, err
	}
	if token, err = readToken(file); err != nil {
		return e, "", nil, errors.Join(err, p.kill())
	}
	return e, token, p.kill, nil
}

// tenants makes a token of an admin for each of n tenants, and writes the file of a server that
// knows them. When the server is started again the tokens stay.
func (c *cluster) tenants(n int, file string) error {
	if c.others != nil {
		return nil // the server is started again
	}
	var b strings.Builder
	b.WriteString("tokens:\n")
	for i := range n {
		token := server.NewToken()
		fmt.Fprintf(&b, "  - {name: bench, tenant: bench-%d, roles: [admin, operator], hash: %q}\n", i+1, server.HashToken(token))
		if i == 0 {
			c.token = token
		} else {
			c.others = append(c.others, token)
		}
	}
	return os.WriteFile(file, []byte(b.String()), 0o600)
}

// makeSockets makes the folder of the operators' sockets, directly below that for temporary files:
// a socket's path must be short.
func (s *runSpec) makeSockets() (err error) {
	if s.sockets, err = os.MkdirTemp("", "millrace"); err != nil {
		return fmt.Errorf("make the folder of sockets: %w", err)
	}
	return nil
}

// serverEnv is what is added to the environment of a server. A program that knows no operator's socket does not read where it is to be.
func (s *runSpec) serverEnv(name string) []string {
	return append(slices.Clone(s.env), "MILLRACE_SERVE_ADMIN_SOCKET="+filepath.Join(s.sockets, name))
}

// announced reads the line that a server prints when it listens: where its listeners are.
func announced(name string, line []byte) (Endpoint, error) {
	var told struct {
		Address string `json:"grpc"`
		HTTP    string `json:"http"`
		Admin   string `json:"admin"`
		Socket  string `json:"socket"`
	}
	if err := json.Unmarshal(line, &told); err != nil || told.Address == "" {
		return Endpoint{}, fmt.Errorf("%s said %q", name, bytes.TrimSpace(line))
	}
	return Endpoint{Name: name, Address: told.Address, HTTP: base(told.HTTP), Admin: base(told.Admin), Socket: told.Socket}, nil
}

// base makes the base address of a listener from host:port. Empty and off stay as they are.
func base(address string) string {
	if address == "" || address == "off" || strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// executable is the program that servers are started with.
func (u *runner) executable() (string, error) {
	if u.c.Executable != "" {
		return u.c.Executable, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this executable: %w", err)
	}
	return exe, nil
}
