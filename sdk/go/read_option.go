package millrace

// ReadOption changes a read.
type ReadOption interface{ read(o *readOptions) }

type readOptions struct{ minIndex uint64 }

func readOptionsOf(opts []ReadOption) (o readOptions) {
	for _, opt := range opts {
		opt.read(&o)
	}
	return o
}

type atLeast Place

func (p atLeast) read(o *readOptions) { o.minIndex = max(o.minIndex, p.Index) }

// AtLeast makes a read wait until what was acknowledged at p can be seen. A read sees all that was acknowledged before
// it in any case; this is for a place that another process tells. It waits
// while the context of the call lasts.
func AtLeast(p Place) ReadOption { return atLeast(p) }
