package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// The window is cut into slices, of etcd and of Millrace in turn: what slows the host slows both. The first part of a
// slice is not counted.
const (
	turns       = 6
	settlePart  = 5 // one in so many of a slice
	etcdConns   = 100
	etcdTimeout = 10 * time.Second
	keysInUse   = 1 << 22
	keyspace    = "bench"
	idleLimit   = 0.05 // of a core, for the system that is not driven
	clientWall  = 0.5  // of the machine: a client that takes more is the wall, and servers are held against each other by CPU
	toolSeconds = 3
)

// etcdPeer is an etcd that runs.
type etcdPeer struct {
	endpoints []string
	tool      string // its own benchmark; empty: it is not run
}

// side is one of the two systems in a run.
type side struct {
	name   string
	put    func(ctx context.Context, caller int, key string, value []byte) (rev uint64, err error)
	pages  []string // addresses of the metrics of its servers
	ledger *bench.KeyLedger
	op     *bench.Op
	next   atomic.Uint64

	// Sums over its slices, and over those in which the other one was driven.
	puts             uint64
	seconds          float64
	cpu, client      float64 // seconds of CPU
	idleCPU, idleFor float64
	active           float64 // seconds, with what is not counted
}

// drive carries out one run.
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
	err = rig.MeasureWork(ctx, func(ctx context.Context) error {
		for i := range turns {
			driven, idle := theirs, ours
			if i%2 == 1 {
				driven, idle = ours, theirs
			}
			if err := driven.slice(ctx, rig, idle); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := counters(ctx, theirs.pages, etcdFsyncs, etcdWALBytes, cpuSeconds)
	if err != nil {
		return err
	}
	rig.PeerCPU(after[cpuSeconds] - before[cpuSeconds])
	rig.UnderWay(float64(rig.Shape.Callers) * ours.active / (ours.active + theirs.active))
	if n := float64(theirs.ledger.Acknowledged()); n > 0 {
		rig.Metric("etcd_fsyncs_per_op", (after[etcdFsyncs]-before[etcdFsyncs])/n, "fsyncs")
		rig.Metric("etcd_wal_bytes_per_op", (after[etcdWALBytes]-before[etcdWALBytes])/n, "B")
	}
	compare(rig, ours, theirs)
	return e.prove(ctx, rig, theirs)
}

// Names of etcd's metrics, and of one that both have.
const (
	cpuSeconds   = "process_cpu_seconds_total"
	etcdFsyncs   = "etcd_disk_wal_fsync_duration_seconds_count"
	etcdWALBytes = "etcd_disk_wal_write_bytes_total"
)

// open connects the clients of etcd, which must be empty.
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

func newSide(name string, rig *bench.Rig, partitions int) *side {
	op := "put"
	if name == "etcd" {
		op = "etcd_put"
	}
	return &side{name: name, op: rig.Op(op), ledger: bench.NewKeyLedger(bench.KeyOptions{
		Keyspace: keyspace, Keys: keysInUse, KeyBytes: max(rig.Shape.Key, 8), ValueBytes: len(rig.Payload), Partitions: partitions,
		Seed: rig.Seed, Full: rig.Full,
	})}
}

// openMillrace opens one stream.
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

// slice drives one system with all callers, each of which waits for its answer.
func (s *side) slice(ctx context.Context, rig *bench.Rig, idle *side) error {
	began := time.Now()
	defer func() { s.active += time.Since(began).Seconds() }()
	var over atomic.Bool
	var callers sync.WaitGroup
	for i := range rig.Shape.Callers {
		callers.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				s.once(ctx, i)
			}
		})
	}
	stop := func() {
		over.Store(true)
		callers.Wait()
	}
	length := rig.Window / turns
	if err := bench.Pause(ctx, length/settlePart); err != nil {
		stop()
		return err
	}
	before, err := s.mark(ctx, idle)
	if err == nil {
		err = bench.Pause(ctx, length-length/settlePart)
	}
	if err != nil {
		stop()
		return err
	}
	after, err := s.mark(ctx, idle)
	stop()
	if err != nil {
		return err
	}
	took := after.at.Sub(before.at).Seconds()
	s.puts += after.puts - before.puts
	s.seconds += took
	s.cpu += after.cpu - before.cpu
	s.client += after.client - before.client
	idle.idleCPU += after.idle - before.idle
	idle.idleFor += took
	return ctx.Err()
}

