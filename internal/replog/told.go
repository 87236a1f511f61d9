package replog

import (
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A leader tells no other node that a change of the configuration is committed before its own log says so. Otherwise a node
// that loses its vote by the change may know of it, and the leader that remains may not. After a power cut the leader would
// use the previous configuration, and need the vote of a node that no longer votes and cannot stand either. With entries
// behind the change, which the leader sent and lost, that node's log would be the longer one, and it would refuse for ever.
//
// A commit index that moved alone is otherwise not written: it rides with the next entries.

// changes are the changes of the configuration in a replica's log that it must not report as committed yet.
type changes struct {
	at     []uint64 // indexes, rising
	newest uint64   // index of the newest change that was appended since the start, committed or not; 0: there was none
}

// load finds the changes behind what the log says is committed.
func (c *changes) load(st *storage) error {
	last, err := st.LastIndex()
	if err != nil {
		return err
	}
	const chunk = 1 << 20
	for next := st.hard.GetCommit() + 1; next <= last; {
		entries, err := st.Entries(next, last+1, chunk)
		if err != nil {
			return fmt.Errorf("read entries from %d on: %w", next, err)
		}
		c.appended(entries)
		next = entries[len(entries)-1].GetIndex() + 1
	}
	return nil
}

// appended notes entries of the log. Those that they replace are none any more.
func (c *changes) appended(entries []*pb.Entry) {
	for _, e := range entries {
		for len(c.at) > 0 && c.at[len(c.at)-1] >= e.GetIndex() {
			c.at = c.at[:len(c.at)-1]
		}
		if e.GetType() == pb.EntryConfChangeV2 {
			c.at, c.newest = append(c.at, e.GetIndex()), e.GetIndex()
		}
	}
}

// due reports whether a commit index tells of a change that is not durably known to be committed.
func (c *changes) due(commit uint64) bool { return len(c.at) > 0 && commit >= c.at[0] }

// durable notes that a commit index is in the log.
func (c *changes) durable(commit uint64) {
	c.at = slices.DeleteFunc(c.at, func(i uint64) bool { return i <= commit })
}

// hold takes from a leader's message what may not be told yet. The commit index of a later message, of the next heartbeat at
// the latest, tells it.
func (c *changes) hold(m *pb.Message) {
	if tellsCommit(m) && c.due(m.GetCommit()) {
		m.Commit = new(c.at[0] - 1)
	}
}

// tellsCommit reports whether a message tells a follower how far entries are committed.
func tellsCommit(m *pb.Message) bool {
	return m.GetType() == pb.MsgApp || m.GetType() == pb.MsgHeartbeat
}
