package proc

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// metricsWithin bounds one look at a node's metrics, since the node may be paused in the middle of it.
const metricsWithin = 2 * time.Second

// Metrics reads the node's gauges and counters by name. Those of shard 0 are named without the
// shard; all other labels stay in the name.
func (n *Node) Metrics(ctx context.Context) (map[string]float64, error) {
	return readMetrics(ctx, n.admin)
}

// Metrics reads those of a server whose flags name an admin listener.
func (s *Server) Metrics(ctx context.Context) (map[string]float64, error) {
	s.mu.Lock()
	admin := s.admin
	s.mu.Unlock()
	return readMetrics(ctx, admin)
}

// readMetrics reads the page of an admin listener.
func readMetrics(ctx context.Context, admin string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	out := map[string]float64{}
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		name, value, ok := strings.Cut(strings.Replace(in.Text(), `{shard="0"}`, "", 1), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(name, "#") {
			out[name] = v
		}
	}
	return out, in.Err()
}

// Rest waits for d, and fails when ctx has ended.
func Rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
