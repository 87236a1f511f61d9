package sim

import (
	"hash/fnv"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog"
)

// history is what the logs of all hosts have shown: what was applied, and every entry that was ever durable anywhere.
type history struct {
	entries [][]logEntry             // by shard: what was applied, from the first index on
	hashes  []map[uint64]uint64      // by shard and index: the apply hash there
	seen    map[entryKey]entryDigest // every entry that a log ever held
	claims  int                      // messages that claimed something
	stamps  []core.ShardTime         // by shard: of the last entry applied
	confs   [][]replog.Conf          // by shard: what it began with, and what each change led to
}

// logEntry is one entry as the first replica applied it.
type logEntry struct {
	index, term uint64
	conf        bool // data changes the configuration of the log
	data        []byte
	entry       *core.Entry // nil for one that opens a term, or changes the configuration
}

type entryKey struct {
	shard       core.ShardID
	index, term uint64
}

// entryDigest is what two logs must agree on at one index and term.
type entryDigest struct{ data, termBefore uint64 }

func newHistory(shards, nodes int) history {
	var begun replog.Conf
	for id := range nodes {
		begun.Voters = append(begun.Voters, uint64(id+1))
	}
	h := history{
		entries: make([][]logEntry, shards), hashes: make([]map[uint64]uint64, shards), seen: make(map[entryKey]entryDigest),
		stamps: make([]core.ShardTime, shards), confs: make([][]replog.Conf, shards),
	}
	for i := range h.hashes {
		h.confs[i] = []replog.Conf{begun}
		h.hashes[i] = make(map[uint64]uint64)
	}
	return h
}

// at returns the entry that was applied at an index, or nil.
func (y *history) at(shard core.ShardID, index uint64) *logEntry {
	i := int64(index) - int64(replog.FirstIndex) - 1
	if i < 0 || i >= int64(len(y.entries[shard])) {
		return nil
	}
	return &y.entries[shard][i]
}

// applied takes in that a host has applied the entries after from, up to index.
func (y *history) applied(h *host, shard core.ShardID, from, index, hash uint64) {
	w := h.w
	if first, seen := y.hashes[shard][index]; !seen {
		y.hashes[shard][index] = hash
	} else if first != hash {
		w.violate("host %d: shard %d differs from another replica at entry %d: apply hash %016x, not %016x", h.id, shard, index, hash, first)
	}
	from = max(from, h.log.State(shard).CutIndex, replog.FirstIndex) // a host that starts has applied what it has
	if from >= index {
		return
	}
	if known := y.at(shard, index); known != nil {
		// It got the state of another replica. Its log, which may have ended otherwise, restarts behind that in a moment.
		term, err := h.log.Term(shard, index)
		if (err != nil || term != known.term) && node.Installing(h.state.FS(), dataDir, shard, index) {
			w.snapshots++
			return
		}
	}
	list, err := h.log.Entries(shard, from+1, index+1, 1<<62)
	if err != nil {
		w.violate("host %d: shard %d: read entries %d to %d: %v", h.id, shard, from+1, index, err)
		return
	}
	for _, e := range list {
		known := y.at(shard, e.Index)
		switch {
		case known == nil && e.Index != replog.FirstIndex+1+uint64(len(y.entries[shard])):
			w.violate("host %d: shard %d applied entry %d, and entry %d was never seen", h.id, shard, e.Index, e.Index-1)
		case known == nil:
			y.first(w, shard, logEntry{index: e.Index, term: e.Term, conf: e.Kind == replog.KindConf, data: e.Data})
		case known.term != e.Term || string(known.data) != string(e.Data):
			w.violate("host %d: shard %d applied another entry %d: of term %d, not %d", h.id, shard, e.Index, e.Term, known.term)
		}
	}
}

// first takes in an entry that was applied nowhere before.
func (y *history) first(w *world, shard core.ShardID, e logEntry) {
	if len(e.data) > 0 && !e.conf {
		var err error
		if e.entry, err = core.DecodeEntry(e.data); err != nil {
			w.violate("shard %d: decode entry %d: %v", shard, e.index, err)
			return
		}
		y.checkTime(w, shard, e.term, e.entry)
	} else if e.conf {
		y.reconfigured(w, shard, e)
	}
	y.entries[shard] = append(y.entries[shard], e)
}

// shardLog is what a host's log held of a shard when it was last looked at.
type shardLog struct {
	terms map[uint64]uint64 // by index
	last  uint64
	term  uint64 // that the log remembers
	vote  uint64
	cut   uint64 // where it began when it was lost
}

func newShardLogs(shards int) []shardLog {
	out := make([]shardLog, shards)
	for i := range out {
		out[i].terms = make(map[uint64]uint64)
	}
	return out
}

// checkLogs looks at what became durable: two logs that have an entry of one term at one index are equal up to there, and
// what a log remembers of terms and votes never goes back.
func (h *host) checkLogs() {
	for i := range h.logs {
		id := core.ShardID(i)
		h.checkVote(id)
		h.checkEntries(id)
	}
}

