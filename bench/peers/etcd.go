package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

const (
	// etcdConns is the largest number of connections; callers share them beyond it.
	etcdConns = 100
	// etcdTimeout is how long a connection may take.
	etcdTimeout = 10 * time.Second
	// keysInUse is the number of different keys. Puts go round them, so the store does not grow with the length of a
	// run.
	keysInUse = 1 << 22
	// keyspace is the name of Millrace's keyspace that is used, and of both ledgers.
	keyspace = "bench"
	// toolSeconds is about how long etcd's own tool runs, at the rate that the run has measured.
	toolSeconds = 3
)

// etcdPeer is an etcd that runs.
type etcdPeer struct {
	// endpoints are the members, as host:port: one, or as many as the row has nodes.
	endpoints []string
	// tool is the path of etcd's own benchmark. Empty: it is not run.
	tool string
}

// side is one of the two systems in a run.
type side struct {
	turner
	// put writes one key and returns its revision. Callers call it at the same time.
	put func(ctx context.Context, caller int, key string, value []byte) (rev uint64, err error)
	// pages are the addresses of its servers' metrics, without the path.
	pages []string
	// ledger keeps what was acknowledged, for the audit.
	ledger *bench.KeyLedger
	// op is where latencies and errors of puts are recorded.
	op *bench.Op
	// next is the number of the next put. Callers add to it.
	next atomic.Uint64
}

// drive carries out one run: it opens both systems, measures them in turn, compares them, and audits etcd. The harness
// audits Millrace.
func (e *etcdPeer) drive(ctx context.Context, rig *bench.Rig) (err error) {
	theirs, closeEtcd, err := e.open(ctx, rig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeEtcd()) }()
	ours, closeOurs, err := openMillrace(ctx, rig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeOurs()) }()
	before, err := counters(ctx, theirs.pages, etcdFsyncs, etcdWALBytes, cpuSeconds)
	if err != nil {
		return err
	}
	if err := inTurns(ctx, rig, &theirs.turner, &ours.turner); err != nil {
		return err
	}
	after, err := counters(ctx, theirs.pages, etcdFsyncs, etcdWALBytes, cpuSeconds)
	if err != nil {
		return err
	}
	rig.PeerCPU(after[cpuSeconds] - before[cpuSeconds])
	if n := float64(theirs.ledger.Acknowledged()); n > 0 {
		rig.Metric("etcd_fsyncs_per_op", (after[etcdFsyncs]-before[etcdFsyncs])/n, "fsyncs")
		rig.Metric("etcd_wal_bytes_per_op", (after[etcdWALBytes]-before[etcdWALBytes])/n, "B")
	}
	compare(rig, ours, theirs)
	return e.prove(ctx, rig, theirs)
}

// Names of etcd's metrics, and of one that both have.
const (
	// cpuSeconds is the CPU that a server has used, in seconds. Millrace serves it under the same name.
	cpuSeconds = "process_cpu_seconds_total"
	// etcdFsyncs is the number of syncs of the log: the count of the histogram of their times.
	etcdFsyncs = "etcd_disk_wal_fsync_duration_seconds_count"
	// etcdWALBytes is the number of bytes written to the log.
	etcdWALBytes = "etcd_disk_wal_write_bytes_total"
)

// open connects the clients of etcd, which must be empty: prove deletes every key at the end. It returns what closes
// the clients.
func (e *etcdPeer) open(ctx context.Context, rig *bench.Rig) (*side, func() error, error) {
	conns := min(etcdConns, rig.Shape.Callers)
	clients := make([]*clientv3.Client, 0, conns)
	closeAll := func() error {
		var all []error
		for _, c := range clients {
			all = append(all, c.Close())
		}
		return errors.Join(all...)
	}
	for range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: e.endpoints, DialTimeout: etcdTimeout, Context: ctx})
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("connect to etcd: %w", err), closeAll())
		}
		clients = append(clients, c)
	}
	all, err := clients[0].Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil && all.Count > 0 {
		err = fmt.Errorf("it holds %d keys, and is to be empty: the bench removes what it puts, and nothing else", all.Count)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("look at etcd: %w", err), closeAll())
	}
	if err := e.report(ctx, rig, clients[0]); err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	// A store of etcd counts revisions as one partition does, whatever the number of its members.
	s := newSide("etcd", rig, 1)
	for _, a := range e.endpoints {
		s.pages = append(s.pages, "http://"+a)
	}
	s.put = func(ctx context.Context, caller int, key string, value []byte) (uint64, error) {
		resp, err := clients[caller%len(clients)].Put(ctx, key, string(value))
		if err != nil {
			return 0, err
		}
		return uint64(resp.Header.Revision), nil
	}
	return s, closeAll, nil
}

