package bench

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Enough syncs and round trips for a p99 of ten values. probeBytes is one page.
const (
	probeSyncs  = 1000
	probeBytes  = 4 << 10
	probeRounds = 1000
)

// probeSync measures fdatasync on the disk of dir, in microseconds: n times one write of 4 KiB and one sync.
// The file has its size before, so that a sync writes no change of the size. The file is removed.
func probeSync(dir string, n int) (p50, p99 float64, err error) {
	name := filepath.Join(dir, "fdatasync-probe")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, 0, fmt.Errorf("probe the disk: %w", err)
	}
	defer func() {
		_ = f.Close() // only a probe
		_ = os.Remove(name)
	}()
	block := bytes.Repeat([]byte{0xa5}, probeBytes)
	const blocks = 256
	for range blocks {
		if _, err := f.Write(block); err != nil {
			return 0, 0, fmt.Errorf("probe the disk: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return 0, 0, fmt.Errorf("probe the disk: %w", err)
	}
	took := make([]time.Duration, n)
	for i := range took {
		if _, err := f.WriteAt(block, int64(i%blocks)*probeBytes); err != nil {
			return 0, 0, fmt.Errorf("probe the disk: %w", err)
		}
		start := time.Now()
		if err := fdatasync(f); err != nil {
			return 0, 0, fmt.Errorf("probe the disk: %w", err)
		}
		took[i] = time.Since(start)
	}
	p50, p99 = quantiles(took)
	return p50, p99, nil
}

// quantiles returns p50 and p99 in microseconds. It sorts took.
func quantiles(took []time.Duration) (p50, p99 float64) {
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[min(int(q*float64(len(took))), len(took)-1)]) / 1e3 }
	return at(0.5), at(0.99)
}

// probeLoopback measures n round trips of one byte over TCP on the loopback device, in
// microseconds: what every call of a driver pays before any work.
func probeLoopback(n int) (p50, p99 float64, err error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, fmt.Errorf("probe the loopback device: %w", err)
	}
	defer lis.Close() //nolint:errcheck // only a probe
	go func() {
		c, err := lis.Accept()
		if err != nil {
			return
		}
		defer c.Close() //nolint:errcheck // only a probe
		_, _ = io.Copy(c, c)
	}()
	c, err := net.DialTimeout("tcp", lis.Addr().String(), 5*time.Second)
	if err != nil {
		return 0, 0, fmt.Errorf("probe the loopback device: %w", err)
	}
	defer c.Close() //nolint:errcheck // only a probe
	took := make([]time.Duration, n)
	b := make([]byte, 1)
	for i := range took {
		start := time.Now()
		if _, err := c.Write(b); err != nil {
			return 0, 0, fmt.Errorf("probe the loopback device: %w", err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return 0, 0, fmt.Errorf("probe the loopback device: %w", err)
		}
		took[i] = time.Since(start)
	}
	p50, p99 = quantiles(took)
	return p50, p99, nil
}
