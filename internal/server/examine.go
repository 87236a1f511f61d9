package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/queue"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

// ExitDamaged is the exit code for a data directory whose content is damaged or contradicts itself.
const ExitDamaged = exitCorruption

// Examination is what a read-only look at a data directory found.
type Examination struct {
	// Dir is the path of the directory, and Format the form of its files.
	Dir    string `json:"dir"`
	Format int    `json:"format"`
	// Node and Cluster are the identity that the directory keeps.
	Node       string           `json:"node"`
	Cluster    string           `json:"cluster"`
	Member     *Member          `json:"member,omitempty"` // settings that the directory keeps; older directories keep none
	Log        LogExamination   `json:"log"`
	Shards     []ShardExamined  `json:"shards"`
	Namespaces []NamespaceFound `json:"namespaces"`
	Members    []MemberStatus   `json:"members,omitempty"` // of the cluster, as far as this node had applied it
	Warnings   []string         `json:"warnings,omitempty"`
	Findings   []string         `json:"findings"` // what contradicts what; none when the directory is whole
	Git        GitExamined      `json:"git"`

	// For reading packs; not part of the result.
	packs *gitobj.Dir
}

// LogExamination is what was found of the log.
type LogExamination struct {
	Segments int   `json:"segments"`
	Bytes    int64 `json:"bytes"` // in whole records
	Torn     bool  `json:"torn"`  // the end is torn, which the next start cuts: nothing in it was acknowledged
	// The log was written without syncs (durability none), so the store may be ahead of it after a
	// power cut.
	Unsynced bool `json:"unsynced"`
}

// ShardExamined is what was found of one shard. The log has its entries LogFirst to LogLast. The
// stored state contains them up to Applied, so the next start applies the entries after that.
type ShardExamined struct {
	// Shard is the number of the shard.
	Shard    int    `json:"shard"`
	LogFirst uint64 `json:"log_first"`
	LogLast  uint64 `json:"log_last"`
	Applied  uint64 `json:"applied"`
	// Hash is the hash over all that was applied up to Applied, in hexadecimal.
	Hash string `json:"apply_hash"`
	// Keys and Bytes count what is stored: keys, and the bytes of keys and values.
	Keys  int    `json:"keys"`
	Bytes uint64 `json:"bytes"`
}

// NamespaceFound is one namespace, and what shard 0 holds of it.
type NamespaceFound struct {
	Tenant    string `json:"tenant"`
	Name      string `json:"name"`
	Queues    int    `json:"queues"`
	Tasks     uint64 `json:"tasks"`
	Keyspaces int    `json:"keyspaces"`
}

