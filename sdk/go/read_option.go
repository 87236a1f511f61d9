package millrace

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// ReadOption changes a read.
type ReadOption interface{ read(o *readOptions) }

// readOptions is what the options of a read set.
type readOptions struct {
	// minIndex is for a read of one partition, at for one of several.
	minIndex uint64
	at       []Place
	// stale allows an answer without a majority; maxStale bounds its age, 0 does not.
	stale    bool
	maxStale time.Duration
}

// min is where a read of several partitions must stand at least.
func (o *readOptions) min() []*millracev1.At {
	var out []*millracev1.At
	for _, p := range o.at {
		out = append(out, &millracev1.At{Partition: p.Partition, Index: p.Index})
	}
	return out
}

// staleness is how old an answer may be; nil is as old as it is.
func (o *readOptions) staleness() *durationpb.Duration {
	if o.maxStale <= 0 {
		return nil
	}
	return durationpb.New(o.maxStale)
}

// stale is what Stale returns.
type stale time.Duration

func (s stale) read(o *readOptions) { o.stale, o.maxStale = true, time.Duration(s) }

// Stale lets a read of keys return what the asked node has applied, without asking a majority: what was acknowledged just now may be
// missing. If that may be older than within, a majority is asked all the same; 0 allows any age.
func Stale(within time.Duration) ReadOption { return stale(within) }

// readOptionsOf applies options in their order.
func readOptionsOf(opts []ReadOption) (o readOptions) {
	for _, opt := range opts {
		opt.read(&o)
	}
	return o
}

// atLeast is what AtLeast returns.
type atLeast Place

func (p atLeast) read(o *readOptions) {
	o.minIndex = max(o.minIndex, p.Index)
	o.at = append(o.at, Place(p))
}

// AtLeast makes a read wait until it sees what was acknowledged at p, for as long as the context of the call lasts. A read that is not
// Stale sees all that was acknowledged before it in any case; this is for a place that another process named.
func AtLeast(p Place) ReadOption { return atLeast(p) }
