package sim

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
)

// replica is what is known of one replica id. An id belongs to one disk for ever.
type replica struct {
	host uint64
	disk core.StoreID
	// What the replica's log held when it was last looked at, by shard.
	logs []shardLog
	// Its disk was lost, so logs is all that is known.
	lost bool
}

// replicaOf returns what is known of the replica that a host has now, and reports it if the id was
// seen with another disk.
func (w *world) replicaOf(h *host) *replica {
	r := w.replicas[h.replica]
	if r == nil {
		r = &replica{host: h.id, disk: h.store, logs: newShardLogs(w.plan.Shards)}
		w.replicas[h.replica] = r
	}
	if r.disk != h.store {
		w.violate("replica %d was that of host %d, and host %d comes with it and with another disk", h.replica, r.host, h.id)
	}
	return r
}

// has reports whether a replica has an entry durably, or had it when its disk was lost. What was
// cut from the log is in the state.
func (w *world) has(id uint64, shard core.ShardID, index, term uint64) bool {
	r := w.replicas[id]
	switch {
	case r == nil:
		return false
	case r.lost:
		l := &r.logs[shard]
		return l.cut >= index || l.terms[index] == term
	}
	return w.host(r.host).has(shard, index, term)
}

// mostHave reports whether a majority of a configuration's voters has an entry durably; in a joint
// configuration both majorities.
func (w *world) mostHave(c *replog.Conf, shard core.ShardID, index, term uint64) bool {
	majority := func(voters []uint64) bool {
		n := 0
		for _, id := range voters {
			if w.has(id, shard, index, term) {
				n++
			}
		}
		return 2*n > len(voters)
	}
	return majority(c.Voters) && (!c.Joint() || majority(c.Outgoing))
}

// committed reports whether an entry was committed by a majority that was allowed to: of the
// configuration in force before the entry, or of the one before that. The latter counts because a
// leader counts by the configuration that it has applied, which may be one change behind.
func (w *world) committed(shard core.ShardID, index, term uint64) bool {
	confs := w.history.confs[shard]
	i := len(confs) - 1
	for i > 0 && confs[i].Index >= index {
		i--
	}
	return w.mostHave(&confs[i], shard, index, term) || i > 0 && w.mostHave(&confs[i-1], shard, index, term)
}

// reconfigured records a change of a shard's configuration that was applied for the first time. It
// checks that the entry leads to the configuration that it says, and that each new voter's log was
// near the end.
func (y *history) reconfigured(w *world, shard core.ShardID, e logEntry) {
	list := y.confs[shard]
	before := list[len(list)-1]
	next, err := before.After(e.index, e.data)
	if err != nil {
		w.violate("shard %d: %v", shard, err)
		return
	}
	y.confs[shard] = append(list, next)
	w.note("shard %d: voters %v and %v, learners %v", shard, next.Voters, next.Outgoing, next.Learners)
	if said, ok, err := replog.ConfAfterChange(e.index, e.data); err != nil || ok && !sameConf(said, next) {
		w.violate("shard %d: entry %d says that it leads to %+v, and leads to %+v: %v", shard, e.index, said, next, err)
	}
	for _, id := range next.Voters {
		if before.Votes(id) {
			continue
		}
		if last := w.ends(id, shard); last+nearEntries+inOneTurn < e.index {
			w.violate("shard %d: replica %d becomes a voter by entry %d, and its log ends at %d", shard, id, e.index, last)
		}
	}
}

// inOneTurn is how many entries a leader may have proposed in one step before it sends them to
// others.
const inOneTurn = 4

// ends returns where the log of a replica ends, or ended when its disk was lost.
func (w *world) ends(id uint64, shard core.ShardID) uint64 {
	r := w.replicas[id]
	switch {
	case r == nil:
		return 0
	case r.lost:
		return max(r.logs[shard].last, r.logs[shard].cut)
	}
	st := w.host(r.host).log.State(shard)
	return max(st.Last, st.CutIndex)
}

// sameConf compares two configurations without the entries that led to them.
func sameConf(a, b replog.Conf) bool {
	return slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Outgoing, b.Outgoing) && slices.Equal(a.Learners, b.Learners) &&
		slices.Equal(a.LearnersNext, b.LearnersNext)
}

// checkConfs checks that the configuration by which a host acts is the one to which the log leads
// at the entry that the host has applied.
func (h *host) checkConfs() {
	if h.node == nil {
		return
	}
	for _, st := range h.node.Standings() {
		if st.Applied == 0 {
			continue // it has no state yet
		}
		list := h.w.history.confs[st.Shard]
		i := len(list) - 1
		for i > 0 && list[i].Index > st.Applied {
			i--
		}
		if want := list[i]; st.Conf.Index != want.Index || !sameConf(st.Conf, want) {
			h.w.violate("host %d: shard %d goes by %+v at entry %d, and the log leads to %+v", h.id, st.Shard, st.Conf, st.Applied, want)
		}
	}
}

// checkMembers records a directory that is newer than the last one. Replica ids never go back, each
// job that ended is counted once, and a host that joined goes by no directory from before.
func (h *host) checkMembers() {
	w := h.w
	d := h.node.Members()
	if d.Version > 0 && d.Version < h.version {
		w.violate("host %d joined with version %d of the directory of members, and goes by version %d", h.id, h.version, d.Version)
	}
	if d.Version <= w.members.Version {
		return
	}
	if d.Next < w.members.Next {
		w.violate("host %d: the next replica id was %d, and is %d", h.id, w.members.Next, d.Next)
	}
	if d.Job.State != core.JobRunning && d.Job.ID > w.jobs {
		w.jobs = d.Job.ID
		if d.Job.State == core.JobDone {
			w.changes++
		}
	}
	w.members = d
	w.invite(&d)
}

// settled returns what keeps the membership from being what the directory wants; empty if nothing
// does.
func (w *world) settled() string {
	if w.members.Version == 0 {
		return ""
	}
	if w.members.Job.State == core.JobRunning {
		return "a change of membership does not end"
	}
	for i := range w.history.confs {
		list := w.history.confs[i]
		if c := list[len(list)-1]; c.Joint() || !slices.Equal(c.Voters, w.voters()) {
			return "the voters of a shard are not those of the directory"
		}
	}
	return ""
}
