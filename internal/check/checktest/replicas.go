package checktest

import (
	"bytes"

	"github.com/millrace/millrace/internal/check"
)

// Replica is where one replica of a shard stands after its node was stopped.
type Replica struct {
	Node    string
	Log     []LogEntry // with what was never committed; but for what a snapshot took the place of, whole
	Begun   uint64     // the log restarted behind this entry, with a snapshot; 0: it never did
	Applied uint64     // index of the last entry that is in its stored state
	Hash    uint64     // apply hash there
}

// UpTo returns the entries of a log up to an index.
func UpTo(log []LogEntry, index uint64) []LogEntry {
	for i, e := range log {
		if e.Index > index {
			return log[:i]
		}
	}
	return log
}

// Replicas judges that all replicas applied the same entries, and that each has the state that they lead to: r is the
// replay of the log of the one that applied most, up to there. Rules: entry (two replicas applied different entries at one
// index), hash (the apply hash is not the one that the log leads to there), log (what was applied is not in the log).
// Counts: replicas, equal_index (those that stand where the replay ends).
func Replicas(replicas []Replica, r *Replay) *check.Report {
	out := check.NewReport("replicas")
	first := map[uint64]int{} // by index, the replica whose entry is the first one seen
	entries := make([]map[uint64][]byte, len(replicas))
	for i, replica := range replicas {
		out.Counts["replicas"]++
		if replica.Applied == r.Index {
			out.Counts["equal_index"]++
		}
		entries[i] = map[uint64][]byte{}
		for _, e := range UpTo(replica.Log, replica.Applied) {
			entries[i][e.Index] = e.Data
			out.Checked++
			other, seen := first[e.Index]
			if !seen {
				first[e.Index] = i
				continue
			}
			if !bytes.Equal(entries[other][e.Index], e.Data) {
				out.Violate("entry", "%s and %s applied different entries at index %d", replicas[other].Node, replica.Node, e.Index)
			}
		}
		if n := len(replica.Log); replica.Begun < replica.Applied && (n == 0 || replica.Log[n-1].Index < replica.Applied) {
			out.Violate("log", "%s has applied entry %d, which is not in its log", replica.Node, replica.Applied)
			continue
		}
		out.Checked++
		if want, ok := r.hashes[replica.Applied]; !ok || want != replica.Hash {
			out.Violate("hash", "after entry %d %s has apply hash %016x, the log leads to %016x", replica.Applied, replica.Node, replica.Hash, want)
		}
	}
	return out.Done()
}
