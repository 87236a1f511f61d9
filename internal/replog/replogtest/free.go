package replogtest

import "github.com/cockroachdb/pebble/v2/vfs"

// SetFree has the disk say how many bytes are free of how many. Before it cannot tell.
func (d *Disk) SetFree(free, total uint64) {
	d.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, UsedBytes: total - free, TotalBytes: total})
}