func (h *host) checkEntries(id core.ShardID) {
	w, l, st := h.w, &h.logs[id], h.log.State(id)
	l.last = st.Last
	for i := st.Last; i >= st.First && i > 0; i-- {
		term, err := h.log.Term(id, i)
		if err != nil {
			w.violate("host %d: shard %d: term of entry %d: %v", h.id, id, i, err)
			return
		}
		if l.terms[i] == term {
			return
		}
		l.terms[i] = term
		list, err := h.log.Entries(id, i, i+1, 1<<62)
		if err != nil {
			w.violate("host %d: shard %d: read entry %d: %v", h.id, id, i, err)
			return
		}
		before, err := h.log.Term(id, i-1)
		if err != nil {
			w.violate("host %d: shard %d: term of entry %d: %v", h.id, id, i-1, err)
			return
		}
		sum := fnv.New64a()
		_, _ = sum.Write(list[0].Data)
		k, d := entryKey{id, i, term}, entryDigest{sum.Sum64(), before}
		if other, seen := w.history.seen[k]; seen && other != d {
			w.violate("host %d: shard %d has an entry %d of term %d that another log has otherwise, or after another entry", h.id, id, i, term)
		}
		w.history.seen[k] = d
	}
}

func (h *host) checkVote(id core.ShardID) {
	w, l := h.w, &h.logs[id]
	term, vote, err := replog.DurableVote(h.log, id)
	if err != nil {
		w.violate("host %d: %v", h.id, err)
		return
	}
	if term < l.term || term == l.term && l.vote != 0 && vote != l.vote {
		w.violate("host %d: shard %d remembered term %d and its vote for %d, now term %d and %d", h.id, id, l.term, l.vote, term, vote)
	}
	l.term, l.vote = term, vote
}

// checkReopened holds a log that was opened again to what was durable before: votes, and every entry that no entry of a
// later term has replaced.
func (h *host) checkReopened() {
	for i := range h.logs {
		id, l := core.ShardID(i), &h.logs[i]
		h.checkVote(id)
		st := h.log.State(id)
		if st.Last == 0 && st.CutIndex == 0 && l.last == 0 {
			continue // it waits for the state to begin with
		}
		newest, err := h.log.Term(id, st.Last)
		if err != nil {
			h.w.violate("host %d: shard %d: term of entry %d: %v", h.id, i, st.Last, err)
			return
		}
		for index := st.First; index <= l.last; index++ {
			want := l.terms[index]
			got, err := h.log.Term(id, index)
			if err != nil && want >= newest || err == nil && got < want {
				h.w.violate("host %d: shard %d had entry %d of term %d durably, and opens without it", h.id, i, index, want)
				return
			}
		}
		h.checkEntries(id)
	}
}

// raftMessage is the first byte of the messages of package node that are the log's.
const raftMessage = 1

// checkClaims holds a message that is being sent to what its sender has durably: a vote, and the entries it acknowledges.
//
// Entries that it acknowledges in an older term than that of its log's last entry may be gone: a later leader has replaced
// them, and one write made both durable. That breaks nothing. The log is written in the order in which the replica took
// entries in, so all that it acknowledges was in it before the later term was, and before any vote that helped to begin
// that: the winner of the election has what is committed with this acknowledgement, as if it had come late over the network.
// Where no later leader wrote, nothing has replaced them, and they must be there.
func (h *host) checkClaims(shard core.ShardID, msg []byte) {
	if len(msg) == 0 || msg[0] != raftMessage || len(msg) > 256 { // an answer is short
		return
	}
	w := h.w
	c, err := replog.ClaimsOf(msg[1:])
	if err != nil {
		w.violate("host %d: shard %d: %v", h.id, shard, err)
		return
	}
	if c.Vote == 0 && c.Has == 0 {
		return
	}
	w.history.claims++
	term, vote, err := replog.DurableVote(h.log, shard)
	if err != nil {
		w.violate("host %d: %v", h.id, err)
		return
	}
	last := h.log.State(shard).Last
	ends, err := h.log.Term(shard, last)
	if err != nil {
		w.violate("host %d: shard %d: term of entry %d: %v", h.id, shard, last, err)
		return
	}
	switch {
	case term < c.Term:
		w.violate("host %d: shard %d answers in term %d, and has durably only term %d", h.id, shard, c.Term, term)
	case c.Vote != 0 && term == c.Term && vote != c.Vote:
		w.violate("host %d: shard %d votes for %d in term %d, and has durably a vote for %d", h.id, shard, c.Vote, c.Term, vote)
	case c.Has > last && ends <= c.Term:
		w.violate("host %d: shard %d acknowledges entries up to %d in term %d, its log ends at %d of term %d, in term %d", h.id, shard, c.Has, c.Term, last, ends, term)
	}
}

// has reports whether a host has an entry durably, also while it is down.
func (h *host) has(shard core.ShardID, index, term uint64) bool {
	if h.log.State(shard).CutIndex >= index {
		return true
	}
	got, err := h.log.Term(shard, index)
	return err == nil && got == term
}
