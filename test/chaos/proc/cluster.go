package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/localport"
)

// ClusterOptions are those of the servers of one cluster.
type ClusterOptions struct {
	Binary string
	// Dir is the folder below which everything goes.
	Dir string
	// Env is added to the harness's own environment, and Flags to those of every node.
	Env   []string
	Flags []string
	Nodes int
	// Shards is the number of logs, each with a leader of its own; 0: 1.
	Shards int
	// Proxy puts a proxy on each directed link between nodes.
	Proxy bool
	// Disk is the program that mounts a disk for each node; empty: their data lies below Dir.
	Disk string
	// Begin is the number of nodes that the cluster begins with; 0: all. The others are outside
	// until they join, and each node is reached through its door.
	Begin int
	// OpenFiles is Options.OpenFiles of every node.
	OpenFiles int
}

// Cluster is a cluster of servers on this machine, as `millrace cluster init` sets one up: mutual
// TLS between nodes, plain text for clients on loopback.
type Cluster struct {
	Nodes  []*Node
	Tokens []Token
	// Links are the proxies by direction; there are none without ClusterOptions.Proxy.
	Links map[Link]*Proxy

	// reserved has three ports for each node, which it keeps over restarts.
	reserved *localport.Ports
}

// Node is one server of a cluster. Its addresses stay the same over restarts.
type Node struct {
	*Server
	// ID counts from 1, and is the node's id in the cluster.
	ID int
	// API, admin and peers are the addresses of its listeners.
	API   string
	admin string
	peers string
	// Dir holds its data and its archive of the log.
	Dir string
	// Door is the proxy that all others reach it through; nil without ClusterOptions.Begin.
	Door *Proxy
	// Outside says that it is not a member, and does not run.
	Outside bool
	// Lost is what it had on the disks that it lost, or was removed with, oldest first.
	Lost []Lost

	// flags are those of a node that joins, without the node at which it joins.
	flags []string
	// operator is a token that operates the cluster.
	operator string
	disk     *Disk
}

// operator is a token that operates the cluster, if there is one.
func (c *Cluster) operator() string {
	if len(c.Tokens) == 0 {
		return ""
	}
	return c.Tokens[0].Secret
}

// Link is one direction between two nodes: what From says to To over connections that From dials.
type Link struct{ From, To int }

