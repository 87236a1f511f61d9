package sim

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog"
)

// replica is one replica id, which has one disk for ever.
type replica struct {
	host uint64
	disk core.StoreID
	logs []shardLog // what its log held when it was last looked at
	lost bool       // with its disk
}

// replicaOf returns what is known of a replica id, which a host has now.
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

// has reports whether a replica has, or had when it was lost, an entry durably.
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

// mostHave reports whether most voters of a configuration have an entry durably, of both its majorities.
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

// committed reports whether an entry was committed by a majority that could: of the configuration before it, or of the one
// before that, where the leader had not applied the last change when it counted.
func (w *world) committed(shard core.ShardID, index, term uint64) bool {
	confs := w.history.confs[shard]
	i := len(confs) - 1
	for i > 0 && confs[i].Index >= index {
		i--
	}
	return w.mostHave(&confs[i], shard, index, term) || i > 0 && w.mostHave(&confs[i-1], shard, index, term)
}

// reconfigured takes in a change of a shard's configuration that was applied for the first time.
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

// inOneTurn is how many entries a leader may have proposed and not yet sent to any other replica.
const inOneTurn = 4

// ends returns where the log of a replica ends, or ended when it was lost.
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

func sameConf(a, b replog.Conf) bool {
	return slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Outgoing, b.Outgoing) && slices.Equal(a.Learners, b.Learners) &&
		slices.Equal(a.LearnersNext, b.LearnersNext)
}

// checkConfs holds the configurations that a host goes by to those that the log leads to.
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

// checkMembers takes in a directory that is newer than what was seen: a replica id is one disk's for ever.
func (h *host) checkMembers() {
	w := h.w
	d := h.node.Members()
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

// settled says what keeps the membership from being what the directory wants.
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
