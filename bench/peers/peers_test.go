package main

import (
	"bytes"
	"context"
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

func TestAnAnswerIsHeldToAnExactOne(t *testing.T) {
	d := &vectors{queries: [][]float32{{1, 0}}}
	for i := range 12 {
		d.rows = append(d.rows, unit([]float32{float32(100 - i), 10}))
	}
	d.least = []float32{dot(d.queries[0], d.rows[nearest-1])}
	for _, c := range []struct {
		ids  []int
		want float64
		bad  string
	}{
		{[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 1, ""},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7, 10, 11}, 0.8, ""},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 8}, 0, "twice"},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 12}, 0, "not there"},
		{[]int{0, 1, 2}, 0, "3 rows"},
	} {
		got, err := d.recall(t.Context(), func(context.Context, int, int) ([]int, error) { return c.ids, nil })
		if c.bad == "" && (err != nil || got != c.want) || c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)) {
			t.Errorf("%v: %v, %v; want %v %s", c.ids, got, err, c.want, c.bad)
		}
	}
}

func TestVectorsAreWrittenAsPostgreSQLReadsThem(t *testing.T) {
	v := []float32{1, -0.5}
	if got := vectorText(v); got != "[1,-0.5]" {
		t.Errorf("text %q", got)
	}
	if got := vectorBinary(v); !bytes.Equal(got, []byte{0, 2, 0, 0, 0x3f, 0x80, 0, 0, 0xbf, 0, 0, 0}) {
		t.Errorf("binary %x", got)
	}
}
