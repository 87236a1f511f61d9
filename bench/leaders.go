package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/server"
)

// Shards are led where the bench says: they are dealt out to the nodes in turn, shard 0 to the
// first. What an operator asks for stays, so no leadership moves by itself within a window, and
// every run measures the same. leaderLook is the pause between two attempts, lookWithin bounds a
// question to an admin listener, and moveWithin bounds one transfer.
const (
	leaderLook = 50 * time.Millisecond
	lookWithin = 5 * time.Second
	moveWithin = 15 * time.Second
)

// leader is the node that leads a shard and serves. The zero value means no node.
type leader struct {
	// node counts from 1, as the names of the servers do. A change of the term alone counts as a
	// change: there was an election in between.
	node uint64
	term uint64
}

func (l leader) String() string {
	if l.node == 0 {
		return "no node"
	}
	return fmt.Sprintf("%s in term %d", serverName(l.node), l.term)
}

// leaders are the leaders by shard. A shard without a leader is missing.
type leaders map[int]leader

// placeLeaders waits until every shard has a leader, and gives each to the node that is to lead it.
// A transfer may fail while a cluster is young, so it tries again until readyWithin has passed. A
// process that ends in the meantime ends the waiting.
func (n *nodes) placeLeaders(ctx context.Context, c *cluster) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("not led as they should be after %s", readyWithin))
	defer cancel()
	for shard := range max(n.spec.shape.Shards, 1) {
		to := uint64(shard%len(c.endpoints)) + 1
		for {
			why := n.give(ctx, c, shard, to)
			if why == nil {
				break
			}
			for _, p := range c.procs {
				if err := p.gone(); err != nil {
					return err
				}
			}
			if err := Pause(ctx, leaderLook); err != nil {
				return fmt.Errorf("shard %d: %w: %w", shard, context.Cause(ctx), why)
			}
		}
	}
	return nil
}

// give makes a node lead a shard, and reads back whether it does. It is idempotent. The error says
// why the node does not lead.
func (n *nodes) give(ctx context.Context, c *cluster, shard int, to uint64) error {
	path := "/cluster/transfer?shard=" + strconv.Itoa(shard) + "&to=" + strconv.FormatUint(to, 10)
	if err := operatorCall(ctx, c.endpoints[0], path); err != nil {
		return err
	}
	now, err := c.leaders(ctx)
	if err == nil && now[shard].node != to {
		err = fmt.Errorf("it is led by %s", now[shard])
	}
	return err
}

// readLeaders asks the nodes in turn, until one answers, which nodes lead. nil and all errors: none answered.
func readLeaders(ctx context.Context, endpoints []Endpoint) (leaders, error) {
	var failed error
	for _, e := range endpoints {
		var s server.ClusterStatus
		if err := adminRead(ctx, e, "/cluster/status", &s); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		out := leaders{}
		for _, shard := range s.Shards {
			if shard.Leader != 0 {
				out[shard.Shard] = leader{shard.Leader, shard.Term}
			}
		}
		return out, nil
	}
	return nil, failed
}

// adminBytes bounds an answer of an admin listener, which the bench reads whole.
const adminBytes = 4 << 20

// SocketClient asks the operator's socket at a path, whatever the host of a URL.
func SocketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

// operatorCall makes a server do what a path of its operator's socket says. A program without such
// a socket is asked over its admin listener.
func operatorCall(ctx context.Context, e Endpoint, path string) error {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	if e.Socket == "" { // an older program, whose admin listener does it
		return call(ctx, http.DefaultClient, e.Name, http.MethodPost, e.Admin+path, nil)
	}
	client := SocketClient(e.Socket)
	defer client.CloseIdleConnections()
	return call(ctx, client, e.Name, http.MethodPost, "http://operator"+path, nil)
}

// adminRead asks the admin listener of a server, and reads its answer into out.
func adminRead(ctx context.Context, e Endpoint, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	return call(ctx, http.DefaultClient, e.Name, http.MethodGet, e.Admin+path, out)
}

// call asks a server by a client, and decodes its JSON answer into out; nil: the answer is not
// needed. An answer other than 200 is an error with the server's text.
func call(ctx context.Context, client *http.Client, name, method, address string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", name, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, adminBytes))
	switch {
	case err != nil:
	case resp.StatusCode != http.StatusOK:
		err = errors.New(strings.TrimSpace(string(body)))
	case out != nil:
		err = json.Unmarshal(body, out)
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", name, err)
	}
	return nil
}

// moved says in words which leaderships changed between the edges of a window. Empty: none did, or it is not
// known. A run with such a change has failed, since part of it measured another placement.
func moved(before, after leaders) string {
	if before == nil || after == nil {
		return ""
	}
	shards := maps.Clone(before)
	maps.Copy(shards, after)
	var out []string
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		if a, b := before[shard], after[shard]; a != b {
			out = append(out, fmt.Sprintf("shard %d was led by %s when the window began, and by %s when it ended", shard, a, b))
		}
	}
	return strings.Join(out, "; ")
}
