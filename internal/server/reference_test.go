package server

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/metrics.md again")

const metricsIntro = `# Metrics

Written from the tables of metrics by ` + "`go test ./internal/server -run TestTheReference -update`" + `; a test compares.

` + "`GET /metrics`" + ` of the admin listener (` + "`--admin`" + `, by default ` + "`127.0.0.1:7083`" + `) and of that of
` + "`--metrics`" + `, which may be public, serves them in Prometheus' text format, together with those of the Go runtime (` + "`go_*`" + `) and of the process (` + "`process_*`" + `). They are read only when a client
asks for them.

Names are ` + "`millrace_<package>_<noun>_<unit>`" + `. One that ends in ` + "`_total`" + ` only grows; those of tasks and attempts go on
over restarts, because they are stored, the others begin at 0.

**Names that users choose are not labels.** The number of tenants, namespaces, queues and keys is not bounded, and a client of
this port needs no token. So the rows are sums over all tenants, by shard and by state; what is in one queue is told by its own
statistics (` + "`millrace queue stats`" + `), to its tenant. A metric has at most the series that its row allows; should
there ever be more, the rest is added up under the label value ` + "`other`" + `.

The one exception is asked for: with ` + "`--keyspace-metrics`" + ` the ` + "`millrace_kv_*`" + ` rows have a series for each of the hundred most
used keyspaces, by tenant, namespace and name; without it, all keyspaces are in the one series ` + "`other`" + `.

The same listener serves ` + "`/healthz`" + ` (the process lives), ` + "`/readyz`" + ` (503 with the reason until every shard leads, and from
the moment the server is told to stop; a full disk does not count, because the completions that are still taken are what
makes room), ` + "`/debug/status`" + ` (counters, build and settings as JSON) and ` + "`/debug/pprof/`" + ` with
` + "`/debug/pprof/rates`" + `: it only reads, and refuses requests for pages of other sites. The listener of ` + "`--metrics`" + ` serves the first two and
` + "`/metrics`" + `, and nothing else. Both close the connection that is idle for longest rather than refuse a new one. To sample blocking
and contention while it runs, ask the operator's socket: ` + "`curl --unix-socket ./data/operator.sock -X POST \"http://operator/debug/pprof/rates?block=1&mutex=1\"`" + `,
0 to stop.

| Metric | Type | Labels | Most series | |
|---|---|---|---|---|
`

func metricsReference(t *testing.T) []byte {
	a, err := newAdmin(defaults(t, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString(metricsIntro)
	for _, row := range a.registry.Rows() {
		labels := "none"
		if len(row.Labels) > 0 {
			labels = "`" + strings.Join(row.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d | %s |\n", row.Name, row.Type, labels, row.Bound, row.Help)
	}
	return b.Bytes()
}

// TestTheReferenceListsEveryMetric holds docs/reference/metrics.md to the tables.
func TestTheReferenceListsEveryMetric(t *testing.T) {
	const file = "../../docs/reference/metrics.md"
	want := metricsReference(t)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is not what the tables say (err %v): go test ./internal/server -run TestTheReference -update", file, err)
	}
}
