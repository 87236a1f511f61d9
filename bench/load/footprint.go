package load

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/bench"
)

// residentLook is how often a server is asked for its memory while it is under load. It is rare,
// because an answer costs the server work.
const residentLook = 200 * time.Millisecond

// Footprint embeds and searches at once, and tells what the servers take for it. The harness
// follows CPU and memory of each process by the second; this driver adds the most memory that all
// servers had together.
func Footprint(ctx context.Context, rig *bench.Rig) error {
	looking, stop := context.WithCancel(ctx)
	// peaks gets one value for each server, also when the run fails.
	peaks := make(chan float64, len(rig.Servers))
	for _, s := range rig.Servers {
		if s.Admin == "" {
			stop()
			return errNoAdmin
		}
		go func() {
			select {
			case <-rig.Began():
			case <-looking.Done():
			}
			peaks <- adminPage(s.Admin).peak(looking, residentLook)
		}()
	}
	err := SearchMixed(ctx, rig)
	stop()
	// all is the sum of the peaks, which need not have come at the same time.
	all := 0.0
	for range rig.Servers {
		all += <-peaks
	}
	if err == nil && all == 0 {
		err = errors.New("no server told how much memory it has")
	}
	rig.Metric("rss_mb", all/1e6, "MB")
	return err
}

// peak returns the most memory that the server had until ctx ends, in bytes. It asks at once and at
// every interval, and passes over answers that fail.
func (a adminPage) peak(ctx context.Context, interval time.Duration) (most float64) {
	const resident = "process_resident_memory_bytes"
	for {
		if m, err := a.metrics(ctx, resident); err == nil {
			most = max(most, m[resident])
		}
		if bench.Pause(ctx, interval) != nil {
			return most
		}
	}
}
