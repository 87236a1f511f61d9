package server

import (
	"cmp"
	"math"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/store"
)

// ownDescriptors lists what this process has open, where the system tells.
const ownDescriptors = "/proc/self/fd"

// mostDescriptors is how many files and connections this process may have open. The runtime has raised the soft limit to the
// hard one.
func mostDescriptors() int64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return int64(min(uint64(r.Cur), math.MaxInt32))
}

// Descriptors splits what this process may have open. Its error names a limit that does not fit.
func (o Options) Descriptors() (config.Descriptors, error) {
	memory := o.memory()
	n := config.DescriptorNeeds{
		Most: cmp.Or(o.openFiles, mostDescriptors()), Peers: o.expectedPeers(),
		Programs:    int64(gitobj.ChildLimits{Bytes: memory.GitPrograms}.Places()),
		Connections: o.Limits.ConnectionsNode, Address: o.Limits.ConnectionsAddress,
	}
	if n.Peers > 0 {
		size, quota := o.logSizes()
		n.LogQuota = o.LogQuota > 0
		n.Segments = (cmp.Or(o.LogQuota, quota) + size - 1) / size
	}
	return config.PlanDescriptors(n)
}

// fitDescriptors sets what the operator has not set, so that all that may be open at once fits.
func (o *Options) fitDescriptors() (err error) {
	if o.descriptors, err = o.Descriptors(); err != nil {
		return err
	}
	d := &o.descriptors
	o.Limits.ConnectionsNode, o.Limits.ConnectionsAddress = d.Connections, d.Address
	if o.expectedPeers() > 0 && o.LogQuota == 0 {
		// Less than all segments that fit, for one is written to and others wait for the archive.
		size, quota := o.logSizes()
		o.LogQuota = max(min(quota, (d.Log-8)*size), size)
	}
	return nil
}

// adminListeners are the admin listener, the one for probes, and the socket of operators.
const adminListeners = 3

// adminConnections is how many connections each of them has.
func (o Options) adminConnections() int {
	return int(min(cmp.Or(o.descriptors.Admin, adminListeners*adminConnections)/adminListeners, adminConnections))
}

// logSizes returns the size of a segment of the log, and how many bytes of it a node keeps that is told nothing else.
func (o Options) logSizes() (segment, quota int64) {
	fs := store.NewFS(store.SystemFS())
	quota = 4 << 30
	if _, total, err := fs.Disk(o.Dir); err == nil {
		quota = min(quota, int64(total/10))
	}
	return segmentBytes(fs, o.Dir), quota
}

// openDescriptors counts what this process has open; 0 where the system does not tell.
func openDescriptors(fs env.FS) int {
	names, err := fs.List(ownDescriptors)
	if err != nil || len(names) == 0 {
		return 0
	}
	return len(names) - 1 // the list itself
}
