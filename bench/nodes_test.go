package bench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// program is a server that does what the lines of a shell script say.
func program(t *testing.T, lines string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+lines+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAClusterWhosePortsAreTakenIsTriedWithOthers(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "inits")
	exe := program(t, `
if [ "$1" = cluster ]; then
	echo x >> `+count+`
	echo token > `+dir+`/token
	echo '{"token_file":"`+dir+`/token","nodes":[{"config":"a"},{"config":"b"},{"config":"c"}]}'
	exit 0
fi
echo 'listen tcp 127.0.0.1:1: bind: address already in use' >&2
exit 1`)
	u := &runner{c: &Config{}}
	_, err := u.startNodes(t.Context(), exe, dir, &runSpec{shape: Shape{Nodes: 3, Shards: 1}, durability: Fsync, group: true})
	if !errors.Is(err, errPortTaken) {
		t.Errorf("error %v, want %v", err, errPortTaken)
	}
	b, err := os.ReadFile(count)
	if got := strings.Count(string(b), "x"); err != nil || got != clusterTries {
		t.Errorf("%d clusters were made, %v; want %d", got, err, clusterTries)
	}
}

func TestAClusterThatDoesNotStartForAnotherReasonIsNotTriedAgain(t *testing.T) {
	dir := t.TempDir()
	exe := program(t, `echo 'no such command' >&2; exit 2`)
	u := &runner{c: &Config{}}
	if _, err := u.startNodes(t.Context(), exe, dir, &runSpec{shape: Shape{Nodes: 3}}); err == nil || errors.Is(err, errPortTaken) {
		t.Errorf("error %v, want that of cluster init", err)
	}
	if made, err := filepath.Glob(filepath.Join(dir, "cluster-2")); err != nil || len(made) > 0 {
		t.Errorf("%v, %v: it was tried again", made, err)
	}
}

// The server that is started first has no others to be told of.
func TestBareServersAreToldOfThoseThatRunAlready(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "said")
	exe := program(t, `
echo "$@" >> `+said+`
while [ "$1" != --node ]; do shift; done
echo '{"grpc":"127.0.0.1:'$2'","peer":"peer-'$2'"}'
exec sleep 60`)
	c, err := (&runner{c: &Config{Executable: exe, Data: dir}}).startBare(t.Context(), &runSpec{row: &RowSpec{Servers: "x-server"}, shape: Shape{Nodes: 3, Kind: "grpc"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
	const head = "bench x-server --json --kind grpc --node "
	got, err := os.ReadFile(said)
	if want := head + "3\n" + head + "2 --peers peer-3\n" + head + "1 --peers peer-3,peer-2\n"; err != nil || string(got) != want {
		t.Errorf("%v, the servers were started with\n%s\nwant\n%s", err, got, want)
	}
}

// marked is a run whose servers counted the given number of fsyncs within the window, by server.
func marked(fsyncs ...uint64) *oneRun {
	o := &oneRun{spec: &runSpec{suite: new(Suite), durability: Fsync}, run: &Run{Ops: 10, Seconds: 2}, c: &cluster{}}
	for i, n := range fsyncs {
		o.c.endpoints = append(o.c.endpoints, Endpoint{Name: serverName(uint64(i) + 1)})
		o.status[windowBegins] = append(o.status[windowBegins], &millrace.ServerStatus{Fsyncs: 5, LogBytes: 100})
		o.status[windowEnds] = append(o.status[windowEnds], &millrace.ServerStatus{Fsyncs: 5 + n, LogBytes: 100 + 10*n})
	}
	return o
}

func TestAMajorityMustHaveSyncedWhatWasAcknowledged(t *testing.T) {
	for _, c := range []struct {
		fsyncs []uint64
		want   string
	}{
		{[]uint64{3}, ""},
		{[]uint64{0}, "counted none"},
		{[]uint64{3, 3, 0}, ""},
		{[]uint64{3, 0, 0}, "1 of 3 servers counted an fsync"},
		{nil, ""},
	} {
		got := marked(c.fsyncs...).unsynced()
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.fsyncs, got, c.want)
		}
	}
}

func TestWhatServersWroteIsToldOfAllTogetherAndOfEach(t *testing.T) {
	o := marked(20, 10, 0)
	o.led[windowBegins] = leaders{0: {1, 2}, 1: {3, 2}, 2: {1, 2}}
	got := map[string]float64{}
	o.writes(10, func(name, _ string, v float64) { got[name] = v })
	for name, want := range map[string]float64{
		"fsyncs_per_op": 3, "fsyncs_per_s": 15, "wal_bytes_per_op": 30, "server_1_fsyncs_per_op": 2, "server_2_fsyncs_per_s": 5,
		"server_3_wal_bytes_per_op": 0, "server_1_led": 2, "server_2_led": 0, "server_3_led": 1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	clear(got)
	marked(20).writes(10, func(name, _ string, v float64) { got[name] = v })
	if _, ok := got["server_1_fsyncs_per_op"]; ok || got["fsyncs_per_op"] != 2 {
		t.Errorf("one server: %v", got)
	}
}
