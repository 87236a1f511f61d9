package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// startBare starts servers that keep nothing, each as a process of its own, by the hidden bench
// command that the row names. They start from the last to the first, since each is told the peer
// addresses of those that already listen. An error ends all of them and removes the directory.
func (u *runner) startBare(ctx context.Context, spec *runSpec) (*cluster, error) {
	exe, err := u.executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(u.c.dataParent(), "millrace-bench-")
	if err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	n := max(spec.shape.Nodes, 1)
	c := &cluster{
		namespace: "default", token: "none", dir: dir, procs: make([]*process, n), endpoints: make([]Endpoint, n),
	}
	c.close = c.stop
	var others []string
	for i := n - 1; i >= 0; i-- {
		name := serverName(uint64(i) + 1)
		args := []string{"bench", spec.row.Servers, "--json", "--kind", spec.shape.Kind, "--node", strconv.Itoa(i + 1)}
		if len(others) > 0 { // the command takes a list without items for a mistake
			args = append(args, "--peers", strings.Join(others, ","))
		}
		p, line, err := startProcess(ctx, name, filepath.Join(dir, name+".log"), exec.Command(exe, args...), spec.env)
		if err != nil {
			return nil, errors.Join(err, c.stop(), os.RemoveAll(dir))
		}
		c.procs[i] = p
		var told struct {
			Address string `json:"grpc"`
			Peer    string `json:"peer"` // where the others reach it; empty: where clients do
		}
		if err := json.Unmarshal(line, &told); err != nil || told.Address == "" {
			return nil, errors.Join(fmt.Errorf("%s said %q", name, line), c.stop(), os.RemoveAll(dir))
		}
		c.endpoints[i] = Endpoint{Name: name, Address: told.Address}
		if told.Peer == "" {
			told.Peer = told.Address
		}
		others = append(others, told.Peer)
	}
	return c, nil
}
