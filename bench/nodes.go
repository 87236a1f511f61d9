package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/localport"
)

const (
	// portsOfNode is the number of ports in a row that `cluster init` gives to each node, as
	// configurations name them.
	portsOfNode = 10
	// clusterTries is how often a cluster is started with other ports: another program may have
	// taken one in the meantime.
	clusterTries = 3
)

// errPortTaken says that another process listens where a node was to.
var errPortTaken = errors.New("a port of the cluster is taken")

// startNodes starts a cluster on this host as an operator does: `cluster init` makes certificates
// and configurations, and each node is a process of its own. It returns when every shard is led by
// the node that is to lead it. A port that was taken is another try; any other error is final.
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

// initialized is what `cluster init --json` tells: where the files are that the nodes start with.
type initialized struct {
	Token string `json:"token_file"`
	Nodes []struct {
		Config string `json:"config"`
	} `json:"nodes"`
}

// tryNodes reserves ports, makes the files of a cluster and starts it. The ports stay reserved
// until the servers are stopped, since a restart needs them again.
func (u *runner) tryNodes(ctx context.Context, exe, files, logs string, spec *runSpec) (*cluster, error) {
	ports, err := localport.Reserve(spec.shape.Nodes * portsOfNode)
	if err != nil {
		return nil, err
	}
	made, err := u.initNodes(ctx, exe, files, ports.First(), spec)
	if err != nil {
		ports.Release()
		return nil, err
	}
	c, err := u.startFiles(ctx, exe, logs, spec, made)
	if err != nil {
		ports.Release()
		return nil, err
	}
	c.close = func() error {
		defer ports.Release()
		return c.stop()
	}
	return c, nil
}

// initNodes makes the files of a cluster in the directory files. The ports of the first node begin
// at port, and those of the others follow.
func (u *runner) initNodes(ctx context.Context, exe, files string, port int, spec *runSpec) (made initialized, err error) {
	out, err := exec.CommandContext(ctx, exe, "cluster", "init", "--json", "--dir", files, "--nodes", strconv.Itoa(spec.shape.Nodes),
		"--base-port", strconv.Itoa(port), "--shards", strconv.Itoa(max(spec.shape.Shards, 1))).Output()
	if err != nil {
		return made, fmt.Errorf("make the configuration of %d nodes: %w", spec.shape.Nodes, err)
	}
	if err := json.Unmarshal(out, &made); err != nil || len(made.Nodes) != spec.shape.Nodes {
		return made, fmt.Errorf("cluster init said %q", bytes.TrimSpace(out))
	}
	return made, nil
}

// startFiles starts the nodes of a cluster whose files are made, for a row or for a repeated audit.
// On an error the nodes that run are stopped.
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

// nodes starts the processes of a cluster, at first and again after they ended.
type nodes struct {
	exe string
	// logs is the directory of the servers' logs.
	logs  string
	spec  *runSpec
	files initialized
}

// start starts every node that does not run, all at once, and then places the leaders. It sets
// procs and endpoints of c at the node's index; a node that fails leaves its own as they were.
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

// startNode starts node i, counted from 0, and returns when it listens. errPortTaken is part of the
// error when its log says so.
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
