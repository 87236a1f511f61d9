package sim

import (
	"hash/fnv"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog"
)

// history is what the logs of all hosts have shown: the entries that were applied, and every entry
// that was ever durable anywhere. Each rule that it checks compares a host with what another one
// has shown before.
type history struct {
	// By shard: what was applied, from the first index on without a gap.
	entries [][]logEntry
	// By shard and index: the apply hash, which must be equal on all replicas.
	hashes []map[uint64]uint64
	// Every entry that any log ever held.
	seen map[entryKey]entryDigest
	// Messages that promised something and were checked.
	claims int
	// By shard: the stamp of the last entry applied.
	stamps []core.ShardTime
	// By shard: the configuration at the beginning, and the one to which each change led.
	confs [][]replog.Conf
}

// logEntry is one entry as the first replica applied it. All others must apply the same.
type logEntry struct {
	index, term uint64
	conf        bool // data changes the configuration of the log
	data        []byte
	entry       *core.Entry // nil for one that opens a term, or changes the configuration
}

// entryKey names an entry: two entries with the same key must be equal, and so must everything
// before them.
type entryKey struct {
	shard       core.ShardID
	index, term uint64
}

// entryDigest is what two logs must agree on for one key: a hash of the data, and the term of the
// entry before.
type entryDigest struct{ data, termBefore uint64 }

// newHistory returns a history in which the first nodes hosts are voters of every shard.
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

// at returns the entry that was applied at an index; nil if none was.
func (y *history) at(shard core.ShardID, index uint64) *logEntry {
	i := int64(index) - int64(replog.FirstIndex) - 1
	if i < 0 || i >= int64(len(y.entries[shard])) {
		return nil
	}
	return &y.entries[shard][i]
}

// applied records that a host has applied the entries after from, up to index. It compares the
// apply hash and every entry with what other hosts applied there. A host that got a snapshot has no
// entries to show, which is recognised by the installation that is under way.
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

// first records an entry that was applied nowhere before, and checks its time or its change of
// configuration.
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
	// Terms of entries, by index. Entries that were replaced are overwritten.
	terms map[uint64]uint64
	// Index of the last entry.
	last uint64
	// The term and the vote that the log remembers.
	term uint64
	vote uint64
	// Where the log began when its disk was lost.
	cut uint64
}

// newShardLogs returns empty logs.
func newShardLogs(shards int) []shardLog {
	out := make([]shardLog, shards)
	for i := range out {
		out[i].terms = make(map[uint64]uint64)
	}
	return out
}

// checkLogs looks at what has become durable. Two logs that have an entry of the same term at the
// same index must be equal up to there, and a log must not forget a term or a vote.
func (h *host) checkLogs() {
	for i := range h.logs {
		id := core.ShardID(i)
		h.checkVote(id)
		h.checkEntries(id)
	}
}

// checkEntries goes back from the end of a log to the first entry that it has seen before, and
// checks those in between. It stops there, as everything before was checked when it became durable.
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

// checkVote checks that term and vote did not go back since the last look.
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

// checkReopened compares a log that was opened again with what was durable before: the vote, and
// every entry. An entry may be missing only if an entry of a later term has replaced it.
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

// raftMessage is the first byte of those messages of package node that belong to the replicated
// log.
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

// has reports whether a host has an entry durably; also for a host that is down.
func (h *host) has(shard core.ShardID, index, term uint64) bool {
	if h.log.State(shard).CutIndex >= index {
		return true
	}
	got, err := h.log.Term(shard, index)
	return err == nil && got == term
}