// newSide returns a side without put and pages, which its opener sets. partitions is the number of revision counters:
// keys of different partitions have revisions of their own.
func newSide(name string, rig *bench.Rig, partitions int) *side {
	op := "put"
	if name == "etcd" {
		op = "etcd_put"
	}
	s := &side{turner: turner{name: name}, op: rig.Op(op), ledger: bench.NewKeyLedger(bench.KeyOptions{
		Keyspace: keyspace, Keys: keysInUse, KeyBytes: max(rig.Shape.Key, 8), ValueBytes: len(rig.Payload), Partitions: partitions,
		Seed: rig.Seed, Full: rig.Full,
	})}
	// The turner calls the side's own once, and counts what its ledger acknowledged.
	s.turner.once, s.done = s.once, s.ledger.Acknowledged
	s.used = func(ctx context.Context) (float64, error) {
		sum, err := counters(ctx, s.pages, cpuSeconds)
		return sum[cpuSeconds], err
	}
	return s
}

// openMillrace opens one stream, which all callers share, and returns what closes it. The ledger goes to the rig, whose
// audit reads it.
func openMillrace(ctx context.Context, rig *bench.Rig) (*side, func() error, error) {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to millrace: %w", err)
	}
	s := newSide("millrace", rig, max(rig.Shape.Shards, 1))
	rig.Keys = s.ledger
	stream := c.KV(keyspace).Stream()
	for _, e := range rig.Servers {
		s.pages = append(s.pages, e.Admin)
	}
	s.put = func(ctx context.Context, _ int, key string, value []byte) (uint64, error) {
		w, err := stream.Put(ctx, key, value)
		if err != nil {
			return 0, err
		}
		return w.Wait(ctx)
	}
	return s, func() error { return errors.Join(stream.Close(), c.Close()) }, nil
}

// once puts the next key and notes in the ledger what came of it. A refused put has not been carried out, so it is
// noted nowhere; any other error leaves it unknown.
func (s *side) once(ctx context.Context, caller int) {
	n := s.next.Add(1) - 1
	at := time.Now()
	rev, err := s.put(ctx, caller, s.ledger.Key(n), s.ledger.Value(n))
	switch e, known := errors.AsType[*millrace.Error](err); {
	case err == nil:
		s.ledger.Acked(n, rev)
	case !known || e.Outcome != millrace.Refused:
		s.ledger.Unknown(n)
	}
	s.op.Record(caller, at, 1, err)
}

// column is how the figures of a side begin that stand in the table of all peers.
func (s *side) column() string {
	if s.name == "etcd" {
		return "peer"
	}
	return "ours"
}

// report tells what etcd is. Its class is not asked of the server: etcd syncs each write unless it was started with
// --unsafe-no-fsync.
func (e *etcdPeer) report(ctx context.Context, rig *bench.Rig, c *clientv3.Client) error {
	st, err := c.Status(ctx, e.endpoints[0])
	if err != nil {
		return fmt.Errorf("ask etcd what it is: %w", err)
	}
	class := "F"
	if len(e.endpoints) > 1 {
		class = "R"
	}
	rig.Peer(bench.PeerReport{
		Name: "etcd", Server: "etcd " + st.Version, Client: module("go.etcd.io/etcd/client/v3"), Class: class, Declared: true, Durable: "write",
		Settings: []bench.Param{param("members", "%d", len(e.endpoints)), param("unsafe-no-fsync", "false")},
	})
	return nil
}

