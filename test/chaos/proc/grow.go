package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Lost is what a node had on a disk that it lost, set aside: its archive of the log, and its log.
type Lost struct{ Archive, WAL string }

// grow makes the nodes of a cluster of which only the first ones begin. Each gets a door, and only
// the first ones are named as peers.
func (c *Cluster) grow(ctx context.Context, o ClusterOptions, tokens, made string, ports []string) error {
	var peers []string
	for i := range o.Nodes {
		door, err := NewProxy(ports[3*i])
		if err != nil {
			return errors.Join(err, c.Close())
		}
		n := &Node{
			ID: i + 1, operator: c.operator(), API: ports[3*i+1], admin: ports[3*i+2], peers: ports[3*i], Dir: filepath.Join(o.Dir, fmt.Sprint("n", i+1)), Door: door, Outside: i >= o.Begin,
		}
		c.Nodes = append(c.Nodes, n)
		if !n.Outside {
			peers = append(peers, fmt.Sprintf("%d=%s/%s", n.ID, door.Address(), n.API))
		}
	}
	for i, n := range c.Nodes {
		config, err := withoutPeers(filepath.Join(made, fmt.Sprint("n", n.ID), "millrace.yaml"))
		if err != nil {
			return errors.Join(err, c.Close())
		}
		n.flags = append([]string{
			"--config", config, "--advertise-peer", n.Door.Address(), "--listen", n.API, "--admin", n.admin, "--http", "off", "--peer-listen", ports[3*i],
			"--log-archive-dir", n.Archive(), "--memory", "256MiB",
		}, o.Flags...)
		flags := append([]string{"--peers", strings.Join(peers, ",")}, n.flags...)
		if n.Server, err = New(ctx, Options{Binary: o.Binary, Dir: n.Dir, Env: o.Env, Flags: flags, Tokens: tokens, OpenFiles: o.OpenFiles}); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return nil
}

// withoutPeers writes a copy of a node's settings without the list of its peers, which is their
// last part, and returns its path.
func withoutPeers(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read settings: %w", err)
	}
	own, _, _ := strings.Cut(string(text), "\npeers:")
	bare := strings.TrimSuffix(path, ".yaml") + "-bare.yaml"
	if err := os.WriteFile(bare, []byte(own+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write settings: %w", err)
	}
	return bare, nil
}

// JoinAt makes later starts of a node with an empty disk join at a member. A used token does not
// keep a node that was a member from starting.
func (n *Node) JoinAt(member *Node, token string) {
	n.SetFlags(append([]string{"--join", member.Door.Address(), "--join-token", token}, n.flags...))
}

// Clear sets aside what a node has on its disk, so that it starts with an empty one. The node must not run.
func (n *Node) Clear() error {
	n.Forget()
	to := filepath.Join(n.Dir, fmt.Sprint("lost-", len(n.Lost)+1))
	if err := os.Mkdir(to, 0o700); err != nil {
		return fmt.Errorf("set a disk aside: %w", err)
	}
	lost := Lost{filepath.Join(to, "archive"), filepath.Join(to, "data", "wal")}
	err := errors.Join(os.Rename(n.DataDir(), filepath.Join(to, "data")), os.MkdirAll(n.Archive(), 0o700), os.Rename(n.Archive(), lost.Archive))
	if err != nil {
		return fmt.Errorf("set a disk aside: %w", err)
	}
	n.Lost = append(n.Lost, lost)
	return nil
}

// Operate runs a command of `millrace cluster` at the node, and reads the first line of its answer
// into out. The text of a refusal is in the error.
func (n *Node) Operate(ctx context.Context, out any, args ...string) error {
	cmd := exec.CommandContext(ctx, n.o.Binary, append(append([]string{"cluster"}, args...), "--server", n.API, "--token", n.operator, "--json")...)
	said, err := cmd.Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			said = append(said, e.Stderr...)
		}
		return fmt.Errorf("cluster %s: %w: %s", strings.Join(args, " "), err, said)
	}
	line, _, _ := strings.Cut(string(said), "\n")
	return json.Unmarshal([]byte(line), out)
}

// IsUnavailable reports whether a command has ended with the status for a cluster that cannot answer now.
func IsUnavailable(err error) bool {
	e, ok := errors.AsType[*exec.ExitError](err)
	return ok && e.ExitCode() == 3
}

// Job is the change of membership under way, or the last one.
type Job struct {
	ID    uint64 `json:"id"`
	Kind  string `json:"kind"`
	State string `json:"state"`
}

// Over reports whether the job has ended, so that the members of the shards are those that it leaves.
func (j Job) Over() bool { return j.State != "running" && j.State != "returning" }

// ErrNoJob says that a node knows of no change of membership.
var ErrNoJob = errors.New("status of the cluster: no job")

// Job asks a node.
func (n *Node) Job(ctx context.Context) (j Job, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+"/cluster/status", nil)
	if err != nil {
		return j, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return j, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	var s struct {
		Job *Job `json:"job"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return j, fmt.Errorf("status of the cluster: %w", err)
	}
	if s.Job == nil {
		return j, ErrNoJob
	}
	return *s.Job, nil
}
