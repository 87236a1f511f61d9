package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// ended is how a process ended.
type ended struct {
	code int
	out  string // both streams
}

// run runs the real binary to its end.
func run(t *testing.T, args ...string) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("millrace %s: still running after 30s\n%s", strings.Join(args, " "), out)
	}
	e := ended{out: string(out)}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		e.code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return e
}

// contents reads every file below dir.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // the server has removed it meanwhile
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		out[path] = string(b)
		return err
	})
	noErr(t, err)
	return out
}

// addMany makes tasks, many calls at once, and returns their ids.
func addMany(t *testing.T, ctx context.Context, c *millrace.Client, queue string, n int) []string {
	t.Helper()
	var ids []string
	for at := 0; at < n; at += 512 {
		args := make([]string, min(512, n-at))
		for i := range args {
			args[i] = fmt.Sprintf("payload %d", at+i)
		}
		handles, err := millrace.Job[string, string](queue).AddMany(ctx, c, args)
		noErr(t, err)
		for _, h := range handles {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// states counts the tasks of a list by their state.
func states(t *testing.T, ctx context.Context, c *millrace.Client, ids []string) map[millrace.State]int {
	t.Helper()
	out := map[millrace.State]int{}
	for _, id := range ids {
		info, err := c.Task(ctx, id)
		if err != nil {
			t.Fatalf("task %s: %v", id, err)
		}
		out[info.State]++
	}
	return out
}

func TestASecondServerOnADirectoryEndsAndChangesNothing(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	ids := addMany(t, ctx, c, "q", 50)
	before := contents(t, s.DataDir())
	for { // the log is sealed, and segments are made for later, when it is idle; then nothing is written
		time.Sleep(300 * time.Millisecond)
		was := before
		if before = contents(t, s.DataDir()); maps.Equal(was, before) {
			break
		}
	}
	for range 3 {
		e := run(t, "serve", "--dev", "--data", s.DataDir(), "--listen", "127.0.0.1:0")
		if e.code != 23 || !strings.Contains(e.out, "in use") {
			t.Errorf("it ended with %d\n%s", e.code, e.out)
		}
		if e := run(t, "doctor", "--data", s.DataDir()); e.code != 23 || !strings.Contains(e.out, "in use") {
			t.Errorf("doctor ended with %d\n%s", e.code, e.out)
		}
	}
	if after := contents(t, s.DataDir()); !maps.Equal(before, after) {
		for name := range after {
			if before[name] != after[name] {
				t.Errorf("%s was changed", name)
			}
		}
	}
	if got := states(t, ctx, c, ids); got[millrace.Ready] != 50 {
		t.Errorf("the first server's tasks are %v", got)
	}
}

// reformat makes an identity that says format 7, under a checksum that fits.
func reformat(t *testing.T, identity []byte) []byte {
	t.Helper()
	var stored struct {
		Identity json.RawMessage `json:"identity"`
		Sum      string          `json:"crc32c"`
	}
	noErr(t, json.Unmarshal(identity, &stored))
	stored.Identity = bytes.Replace(stored.Identity, []byte(`"format":1`), []byte(`"format":7`), 1)
	stored.Sum = fmt.Sprintf("%08x", crc32.Checksum(stored.Identity, crc32.MakeTable(crc32.Castagnoli)))
	b, err := json.Marshal(stored)
	noErr(t, err)
	if !bytes.Contains(b, []byte(`"format":7`)) {
		t.Fatalf("no format to change in %s", identity)
	}
	return b
}

func TestADirectoryOfANewerFormatIsRefusedByBothNumbers(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	addMany(t, ctx, c, "q", 5)
	noErr(t, s.Stop())
	var name string
	for path := range contents(t, s.DataDir()) {
		if filepath.Base(path) == "IDENTITY" {
			name = path
		}
	}
	old, err := os.ReadFile(name)
	noErr(t, err)
	newer := reformat(t, old)
	noErr(t, os.WriteFile(name, newer, 0o600))
	before := contents(t, s.DataDir())
	for _, args := range [][]string{
		{"serve", "--dev", "--data", s.DataDir(), "--listen", "127.0.0.1:0"}, {"doctor", "--data", s.DataDir()},
	} {
		e := run(t, args...)
		if e.code != 23 || !strings.Contains(e.out, "format 7") || !strings.Contains(e.out, "1") {
			t.Errorf("%s ended with %d\n%s", args[0], e.code, e.out)
		}
	}
	if !maps.Equal(before, contents(t, s.DataDir())) {
		t.Error("the directory was changed")
	}

	noErr(t, os.WriteFile(name, bytes.Replace(old, []byte("node"), []byte("nodf"), 1), 0o600))
	if e := run(t, "serve", "--dev", "--data", s.DataDir(), "--listen", "127.0.0.1:0"); e.code != 21 || !strings.Contains(e.out, "IDENTITY") {
		t.Errorf("with a damaged identity it ended with %d\n%s", e.code, e.out)
	}
	noErr(t, os.WriteFile(name, old, 0o600))
	if _, err := s.Start(ctx); err != nil {
		t.Errorf("it does not start again: %v\n%s", err, logOf(s))
	}
}

func TestOnlyASafeStartIsAStart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("real processes")
	}
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.yaml")
	row := run(t, "token", "--name", "a", "--tenant", "acme", "--role", "worker")
	_, yaml, ok := strings.Cut(row.out, "tokens:")
	if !ok {
		t.Fatalf("no row in %s", row.out)
	}
	noErr(t, os.WriteFile(tokens, []byte("tokens:"+yaml), 0o600))
	bad := filepath.Join(dir, "bad.yaml")
	noErr(t, os.WriteFile(bad, []byte("tokens:\n  - name: a\n    tenant: acme\n    role: admin\n"), 0o600))
	clear := filepath.Join(dir, "clear.yaml")
	noErr(t, os.WriteFile(clear, []byte("tokens:\n  - name: a\n    tenant: acme\n    hash: hunter2\n    roles: [admin]\n"), 0o600))
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"public without TLS", []string{"--listen", "0.0.0.0:0", "--tokens", tokens}, "loopback"},
		{"any address without TLS", []string{"--listen", ":0", "--tokens", tokens}, "loopback"},
		{"any IPv6 address without TLS", []string{"--listen", "[::]:0", "--tokens", tokens}, "loopback"},
		{"public for development", []string{"--listen", "0.0.0.0:0", "--dev"}, "loopback"},
		{"public for development, insecure", []string{"--listen", "0.0.0.0:0", "--dev", "--insecure"}, "loopback"},
		{"no tokens", []string{"--listen", "127.0.0.1:0"}, "tokens"},
		{"no tokens, insecure", []string{"--listen", "0.0.0.0:0", "--insecure"}, "tokens"},
		{"no tokens file", []string{"--listen", "127.0.0.1:0", "--tokens", filepath.Join(dir, "none")}, "none"},
		{"an unknown key in the tokens", []string{"--listen", "127.0.0.1:0", "--tokens", bad}, "role"},
		{"a token in clear text", []string{"--listen", "127.0.0.1:0", "--tokens", clear}, "hash"},
		{"half of TLS", []string{"--listen", "127.0.0.1:0", "--tokens", tokens, "--tls-cert", tokens}, "tls-key"},
		{"TLS that is none", []string{"--listen", "127.0.0.1:0", "--tokens", tokens, "--tls-cert", tokens, "--tls-key", tokens}, "tls-cert"},
		{"development with tokens", []string{"--listen", "127.0.0.1:0", "--dev", "--tokens", tokens}, "--dev"},
	} {
		data := filepath.Join(dir, "data")
		e := run(t, append([]string{"serve", "--data", data}, c.args...)...)
		if e.code == 0 || !strings.Contains(e.out, c.says) {
			t.Errorf("%s: exit %d\n%s", c.name, e.code, e.out)
		}
		if _, err := os.Stat(data); err == nil {
			t.Errorf("%s: a data directory was made", c.name)
		}
	}
}

