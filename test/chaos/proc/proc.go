// A Server is one server over all its restarts, and a Cluster some of them. Faults are made here:
// signals, a Proxy on each link, a Disk that loses power, a Group with little memory, a SmallDisk
// that is full. Which fault comes when, and what must hold, is the rows' (test/chaos/row).
// Addresses of a cluster stay the same over restarts; those of a single server do not, so its
// clients dial through Server.Dial.
// Package proc starts, kills and stops the real binary, and dials it wherever it is now.
package proc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Build compiles the binary into dir with build tags, and returns its path. It copies the one that MILLRACE_BIN names where that was
// built with the tag invariants before the tests began: linking takes seconds in each package that needs the binary.
func Build(ctx context.Context, root, dir, tags string) (string, error) {
	path := filepath.Join(dir, "millrace-"+strings.ReplaceAll(tags, ",", "-"))
	if built := os.Getenv("MILLRACE_BIN"); built != "" && tags == "invariants" {
		b, err := os.ReadFile(built)
		if err != nil {
			return "", err
		}
		return path, os.WriteFile(path, b, 0o755)
	}
	return path, compile(ctx, root, path, tags, "./cmd/millrace")
}

// BuildWorker compiles the worker process of the rows that pause one.
func BuildWorker(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "chaos-worker")
	return path, compile(ctx, root, path, "", "./test/chaos/worker")
}

// compile builds one program. The output of a failed build is in the error.
func compile(ctx context.Context, root, path, tags, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", tags, "-o", path, pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Options of a server process.
type Options struct {
	Binary string
	// Dir is the folder below which data, tokens and log go.
	Dir string
	// Env is added to the harness's own environment.
	Env []string
	// Flags come after those of every server here, and so win over them.
	Flags []string
	// Tokens is a file of tokens; empty: the server has one of its own, below Dir.
	Tokens string
	// Data is the folder of the data; empty: it lies below Disk, or below Dir.
	Data string
	// Disk is the one that the server's data lies on; nil: it has none of its own.
	Disk *Disk
	// OpenFiles is the process's RLIMIT_NOFILE, soft and hard; 0: that of this process.
	OpenFiles int
}

// Token is one row of the server's tokens file, with its secret.
type Token struct{ Name, Tenant, Secret string }

// Server is one server over all its restarts. Its methods may be called from any goroutine; a start
// and an end must not overlap.
type Server struct {
	o      Options
	Tokens []Token

	mu sync.Mutex // guards the fields below
	// cmd is the newest process; nil: it was never started, or its end was taken in.
	cmd *exec.Cmd
	// exited is closed when cmd has ended.
	exited chan struct{}
	// address is empty while it does not serve.
	address string
	// http and admin are as it told with its last address.
	http  string
	admin string
	// paused says that it was stopped by SIGSTOP, and killed that this harness ended it on purpose.
	paused bool
	//
	killed bool
	// next changes the next start alone.
	next *Plan
	// group is the one that later starts are in; nil: that of this process.
	group *Group
}

// Plan changes one start of a server. It may use another build, such as one that ends at a point in the code.
type Plan struct {
	//
	Binary string
	Env    []string
}

// readyWithin bounds a start: one that takes longer hangs.
const readyWithin = 30 * time.Second

// New makes a server with an admin token for each tenant. It is not started.
func New(ctx context.Context, o Options, tenants ...string) (*Server, error) {
	s := &Server{o: o}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make server's folder: %w", err)
	}
	if o.Tokens != "" {
		return s, nil
	}
	s.o.Tokens = filepath.Join(o.Dir, "tokens.yaml")
	var err error
	s.Tokens, err = makeTokens(ctx, o.Binary, s.o.Tokens, tenants)
	return s, err
}

// makeTokens writes a file of tokens with one admin token for each tenant, made by the binary itself.
func makeTokens(ctx context.Context, binary, file string, tenants []string) (made []Token, err error) {
	var rows strings.Builder
	rows.WriteString("tokens:\n")
	for _, tenant := range tenants {
		row, secret, err := tokenRow(ctx, binary, "chaos-"+tenant, tenant, 0)
		if err != nil {
			return nil, err
		}
		rows.WriteString(row)
		made = append(made, Token{"chaos-" + tenant, tenant, secret})
	}
	if err := os.WriteFile(file, []byte(rows.String()), 0o600); err != nil {
		return nil, fmt.Errorf("write tokens: %w", err)
	}
	return made, nil
}

// tokenRow makes a token, by the binary itself, and its row in a file of tokens. It expires after a time; 0: it does not.
func tokenRow(ctx context.Context, binary, name, tenant string, expires time.Duration) (row, secret string, err error) {
	out, err := exec.CommandContext(ctx, binary, "token", "--json", "--name", name, "--tenant", tenant, "--role", "admin").Output()
	if err != nil {
		return "", "", fmt.Errorf("make token: %w", err)
	}
	var told struct{ Token, Hash string }
	if err := json.Unmarshal(out, &told); err != nil || told.Token == "" || told.Hash == "" {
		return "", "", fmt.Errorf("make token: unexpected answer %q", out)
	}
	row = fmt.Sprintf("  - name: %s\n    tenant: %s\n    hash: %s\n    roles: [admin, operator]\n", name, tenant, told.Hash)
	if expires > 0 {
		row += fmt.Sprintf("    expires: %s\n", time.Now().Add(expires).UTC().Format(time.RFC3339Nano))
	}
	return row, told.Token, nil
}

