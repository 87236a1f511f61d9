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

// ownDescriptors is the directory in which Linux lists the descriptors that this process has open.
const ownDescriptors = "/proc/self/fd"

// mostDescriptors returns how many files and connections this process may have open. The Go runtime
// has raised the soft limit to the hard one. 1024 is the usual limit where the system does not
// tell.
func mostDescriptors() int64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return int64(min(uint64(r.Cur), math.MaxInt32))
}

// Descriptors splits what this process may have open among its parts. The error names a limit in
// the settings that does not fit.
func (o Options) Descriptors() (config.Descriptors, error) {
	// How many git programs run at once follows from the memory.
	memory := o.memory()
	n := config.DescriptorNeeds{
		Most: cmp.Or(o.openFiles, mostDescriptors()), Peers: o.expectedPeers(),
		Programs:    int64(gitobj.ChildLimits{Bytes: memory.GitPrograms}.Places()),
		Connections: o.Limits.ConnectionsNode, Address: o.Limits.ConnectionsAddress,
	}
	// Only a cluster keeps log for other nodes, so only there the number of segments is a matter of
	// the quota.
	if n.Peers > 0 {
		size, quota := o.logSizes()
		n.LogQuota = o.LogQuota > 0
		n.Segments = (cmp.Or(o.LogQuota, quota) + size - 1) / size
	}
	return config.PlanDescriptors(n)
}

// fitDescriptors sets limits that the operator has not set so that everything that may be open at
// once fits.
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

// adminListeners is how many listeners share the descriptors of the admin part: admin, probes, and
// the operator's socket.
const adminListeners = 3

// adminConnections returns how many connections each of them may have.
func (o Options) adminConnections() int {
	return int(min(cmp.Or(o.descriptors.Admin, adminListeners*adminConnections)/adminListeners, adminConnections))
}

// logSizes returns the size of a log segment, and how many bytes of log a node keeps for nodes that
// are behind if the settings do not say: 4 GiB, or a tenth of a smaller disk.
func (o Options) logSizes() (segment, quota int64) {
	fs := store.NewFS(store.SystemFS())
	quota = 4 << 30
	if _, total, err := fs.Disk(o.Dir); err == nil {
		quota = min(quota, int64(total/10))
	}
	return segmentBytes(fs, o.Dir, o.Reserve), quota
}

// openDescriptors returns how many descriptors this process has open; 0 where the system does not
// tell.
func openDescriptors(fs env.FS) int {
	names, err := fs.List(ownDescriptors)
	if err != nil || len(names) == 0 {
		return 0
	}
	return len(names) - 1 // the list itself
}
