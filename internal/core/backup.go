package core

// BackupHead says what a backup is of. It comes first.
type BackupHead struct {
	Cluster       string // id of the cluster; of a server by itself that of its data directory. Hexadecimal digits
	Node          string // name of the node that it was taken from
	Version       string // of its binary
	Format        uint32 // newest format of entries that its state was made from
	Shards        int
	StartedMillis int64 // wall clock, Unix milliseconds
}

// BackupSink receives a backup: the head, and then for each shard its description and the bytes of its files, in the order
// that the description has them, in parts that are of one file each. An error ends the backup.
type BackupSink interface {
	Head(h BackupHead) error
	// Shard begins a shard; the description is a store.Snapshot in binary form.
	Shard(description []byte) error
	Data(part []byte) error
}
