package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// counters reads counters without labels off the metrics of several servers, and adds them up. Error: a server does not
// answer, or lacks one.
func counters(ctx context.Context, pages []string, names ...string) (map[string]float64, error) {
	sum := make(map[string]float64, len(names))
	for _, page := range pages {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, page+"/metrics", nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, fmt.Errorf("read metrics: %w", err)
		}
		one, err := parse(resp.Body, names)
		_ = resp.Body.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("read metrics of %s: %w", page, err)
		}
		for _, name := range names {
			sum[name] += one[name]
		}
	}
	return sum, nil
}

// parse finds counters in the text format of Prometheus: lines of a name, a space and a number. Lines with labels have
// another first word, and are passed over.
func parse(r io.Reader, names []string) (map[string]float64, error) {
	out := make(map[string]float64, len(names))
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		for _, want := range names {
			if name != want {
				continue
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, err
			}
			out[name] = v
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, ok := out[name]; !ok {
			return nil, fmt.Errorf("%s is not there", name)
		}
	}
	return out, nil
}