// AddToken adds another token of the first token's holder to the server's file, and has a server that runs read it again. It expires after a
// time; 0: it does not.
func (s *Server) AddToken(ctx context.Context, expires time.Duration) (Token, error) {
	t := s.Tokens[0]
	row, secret, err := tokenRow(ctx, s.o.Binary, t.Name, t.Tenant, expires)
	if err != nil {
		return Token{}, err
	}
	f, err := os.OpenFile(s.o.Tokens, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return Token{}, fmt.Errorf("add token: %w", err)
	}
	_, err = f.WriteString(row)
	if err := errors.Join(err, f.Close()); err != nil {
		return Token{}, fmt.Errorf("add token: %w", err)
	}
	return Token{t.Name, t.Tenant, secret}, s.signal(syscall.SIGHUP, false)
}

// DataDir is the server's data directory.
func (s *Server) DataDir() string {
	switch {
	case s.o.Data != "":
		return s.o.Data
	case s.o.Disk != nil:
		return filepath.Join(s.o.Disk.At, "data")
	}
	return filepath.Join(s.o.Dir, "data")
}

// Disk is the disk of the server's own; nil if it has none.
func (s *Server) Disk() *Disk { return s.o.Disk }

// LogFile has what the server wrote to its error stream, over all restarts.
func (s *Server) LogFile() string { return filepath.Join(s.o.Dir, "server.log") }

// Plan changes the next start, and no later one.
func (s *Server) Plan(p Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = &p
}

// SetFlags changes what every later start is given in addition to the flags of all servers here.
func (s *Server) SetFlags(flags []string) { s.o.Flags = flags }

// Within puts every later start into a group.
func (s *Server) Within(g *Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.group = g
}

// Forget takes in that the process has ended, whatever its status: Stop then does nothing.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd, s.address = nil, ""
}

// ExitCode waits at most d for the process to end by itself, and returns its status; -1: it did not
// end in time.
func (s *Server) ExitCode(d time.Duration) int {
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.mu.Unlock()
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-exited:
		return cmd.ProcessState.ExitCode()
	case <-late.C:
		return -1
	}
}

// Launch starts the process and does not wait until it serves. ready gets one value: nil when it
// serves, or the reason why it will not.
func (s *Server) Launch() (ready <-chan error, err error) {
	log, err := os.OpenFile(s.LogFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the process has the file open; what it wrote is not ours to lose
	args := []string{
		"serve", "--json", "--data", s.DataDir(), "--tokens", s.o.Tokens, "--listen", "127.0.0.1:0", "--log-level", "info",
	}
	if s.o.Data == "" { // many servers share the disk, and each takes as much of it as it keeps free
		args = append(args, "--disk-reserve", "16777216")
	}
	args = append(args, s.o.Flags...)
	s.mu.Lock()
	plan, group := s.next, s.group
	s.next = nil
	s.mu.Unlock()
	program, env := s.o.Binary, append(os.Environ(), s.o.Env...)
	if plan != nil {
		program, env = plan.Binary, append(env, plan.Env...)
	}
	if s.o.OpenFiles > 0 {
		args = limited(s.o.OpenFiles, program, args)
		program, args = args[0], args[1:]
	}
	if group != nil {
		args = group.enter(program, args)
		program, args = args[0], args[1:]
	}
	cmd := exec.Command(program, args...)
	cmd.Env = env
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	exited := make(chan struct{})
	s.mu.Lock()
	s.cmd, s.exited, s.address, s.paused, s.killed = cmd, exited, "", false, false
	s.mu.Unlock()
	result := make(chan error, 1)
	go s.follow(cmd, out, exited, result)
	return result, nil
}

// limited returns the command of a shell that sets how many files may be open and then becomes the program.
func limited(files int, program string, args []string) []string {
	return append([]string{"sh", "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(files), program}, args...)
}

// PID is the process's id; 0: it was never started.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// follow reads the line that says where the server serves, drops what it prints after that, and
// waits for its end. A later process may have taken its place by then, so it changes the server
// only while cmd is the newest.
func (s *Server) follow(cmd *exec.Cmd, out io.Reader, exited chan struct{}, ready chan<- error) {
	in := bufio.NewReader(out)
	line, err := in.ReadBytes('\n')
	var told struct {
		Address string `json:"grpc"`
		HTTP    string `json:"http"`
		Admin   string `json:"admin"`
	}
	if err == nil {
		err = json.Unmarshal(line, &told)
	}
	if err == nil && told.Address == "" {
		err = fmt.Errorf("unexpected first line %q", line)
	}
	if err == nil {
		s.mu.Lock()
		if s.cmd == cmd {
			s.address, s.http, s.admin = told.Address, told.HTTP, told.Admin
		}
		s.mu.Unlock()
		ready <- nil
	}
	_, _ = io.Copy(io.Discard, in) // ends when the process does
	waited := cmd.Wait()
	s.mu.Lock()
	if s.cmd == cmd {
		s.address = ""
	}
	s.mu.Unlock()
	close(exited)
	if err != nil {
		ready <- fmt.Errorf("server ended before it served: %w (%w)", err, waited)
	}
}

// Start starts the process and waits until it serves. It returns how long that took.
func (s *Server) Start(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	ready, err := s.Launch()
	if err != nil {
		return 0, err
	}
	late := time.NewTimer(readyWithin)
	defer late.Stop()
	select {
	case err := <-ready:
		return time.Since(begin), err
	case <-late.C:
		s.Kill()
		return 0, fmt.Errorf("server does not serve after %s", readyWithin)
	case <-ctx.Done():
		s.Kill()
		return 0, ctx.Err()
	}
}

// Kill ends the process with SIGKILL and waits until it is gone. It returns false when the process
// had ended by itself. A disk of its own is a good one afterwards, because a process does not end
// before its calls do.
func (s *Server) Kill() bool {
	alive := s.strike()
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.mu.Unlock()
	if cmd != nil {
		if s.o.Disk != nil {
			_ = s.o.Disk.Rules() // a disk that is closed holds nothing
		}
		<-exited
	}
	return alive
}

// strike is Kill without the wait. What waits for a frozen disk ends only when the disk answers.
func (s *Server) strike() (alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address, s.paused = "", false
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		s.killed = true
		return s.cmd.Process.Kill() == nil
	}
}

// Pause stops the process with SIGSTOP: it does nothing until Resume, and its connections stay
// open. It is an error when the process had ended by itself.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP, true) }

// Resume lets a paused process go on.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT, false) }

func (s *Server) signal(sig syscall.Signal, paused bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return errors.New("the server was never started")
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal server: %w", err)
	}
	s.paused = paused
	return nil
}

// Memory is how many bytes of memory the process has, as Linux tells; 0: it does not run, or that is not told.
func (s *Server) Memory() int {
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	if cmd == nil {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest + " none")[0])
	if err != nil {
		return 0
	}
	return kib << 10
}