// compare sets the ratios of a run. It judges by rates; if the client took more of the machine than clientWall, it
// judges by the CPU of servers per put.
func compare(rig *bench.Rig, ours, theirs *side) {
	for _, s := range []*side{ours, theirs} {
		if !s.figures(rig, s.column(), "puts/s") {
			return
		}
		rig.Metric(s.name+"_puts_per_s", s.rate(), "puts/s")
		rig.Metric(s.name+"_server_cpu_us_per_put", s.cpu*1e6/float64(s.calls), "µs")
		rig.Metric(s.name+"_client_cpu_us_per_put", s.client*1e6/float64(s.calls), "µs")
		rig.Metric(s.name+"_client_share_percent", 100*s.share(), "%")
	}
	rates, cpu := ours.rate()/theirs.rate(), 0.0
	rig.Metric("ratio_to_etcd", rates, "×")
	judged := rates
	if ours.cpu > 0 {
		// A ratio above 1 means that Millrace uses less CPU per put.
		cpu = theirs.cpu / float64(theirs.calls) / (ours.cpu / float64(ours.calls))
		rig.Metric("server_cpu_ratio_to_etcd", cpu, "×")
	}
	if wall := max(ours.share(), theirs.share()); wall > clientWall {
		rig.Warn("client_bound", fmt.Sprintf("the client took %.0f %% of the machine: servers are held against each other by CPU per put", 100*wall), wall)
		judged = cpu
	}
	rig.Metric("judged_ratio_to_etcd", judged, "×")
	if a, b := rig.Op("put").P99(), rig.Op("etcd_put").P99(); a > 0 && b > 0 {
		rig.Metric("p99_ratio_to_etcd", a/b, "×")
	}
}

// prove reads back what etcd acknowledged, runs its own tool, removes what was put, and compacts the store, so that the
// next run finds an empty one.
func (e *etcdPeer) prove(ctx context.Context, rig *bench.Rig, theirs *side) (err error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: e.endpoints, DialTimeout: etcdTimeout, Context: ctx})
	if err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	audit, err := bench.AuditKeys(ctx, theirs.ledger, "etcd", func(ctx context.Context, key string) ([]byte, uint64, bool, error) {
		resp, err := c.Get(ctx, key)
		if err != nil || len(resp.Kvs) == 0 {
			return nil, 0, false, err
		}
		return resp.Kvs[0].Value, uint64(resp.Kvs[0].ModRevision), true, nil
	})
	if err != nil {
		return err
	}
	rig.Metric("etcd_keys_read_back", float64(audit.ReadBack), "keys")
	// Three violations are enough to begin a search with, and keep the error short.
	if !audit.OK {
		return fmt.Errorf("audit of etcd: %s", strings.Join(audit.Violations[:min(3, len(audit.Violations))], "; "))
	}
	if err := e.runTool(ctx, rig, theirs); err != nil {
		return err
	}
	all, err := c.Delete(ctx, "", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("remove what was put into etcd: %w", err)
	}
	if _, err := c.Compact(ctx, all.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// requestsPerSecond finds the rate in what etcd's tool prints.
var requestsPerSecond = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)

// runTool puts as many keys again by etcd's own tool.
func (e *etcdPeer) runTool(ctx context.Context, rig *bench.Rig, theirs *side) error {
	if e.tool == "" {
		return nil
	}
	// At least one put for each client.
	total := max(int(theirs.rate()*toolSeconds), rig.Shape.Callers)
	out, err := exec.CommandContext(ctx, e.tool, "put", "--endpoints", strings.Join(e.endpoints, ","),
		"--clients", strconv.Itoa(rig.Shape.Callers), "--conns", strconv.Itoa(min(etcdConns, rig.Shape.Callers)),
		"--key-size", strconv.Itoa(rig.Shape.Key), "--val-size", strconv.Itoa(len(rig.Payload)), "--sequential-keys",
		"--key-space-size", strconv.Itoa(keysInUse), "--total", strconv.Itoa(total)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run etcd's tool: %w: %s", err, out[max(0, len(out)-500):])
	}
	m := requestsPerSecond.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("etcd's tool said %q", out[max(0, len(out)-500):])
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return fmt.Errorf("etcd's tool: %w", err)
	}
	rig.Metric("etcd_tool_puts_per_s", v, "puts/s")
	return nil
}
