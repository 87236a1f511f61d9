package core

// BackupHead says what a backup is of. It comes first.
type BackupHead struct {
	Cluster       string // id of the cluster; of a server by itself that of its data directory. Hexadecimal digits
	Node          string // name of the node that it was taken from
	Version       string // of its binary
	Format        uint32 // newest format of entries that its state was made from
	Shards        int
	StartedMillis int64 // wall clock, Unix milliseconds
	// Objects says that the packs of git repositories come too. Servers before that did not send them.
	Objects bool
}

// BackupFile is one file that the state of a shard names: a pack of git objects, or the index of one.
type BackupFile struct {
	Digest Digest // SHA-256 of its bytes
	Size   int64
	Index  bool // an index; else a pack
}

// BackupSink receives a backup: the head; for each shard its description and the bytes of its files, in the order of the
// description; and then each file that the shards' state names, once, in ascending order of digests, with its bytes. Bytes
// come in parts that are of one file each. An error ends the backup.
type BackupSink interface {
	Head(h BackupHead) error
	// Shard begins a shard; the description is a store.Snapshot in binary form.
	Shard(description []byte) error
	// File begins a file that the state names.
	File(f BackupFile) error
	Data(part []byte) error
}
