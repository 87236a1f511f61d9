package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Ports of a cluster on this host. `cluster init` gives each node ten in a row; they are drawn below those that the kernel
// gives to connections, so that none is taken between the draw and the start, or while a node is started again.
const (
	lowestPort   = 10_000
	highestPort  = 20_000
	portsOfNode  = 10
	portsUsed    = 4 // of the ten: peers, gRPC, REST, admin
	portDraws    = 100
	clusterTries = 3 // somebody else may have drawn the same ports
)

// errPortTaken says that another process listens where a node was to.
var errPortTaken = errors.New("a port of the cluster is taken")

// startNodes starts a cluster as its operator does, on this host: `cluster init` makes certificates and configurations,
// and each node is a process of its own. It returns when a node leads each shard.
func (u *runner) startNodes(ctx context.Context, exe, dir string, spec *runSpec) (*cluster, error) {
	var last error
	for try := range clusterTries {
		c, err := u.tryNodes(ctx, exe, filepath.Join(dir, "cluster-"+strconv.Itoa(try+1)), dir, spec)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errPortTaken) {
			return c, err
		}
		last = err
	}
	return nil, last
}

// initialized is what `cluster init --json` tells.
type initialized struct {
	Token string `json:"token_file"`
	Nodes []struct {
		Config string `json:"config"`
	} `json:"nodes"`
}

func (u *runner) tryNodes(ctx context.Context, exe, files, logs string, spec *runSpec) (*cluster, error) {
	port, err := freePorts(spec.shape.Nodes)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, exe, "cluster", "init", "--json", "--dir", files, "--nodes", strconv.Itoa(spec.shape.Nodes),
		"--base-port", strconv.Itoa(port), "--shards", strconv.Itoa(max(spec.shape.Shards, 1))).Output()
	if err != nil {
		return nil, fmt.Errorf("make the configuration of %d nodes: %w", spec.shape.Nodes, err)
	}
	var made initialized
	if err := json.Unmarshal(out, &made); err != nil || len(made.Nodes) != spec.shape.Nodes {
		return nil, fmt.Errorf("cluster init said %q", bytes.TrimSpace(out))
	}
	return u.startFiles(ctx, exe, logs, spec, made)
}

// startFiles starts the nodes of a cluster whose files are made.
func (u *runner) startFiles(ctx context.Context, exe, logs string, spec *runSpec, made initialized) (*cluster, error) {
	token, err := os.ReadFile(made.Token)
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	n := &nodes{exe: exe, logs: logs, spec: spec, files: made}
	c := &cluster{
		namespace: namespaceOf(spec.shape), token: strings.TrimSpace(string(token)), procs: make([]*process, spec.shape.Nodes),
		endpoints: make([]Endpoint, spec.shape.Nodes), files: &made,
	}
	c.close, c.leaders = c.stop, func(ctx context.Context) (leaders, error) { return readLeaders(ctx, c.endpoints) }
	c.restart = func(ctx context.Context) error { return n.start(ctx, c) }
	if err := n.start(ctx, c); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// freePorts draws the first of the ports of n nodes, all of which are free now.
func freePorts(n int) (int, error) {
	for range portDraws {
		first := lowestPort + rand.IntN(highestPort-lowestPort-n*portsOfNode)
		if portsFree(first, n) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no free ports for %d nodes from %d to %d", n, lowestPort, highestPort)
}

func portsFree(first, n int) bool {
	for node := range n {
		for k := range portsUsed {
			lis, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+node*portsOfNode+k)))
			if err != nil {
				return false
			}
			_ = lis.Close() // it has no connections yet
		}
	}
	return true
}

// nodes are the processes of a cluster that the bench runs.
type nodes struct {
	exe   string
	logs  string // directory
	spec  *runSpec
	files initialized
}

// start starts every node that does not run, and returns when every shard is led by the node that is to lead it.
func (n *nodes) start(ctx context.Context, c *cluster) error {
	errs := make([]error, len(c.procs))
	var starting sync.WaitGroup
	for i, p := range c.procs {
		if p != nil && !p.done() {
			continue
		}
		starting.Go(func() {
			p, e, err := n.startNode(ctx, i)
			if errs[i] = err; err == nil {
				c.procs[i], c.endpoints[i] = p, e
			}
		})
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return n.placeLeaders(ctx, c)
}

// serverName names the process of a node.
func serverName(node uint64) string { return "server-" + strconv.FormatUint(node, 10) }

// startNode starts one node, from 0, and returns when it listens.
func (n *nodes) startNode(ctx context.Context, i int) (*process, Endpoint, error) {
	name := serverName(uint64(i) + 1)
	args := []string{
		"serve", "--config", n.files.Nodes[i].Config, "--json", "--durability", string(n.spec.durability), "--log-level", "warn",
	}
	if !n.spec.group {
		args = append(args, "--group-commit=false")
	}
	log := filepath.Join(n.logs, name+".log")
	p, line, err := startProcess(ctx, name, log, exec.Command(n.exe, args...), n.spec.serverEnv(name))
	if err != nil {
		if b, rerr := os.ReadFile(log); rerr == nil && bytes.Contains(b, []byte("address already in use")) {
			err = errors.Join(errPortTaken, err)
		}
		return nil, Endpoint{}, err
	}
	e, err := announced(name, line)
	if err != nil {
		return nil, Endpoint{}, errors.Join(err, p.kill())
	}
	return p, e, nil
}
