package replog

import "go.etcd.io/raft/v3"

// ReadIndex asks for the index a linearizable read must wait for; the answer is a ReadState with the same context. It may
// never come: then it is asked for again. Where MayRead is false nothing is asked.
func (k *Core) ReadIndex(context string) {
	if k.MayRead() {
		k.rn.ReadIndex([]byte(context))
	}
}

// MayRead reports whether this replica may answer what index a read must wait for, if it is for it to answer. A leader knows
// that only when an entry of its own term is committed: what was acknowledged in earlier terms it may not know to be
// committed, as an index that moved alone is not written. With several voters the Raft library waits for that. The only voter
// it lets answer at once, with the index that it started with: learners, and itself after a restart, would read old state.
func (k *Core) MayRead() bool {
	b := k.rn.BasicStatus()
	if b.RaftState != raft.StateLeader || !k.conf.only(k.cfg.Replica) {
		return true
	}
	term, err := k.st.Term(b.GetCommit())
	return err == nil && term == b.GetTerm()
}
