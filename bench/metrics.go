package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Metrics reads metrics without labels, by name, from the admin listener at a base address. It is an error when one of them is not there.
func Metrics(ctx context.Context, base string, names ...string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s/metrics: %s", base, resp.Status)
	}
	wanted, out := make(map[string]bool, len(names)), make(map[string]float64, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if !wanted[name] {
			continue
		}
		if out[name], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, base, err)
		}
	}
	if len(out) < len(wanted) {
		return nil, fmt.Errorf("%s/metrics has %d of %s", base, len(out), strings.Join(names, ", "))
	}
	return out, lines.Err()
}