// Up reports whether the process runs and is not paused.
func (s *Server) Up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address != "" && !s.paused
}

// Stop ends the process with SIGTERM. When it takes longer than a minute it is killed, which is an
// error, as is any exit status except 0.
func (s *Server) Stop() error {
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop server: %w", err)
	}
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	select {
	case <-exited:
	case <-late.C:
		s.Kill()
		return errors.New("server did not end within a minute of SIGTERM")
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("server ended with status %d", code)
	}
	return nil
}

// Ended reports whether the process has ended without this harness killing it.
func (s *Server) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil || s.killed {
		return false
	}
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

// AwaitKill waits at most d for the process to be ended by SIGKILL from outside of this harness,
// such as by the kernel, and reports whether it was.
func (s *Server) AwaitKill(ctx context.Context, d time.Duration) bool {
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.mu.Unlock()
	if cmd == nil {
		return false
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-exited:
	case <-late.C:
		return false
	case <-ctx.Done():
		return false
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Address is where the server serves now; empty while it does not.
func (s *Server) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// HTTP is where its REST door is, or was when it served last.
func (s *Server) HTTP() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.http
}

// Admin is where its admin listener is, or was when it served last; empty: the flags name none.
func (s *Server) Admin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admin
}

// Dial connects to the server wherever it serves now; the given address is ignored. It is for
// clients that outlive a restart, after which the port is another.
func (s *Server) Dial(ctx context.Context, _ string) (net.Conn, error) {
	address := s.Address()
	if address == "" {
		return nil, errors.New("the server is down")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Health is where the stored state of shard 0 stands, as the doctor reads it: the index that was
// applied, and the hash of all changes up to it.
type Health struct {
	Applied uint64
	Hash    uint64
}

// Doctor checks the data directory of a server that is not running. What it finds is in the error.
func (s *Server) Doctor(ctx context.Context) error {
	_, err := s.Health(ctx)
	return err
}

// Health is Doctor, and also tells where the stored state stands.
func (s *Server) Health(ctx context.Context) (h Health, err error) {
	cmd := exec.CommandContext(ctx, s.o.Binary, "doctor", "--json", "--data", s.DataDir())
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return h, fmt.Errorf("doctor: %w\n%s%s", err, out, said.Bytes())
	}
	var found struct {
		Shards []struct {
			Shard   int    `json:"shard"`
			Applied uint64 `json:"applied"`
			Hash    string `json:"apply_hash"`
		} `json:"shards"`
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return h, fmt.Errorf("doctor: unexpected answer %q: %w", out, err)
	}
	for _, shard := range found.Shards {
		if shard.Shard == 0 {
			h.Applied = shard.Applied
			if h.Hash, err = strconv.ParseUint(shard.Hash, 16, 64); err != nil {
				return h, fmt.Errorf("doctor: apply hash: %w", err)
			}
		}
	}
	return h, nil
}