// NewCluster makes the directories, certificates and settings of a cluster, with an admin token for each tenant. Nothing
// is started but proxies.
func NewCluster(ctx context.Context, o ClusterOptions, tenants ...string) (*Cluster, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make cluster's folder: %w", err)
	}
	made := filepath.Join(o.Dir, "init")
	out, err := exec.CommandContext(ctx, o.Binary, "cluster", "init", "--json", "--shards", fmt.Sprint(max(o.Shards, 1)), "--nodes", fmt.Sprint(o.Nodes), "--dir", made).Output()
	if err != nil {
		return nil, fmt.Errorf("cluster init: %w", err)
	}
	var told struct {
		Nodes []struct {
			ID     int    `json:"id"`
			Config string `json:"config"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal(out, &told); err != nil || len(told.Nodes) != o.Nodes {
		return nil, fmt.Errorf("cluster init: unexpected answer %q", out)
	}
	reserved, err := localport.Reserve(3 * o.Nodes)
	if err != nil {
		return nil, err
	}
	ports := reserved.Addresses()
	c := &Cluster{reserved: reserved}
	tokens := filepath.Join(o.Dir, "tokens.yaml")
	if c.Tokens, err = makeTokens(ctx, o.Binary, tokens, tenants); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	peers := make([]string, o.Nodes)
	for i := range told.Nodes {
		peers[i] = ports[3*i]
	}
	if o.Begin > 0 {
		return c, c.grow(ctx, o, tokens, made, ports)
	}
	if o.Proxy {
		if c.Links, err = openLinks(peers); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	for i, n := range told.Nodes {
		node := &Node{ID: n.ID, operator: c.operator(), API: ports[3*i+1], admin: ports[3*i+2], peers: peers[i], Dir: filepath.Join(o.Dir, fmt.Sprint("n", n.ID))}
		if o.Disk != "" {
			if node.disk, err = OpenDisk(o.Disk, node.Dir); err != nil {
				return nil, errors.Join(err, c.Close())
			}
		}
		c.Nodes = append(c.Nodes, node)
		flags := append([]string{
			"--config", n.Config, "--listen", node.API, "--admin", node.admin, "--http", "off", "--peer-listen", peers[i],
			"--peers", c.list(n.ID, peers, ports), "--log-archive-dir", node.Archive(), "--memory", "256MiB",
		}, o.Flags...)
		if node.Server, err = New(ctx, Options{Binary: o.Binary, Dir: node.Dir, Env: o.Env, Flags: flags, Tokens: tokens, Disk: node.disk, OpenFiles: o.OpenFiles}); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// list names all nodes with the addresses at which node id reaches them: the proxies of its own links.
func (c *Cluster) list(id int, peers, ports []string) string {
	var items []string
	for i, address := range peers {
		if p := c.Links[Link{id, i + 1}]; p != nil {
			address = p.Address()
		}
		items = append(items, fmt.Sprintf("%d=%s/%s", i+1, address, ports[3*i+1]))
	}
	return strings.Join(items, ",")
}

// Peers is the address at which the node hears the others.
func (n *Node) Peers() string { return n.peers }

// Admin is the address of the node's admin listener.
func (n *Node) Admin() string { return n.admin }

// Archive has the segments of the node's log that were reused.
func (n *Node) Archive() string {
	if n.disk != nil {
		return filepath.Join(n.disk.At, "archive")
	}
	return filepath.Join(n.Dir, "archive")
}

// Members lists the nodes that are not outside.
func (c *Cluster) Members() (out []*Node) {
	for _, n := range c.Nodes {
		if !n.Outside {
			out = append(out, n)
		}
	}
	return out
}

// Start starts all nodes at once that are not outside, and waits until each serves.
func (c *Cluster) Start(ctx context.Context) error {
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.Members() {
		wg.Go(func() {
			if _, err := n.Start(ctx); err != nil {
				errs[i] = fmt.Errorf("node %d: %w, see %s", n.ID, err, n.LogFile())
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Stop ends all nodes in order, all at once.
func (c *Cluster) Stop() error {
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		wg.Go(func() {
			if err := n.Stop(); err != nil {
				errs[i] = fmt.Errorf("node %d: %w", n.ID, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close ends what runs, at once.
func (c *Cluster) Close() error {
	var wg sync.WaitGroup
	for _, n := range c.Nodes {
		if n.Server != nil {
			wg.Go(func() { n.Kill() })
		}
	}
	wg.Wait()
	var errs []error
	for _, p := range c.Links {
		errs = append(errs, p.Close())
	}
	for _, n := range c.Nodes {
		if n.disk != nil {
			errs = append(errs, n.disk.Close())
		}
		if n.Door != nil {
			errs = append(errs, n.Door.Close())
		}
	}
	c.reserved.Release()
	return errors.Join(errs...)
}

// Addresses are those of all nodes, that of place first first, as a client takes them.
func (c *Cluster) Addresses(first int) string {
	var all []string
	for i := range c.Nodes {
		all = append(all, c.Nodes[(first+i)%len(c.Nodes)].API)
	}
	return strings.Join(all, ",")
}

// within bounds how long a healthy cluster may take to have a leader, or to have applied everything
// on every node.
const within = 30 * time.Second

// Leader waits for a node that leads and serves, as its own metrics say. Nodes that are down or
// paused are not asked.
func (c *Cluster) Leader(ctx context.Context) (*Node, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		if n := c.leads(ctx); n != nil {
			return n, nil
		}
		if err := Rest(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("no node leads after %s", within)
		}
	}
}

// leads returns the node of the highest term that says it leads, or nil. Two may say so for a
// moment after a change; the one with the lower term is out of date.
func (c *Cluster) leads(ctx context.Context) *Node {
	var lead *Node
	var term float64
	for _, n := range c.Nodes {
		if !n.Up() {
			continue
		}
		m, err := n.Metrics(ctx)
		if err != nil || m["millrace_node_ready_state"] == 0 || m["millrace_node_raft_term"] < term {
			continue
		}
		lead, term = n, m["millrace_node_raft_term"]
	}
	return lead
}

// Settle waits until all nodes have applied the same entry, and nothing more comes in three looks.
// Clients must have ended.
func (c *Cluster) Settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	last, same := "", 0
	for same < 3 {
		now, equal := c.applied(ctx)
		if equal && now == last {
			same++
		} else {
			same = 0
		}
		last = now
		if err := Rest(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("the nodes have applied %s after %s", now, within)
		}
	}
	return nil
}

// applied lists the indexes that the nodes have applied, as text, and whether they are equal. A
// node that does not answer makes them unequal.
func (c *Cluster) applied(ctx context.Context) (string, bool) {
	var all []string
	equal := true
	for _, n := range c.Members() {
		at := "?"
		if m, err := n.Metrics(ctx); err == nil {
			at = fmt.Sprint(m["millrace_node_applied_index"])
		}
		all = append(all, at)
		equal = equal && at == all[0] && at != "?"
	}
	return strings.Join(all, " "), equal
}