// mark is where both systems stand at one time.
type mark struct {
	at                time.Time
	puts              uint64
	cpu, client, idle float64
}

func (s *side) mark(ctx context.Context, idle *side) (mark, error) {
	m := mark{at: time.Now(), puts: s.ledger.Acknowledged(), client: ownCPU()}
	driven, err := counters(ctx, s.pages, cpuSeconds)
	if err != nil {
		return m, err
	}
	other, err := counters(ctx, idle.pages, cpuSeconds)
	m.cpu, m.idle = driven[cpuSeconds], other[cpuSeconds]
	return m, err
}

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

// report tells what etcd is.
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

// ownCPU is what this process used so far, in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// compare sets the ratios of a run.
func compare(rig *bench.Rig, ours, theirs *side) {
	rate := func(s *side) float64 { return float64(s.puts) / s.seconds }
	share := func(s *side) float64 { return s.client / s.seconds / float64(runtime.NumCPU()) }
	for _, s := range []*side{ours, theirs} {
		if s.puts == 0 || s.seconds <= 0 {
			rig.Fail(s.name, errors.New("nothing was put"))
			return
		}
		rig.Metric(s.name+"_puts_per_s", rate(s), "puts/s")
		rig.Metric(s.column()+"_per_s", rate(s), "puts/s")
		rig.Metric(s.column()+"_server_cpu_us_per_cycle", s.cpu*1e6/float64(s.puts), "µs")
		rig.Metric(s.column()+"_client_cpu_us_per_cycle", s.client*1e6/float64(s.puts), "µs")
		rig.Metric(s.name+"_server_cpu_us_per_put", s.cpu*1e6/float64(s.puts), "µs")
		rig.Metric(s.name+"_client_cpu_us_per_put", s.client*1e6/float64(s.puts), "µs")
		rig.Metric(s.name+"_client_share_percent", 100*share(s), "%")
		if idle := s.idleCPU / s.idleFor; idle > idleLimit {
			rig.Warn("idle_peer", fmt.Sprintf("%s used %.0f %% of a core while the other was driven", s.name, 100*idle), idle)
		}
	}
	rates, cpu := rate(ours)/rate(theirs), 0.0
	rig.Metric("ratio_to_etcd", rates, "×")
	judged := rates
	if ours.cpu > 0 {
		cpu = theirs.cpu / float64(theirs.puts) / (ours.cpu / float64(ours.puts))
		rig.Metric("server_cpu_ratio_to_etcd", cpu, "×")
	}
	if wall := max(share(ours), share(theirs)); wall > clientWall {
		rig.Warn("client_bound", fmt.Sprintf("the client took %.0f %% of the machine: servers are held against each other by CPU per put", 100*wall), wall)
		judged = cpu
	}
	rig.Metric("judged_ratio_to_etcd", judged, "×")
	if a, b := rig.Op("put").P99(), rig.Op("etcd_put").P99(); a > 0 && b > 0 {
		rig.Metric("p99_ratio_to_etcd", a/b, "×")
	}
}

// prove reads back what etcd acknowledged, runs its own tool, and removes what was put.
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

var requestsPerSecond = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)

// runTool puts as many keys again by etcd's own tool.
func (e *etcdPeer) runTool(ctx context.Context, rig *bench.Rig, theirs *side) error {
	if e.tool == "" {
		return nil
	}
	total := max(int(float64(theirs.puts)/theirs.seconds*toolSeconds), rig.Shape.Callers)
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
