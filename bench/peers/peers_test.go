package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench"
	"github.com/millrace/millrace/bench/tables"
)

func TestCountersAreFoundAmongOthers(t *testing.T) {
	const page = "# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 12.5\nother{a=\"b\"} 3\netcd_disk_wal_write_bytes_total 1e+03\n"
	got, err := parse(strings.NewReader(page), []string{cpuSeconds, etcdWALBytes})
	if err != nil || got[cpuSeconds] != 12.5 || got[etcdWALBytes] != 1000 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parse(strings.NewReader(page), []string{etcdFsyncs}); err == nil {
		t.Error("a counter that is not there was found")
	}
}

func TestEveryRowOfAPeerIsMeasuredWithAsManyMembersAsItHasNodes(t *testing.T) {
	all := tables.Suites()
	i := slices.IndexFunc(all, func(s bench.Suite) bool { return s.Peer == "etcd" })
	if i < 0 {
		t.Fatal("no suite alternates with etcd")
	}
	if one, three := withNodes(all[i].Rows, 1), withNodes(all[i].Rows, 3); len(one) != 2 || len(three) != 2 || len(all[i].Rows) != 4 {
		t.Errorf("%d rows of one member and %d of three, of %d", len(one), len(three), len(all[i].Rows))
	}
}

func TestAPeerThatIsNotGivenIsNotMeasured(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, bench.ExitUsage, "one command"},
		{[]string{"run", "kv.etcd.native", "--peer", "etcd=127.0.0.1:1"}, bench.ExitUsage, "millrace"},
		{[]string{"run", "kv.etcd.native", "--millrace", "x"}, bench.ExitCannot, "none is given"},
		{[]string{"run", "queue.peers.asynq", "--millrace", "x", "--peer", "etcd=127.0.0.1:1"}, bench.ExitCannot, "no asynq"},
		{[]string{"run", "--peer", "redis=127.0.0.1:1"}, bench.ExitUsage, "not known"},
	} {
		code, err := run(t.Context(), c.args, io.Discard, io.Discard)
		if code != c.code || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: code %d, %v; want %d and %q", c.args, code, err, c.code, c.want)
		}
	}
}