// Examine reads the data directory of a server that does not run, and changes nothing. Content that
// contradicts itself is a finding; damaged bytes are the error, which names the file and the
// offset. It fails while a server runs on the directory.
func Examine(path string) (_ *Examination, err error) {
	disk := store.SystemFS()
	fs := store.NewFS(disk)
	id, err := store.ReadDir(fs, path)
	if err != nil {
		return nil, err
	}
	// Its lock is held meanwhile, so that no server starts, and the log of one that runs is not taken for damage. The
	// directory has its identity: opening it writes nothing.
	dir, err := store.OpenDir(fs, path, env.SystemRand{}, time.Time{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	x := &Examination{Dir: path, Format: id.Format, Node: id.Node, Cluster: id.Cluster, packs: gitobj.OfflineDir(fs, path)}
	switch m, found, err := readMember(fs, path); {
	case err != nil:
		return nil, err
	case found:
		x.Member = &m
	}
	logs, err := wal.Check(fs, filepath.Join(path, "wal"))
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if logs.Corrupt != nil {
		return nil, fmt.Errorf("log: %w", logs.Corrupt)
	}
	x.Log = LogExamination{Segments: len(logs.Segments), Bytes: logs.Bytes, Torn: logs.Torn != nil, Unsynced: logs.Unsynced}
	states, err := store.Inspect(store.Options{FS: disk, Dir: filepath.Join(path, "store")}, x.shard)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	x.compare(logs, states, func(id core.ShardID, index uint64) bool { return node.Installing(fs, path, id, index) })
	return x, nil
}

// compare compares the log with the store, shard by shard. The stored state must not be ahead of
// the log's end, and the log must not begin after the stored state: entries between them would be
// lost. An exception is a state that a snapshot has just brought: the next start lets the log begin
// behind it (installing).
func (x *Examination) compare(logs wal.Report, states store.Report, installing func(id core.ShardID, index uint64) bool) {
	stored := make(map[core.ShardID]store.ShardReport)
	for _, s := range states.Shards {
		stored[s.Shard] = s
		if s.Foreign > 0 {
			x.find("shard %d: %d keys in no known form", s.Shard, s.Foreign)
		}
	}
	for _, l := range logs.Shards {
		s := stored[l.Shard]
		delete(stored, l.Shard)
		// A log that was cut completely ends where it was cut.
		last := max(l.Last, l.CutIndex)
		x.Shards = append(x.Shards, ShardExamined{
			Shard: int(l.Shard), LogFirst: l.First, LogLast: last, Applied: s.Index, Hash: fmt.Sprintf("%016x", s.ApplyHash),
			Keys: s.Keys, Bytes: s.Bytes,
		})
		if s.Index > last && !logs.Unsynced && !installing(l.Shard, s.Index) {
			x.find("shard %d: the store has applied %d, but the log ends at %d", l.Shard, s.Index, last)
		}
		if l.CutIndex > max(s.Index, 1) {
			x.find("shard %d: the log was cut up to %d, but the store has only applied %d", l.Shard, l.CutIndex, s.Index)
		}
	}
	for id := range stored {
		x.find("shard %d is stored and has no log", id)
	}
}

// find adds a finding.
func (x *Examination) find(format string, args ...any) {
	x.Findings = append(x.Findings, fmt.Sprintf(format, args...))
}

// shard audits the stored state of one shard: the queues of each partition by a recount, and the
// packs of its repositories. In shard 0 it also lists members and namespaces. A zero partition is
// that of the shard itself and has no queues.
func (x *Examination) shard(id core.ShardID, v core.View) error {
	m := commit.New(commit.Options{Shard: id})
	if err := m.Open(v); err != nil {
		return err
	}
	if id == 0 {
		if err := x.directory(v); err != nil {
			return err
		}
	}
	for _, p := range m.Partitions() {
		if p == (core.Partition{}) {
			continue
		}
		found, err := queue.Audit(v, p)
		if err != nil {
			return err
		}
		for _, f := range found {
			x.find("partition %s: %s", p, f)
		}
		if err := x.repositories(id, p, v); err != nil {
			return err
		}
	}
	return nil
}

// directory lists the members and namespaces, which shard 0 keeps for the whole cluster.
func (x *Examination) directory(v core.View) error {
	members, err := commit.ReadMembers(v)
	if err != nil {
		return err
	}
	if members.Version > 0 {
		x.Members = membership(&members).Members
		if warning := evenVoters(x.Members); warning != "" {
			x.Warnings = append(x.Warnings, warning)
		}
	}
	tenants, err := commit.Tenants(v, "", 1<<20)
	if err != nil {
		return err
	}
	for _, t := range tenants {
		list, err := commit.Namespaces(v, t.Name, "", 1<<20)
		if err != nil {
			return err
		}
		for _, ns := range list {
			found, err := count(v, ns)
			if err != nil {
				return err
			}
			x.Namespaces = append(x.Namespaces, found)
		}
	}
	return nil
}

// count counts what shard 0 holds of a namespace. Partitions in other shards are not counted, as
// their views are not at hand.
func count(v core.View, ns core.NamespaceInfo) (NamespaceFound, error) {
	out := NamespaceFound{Tenant: ns.TenantName, Name: ns.Name}
	for _, p := range ns.Partitions {
		if p.Shard != 0 {
			continue // this view is of shard 0
		}
		spaces, err := kv.Keyspaces(v, p.Partition)
		if err != nil {
			return out, err
		}
		out.Keyspaces += len(spaces)
		for after := ""; ; {
			page, err := queue.Queues(v, p.Partition, after, 1000)
			if err != nil {
				return out, err
			}
			for _, q := range page {
				out.Queues++
				for _, n := range q.States {
					out.Tasks += n
				}
				after = q.Queue
			}
			if len(page) < 1000 {
				break
			}
		}
	}
	return out, nil
}