func TestAServerKilledWhileItRecoversLosesNothing(t *testing.T) {
	t.Parallel()
	s, c := serve(t)
	ctx := bounded(t, time.Minute)
	ids := addMany(t, ctx, c, "q", 3000)
	held, err := c.Claim(ctx, millrace.ClaimQuery{Queues: []string{"q"}, Max: 100})
	noErr(t, err)
	s.Kill()
	for i := range 8 {
		ready, err := s.Launch()
		noErr(t, err)
		select {
		case err := <-ready:
			noErr(t, err)
		case <-time.After(time.Duration(i) * 12 * time.Millisecond):
		}
		s.Kill()
		if e := run(t, "doctor", "--data", s.DataDir()); e.code != 0 {
			t.Fatalf("after kill %d doctor ends with %d\n%s", i, e.code, e.out)
		}
	}
	if _, err := s.Start(ctx); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	stats, err := c.Queue("q").Stats(ctx)
	noErr(t, err)
	if stats.Created != 3000 || stats.Running != 100 || stats.Ready != 2900 {
		t.Errorf("counters %+v", stats)
	}
	if got := states(t, ctx, c, ids[len(ids)-200:]); got[millrace.Ready] != 200 {
		t.Errorf("the last 200 tasks are %v", got)
	}
	for _, h := range held { // leases outlive the kills, under their tokens
		if _, err := c.Complete(ctx, h.ID, h.Token, "ok"); err != nil {
			t.Errorf("complete %s: %v", h.ID, err)
		}
	}
	noErr(t, s.Stop())
	noErr(t, s.Doctor(ctx))
}
